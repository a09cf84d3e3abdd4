"""How many of the sick nodes may be taken out: the guard against a rule, a driver or a monitor that calls everything sick.

A verdict alone takes no node away. Muster has jobs leave a node (and taints it, where the policy says so) only within a
budget: a share of all nodes per window, a share of each innermost domain and a share of the fleet at the same time, at
least one node each. While the budget holds a node back, new pods of jobs still avoid it, and people are told.

When the window's budget has been used up and there are more sick nodes, the breaker is open: it then tries one node at a
time, after a pause that doubles with each. It closes by itself when no sick node waits any more. Nothing of this is kept
anywhere: it follows from the incidents in NodeHealth (when each began, when Muster acted on it) and from the taints that
are on the nodes, so that a restart resets nothing. An action is written into its incident before it is done
(`Verdict.taken`), and is not counted a second time when it is done again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from muster.api.fleetpolicy import Enforcement, TakeOutBudget
from muster.api.nodehealth import HealthIncident
from muster.health.assess import Verdict
from muster.health.sources import Rules

MAX_PAUSE_SECONDS = 14400
"""The pause between two tries doubles up to four hours."""


class Act(StrEnum):
    """What may be done about one node.

    Nothing: it may be used. Take: jobs leave it, and it is tainted where the policy says so. Hold: it is sick, but the
    budget holds it back: avoided, neither left nor tainted. Yield: somebody else repairs it: avoided, and left after the next
    checkpoint. Untaint: it bears Muster's taint and should not.
    """

    NOTHING = "Nothing"
    TAKE = "Take"
    HOLD = "Hold"
    YIELD = "Yield"
    UNTAINT = "Untaint"


class BreakerState(StrEnum):
    """Closed: within the budget. Open: more is asked for than the budget or the cap allows. HalfOpen: one is tried now."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


@dataclass(frozen=True, slots=True)
class Ruling:
    """About one node.

    Attributes:
        act: what may be done.
        why: in words, for Hold and Yield.
        charge: it is news: write `Verdict.taken` before doing it.
    """

    act: Act
    why: str = ""
    charge: bool = False


