"""Ranks that a pod has started by itself: nothing reports them. Pure.

A pod that is bound may train, wherever it is, until its end is seen or proved: nothing but its node could tell.
"""

from muster.api.gang import GangSpec, Ghost, Proof
from muster.fencing import proofs
from muster.world.job import JobWorld, Seat


class PlainProofs:
    """See `muster.fencing.survivors.Proofs`."""

    def ghost(self, world: JobWorld, record: GangSpec, seat: Seat) -> Ghost | None:
        """Every pod that is bound: it has ranks from that moment on."""
        bound = seat.pod.uid if seat.pod is not None and seat.pod.node else ""
        uid = seat.member.pod_uid or bound
        if not uid or world.is_dead(uid):
            return None
        ghost = Ghost(
            pod=seat.name,
            pod_uid=uid,
            node=seat.member.node,
            boot=seat.member.boot or (seat.node.boot_id[: proofs.BOOT_CHARACTERS] if seat.node else ""),
            fenced_time=world.now,
            attempt=record.attempt,
            proof=Proof.DEATH,
        )
        return proofs.silent_since(world, ghost, _silent_seconds(world, ghost))

    def known(self, world: JobWorld, ghost: Ghost) -> Ghost:
        """Nothing new is ever told of it."""
        return ghost

    def is_ended(self, world: JobWorld, ghost: Ghost) -> bool:
        """By its kubelet, or by the job's own limit."""
        return proofs.removal_left(world, ghost) <= 0 or proofs.given_up(world, ghost, _silent_seconds(world, ghost))

    def waited_for(self, world: JobWorld, ghost: Ghost) -> str:
        """The limit, or a person's word."""
        return proofs.from_nobody(world, ghost, _silent_seconds(world, ghost))


def _silent_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long its node has not been heard: where that is well the pod is taken to be."""
    node = world.fleet.nodes.get(ghost.node)
    if node is None:
        return proofs.age_seconds(world, ghost)
    return 0.0 if node.ready else world.heartbeat_age_seconds(node.name)
