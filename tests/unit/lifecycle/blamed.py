"""Workers that fall over another one's failure, and whose failure their job is told of."""

from collections.abc import Callable

from tests.unit.lifecycle.builders import a_job
from tests.unit.lifecycle.theatre import VICTIM_TAIL, Play, Theatre

from muster.api.gang import FaultClass

UNKNOWN, APPLICATION, INFRASTRUCTURE = FaultClass.UNKNOWN, FaultClass.APPLICATION, FaultClass.INFRASTRUCTURE
BY_TORCHRUN = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  exitcode  : -9 (pid: 14750)
  traceback : Signal 9 (SIGKILL) received by PID 14750
"""
NCCL = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
VICTIMS = [VICTIM_TAIL, NCCL, "ConnectionError: peer closed"]
CULPRIT = 1

Fault = Callable[[Theatre, Play], None]
FAULTS: dict[str, tuple[Fault, str, FaultClass]] = {
    "a signal": (lambda on, play: on.end_rank(play, CULPRIT, signal=9), "RankFailed", UNKNOWN),
    "a signal within torchrun": (
        lambda on, play: on.end_rank(play, CULPRIT, code=1, tail=BY_TORCHRUN),
        "RankFailed",
        UNKNOWN,
    ),
    "a signal within a shell": (lambda on, play: on.end_rank(play, CULPRIT, code=137), "RankFailed", UNKNOWN),
    "an exception": (
        lambda on, play: on.end_rank(play, CULPRIT, code=1, tail="ValueError: loss is NaN"),
        "RankFailed",
        APPLICATION,
    ),
    "a deleted pod": (lambda on, play: on.delete_pod(play, CULPRIT), "PodDeleted", INFRASTRUCTURE),
    "memory": (lambda on, play: on.out_of_memory(play, CULPRIT), "OutOfMemory", APPLICATION),
}


def the_cause_is_blamed(fault: str, heard: list[int], tail: str, lag_seconds: float) -> None:
    """
    Args:
        fault: one of `FAULTS`.
        heard: ticks of half a second until each launcher is heard again.
        tail: the last output of those that fall over it.
        lag_seconds: by how much the operator's view of pods is late.
    """
    break_it, reason, fault_class = FAULTS[fault]
    theatre = Theatre(4, 2, lag_seconds)
    play = theatre.submit(a_job())
    theatre.until(lambda: play.step >= 7)
    launchers = [theatre.launcher_of(play, index) for index in range(3)]
    for launcher in launchers:
        launcher.mute = True
    break_it(theatre, play)
    for index in {0, 1, 2} - {CULPRIT}:
        theatre.end_rank(play, index, code=1, tail=tail)
    for tick in range(max(heard) + 1):
        for launcher, wanted in zip(launchers, heard, strict=True):
            launcher.mute = launcher.mute and tick < wanted
        theatre.tick()
    theatre.until(lambda: bool(play.record.incidents) and all(i.settled for i in play.record.incidents))
    (incident,) = play.record.incidents
    assert (incident.index, incident.reason, incident.fault_class) == (CULPRIT, reason, fault_class), incident.message
    assert incident.other_workers == 0
