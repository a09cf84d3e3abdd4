"""Workers whose tokens are refused, counted by worker: requests say nothing, because anybody may send any number of
them.

A refused token proves nothing, so a worker counts only while none of its requests is accepted. Claims of a worker's pod
have to hold that pod's uid, which nobody guesses.
"""

from dataclasses import dataclass

import structlog
from prometheus_client import Gauge

from muster.coordinator.auth import Caller

REFUSED_SECONDS = 30.0  # a worker that is accepted asks every ten seconds
FORGOTTEN_SECONDS = 60.0  # a launcher that is refused asks again every second
LOG_SECONDS = 60.0

log = structlog.get_logger()
_refused = Gauge(
    "muster_workers_refused", "Workers that asked for 30 s with tokens that are not accepted, and with no other one."
)


@dataclass(slots=True)
class _Refusals:
    pod: str  # namespace and name
    problem: str
    first: float
    last: float


class RefusedWorkers:
    """Counts the workers whose tokens are refused. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._by_pod: dict[str, _Refusals] = {}  # by uid
        self._logged_at = float("-inf")

    def refuse(self, worker: Caller, problem: str, now: float) -> None:
        """Note that a token with the claims of this worker was refused.

        Args:
            worker: the pod that the token claims to be issued to. The caller has made sure that there is such a worker.
            problem: why the token was refused.
        """
        kept = self._by_pod.get(worker.pod_uid)
        pod = f"{worker.namespace}/{worker.pod_name}"
        self._by_pod[worker.pod_uid] = _Refusals(pod, problem, now if kept is None else kept.first, now)

    def accept(self, pod_uid: str) -> None:
        """Note that a token of this pod was accepted: its worker does not count as refused any more."""
        self._by_pod.pop(pod_uid, None)

    def count(self, now: float) -> int:
        """The number of workers that are refused. Sets the gauge to this number, and logs the name of one of them."""
        self._by_pod = {uid: each for uid, each in self._by_pod.items() if now - each.last < FORGOTTEN_SECONDS}
        refused = [each for each in self._by_pod.values() if each.last - each.first >= REFUSED_SECONDS]
        _refused.set(len(refused))
        if refused and now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "tokens of workers are refused", workers=len(refused), pod=refused[0].pod, problem=refused[0].problem
            )
        return len(refused)
