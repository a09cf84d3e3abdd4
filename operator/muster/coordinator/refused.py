"""Workers whose tokens are refused, counted by worker: requests say nothing, because any client may send any number of
them.

A refused token proves nothing, so a worker counts only while none of its requests is accepted. Claims of a worker's pod
have to hold that pod's uid, which no client guesses, and count for the fleet only from an address of that pod. A tenant
has its own pods send what it likes, so one namespace alone never counts for the fleet, only for its own people.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import structlog
from prometheus_client import Gauge

from muster.coordinator.auth import Caller

REFUSED_SECONDS = 30.0  # a worker that is accepted asks every ten seconds
FORGOTTEN_SECONDS = 60.0  # a launcher that is refused asks again every second
LOG_SECONDS = 60.0
MAJORITY = 0.5  # of the workers of all namespaces, and of all but one

log = structlog.get_logger()


class Scope(Enum):
    """What the refusals of workers speak against."""

    FLEET = "Fleet"  # the cluster's tokens, keys or clocks: most workers of several namespaces
    NAMESPACE = "Namespace"  # a few workers, or one namespace's
    UNPROVEN = "Unproven"  # nothing: they came from an address that is none of the worker's


_refused = Gauge(
    "muster_workers_refused",
    "Workers whose tokens have all been refused for 30 s.",
    ["scope"],
)
_refused_of_namespace = Gauge(
    "muster_namespace_workers_refused",
    "Workers of the namespace whose tokens have been refused for 30 s, from the workers' own addresses.",
    ["namespace"],
)


@dataclass(slots=True)
class _Refusals:
    worker: Caller
    problem: str
    first: float
    last: float


class RefusedWorkers:
    """Counts the workers whose tokens are refused. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        # By uid, those that came from an address of the worker apart.
        self._proven: dict[str, _Refusals] = {}
        self._unproven: dict[str, _Refusals] = {}
        self._logged_at = float("-inf")

    def refuse(self, worker: Caller, problem: str, now: float, *, is_proven: bool) -> None:
        """Note that a token with the claims of this worker was refused.

        Args:
            worker: the pod that the token claims to be issued to. The caller has made sure that there is such a worker.
            problem: why the token was refused.
            now: monotonic seconds.
            is_proven: whether it came from an address of that pod.
        """
        by_uid = self._proven if is_proven else self._unproven
        kept = by_uid.get(worker.pod_uid)
        by_uid[worker.pod_uid] = _Refusals(worker, problem, now if kept is None else kept.first, now)

    def accept(self, pod_uid: str) -> None:
        """Note that a token of this pod was accepted: its worker does not count as refused any more."""
        self._proven.pop(pod_uid, None)
        self._unproven.pop(pod_uid, None)

    def count(self, now: float, expected: Mapping[str, int]) -> dict[Scope, int]:
        """The number of workers that are refused. Sets the gauge to these numbers, and logs the name of one worker.
        `expected` launchers were heard and are expected to report, by namespace.
        """
        self._proven, self._unproven = (
            {uid: refusals for uid, refusals in by_uid.items() if now - refusals.last < FORGOTTEN_SECONDS}
            for by_uid in (self._proven, self._unproven)
        )
        proven = _refused_for_long(self._proven)
        by_namespace = Counter(refusals.worker.namespace for refusals in proven)
        scope = _scope_of(by_namespace, expected)
        _refused_of_namespace.clear()
        for namespace, number in by_namespace.items():
            _refused_of_namespace.labels(namespace).set(number)
        by_scope = {scope: proven, Scope.UNPROVEN: _refused_for_long(self._unproven)}
        counts = {scope: len(by_scope.get(scope, ())) for scope in Scope}
        for scope, number in counts.items():
            _refused.labels(scope.value).set(number)
        logged = next((scope for scope, refused in by_scope.items() if refused), None)
        if logged is not None and now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            first = by_scope[logged][0]
            log.warning(
                "tokens of workers are refused",
                workers=counts[logged],
                scope=logged.value,
                pod=f"{first.worker.namespace}/{first.worker.pod_name}",
                problem=first.problem,
            )
        return counts


def _refused_for_long(by_uid: Mapping[str, _Refusals]) -> list[_Refusals]:
    return [refusals for refusals in by_uid.values() if refusals.last - refusals.first >= REFUSED_SECONDS]


def _scope_of(refused: Mapping[str, int], expected: Mapping[str, int]) -> Scope:
    """What proven refusals speak against: the fleet only where more than half are refused, also without the namespace
    that has most of them.

    Args:
        refused: workers by namespace.
        expected: launchers that were heard and are expected to report, by namespace.
    """
    first = max(refused, key=refused.__getitem__, default=None)
    for left_out in (None, first):
        of_refused, of_expected = (
            sum(number for namespace, number in by_namespace.items() if namespace != left_out)
            for by_namespace in (refused, expected)
        )
        if of_refused <= MAJORITY * of_expected:
            return Scope.NAMESPACE
    return Scope.FLEET
