"""The node that a job's failures have followed, by the job's own record. Pure.

A record blames one node at most, and often none. A failure with an explanation is left out. Such are hardware that was
seen to be unhealthy, planned evacuations, used-up memory, and signals from outside. A defect of the program shows on
many nodes. So a failure is left out where others failed by themselves at the same time. A program that exits before its
first step may be unable to start anywhere: that is left out until it has got beyond. An exception of the program's own
is left out, and so is a hang of a job with one worker, which can be compared with no other. Where no more than half of
the rest happened on one node, no node is blamed. Failures in a row at the same step on the same node count as one.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta

from muster.api.gang import FaultClass, Gang, GangIncident
from muster.recovery.failure import Kind, is_hang, kinds_with
from muster.recovery.last_lines import is_killed
from muster.world.jobfailures import JobFailureReport
from muster.world.names import job_name

TOGETHER = timedelta(days=4)
"""A failure that is this much older than the job's newest one is unrelated."""
MAX_WORDS = 8
KINDS = kinds_with(lambda traits: traits.follows_node)


@dataclass(slots=True)
class _Episode:
    """A row of failures on one node with no step won in between.

    Attributes:
        first: the first of the failures.
        failed_at: the step that the program has to pass to have gone on; -1 before the first step.
        alone: whether no other worker failed by itself at the same time.
        began: whether one of the failures came after a step of its attempt, or is no exit of the program.
        went_on: whether the program has passed that step since.
    """

    first: GangIncident
    failed_at: int
    alone: bool
    began: bool
    went_on: bool = False


def failures_that_followed(gang: Gang) -> tuple[str, tuple[JobFailureReport, ...]]:
    """Return the node that the job's failures have followed, with these failures, oldest first; "" and none if there is
    none."""
    episodes = _episodes(gang)
    if not episodes:
        return "", ()
    since = max(episode.first.time for episode in episodes) - TOGETHER
    recent = [episode for episode in episodes if episode.first.time > since]
    (node, most), *_ = Counter(episode.first.node for episode in recent).most_common(1)
    # Those that the program explains are on no node's account, and not left out of all: that would move it to another.
    explained = sum(incident.own_exception and incident.time > since for incident in gang.spec.incidents)
    if 2 * most <= len(recent) + explained:
        return "", ()
    owner, job = gang.metadata.namespace, qualified_job_name(gang)
    reports = [
        JobFailureReport(
            owner=owner,
            job=job,
            attempt=episode.first.attempt,
            what=_failure_text(episode.first),
            time=episode.first.time,
            went_on=episode.went_on,
        )
        for episode in recent
        if episode.first.node == node and episode.alone and (episode.began or episode.went_on)
    ]
    return (node, tuple(reports[-MAX_WORDS:])) if reports else ("", ())


def qualified_job_name(gang: Gang) -> str:
    """Return `<namespace>/<name>` of the job; a job that is deleted and created again has the same."""
    return f"{gang.metadata.namespace}/{job_name(gang.metadata.name, gang.spec.job_uid)}"


def comparable_facts(gang: Gang) -> Hashable:
    """Return a value that is equal for records of one job from which `failures_that_followed` gives the same result;
    None: no incidents.

    It is cheaper than `failures_that_followed`, because records change often.
    """
    if not gang.spec.incidents:
        return None
    saved = gang.spec.checkpoint.step if gang.spec.checkpoint else -1
    return saved, tuple(
        (
            incident.time,
            incident.node,
            incident.settled,
            incident.fault_class,
            incident.other_workers,
            incident.own_exception,
        )
        for incident in gang.spec.incidents
    )


def _episodes(gang: Gang) -> list[_Episode]:
    episodes: list[_Episode] = []
    resumed: int | None = None
    for incident in gang.spec.incidents:
        began, resumed = not _is_exit_before_first_step(incident, resumed), incident.resumed_step
        if not _is_unexplained(incident):
            continue
        failed_at, last = _failed_at(incident), episodes[-1] if episodes else None
        if last is not None and failed_at > last.failed_at:
            for earlier in episodes:
                earlier.went_on = earlier.went_on or failed_at > earlier.failed_at
        alone = incident.other_workers == 0
        if last is not None and last.first.node == incident.node and failed_at <= last.failed_at:
            last.alone = last.alone and alone
            last.began = last.began or began
            continue
        episodes.append(_Episode(incident, failed_at, alone, began))
    saved = gang.spec.checkpoint.step if gang.spec.checkpoint else -1
    for episode in episodes:
        episode.went_on = episode.went_on or saved > episode.failed_at
    return episodes


def _is_unexplained(incident: GangIncident) -> bool:
    """Whether the node or the program may have caused the incident, with class and blame final."""
    if not incident.settled or not incident.node or incident.reason not in KINDS:
        return False
    if incident.fault_class in (FaultClass.HARDWARE, FaultClass.PLANNED) or incident.own_exception:
        return False
    if is_hang(incident.reason) and incident.other_workers is None:
        return False
    return not is_killed(incident.exit_code, incident.signal)  # by SIGKILL most often because memory was used up


def _is_exit_before_first_step(incident: GangIncident, resumed: int | None) -> bool:
    """Whether the program ended by itself, with an exit code, before the first step of the attempt.

    Args:
        incident: that ended the attempt.
        resumed: the step from which the attempt resumed; 0 or None: it began without a checkpoint.
    """
    if incident.exit_code is None or incident.reason not in (Kind.RANK_FAILED, Kind.POD_ENDED):
        return False
    return incident.step is None or bool(resumed and incident.step <= resumed)


def _failed_at(incident: GangIncident) -> int:
    """Return the step that the program has to pass to show that it goes on; -1 before the first step."""
    steps = (incident.step, incident.checkpoint_step)
    return max((step for step in steps if step is not None), default=-1)


def _failure_text(incident: GangIncident) -> str:
    if incident.signal is not None:
        return f"{incident.reason} (signal {incident.signal})"
    return incident.reason + (f" (exit code {incident.exit_code})" if incident.exit_code is not None else "")
