"""Workers that fall over another one's failure, and whose failure their job is told of."""

from collections.abc import Callable
from contextlib import closing

from tests.unit.lifecycle.testbed import OneJob

from muster.api.gang import FaultClass
from simulate.training import VICTIM_TAIL

UNKNOWN, APPLICATION, INFRASTRUCTURE = FaultClass.UNKNOWN, FaultClass.APPLICATION, FaultClass.INFRASTRUCTURE
BY_TORCHRUN = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  exitcode  : -9 (pid: 14750)
  traceback : Signal 9 (SIGKILL) received by PID 14750
"""
NCCL = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
VICTIMS = [VICTIM_TAIL, NCCL, "ConnectionError: peer closed"]
CULPRIT = 1

FAULTS: dict[str, tuple[Callable[[OneJob], object], str, FaultClass]] = {
    "a signal": (lambda job: job.rank(CULPRIT).kill(), "RankFailed", UNKNOWN),
    "a signal within torchrun": (lambda job: job.rank(CULPRIT).exit(1, BY_TORCHRUN), "RankFailed", UNKNOWN),
    "a signal within a shell": (lambda job: job.rank(CULPRIT).exit(137), "RankFailed", UNKNOWN),
    "an exception": (lambda job: job.rank(CULPRIT).exit(1, "ValueError: loss is NaN"), "RankFailed", APPLICATION),
    "a deleted pod": (lambda job: job.delete_pod(CULPRIT), "PodDeleted", INFRASTRUCTURE),
    "memory": (lambda job: job.worker(CULPRIT).run_out_of_memory(), "OutOfMemory", APPLICATION),
}


def the_cause_is_blamed(fault: str, heard: list[int], tail: str, lag: float) -> None:
    """
    Args:
        fault: one of `FAULTS`.
        heard: half seconds until each launcher is heard again.
        tail: the last output of those that fall over it.
        lag: by how many seconds the operator's view of pods is late.
    """
    break_it, reason, fault_class = FAULTS[fault]
    with closing(OneJob(workers=3, lag=lag)) as job:
        job.until_step(7)
        reporters = [job.worker(index).reporter for index in range(3)]
        ranks = [job.rank(index) for index in range(3)]
        for reporter in reporters:
            reporter.stand_still()
        break_it(job)
        for index in {0, 1, 2} - {CULPRIT}:
            ranks[index].exit(1, tail)
        for tick in range(max(heard) + 1):
            for reporter, wanted in zip(reporters, heard, strict=True):
                if tick == wanted:
                    reporter.stand_still(still=False)
            job.run(0.5)
        job.until(lambda: bool(job.record.incidents) and all(i.settled for i in job.record.incidents))
        (incident,) = job.record.incidents
    assert (incident.index, incident.reason, incident.fault_class) == (CULPRIT, reason, fault_class), incident.message
    assert incident.other_workers == 0
