"""Who may still be alive: the pods that a record drops and cannot ask, until it is proved that their ranks have ended. Pure.

What proves it is in `proofs`, and of ranks that have a launcher in `managed`; see docs/decisions/0012.
"""

from collections.abc import Iterable

from muster.api.gang import GangSpec, Ghost, Member
from muster.lifecycle import proofs
from muster.lifecycle.modes import mode_of
from muster.world.job import JobWorld


def ghosts(world: JobWorld, record: GangSpec, members: Iterable[Member]) -> list[Ghost]:
    """Pods that the new members leave behind and whose ranks may be alive: the next start has to outwait them."""
    mode, kept = mode_of(world.job), {(member.index, member.incarnation) for member in members}
    left = (seat for seat in world.seats if (seat.index, seat.member.incarnation) not in kept)
    known = [mode.known(world, ghost) for ghost in record.ghosts if not laid(world, ghost)]
    return known + [ghost for seat in left if (ghost := mode.ghost(world, record, seat)) is not None]


def laid(world: JobWorld, ghost: Ghost) -> bool:
    """Whether no rank of this pod can be alive any more."""
    return proofs.is_dead(world, ghost) or mode_of(world.job).is_ended(world, ghost)


def waited_for(world: JobWorld, ghost: Ghost) -> str:
    """What proof is waited for, in words, and the remedy where a person can help."""
    return proofs.from_its_kubelet(world, ghost) or mode_of(world.job).waited_for(world, ghost)
