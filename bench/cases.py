"""What is done to a gang, and what of it is measured. Times run from just before the request or the failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from bench.bed import PODS, VICTIM
from bench.figures import Measurement
from bench.peers.system import System
from bench.podwatch import PodWatch, latest
from bench.processes import cpu_seconds, peak_mebibytes, reset_peaks, spent
from bench.writes import writes_between

START_SECONDS = 180.0
# Peers made a gang of 1,024 anew in 31 s; a loaded machine takes three times as long.
RECOVERY_SECONDS = 45.0
RECOVERY_SECONDS_PER_POD = 1 / 16
NODE_SECONDS = 45.0
_FAILURE_SEEN_SECONDS = 30.0
_REMOVAL_SECONDS = 180.0
# What follows the last pod's Running (status, events) is part of the cost, too.
_AFTERMATH_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_IDLE_SECONDS = 4.0
# Who writes pods' status: events come in bursts, as they do when gangs start.
_KUBELETS = 8
_QUIET_WINDOW_SECONDS = 1.0
# The heartbeats of 2,048 nodes alone take a third of a core.
_QUIET_CORES = 0.5
_QUIET_LIMIT_SECONDS = 30.0

FAILED_PODS = {"FailOnePod": 1, "FailEightPods": 8}


@dataclass(frozen=True)
class Stage:
    """A system on its bed, and the eyes on its pods."""

    system: System
    watch: PodWatch

    @property
    def size(self) -> int:
        """Pods in the gang."""
        return self.system.bed.size


def start(stage: Stage) -> Measurement:
    """Ask for a gang and wait until all of its pods are Running."""
    system, watch = stage.system, stage.watch
    wait_quiet(stage)
    system.prepare()

    def act(since: float) -> Measurement:
        system.submit()
        watch.wait(lambda seen: seen.running >= stage.size, START_SECONDS)
        pods = watch.pods().values()
        full = len(pods) >= stage.size
        return Measurement(
            created_s=latest((pod.created for pod in pods), since) if full else None,
            bound_s=latest((pod.bound for pod in pods), since) if full else None,
            running_s=latest((pod.running for pod in pods), since) if full else None,
        )

    measured = _costing(stage, act)
    per_pod = sum(measured.writes.values()) / stage.size
    return replace(measured, writes_per_pod=per_pod)


def wait_quiet(stage: Stage) -> None:
    """Wait, not for ever, until the control plane has done what earlier gangs and new nodes left it to do."""
    end = time.monotonic() + _QUIET_LIMIT_SECONDS
    while time.monotonic() < end:
        before = cpu_seconds(stage.system.bed.cluster.pids())
        time.sleep(_QUIET_WINDOW_SECONDS)
        busy = sum(spent(before, cpu_seconds(stage.system.bed.cluster.pids())).values())
        if busy < _QUIET_CORES * _QUIET_WINDOW_SECONDS:
            return


def settle(stage: Stage) -> bool:
    """Wait until the ranks run and nothing moves; False when the gang never came up."""
    up = stage.watch.wait(lambda seen: seen.running >= stage.size, 1.0)
    trained = up and stage.system.trained(0.0, START_SECONDS) is not None
    time.sleep(stage.system.calm_seconds)
    return trained


def event_cost(stage: Stage) -> float | None:
    """CPU microseconds that one event of a running pod costs the system's managers: each pod's status changes once.

    What they take anyway (heartbeats of the nodes, reports of launchers) is measured just before and just after, and
    the less of the two is taken off: a gang that has just come up still settles.
    """
    system, watch = stage.system, stage.watch
    managers = system.managers()
    names = [pod.name for pod in watch.pods().values()]
    connections = [system.bed.connect() for _ in range(_KUBELETS)]

    def own(act: Callable[[], None]) -> tuple[float, float]:
        before, started = cpu_seconds(managers), time.monotonic()
        act()
        return sum(spent(before, cpu_seconds(managers)).values()), time.monotonic() - started

    def touch() -> None:
        change = {"status": {"message": f"changed at {time.time()}"}}

        def several(first: int) -> None:
            connection = connections[first]
            for name in names[first::_KUBELETS]:
                connection.patch(f"{PODS}/{name}/status", change)

        with ThreadPoolExecutor(_KUBELETS) as pool:
            list(pool.map(several, range(_KUBELETS)))
        time.sleep(_AFTERMATH_SECONDS)

    def idle_cores() -> float:
        cpu, seconds = own(lambda: time.sleep(_IDLE_SECONDS))
        return cpu / seconds

    before, events_before = idle_cores(), watch.events
    busy_cpu, busy_seconds = own(touch)
    events = watch.events - events_before
    for connection in connections:
        connection.close()
    idle = min(before, idle_cores())
    return (busy_cpu - idle * busy_seconds) / events * 1e6 if events else None


def fail_pods(stage: Stage, count: int) -> Measurement:
    """Let `count` pods, spread over the gang, fail; wait until the whole gang runs again."""
    pods = stage.watch.pods()
    spread = sorted(pods, key=lambda uid: pods[uid].node)[:: max(len(pods) // count, 1)][:count]
    names = [pods[uid].name for uid in spread]
    deadline = RECOVERY_SECONDS + RECOVERY_SECONDS_PER_POD * stage.size

    def act(since: float) -> Measurement:
        stage.system.bed.fail(names)
        stage.watch.wait(lambda seen: not seen.any_runs(spread), _FAILURE_SEEN_SECONDS)
        stage.system.replace(names)
        return Measurement(recovery_s=_recovered(stage, since, deadline))

    return _costing(stage, act)


def fail_node(stage: Stage, cut: Callable[[], None]) -> Measurement:
    """Let the victim's machine die; wait, not for ever, until the whole gang runs again without it."""
    pods = stage.watch.pods()
    lost = [uid for uid, pod in pods.items() if pod.node == VICTIM]

    def act(since: float) -> Measurement:
        cut()
        stage.system.power_cut(VICTIM)
        left = stage.watch.wait(lambda seen: not seen.any_runs(lost), NODE_SECONDS)
        rest = since + NODE_SECONDS - time.time()
        return Measurement(recovery_s=_recovered(stage, since, rest) if left and rest > 0 else None)

    return _costing(stage, act)


