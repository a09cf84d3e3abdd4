"""The pods that a record drops and cannot ask: their ranks may be alive until it is proved that they have ended. Pure.

What proves it is in `proofs`, and of ranks that have a launcher in `managed`; see docs/decisions/0012.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from muster.api.gang import GangSpec, Ghost, Member
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.fencing import proofs
from muster.fencing.managed import ManagedProofs
from muster.fencing.plain import PlainProofs
from muster.world.job import JobWorld, Seat


class Proofs(Protocol):
    """What can be proved of ranks, which depends on what starts them."""

    def ghost(self, world: JobWorld, record: GangSpec, seat: Seat) -> Ghost | None:
        """The pod of a member that is left behind; None where no rank of it can be alive."""

    def known(self, world: JobWorld, ghost: Ghost) -> Ghost:
        """A ghost of before, with what is known by now."""

    def is_ended(self, world: JobWorld, ghost: Ghost) -> bool:
        """Whether no rank of it can be alive though nobody has seen its end: by its kubelet, by itself, or by the limit."""

    def waited_for(self, world: JobWorld, ghost: Ghost) -> str:
        """What that takes, in words."""


_BY_MODE: Mapping[LaunchMode, Proofs] = {LaunchMode.MANAGED: ManagedProofs(), LaunchMode.PLAIN: PlainProofs()}


def _proofs_of(job: TrainingJob) -> Proofs:
    return _BY_MODE[job.spec.launch.mode]


def ghosts(world: JobWorld, record: GangSpec, members: Iterable[Member]) -> list[Ghost]:
    """Pods that the new members leave behind and whose ranks may be alive: the next start has to outwait them."""
    of_mode, kept = _proofs_of(world.job), {(member.index, member.incarnation) for member in members}
    left = (seat for seat in world.seats if (seat.index, seat.member.incarnation) not in kept)
    known = [of_mode.known(world, ghost) for ghost in record.ghosts if not laid(world, ghost)]
    return known + [ghost for seat in left if (ghost := of_mode.ghost(world, record, seat)) is not None]


def laid(world: JobWorld, ghost: Ghost) -> bool:
    """Whether no rank of this pod can be alive any more."""
    return proofs.is_dead(world, ghost) or _proofs_of(world.job).is_ended(world, ghost)


def waited_for(world: JobWorld, ghost: Ghost) -> str:
    """What proof is waited for, in words, and the remedy where a person can help."""
    return proofs.from_its_kubelet(world, ghost) or _proofs_of(world.job).waited_for(world, ghost)
