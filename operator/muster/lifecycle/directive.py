"""What a launcher has to do, from the committed record alone. Pure; computed on every poll."""

from collections.abc import Callable
from typing import Any, Protocol

from muster.api.gang import Gang, GangIncident, GangSpec
from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.checkpoints import node_local, resume
from muster.protocol.checkpoint_names import is_url
from muster.protocol.fence import peer_distances
from muster.protocol.messages import EXIT, LEAVE, RUN, SAVE, WAIT, Directive, Peer
from muster.record.save_request import SAVE_REQUESTED
from muster.recovery.stacks import hung_attempt
from muster.recovery.verification import is_verifier
from muster.world.job import OtherJob
from muster.world.names import pod_name

# Every launcher reports once in this many seconds; where there are many less often, so that one coordinator hears all.
POLL_SECONDS = 1.0
REPORTS_PER_SECOND = 256
# Below FRESH_SECONDS, with time for the answer: a start waits until all launchers were heard lately, at one moment.
LONGEST_POLL_SECONDS = 10.0
# One of this many members is asked to write the fence file: where none of them can, the storage is at fault.
CLAIMANTS = 8


class Reachable(Protocol):
    """The address at which a launcher's neighbours can ping it, as it reports; "" and 0 before it knows."""

    @property
    def address(self) -> str:
        """The IP of the launcher's pod."""

    @property
    def peer_port(self) -> int:
        """The UDP port of the launcher."""


class Claimant(Protocol):
    """The fence file as a launcher sees it."""

    @property
    def fence_file_id(self) -> str:
        """The identity of the fence file in the checkpoint directory; "" for none."""

    @property
    def fence_file_error(self) -> str:
        """Why the launcher could not read or write the fence file; "" if it could."""


