"""Charges the jobs whose reservations came to nothing (`muster.queueing.charges`), each time once.

Tests: tests/unit/controller/test_reconciler.py.
"""

from collections.abc import Callable

from muster.controller.bus import Key
from muster.queueing.charges import Charged, Charges


class ReservationCharges:
    """The charges, by the clock of this process. `replan` is called after each."""

    def __init__(self, clock: Callable[[], float], replan: Callable[[], None]) -> None:
        self._clock = clock
        self._replan = replan
        self._charges = Charges()
        self._gave_back: dict[Key, tuple[str, int]] = {}  # uid, and attempt of the record that says so

    def charge(self, namespace: str, job_uid: str, ago_seconds: float = 0.0) -> None:
        """Charge a job for what happened so many seconds ago."""
        self._charges.charge(namespace, job_uid, self._clock() - ago_seconds)
        self._replan()

    def charge_returned_nodes(self, key: Key, job_uid: str, attempt: int, ago_seconds: float) -> bool:
        """Charge a job whose gang could not be assembled and gave its nodes back; once, however often this is called.
        The record of this attempt has said so for `ago_seconds`: a new leader reads it late. Returns whether it was
        charged now.
        """
        if self._gave_back.get(key) == (job_uid, attempt):
            return False
        self._gave_back[key] = job_uid, attempt
        self.charge(key[0], job_uid, ago_seconds)
        return True

    def charged(self) -> Charged:
        """The jobs and namespaces that stand behind the others now."""
        return self._charges.charged(self._clock())

    def forget(self, key: Key) -> None:
        """Remove a job that is gone. What it was charged stays."""
        self._gave_back.pop(key, None)
