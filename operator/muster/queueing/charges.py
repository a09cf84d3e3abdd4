"""What a reservation that comes to nothing costs its owner: the place in the queue.

A gang whose pods do not come to be has kept its nodes from everybody, and before that what was reserved for it. So that
nobody can do that over and over, all jobs of its namespace then stand behind those of the others for a while, whatever
their age and their priority. The namespace is charged and not the job, or one more job would do it again.
"""

from dataclasses import dataclass

FIRST_SECONDS = 3600.0
LONGEST_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class _Charge:
    until: float
    count: int


def pause_seconds(count: int) -> float:
    """For how long a namespace stands behind the others for the so-manieth time in a row."""
    return float(min(FIRST_SECONDS * 2.0 ** min(count - 1, 32), LONGEST_SECONDS))


class Charges:
    """Namespaces whose reservations came to nothing; all times by one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._charges: dict[str, _Charge] = {}

    def charge(self, namespace: str, now: float) -> None:
        """A reservation of the namespace came to nothing.

        What happens while the namespace stands behind the others already is not counted: it took nothing from them. A
        day after the last pause all is forgotten.
        """
        before = self._charges.get(namespace)
        if before is not None and now < before.until:
            return
        count = before.count + 1 if before is not None and now < before.until + LONGEST_SECONDS else 1
        self._charges[namespace] = _Charge(now + pause_seconds(count), count)

    def charged(self, now: float) -> frozenset[str]:
        """The namespaces that stand behind the others now."""
        for namespace, charge in list(self._charges.items()):
            if now >= charge.until + LONGEST_SECONDS:
                del self._charges[namespace]
        return frozenset(namespace for namespace, charge in self._charges.items() if now < charge.until)
