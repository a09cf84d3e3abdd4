"""What a launcher shall do, from the committed record alone. Pure; asked on every poll."""

from collections.abc import Callable
from typing import Protocol

from muster.api.gang import Gang, GangIncident, GangSpec, Role
from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.launcher.fence import peer_distances
from muster.lifecycle import resume
from muster.lifecycle.survivors import needs_marker
from muster.protocol.messages import EXIT, RUN, WAIT, Directive, Peer
from muster.world.names import pod_name

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
        launcher_of: what the launcher of the member at this place of the list last said.
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
    place = _place(job, gang, pod, pod_uid)
    if gang is None or place is None:
        return Directive(EXIT, reason="this pod is no longer a member of its gang")
    record, spec = gang.spec, job.spec
    pace = max(POLL_SECONDS, max(len(record.members), crowd) / REPORTS_PER_SECOND)
    pace = min(pace, spec.recovery.unreachable_timeout_seconds / 4)
    # Whoever is asked to go on from elsewhere may have to find what the history of before does not count.
    lineage = None if resume.asked(job, record) else record.lineage
    if record.go is None:
        return Directive(
            WAIT,
            attempt=record.attempt,
            poll_seconds=pace,
            hold_seconds=pace,
            reason=_why(record.reason, record.incidents),
            claim=place == 0 and needs_marker(record),
            scans=resume.does_judge(place, record),
            lineage_step=lineage.step if lineage else None,
            lineage_since_ns=lineage.since_ns if lineage else 0,
        )
    resumed, member = record.go.resume, record.members[place]
    neighbours = _neighbours(place, len(record.members))
    return Directive(
        RUN,
        attempt=record.attempt,
        node_rank=member.rank,
        node_count=sum(member.role is Role.WORKER for member in record.members),
        processes_per_node=spec.launch.processes_per_node,
        master_address=record.go.master_address,
        master_port=record.go.master_port,
        resume_path=resumed.path if resumed else "",
        resume_step=resumed.step if resumed else None,
        peers=_peers(neighbours, record, launcher_of),
        neighbours=len(neighbours),
        poll_seconds=pace,
        hold_seconds=pace,
        fence_seconds=float(member.fence_seconds),
        scans=resume.does_judge(place, record),
        lineage_step=lineage.step if lineage else None,
        lineage_since_ns=lineage.since_ns if lineage else 0,
    )


def _why(reason: str, incidents: list[GangIncident]) -> str:
    """The cause of an attempt for the log of a worker, which may not have had a part in it."""
    last = incidents[-1] if incidents else None
    if last is None or last.reason != reason or last.index is None:
        return reason
    return f"{reason} of worker {last.index} on {last.node}"


def _place(job: TrainingJob, gang: Gang | None, pod: str, pod_uid: str) -> int | None:
    """The member's place in the list; the pod's name carries its index, the record has to agree."""
    parts = pod.rsplit("-", 2)
    if gang is None or len(parts) != 3 or not parts[1].isdigit():
        return None
    index, members = int(parts[1]), gang.spec.members
    if index < len(members) and members[index].index == index:
        place = index
    else:
        place = next((place for place, member in enumerate(members) if member.index == index), -1)
    if place < 0:
        return None
    member = members[place]
    named = pod_name(job.metadata.name, job.metadata.uid, index, member.incarnation) == pod
    return place if named and member.pod_uid in ("", pod_uid) else None


def _neighbours(place: int, count: int) -> list[int]:
    """The places of the neighbours on the ring of members."""
    return sorted({(place + distance) % count for distance in peer_distances(count)} - {place})


def _peers(neighbours: list[int], record: GangSpec, launcher_of: Callable[[int], Reachable | None]) -> tuple[Peer, ...]:
    """Those of whom it is known where they can be pinged."""
    found = ((record.members[neighbour].index, launcher_of(neighbour)) for neighbour in neighbours)
    return tuple(
        [Peer(n, told.address, told.peer_port) for n, told in found if told and told.address and told.peer_port]
    )
