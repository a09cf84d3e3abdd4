"""The record at the start of the ranks, and at what comes just before it. Pure.

Tests: tests/unit/fencing/test_survivors.py, tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from muster.api.gang import FENCE_SECONDS, AttemptStart, GangSpec, Member, Resume
from muster.checkpoints import node_local, resume, unloadable
from muster.checkpoints.resume import Start
from muster.fencing.proofs import BOOT_CHARACTERS, is_dead
from muster.pods.worker_pod import PLAIN_MASTER_PORT
from muster.record import corruption, incidents
from muster.record.fences import fence_file_of_most
from muster.recovery import holds
from muster.recovery.modes import mode_of
from muster.world.job import JobWorld, WorkerView

# A number in the fence file that is this far beyond the attempt is of no attempt of this job.
FENCE_FILE_REACH = 10_000
MASTER_PORTS = range(20000, 30000)


def with_attempt_beyond_fence_file(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record with an attempt number beyond that in the fence file; None where it is beyond already.

    The number can be too low after a Gang was deleted by hand and the status, from which the new one counts, was old.
    Ranks of a lower attempt than the file names end as soon as the coordinator is silent.
    """
    attempts = (view.fence_file_attempt for view in world.views.values())
    highest = max((n for n in attempts if n < record.attempt + FENCE_FILE_REACH), default=0)
    if highest <= record.attempt:
        return None
    return record.model_copy(update={"attempt": highest + 1, "time": world.now})


def with_pod_uids(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record with the UIDs of its pods.

    In mode Plain pods are bound after that, so that no pod that ran is missing in the record.
    """
    uids = {worker_view.index: worker_view.pod.uid for worker_view in world.worker_views if worker_view.pod is not None}
    return record.model_copy(
        update={"members": [m.model_copy(update={"pod_uid": uids.get(m.index, m.pod_uid)}) for m in record.members]}
    )


def after_all_fenced(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record without unfenced workers, all of which are fenced.

    Launchers list the checkpoints again, because an unfenced worker may have saved until its end. In mode Plain the
    time to assemble the gang begins now, and a hold of the start is restated by this leader's clock.
    """
    if not mode_of(world.job).starts_with_pods:
        happened = [incidents.with_stacks(world, incident) for incident in record.incidents]
        changes = {"unfenced_workers": [], "listing_round": record.listing_round + 1, "incidents": happened}
        return record.model_copy(update=changes)
    return record.model_copy(
        update={"unfenced_workers": [], "time": world.now, "hold_until": holds.held_until(world, record)}
    )


def without_dead_workers(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record of a job without nodes once all unfenced workers are proved dead; None: one may live, or there
    is none.

    The record would wait for the next start otherwise, and proofs do not last: a leader remembers the ends that it has
    seen itself, and a node that proves one may go. A fence that is over is no such proof: its worker may be heard again
    before the start.
    """
    if not record.unfenced_workers or not all(is_dead(world, worker) for worker in record.unfenced_workers):
        return None
    happened = [incidents.with_stacks(world, incident) for incident in record.incidents]
    return record.model_copy(update={"unfenced_workers": [], "incidents": happened})


def with_barrier_open(world: JobWorld, record: GangSpec, where: Start, preset: str) -> GangSpec:
    """Return the record with the start barrier open.

    Args:
        world: the state of the job.
        record: of the gang.
        where: the ranks resume.
        preset: by which the program is told that; "": by none.
    """
    first = world.first
    address = (first.launcher.address if first.launcher else "") or (first.pod.pod_ip if first.pod else "")
    port = MASTER_PORTS[record.attempt % len(MASTER_PORTS)]
    go = AttemptStart(
        time=world.now, master_address=address, master_port=port, resume=where.resume, resume_preset=preset
    )
    fence_file = fence_file_of_most(world)
    happened = [incidents.with_stacks(world, incident) for incident in incidents.with_later_steps(world, record)]
    return record.model_copy(
        update={
            "members": [_member_at_start(worker_view, fence_file) for worker_view in world.worker_views],
            "start": go,
            "unfenced_workers": [],
            "fence_file_id": fence_file,
            "hold_until": None,
            "releases": 0,
            "incidents": incidents.with_resume_step(record.model_copy(update={"incidents": happened}), where),
            "branch": where.branch,
            "checkpoint": where.lasting if where.branch != record.branch else where.lasting or record.checkpoint,
            "local_since_attempt": node_local.local_saves_since(world, record, where),
            "last_published_checkpoint": resume.published_checkpoint(world),
            "corruption": corruption.close_report(record.corruption, where),
            "suspect_checkpoint": unloadable.after_start(record, where),
        }
    )


def with_move_ordered(record: GangSpec, beyond: Resume, opened: GangSpec | None) -> GangSpec:
    """Return the record that orders incomplete checkpoints to be moved before the start.

    Args:
        record: of the gang.
        beyond: the checkpoint beyond which they are.
        opened: the record of the start whose branch and exclusions hold from now on; None: they hold from the start on.
    """
    names = ("branch", "checkpoint", "last_published_checkpoint", "suspect_checkpoint") if opened is not None else ()
    changes = {name: getattr(opened, name) for name in names}
    return record.model_copy(update={**changes, "move_incomplete_beyond": beyond})


def with_plain_start(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record of a started attempt in mode Plain: the pods have started their ranks themselves."""
    first = world.first.pod
    go = AttemptStart(time=world.now, master_address=first.pod_ip if first else "", master_port=PLAIN_MASTER_PORT)
    members = [
        _member_at_start(worker_view) if worker_view.pod else worker_view.member for worker_view in world.worker_views
    ]
    return record.model_copy(update={"members": members, "start": go, "hold_until": None, "releases": 0})


def _member_at_start(worker_view: WorkerView, fence_file: str = "") -> Member:
    """Return the member as its ranks start: with its pod, its boot, and a new fence.

    Args:
        worker_view: the worker.
        fence_file: the identity of the fence file that the gang obeys; "": none.
    """
    view = worker_view.launcher
    return worker_view.member.model_copy(
        update={
            "pod_uid": worker_view.pod.uid if worker_view.pod else "",
            "boot_id": worker_view.node.boot_id[:BOOT_CHARACTERS] if worker_view.node else "",
            "fence_seconds": FENCE_SECONDS,
            "is_replacement": False,
            "reads_fence_file": bool(fence_file)
            and view is not None
            and view.reads_fence_file
            and view.fence_file_id == fence_file,
        }
    )