def remove(stage: Stage) -> None:
    """Take the gang away and wait until no pod is left."""
    stage.system.remove()
    if not stage.watch.wait(lambda seen: seen.present == 0, _REMOVAL_SECONDS):
        left = ", ".join(pod.name for pod in list(stage.watch.pods().values())[:5])
        raise RuntimeError(f"pods of {stage.system.name} did not go within {_REMOVAL_SECONDS:.0f} s: {left}")
    time.sleep(_PAUSE_SECONDS)


def _recovered(stage: Stage, since: float, deadline_seconds: float) -> float | None:
    """Seconds until all pods run and all ranks were started again; None when that took too long."""
    end = time.time() + deadline_seconds
    if not stage.watch.wait(lambda seen: seen.running >= stage.size, deadline_seconds):
        return None
    trained = stage.system.trained(since, max(end - time.time(), 0.1))
    if trained is None:
        return None
    running = latest((pod.running for pod in stage.watch.pods().values() if pod.runs), since)
    return None if running is None else max(running, trained - since)


def _costing(stage: Stage, act: Callable[[float], Measurement]) -> Measurement:
    """What `act` measured, and what it cost everybody."""
    system, bed = stage.system, stage.system.bed
    managers = dict(system.managers())
    everybody = {**bed.cluster.pids(), **managers}
    writes_before = bed.write_counts()
    reset_peaks(managers.values())
    before = cpu_seconds(everybody)
    measured = act(time.time())
    time.sleep(_AFTERMATH_SECONDS)
    costs = spent(before, cpu_seconds(everybody))
    writes = writes_between(writes_before, bed.write_counts())
    own = sum(costs[name] for name in managers)
    return replace(
        measured,
        cpu_s=sum(costs.values()),
        rss_mb=peak_mebibytes(managers.values()) if managers else None,
        manager_cpu_s=own if managers else None,
        writes=writes,
        notes=system.notes(),
    )