def directive_for(
    job: TrainingJob | None,
    gang: Gang | None,
    pod: str,
    pod_uid: str,
    launcher_of: Callable[[int], Reachable | None],
    launcher_count: int = 0,
    heard_lately: Callable[[int], Claimant | None] = lambda place: None,
    other: OtherJob | None = None,
) -> Directive:
    """Return the directive for the launcher of one pod.

    Args:
        job: the pod's job; None: it does not exist any more.
        gang: the job's record; None: there is none.
        pod: its name.
        pod_uid: its UID.
        launcher_of: returns the last report of the launcher of the member at a place of the list.
        launcher_count: about how many launchers report to this coordinator, those of other jobs included.
        heard_lately: as `launcher_of`, also before the start; returns None where the last report is old.
        other: the job that spec.checkpoint.resumeFrom names; None: it names none.
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
        stacks_of_attempt = hung_attempt(gang.spec) if gang is not None else None
        reason = "this pod is no longer a member of its gang"
        return Directive(EXIT, reason=reason, stacks_of_attempt=stacks_of_attempt)
    record, spec = gang.spec, job.spec
    pace = max(POLL_SECONDS, max(len(record.members), launcher_count) / REPORTS_PER_SECOND)
    pace = min(pace, spec.recovery.unreachable_timeout_seconds / 4, LONGEST_POLL_SECONDS)
    requested = resume.requested_resume(job, record)
    # A requested resume may name a checkpoint that does not count in the present branch.
    branch = None if requested else record.branch
    common_fields: dict[str, Any] = {
        "attempt": record.attempt,
        "poll_seconds": pace,
        "hold_seconds": pace,
        "verifies": is_verifier(place, record),
        "branch_step": branch.step if branch else None,
        "excluded_checkpoints": (branch.excluded_checkpoints or None) if branch else None,
        "branch_frozen": (branch.frozen or None) if branch else None,
    }
    if record.start is None:
        return Directive(
            WAIT,
            reason=_why(record.reason, record.incidents),
            listing_round=record.listing_round or None,
            writes_fence_file=_has_fence_file(spec.checkpoint.directory)
            and place == _claimant(record, place, heard_lately),
            requested_resume=resume.requested_checkpoint(requested),
            move_incomplete_beyond=record.move_incomplete_beyond.path
            if record.move_incomplete_beyond is not None and place == 0
            else None,
            requested_directory=resume.requested_directory(job, requested, other) or None,
            local_share=node_local.share_of_gang(job, record, record.members[place]),
            stacks_of_attempt=hung_attempt(record),
            **common_fields,
        )
    resumed, member = record.start.resume, record.members[place]
    neighbours = _neighbours(place, len(record.members))
    return Directive(
        RUN,
        node_rank=member.rank,
        node_count=record.node_count,
        processes_per_node=spec.launch.processes_per_node,
        master_address=record.start.master_address,
        master_port=record.start.master_port,
        resume_path=resumed.path if resumed else "",
        resume_step=resumed.step if resumed else None,
        resume_preset=record.start.resume_preset or None,
        peers=_peers(neighbours, record, launcher_of),
        neighbours=len(neighbours),
        fence_seconds=float(member.fence_seconds),
        ejected=record.ejected or None,
        **_request(job, record),
        **common_fields,
    )


def _request(job: TrainingJob, record: GangSpec) -> dict[str, Any]:
    """Return the fields with what the ranks are asked for, while their checkpoints are seen.

    To leave is also to save: a request to save waits meanwhile.
    """
    evacuation, save = record.evacuation, record.save_request
    if resume.saves_unseen(job):
        return {}
    if evacuation is not None and record.evacuation_requests:
        return {
            "request": record.evacuation_requests[-1],
            "request_kind": LEAVE,
            "request_seconds": (evacuation.deadline - evacuation.since).total_seconds(),
            "request_reason": evacuation.reason,
        }
    if save is None or save.over or save.attempt != record.attempt:
        return {}
    return {
        "request": save.number,
        "request_kind": SAVE,
        "request_seconds": (save.deadline - save.since).total_seconds(),
        "request_reason": SAVE_REQUESTED,
    }


def _has_fence_file(directory: str | None) -> bool:
    """Whether the checkpoint directory can hold a fence file: an object store cannot (docs/decisions/0024)."""
    return directory is not None and not is_url(directory)


def _claimant(record: GangSpec, asking: int, heard_lately: Callable[[int], Claimant | None]) -> int:
    """Return the place of the member that writes the fence file of this attempt: the first that can.

    Where former ranks have to read the file, it is the first that sees their directory.

    Args:
        record: of the gang.
        asking: the place of the member whose directive is made.
        heard_lately: returns the last report of the launcher at a place; None where it is old.
    """
    if asking >= CLAIMANTS:
        return 0
    candidates = [(place, heard_lately(place)) for place in range(min(CLAIMANTS, len(record.members)))]
    able = [(place, view) for place, view in candidates if view and not view.fence_file_error]
    theirs = {
        unfenced_worker.fence_file_id for unfenced_worker in record.unfenced_workers if unfenced_worker.fence_file_id
    }
    chosen = [place for place, view in able if view.fence_file_id in theirs] or [place for place, _ in able]
    return chosen[0] if chosen else 0


def _why(reason: str, incidents: list[GangIncident]) -> str:
    """Return the cause of an attempt for the log of a worker, which may have had no part in the failure."""
    last = incidents[-1] if incidents else None
    if last is None or last.reason != reason or last.index is None:
        return reason
    return f"{reason} of worker {last.index} on {last.node}"


def _place(job: TrainingJob, gang: Gang | None, pod: str, pod_uid: str) -> int | None:
    """Return the pod's place in the list of members; None: it is no member.

    The pod's name carries the index, and the record has to agree.
    """
    parts = pod.rsplit("-", 2)
    if gang is None or len(parts) != 3 or not parts[1].isdigit():
        return None
    index = int(parts[1])
    place = gang.spec.place_of(index)
    if place is None:
        return None
    member = gang.spec.members[place]
    named = pod_name(job.metadata.name, job.metadata.uid, index, member.incarnation) == pod
    return place if named and member.pod_uid in ("", pod_uid) else None


def _neighbours(place: int, count: int) -> list[int]:
    """Return the places of a member's neighbours on the ring of members.

    Args:
        place: of the member.
        count: how many members there are.
    """
    return sorted({(place + distance) % count for distance in peer_distances(count)} - {place})


def _peers(neighbours: list[int], record: GangSpec, launcher_of: Callable[[int], Reachable | None]) -> tuple[Peer, ...]:
    """Return those of the neighbours whose address is known."""
    launchers = ((record.members[neighbour].index, launcher_of(neighbour)) for neighbour in neighbours)
    return tuple(
        [
            Peer(n, launcher.address, launcher.peer_port)
            for n, launcher in launchers
            if launcher and launcher.address and launcher.peer_port
        ]
    )
