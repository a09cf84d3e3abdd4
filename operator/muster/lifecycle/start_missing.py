"""What the start of the ranks waits for once all nodes are tested. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py, tests/unit/fencing/test_survivors.py.
"""

from muster.api.gang import GangSpec
from muster.checkpoints import node_local, resume_preset
from muster.checkpoints.resume import Missing, Start
from muster.fencing.survivors import awaited_proof_message, is_fenced
from muster.pods.requirements import mounted_names
from muster.protocol.messages import IDLE
from muster.recovery.verification import LAUNCHER_SILENT, NOT_LISTED
from muster.world.job import JobWorld, WorkerView
from muster.world.names import shortened
from muster.world.views import FRESH_SECONDS

MAX_MOUNTED = 8  # objects that a message names
_HEAR = "if that lasts, check its log and the network policies between it and the Service muster-coordinator"


def resume_point(world: JobWorld, record: GangSpec) -> tuple[Start, str] | Missing:
    """Return where the ranks resume, and the preset by which the program is told; or what the start waits for.

    The barrier opens once every member is idle and every unfenced worker is fenced.
    """
    missing = _awaited_of_workers(world, record)
    if missing:
        return missing
    where = node_local.local_start(world, record)
    if isinstance(where, Missing):
        return where
    preset = resume_preset.preset_for(world, where.resume)
    if isinstance(preset, Missing) and where.local_attempt:
        where = node_local.from_shared_instead(where, preset.message)
        preset = resume_preset.preset_for(world, where.resume)
    return preset if isinstance(preset, Missing) else (where, preset)


def _awaited_of_workers(world: JobWorld, record: GangSpec) -> Missing | None:
    """Return what keeps the ranks from starting, apart from where they resume; None: nothing."""
    alive = next(
        (unfenced_worker for unfenced_worker in record.unfenced_workers if not is_fenced(world, unfenced_worker)), None
    )
    if alive is not None:
        return Missing("OldRanksNotFenced", awaited_proof_message(world, alive))
    for worker_view in world.worker_views:
        launcher = worker_view.launcher
        if not worker_view.runs:
            return not_running(world, worker_view)
        if launcher is None or launcher.heard_age_seconds > FRESH_SECONDS:
            return Missing(LAUNCHER_SILENT, f"waiting for the launcher of {worker_view.where} to report: {_HEAR}")
        if launcher.attempt != record.attempt or launcher.state != IDLE:
            return Missing("OldRanksAlive", f"waiting for {worker_view.where} to end its old ranks")
        if world.job.spec.checkpoint.directory and worker_view.index not in world.listed:
            why = f": {launcher.checkpoint_error}" if launcher.checkpoint_error else ""
            return Missing(NOT_LISTED, f"waiting for {worker_view.where} to list the checkpoints{why}")
    return None


def not_running(world: JobWorld, worker_view: WorkerView) -> Missing:
    """Return that the start waits for the pod of this worker to run, and where the cause stands.

    It stands in the kubelet's Events, which Muster has no right to read.
    """
    message, pod = f"waiting for the pod of {worker_view.where} to run", worker_view.pod
    if pod is None or not pod.node or any(container.running or container.terminated for container in pod.containers):
        return Missing("PodNotRunning", message)
    names = mounted_names(world.job)
    mounts = f", or mounts {shortened(names, MAX_MOUNTED)}" if names else ""
    return Missing(
        "PodNotRunning",
        f"{message}. Its kubelet has created no container of it yet: it pulls images{mounts}. What fails stands at the "
        f"end of: kubectl describe pod -n {pod.namespace} {pod.name}",
    )
