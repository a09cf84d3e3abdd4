"""The pods that a record drops while they cannot be reached: ranks may be alive until their end is proved. Pure.

What proves it is in `proofs`, and for ranks that have a launcher in `managed`; see docs/decisions/0012.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from muster.api.gang import GangSpec, Member, UnfencedWorker
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.fencing import proofs
from muster.fencing.managed import ManagedProofs
from muster.fencing.plain import PlainProofs
from muster.world.job import JobWorld, WorkerView


class Proofs(Protocol):
    """What proves that former ranks have ended; the answer depends on whether a launcher has started them."""

    def unfenced_worker(self, world: JobWorld, record: GangSpec, worker_view: WorkerView) -> UnfencedWorker | None:
        """Return the pod that a dropped member leaves behind; None where no rank of it can be alive."""

    def with_current_proof(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> UnfencedWorker:
        """Return an unfenced worker on record with what is known of it by now."""

    def is_ended(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
        """Whether no rank of an unfenced worker can be alive though its death is not proved: by its launcher or a time
        limit."""

    def awaited_proof_message(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> str:
        """Return the message that says what proof of the worker's end is awaited."""


_BY_MODE: Mapping[LaunchMode, Proofs] = {LaunchMode.MANAGED: ManagedProofs(), LaunchMode.PLAIN: PlainProofs()}


def _proofs_of(job: TrainingJob) -> Proofs:
    return _BY_MODE[job.spec.launch.mode]


def unfenced_workers(world: JobWorld, record: GangSpec, members: Iterable[Member]) -> list[UnfencedWorker]:
    """Return the pods that the new members leave behind and whose ranks may be alive; the next start waits for their
    end.

    Args:
        world: the state of the job.
        record: of the gang, as it is.
        members: of the next record.
    """
    of_mode, kept = _proofs_of(world.job), {(member.index, member.incarnation) for member in members}
    left = (
        worker_view
        for worker_view in world.worker_views
        if (worker_view.index, worker_view.member.incarnation) not in kept
    )
    still_unfenced = [
        of_mode.with_current_proof(world, unfenced_worker)
        for unfenced_worker in record.unfenced_workers
        if not is_fenced(world, unfenced_worker)
    ]
    return still_unfenced + [
        unfenced_worker
        for worker_view in left
        if (unfenced_worker := of_mode.unfenced_worker(world, record, worker_view)) is not None
    ]


def is_fenced(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether an unfenced worker is fenced: no rank of its pod can be alive any more."""
    return proofs.is_dead(world, unfenced_worker) or _proofs_of(world.job).is_ended(world, unfenced_worker)


def awaited_proof_message(world: JobWorld, unfenced_worker: UnfencedWorker) -> str:
    """Return the message that says what proof of an unfenced worker's end is awaited, and how a user can help."""
    return proofs.kubelet_message(world, unfenced_worker) or _proofs_of(world.job).awaited_proof_message(
        world, unfenced_worker
    )
