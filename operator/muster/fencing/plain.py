"""Ranks that a pod has started by itself: nothing reports them. Pure.

A pod that is bound may train, wherever it is, until its end is seen or proved: only its node could show that.

Tests: tests/unit/fencing/test_survivors.py.
"""

from muster.api.gang import GangSpec, Proof, UnfencedWorker
from muster.fencing import proofs
from muster.world.job import JobWorld, WorkerView


class PlainProofs:
    """What proves that ranks have ended that a pod has started by itself; see `muster.fencing.survivors.Proofs`."""

    def unfenced_worker(self, world: JobWorld, record: GangSpec, worker_view: WorkerView) -> UnfencedWorker | None:
        """Return a former worker whose pod is bound, as it has ranks from then on; None: no pod is bound, or it is
        dead."""
        bound = worker_view.pod.uid if worker_view.pod is not None and worker_view.pod.node else ""
        uid = worker_view.member.pod_uid or bound
        if not uid or world.is_dead(uid):
            return None
        unfenced_worker = UnfencedWorker(
            pod=worker_view.name,
            pod_uid=uid,
            node=worker_view.member.node,
            boot_id=worker_view.member.boot_id
            or (worker_view.node.boot_id[: proofs.BOOT_CHARACTERS] if worker_view.node else ""),
            fenced_time=world.now,
            attempt=record.attempt,
            proof=Proof.DEATH,
        )
        return proofs.silent_since(world, unfenced_worker, _silent_seconds(world, unfenced_worker))

    def with_current_proof(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> UnfencedWorker:
        """Return the unfenced worker as it is, because nothing reports about ranks without a launcher."""
        return unfenced_worker

    def is_ended(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
        """Whether no rank of an unfenced worker can be alive: by the job's time limit."""
        return proofs.given_up(world, unfenced_worker, _silent_seconds(world, unfenced_worker))

    def awaited_proof_message(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> str:
        """Return the message that says when the worker is assumed dead, and what a user can do before that."""
        return proofs.unstoppable_message(world, unfenced_worker, _silent_seconds(world, unfenced_worker))


def _silent_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many seconds the node of an unfenced worker has been silent; 0 while the node is ready."""
    node = world.fleet.nodes.get(unfenced_worker.node)
    if node is None:
        return proofs.age_seconds(world, unfenced_worker)
    return 0.0 if node.ready else world.heartbeat_age_seconds(node.name)
