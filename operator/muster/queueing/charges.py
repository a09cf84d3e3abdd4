"""What a reservation that comes to nothing costs: the place in the queue.

A gang whose pods cannot be created has kept its nodes from other jobs, and before that what was reserved for it. A job
that preempts others and then does not begin has cost these their time. So that no tenant can do that over and over, its
job then goes behind all others for a while, whatever its age and priority. Where many jobs of a namespace do it, all
jobs of that namespace go behind those of the others: a job can be made anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.world.queuedecision import Payer

FIRST_SECONDS = 3600.0
LONGEST_SECONDS = 86400.0
# So many different jobs of a namespace pay for themselves; from the next one on, the namespace pays.
JOBS_THAT_PAY_ALONE = 2


@dataclass(frozen=True, slots=True)
class _Charge:
    until: float
    count: int


@dataclass(frozen=True, slots=True)
class Charged:
    """The uids of jobs, and the namespaces, that stand behind the others."""

    jobs: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()

    def payer(self, namespace: str, job_uid: str) -> Payer | None:
        """Whether the job itself or its namespace is why this job stands behind others; None where it does not."""
        if namespace in self.namespaces:
            return Payer.NAMESPACE
        return Payer.JOB if job_uid in self.jobs else None

    def stands_behind(self, namespace: str, job_uid: str) -> bool:
        """Whether the job stands behind the others."""
        return self.payer(namespace, job_uid) is not None


def pause_seconds(count: int) -> float:
    """The seconds for which a job, or a namespace, stands behind the others after `count` such times in a row."""
    return float(min(FIRST_SECONDS * 2.0 ** min(count - 1, 32), LONGEST_SECONDS))


class Charges:
    """The jobs and namespaces whose reservations came to nothing. All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Charge] = {}
        self._jobs: dict[str, dict[str, _Charge]] = {}  # namespace -> uid of a job -> its charge

    def charge(self, namespace: str, job_uid: str, now: float) -> None:
        """Note that a reservation of the job came to nothing at `now`.

        What happens while the job or its namespace stands behind the others already is not counted: it took nothing
        from them. A day after the last pause all is forgotten.
        """
        self._forget(now)
        jobs, whole = self._jobs.get(namespace, {}), self._namespaces.get(namespace)
        job_charge = jobs.get(job_uid)
        if any(charge is not None and now < charge.until for charge in (job_charge, whole)):
            return
        self._jobs.setdefault(namespace, jobs)[job_uid] = _next(job_charge, now)
        if len(jobs) > JOBS_THAT_PAY_ALONE:
            self._namespaces[namespace] = _next(whole, now)

    def charged(self, now: float) -> Charged:
        """The jobs and namespaces that stand behind the others at `now`."""
        self._forget(now)
        jobs = (uid for charges in self._jobs.values() for uid in _paying(charges, now))
        return Charged(frozenset(jobs), _paying(self._namespaces, now))

    def _forget(self, now: float) -> None:
        _drop_old(self._namespaces, now)
        for namespace, charges in list(self._jobs.items()):
            _drop_old(charges, now)
            if not charges:
                del self._jobs[namespace]


def _next(old_charge: _Charge | None, now: float) -> _Charge:
    count = old_charge.count + 1 if old_charge is not None else 1
    return _Charge(now + pause_seconds(count), count)


def _paying(charges: Mapping[str, _Charge], now: float) -> frozenset[str]:
    return frozenset(name for name, charge in charges.items() if now < charge.until)


def _drop_old(charges: dict[str, _Charge], now: float) -> None:
    for name in [name for name, charge in charges.items() if now >= charge.until + LONGEST_SECONDS]:
        del charges[name]
