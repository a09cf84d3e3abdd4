"""What a launcher shall do, from the committed record alone. Pure; asked on every poll."""

from collections.abc import Callable
from typing import Protocol

from muster.api.gang import Gang, GangIncident
from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.protocol.messages import EXIT, RUN, WAIT, Directive, Peer
from muster.world.names import pod_name

# A worker pings its two neighbours on either side of the ring of ranks.
PEER_DISTANCES = (-2, -1, 1, 2)
# Every launcher reports once in this many seconds; where there are many less often, so that one coordinator hears all.
POLL_SECONDS = 1.0
REPORTS_PER_SECOND = 512


class Reachable(Protocol):
    """What a launcher has told of where its neighbours can ping it; "" and 0 before it knows."""

    @property
    def address(self) -> str:
        """The IP of its pod."""

    @property
    def peer_port(self) -> int:
        """Its UDP port."""


def directive_for(
    job: TrainingJob | None,
    gang: Gang | None,
    pod: str,
    pod_uid: str,
    launcher_of: Callable[[int], Reachable | None],
    crowd: int = 0,
) -> Directive:
    """The directive for one pod.

    Args:
        job: the pod's job, None if there is none any more.
        launcher_of: what the launcher of the member with this index last said.
        crowd: about how many launchers report to this coordinator, those of other jobs included.
    """
    if job is None or job.metadata.deletion_timestamp is not None:
        return Directive(EXIT, exit_code=1, reason="the job is gone")
    completion = job.status.completion
    if completion is not None:
        failed = completion.result is CompletionResult.FAILED
        return Directive(
            EXIT, attempt=completion.attempt, exit_code=int(failed), reason=f"the job has ended: {completion.reason}"
        )
    index = _index(job, gang, pod, pod_uid)
    if gang is None or index is None:
        return Directive(EXIT, reason="this pod is no longer a member of its gang")
    record, spec = gang.spec, job.spec
    pace = max(POLL_SECONDS, max(len(record.members), crowd) / REPORTS_PER_SECOND)
    pace = min(pace, spec.recovery.unreachable_timeout_seconds / 4)
    if record.go is None:
        return Directive(
            WAIT,
            attempt=record.attempt,
            poll_seconds=pace,
            hold_seconds=pace,
            reason=_why(record.reason, record.incidents),
        )
    resume = record.go.resume
    return Directive(
        RUN,
        attempt=record.attempt,
        node_rank=index,
        node_count=len(record.members),
        processes_per_node=spec.launch.processes_per_node,
        master_address=record.go.master_address,
        master_port=record.go.master_port,
        resume_path=resume.path if resume else "",
        resume_step=resume.step if resume else None,
        peers=_peers(index, len(record.members), launcher_of),
        poll_seconds=pace,
        hold_seconds=pace,
    )


def _why(reason: str, incidents: list[GangIncident]) -> str:
    """The cause of an attempt for the log of a worker, which may not have had a part in it."""
    last = incidents[-1] if incidents else None
    if last is None or last.reason != reason or last.index is None:
        return reason
    return f"{reason} of worker {last.index} on {last.node}"


def _index(job: TrainingJob, gang: Gang | None, pod: str, pod_uid: str) -> int | None:
    """The member's index; the pod's name carries it, the record has to agree."""
    parts = pod.rsplit("-", 2)
    if gang is None or len(parts) != 3 or not parts[1].isdigit():
        return None
    index, members = int(parts[1]), gang.spec.members
    if index >= len(members):
        return None
    member = members[index]
    named = pod_name(job.metadata.name, job.metadata.uid, index, member.incarnation) == pod
    return index if named and member.pod_uid in ("", pod_uid) else None


def _peers(index: int, count: int, launcher_of: Callable[[int], Reachable | None]) -> tuple[Peer, ...]:
    neighbours = sorted({(index + distance) % count for distance in PEER_DISTANCES} - {index})
    found = ((neighbour, launcher_of(neighbour)) for neighbour in neighbours)
    return tuple(
        [Peer(n, told.address, told.peer_port) for n, told in found if told and told.address and told.peer_port]
    )
