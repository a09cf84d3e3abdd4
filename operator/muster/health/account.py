"""The offences of a machine: what it is charged for, and whether it stays in quarantine for them."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from muster.api.nodehealth import HealthIncident, Offences
from muster.health.incidents import ONE_FAULT_SECONDS, IncidentHistory, is_forgiven, is_in_quarantine
from muster.health.memory import accounts_to_keep, charged_score, identity_to_keep, may_be_same, score
from muster.health.node_world import NodeWorld


@dataclass(frozen=True, slots=True)
class OffenceAccount:
    """The offences of a machine, and those of machines that had the node's name before.

    Attributes:
        offences: the account as it is recorded.
        earlier: those of the other machines.
        worth: the present score.
        limit: the score at which the machine is quarantined.
        faded: whether a quarantine that no user has ended is over by time alone.
        is_quarantined: whether the machine stays in quarantine, whatever is reported of it now.
    """

    offences: Offences
    earlier: tuple[Offences, ...]
    worth: Decimal
    limit: Decimal
    faded: bool
    is_quarantined: bool

    @property
    def last(self) -> str:
        """The score after the last charge, as text for users. It does not change while the score fades."""
        return f"{charged_score(self.offences):.1f}"

    def fades(self, world: NodeWorld) -> datetime | None:
        """Return when the offences have faded enough to end the quarantine; None: it is not theirs to end."""
        if not self.is_quarantined or self.faded or self.worth <= 0:
            return None
        halvings = math.log2(float(2 * self.worth / self.limit))
        # A minute beyond, because the account is kept in ten thousandths.
        seconds = max(0.0, halvings) * world.rules.quarantine.half_life_seconds
        return world.now + timedelta(seconds=seconds + 60)


def account_of(world: NodeWorld, history: IncidentHistory, *, is_offence: bool) -> OffenceAccount:
    """Return the account of the node's machine, and whether it is quarantined for it.

    Args:
        world: what is known of the node.
        history: the incidents on its record.
        is_offence: whether a sign has the node out now that is charged to the hardware.
    """
    offences, earlier, worth = _recorded(world)
    # Half of one below the number of incidents: each earlier offence has faded a little when the last one comes.
    limit = Decimal(world.rules.quarantine.incidents) - Decimal("0.5")
    last = history.open
    if last is not None and is_in_quarantine(last):
        holds = not is_forgiven(last, world.released)
        faded = holds and worth < limit / 2
        stays = holds and not (faded and world.time_is_sure)
    else:
        faded, stays = False, is_offence and worth >= limit and _is_charged(last, offences)
    # A cordon stands above a quarantine, which may fade meanwhile.
    return OffenceAccount(offences, earlier, worth, limit, faded, stays and not world.is_cordoned)


def _is_charged(incident: HealthIncident | None, offences: Offences) -> bool:
    """Whether the account has been charged for the open incident."""
    taken_out_time = incident.taken_out_time if incident is not None else None
    return taken_out_time is not None and offences.as_of is not None and offences.as_of >= taken_out_time


def _recorded(world: NodeWorld) -> tuple[Offences, tuple[Offences, ...], Decimal]:
    """Return the machine's account under any node's name, the accounts of machines before it, and its score now."""
    previous, machine, replaced = world.before, world.machine, world.is_replaced
    half_life = world.rules.quarantine.half_life_seconds
    offences = Offences(hardware=machine) if replaced else previous.offences
    own = score(offences, world.now, half_life)
    earlier = tuple(previous.earlier_offences)
    if replaced:
        earlier = accounts_to_keep((previous.offences, *earlier), machine, world.now, half_life)
    recorded_machine = previous.offences.hardware
    met = bool(machine) and (replaced or not recorded_machine or may_be_same(recorded_machine, machine))
    elsewhere = world.memory.highest_score(machine, world.now, half_life) if world.memory and met else Decimal(0)
    if elsewhere > own:
        offences = Offences(hardware=machine, score=str(elsewhere), as_of=world.now)
    if machine and offences.hardware != machine:
        kept = identity_to_keep(machine, offences.hardware) if offences.hardware else machine
        offences = offences.model_copy(update={"hardware": kept})
    return offences, earlier, max(own, elsewhere)


def offences_if_taken(
    world: NodeWorld, incidents: Iterable[HealthIncident], account: OffenceAccount, causes: Collection[str]
) -> Offences:
    """Return the account once Muster takes the node out for a fault of the hardware: with one more offence.

    A fault that comes and goes is charged once. A release, a reboot or a repair in between makes it a new fault.

    Args:
        world: what is known of the node.
        incidents: of the node, with that of this verdict.
        account: the account before.
        causes: of the fault.
    """
    charged = account.offences.as_of
    is_recent = charged is not None and abs((world.now - charged).total_seconds()) < ONE_FAULT_SECONDS
    is_released = charged is not None and world.released is not None and world.released >= charged
    if is_recent and not is_released and any(_is_paid(incident, causes, world) for incident in incidents):
        return account.offences
    return account.offences.model_copy(update={"score": str(account.worth + 1), "as_of": world.now})


def _is_paid(incident: HealthIncident, causes: Collection[str], world: NodeWorld) -> bool:
    """Whether the machine was charged for the same fault by this incident, less than an hour ago."""
    return (
        incident.taken_out_time is not None
        and incident.charged_to in causes
        and incident.boot_id == world.boot
        and incident.repair_ended_time is None
        and abs((world.now - incident.taken_out_time).total_seconds()) < ONE_FAULT_SECONDS
    )