@dataclass(frozen=True, slots=True)
class Breaker:
    """What people are told of it.

    Attributes:
        state: see there.
        budget: nodes per window.
        used: nodes taken within the window that ends now.
        cap: nodes at the same time.
        out: nodes out now by Muster's doing.
        held: nodes that the budget holds back.
        next_try: when another node may be taken, while some are held; None: nobody waits, or not by time.
        message: all that in words; "" while nothing is held.
    """

    state: BreakerState
    budget: int
    used: int
    cap: int
    out: int
    held: int
    next_try: datetime | None
    message: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rulings are made of.

    Attributes:
        verdicts: on the nodes that exist, by name. Those that are neither tainted nor `concerned` may be left out: nothing
            is ruled about them.
        tainted: nodes that bear Muster's taint.
        domains: node -> path of its innermost domain; absent, or empty at the end: it is in none.
        gone: incidents of NodeHealth objects whose node does not exist now; they count for the window.
        nodes: how many nodes the fleet has, if more than are in `verdicts`.
        sizes: how many nodes each innermost domain has, by its path; None: those that are in `verdicts`.
    """

    verdicts: Mapping[str, Verdict]
    tainted: Collection[str] = frozenset()
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Iterable[HealthIncident] = ()
    nodes: int = 0
    sizes: Mapping[tuple[str, ...], int] | None = None


def concerned(verdict: Verdict) -> bool:
    """Whether a ruling can be about the node, or has to count what was done to it before."""
    return verdict.out or any(incident.taken is not None for incident in verdict.incidents)


def at_least_one(percent: int, of: int) -> int:
    """A share, rounded down; at least one."""
    return max(1, of * percent // 100)


def held_back(ruling: Ruling) -> Ruling:
    """The same while nobody knows what the policy says: no node is newly taken out, and no taint is taken off."""
    if ruling.charge:
        return Ruling(Act.HOLD, "the FleetPolicy cannot be read, and takes no node out until it can")
    return Ruling(Act.NOTHING) if ruling.act is Act.UNTAINT else ruling


def rule(situation: Situation, rules: Rules, now: datetime) -> tuple[dict[str, Ruling], Breaker]:
    """What may be done about each node, and the breaker's state.

    Where the policy only observes, the rulings say what would be done, and nothing is charged: a later change of the policy
    finds the whole budget, and not a fleet that counts as taken already.
    """
    budget, charge = rules.budget, rules.enforcement is not Enforcement.OBSERVE
    size = max(situation.nodes, len(situation.verdicts))
    per_window, cap = at_least_one(budget.nodes_percent, size), at_least_one(budget.total_percent, size)
    window = timedelta(seconds=budget.window_seconds)
    taken = _times_taken(situation, now, window)
    rulings, out, waiting = _settled(situation)

    domain_of = {name: tuple(path) for name, path in situation.domains.items() if path and all(path)}
    sizes = situation.sizes
    if sizes is None:
        sizes = Counter(domain_of[name] for name in situation.verdicts if name in domain_of)
    out_in = Counter(domain_of[name] for name in out if name in domain_of)
    used = sum(1 for moment in taken if moment > now - window)
    able = [name for name in waiting if _blocked(name, domain_of, sizes, out_in, budget, len(out), cap) == ""]
    pause = _Pause.of([_began(situation.verdicts[name], now) for name in able], taken, per_window, window)
    allowed = max(0, per_window - used)
    if pause is not None:
        allowed = min(allowed, 1) if now >= pause.next_try else 0

    next_try = pause.next_try if pause else None
    if pause is None and able and not allowed:
        next_try = min(moment for moment in taken if moment > now - window) + window
    state = BreakerState.CLOSED
    if pause is not None:
        state = BreakerState.HALF_OPEN if allowed else BreakerState.OPEN
    for name in waiting:
        why = _blocked(name, domain_of, sizes, out_in, budget, len(out), cap)
        if not why and not allowed:
            nodes = f"{per_window} node{'s' * (per_window != 1)}"
            why = f"the budget of {nodes} in {budget.window_seconds} s ({budget.nodes_percent} % of all) is used up"
        if why:
            rulings[name] = Ruling(Act.HOLD, why)
            continue
        allowed -= 1
        used += 1
        out.add(name)
        if name in domain_of:
            out_in[domain_of[name]] += 1
        rulings[name] = Ruling(Act.TAKE, charge=charge)
    held = sum(1 for ruling in rulings.values() if ruling.act is Act.HOLD)
    if held and len(out) >= cap and state is BreakerState.CLOSED:
        state = BreakerState.OPEN
    message = _message(state, held, used, per_window, len(out), cap, next_try, now) if held else ""
    return rulings, Breaker(state, per_window, used, cap, len(out), held, next_try if held else None, message)


def _times_taken(situation: Situation, now: datetime, window: timedelta) -> list[datetime]:
    """When Muster acted, oldest first. A time a little ahead is now; one further ahead is of a clock that was wrong."""
    incidents = [*situation.gone, *(incident for v in situation.verdicts.values() for incident in v.incidents)]
    return sorted(min(i.taken, now) for i in incidents if i.taken is not None and i.taken <= now + window)


def _settled(situation: Situation) -> tuple[dict[str, Ruling], set[str], list[str]]:
    """Rulings that need no budget, the nodes that are out already, and those that wait, the most urgent first."""
    rulings: dict[str, Ruling] = {}
    out: set[str] = set()
    waiting: list[str] = []
    for name, verdict in situation.verdicts.items():
        incident = verdict.open_incident
        acted = incident is not None and incident.taken is not None
        if not verdict.out:
            rulings[name] = Ruling(Act.UNTAINT if name in situation.tainted else Act.NOTHING)
        elif acted or verdict.cordoned:
            # Also when somebody else has taken the repair over since: a taint that comes and goes helps nobody.
            rulings[name] = Ruling(Act.TAKE)
            if acted:
                out.add(name)
        elif verdict.in_charge:
            rulings[name] = Ruling(Act.YIELD, f"{verdict.in_charge} repairs it")
        else:
            waiting.append(name)
    # A taint without a record (somebody has deleted it, or taken back a cordon) has to be paid for, but comes first.
    waiting.sort(key=lambda name: (name not in situation.tainted, *_urgency(name, situation.verdicts[name])))
    return rulings, out, waiting


def _urgency(name: str, verdict: Verdict) -> tuple[bool, float, str]:
    incident = verdict.open_incident
    return not verdict.fatal, incident.time.timestamp() if incident else 0.0, name


def _began(verdict: Verdict, now: datetime) -> datetime:
    return min(verdict.open_incident.time, now) if verdict.open_incident else now


def _blocked(
    name: str,
    domain_of: Mapping[str, tuple[str, ...]],
    sizes: Mapping[tuple[str, ...], int],
    out_in: Mapping[tuple[str, ...], int],
    budget: TakeOutBudget,
    out: int,
    cap: int,
) -> str:
    """Why no time will do for the node, only others' return; "" if time will. Without figures that change."""
    if out >= cap:
        return f"of the fleet no more than {cap} ({budget.total_percent} %) may be out: somebody has to look"
    domain = domain_of.get(name)
    if domain is None:
        return ""
    most = at_least_one(budget.domain_percent, sizes[domain])
    if out_in.get(domain, 0) >= most:
        return f"of the {sizes[domain]} nodes of {'/'.join(domain)} no more than {most} may be out"
    return ""


@dataclass(frozen=True, slots=True)
class _Pause:
    """The breaker is open."""

    next_try: datetime

    @classmethod
    def of(
        cls, waiting_since: Collection[datetime], taken: Sequence[datetime], budget: int, window: timedelta
    ) -> "_Pause | None":
        """The pause that lasts, if the budget was used up when the oldest of those that wait fell sick; None: it was not.

        Whoever could be taken has been taken at once. So the oldest that waits tells when the budget was first too
        small, and what was taken after that were tries.
        """
        if not waiting_since:
            return None
        opened = min(waiting_since)
        if sum(1 for moment in taken if opened - window < moment <= opened) < budget:
            return None
        tries = [moment for moment in taken if moment > opened]
        # 2 ** 16 windows are beyond any pause.
        seconds = min(window.total_seconds() * 2 ** min(len(tries), 16), max(MAX_PAUSE_SECONDS, window.total_seconds()))
        return cls((tries[-1] if tries else opened) + timedelta(seconds=seconds))


def _message(
    state: BreakerState,
    held: int,
    used: int,
    budget: int,
    out: int,
    cap: int,
    next_try: datetime | None,
    now: datetime,
) -> str:
    text = f"{held} sick nodes are held back: {used} of {budget} nodes of this window are used, {out} of at most {cap} are out."
    if next_try and next_try > now:
        text += f" The next one is taken at {next_try:%Y-%m-%d %H:%M:%S} UTC."
    if state is not BreakerState.CLOSED:
        text += (
            " So many at once are seldom each one's own fault: look for what they share (a roll-out, a driver, a switch,"
            " the monitor itself). If they are sick, raise spec.health.budget of the FleetPolicy."
        )
    return text
