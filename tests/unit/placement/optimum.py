"""What an answer reaches, beside a solver that tries everything."""

from collections import Counter
from random import Random

from tests.unit.placement.cases import NEEDS, Case, a_case
from tests.unit.placement.exhaustive import Best, best, place, usable, vectors
from tests.unit.placement.streams import a_fleet_of, free_of

from muster.placement.eligibility import reluctance
from muster.placement.names import reserved_refusal
from muster.placement.parts import at_once
from muster.placement.request import Request
from muster.placement.space import Space, solve
from muster.placement.where import domain_counts, domain_path
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed


def answer_of(case: Case, fleet: Fleet | None = None) -> Placed | NotPlaced:
    space = Space(case.fleet if fleet is None else fleet)
    space.reserve_nodes(case.taken, reserved_refusal("default/big"))
    return at_once(space.solve(case.request))


def reached(case: Case, answer: Placed) -> Best:
    """What an answer reaches, as the exhaustive solver measures it."""
    fleet = case.fleet
    free = Counter(place(fleet, name) for name in usable(fleet, case.request, case.taken))
    workers = {place(fleet, name) for name in answer.nodes}
    chosen = (*answer.nodes, *answer.spares)
    total = sum(reluctance(fleet.nodes[name], case.request.needs, fleet) for name in chosen)
    counts, with_spares, left = vectors(fleet, case.request, free, workers, {place(fleet, n) for n in answer.spares})
    return Best(counts, with_spares, left, total)


def check_counts(case: Case) -> tuple[Best, Best] | None:
    """Feasible if and only if anything is; as few domains as any choice, per level from the outside in."""
    answer, optimum = answer_of(case), best(case.fleet, case.request, case.taken)
    assert isinstance(answer, Placed) == (optimum is not None), answer
    if optimum is None or isinstance(answer, NotPlaced):
        return None
    found = reached(case, answer)
    assert (found.counts, found.with_spares) == (optimum.counts, optimum.with_spares)
    counts = domain_counts(case.fleet, (*answer.nodes, *case.request.kept))
    assert tuple(counts.values()) == found.counts
    return optimum, found


def left_behind_is_the_least_nearly_always(count: int) -> None:
    """Among so many cases."""
    cases = [check_counts(a_case(Random(seed))) for seed in range(count)]
    pairs = [pair for pair in cases if pair is not None]
    assert len(pairs) > count / 5
    left = sum(found.left == optimum.left for optimum, found in pairs)
    assert left >= 0.99 * len(pairs)
    reluctant = sum((found.left, found.reluctance) == (optimum.left, optimum.reluctance) for optimum, found in pairs)
    assert reluctant >= 0.97 * len(pairs)


def one_rack_is_the_one_that_leaves_least(seed: int) -> tuple[int, int]:
    """How often a gang of one rack is in the rack that leaves least behind, from the outside in; and of how many."""
    random = Random(seed)
    fleet, _ = a_fleet_of(random)
    share = random.choice([0.1, 0.3, 0.6])
    for name in [name for name in fleet.nodes if random.random() < share]:
        fleet.occupy(name, "other", frozenset({name}))
    free = {rack: len(names) for rack, names in free_of(fleet).items()}
    around = Counter[tuple[str, ...]]()
    for rack, count in free.items():
        around.update({rack[: depth + 1]: count for depth in range(len(rack))})
    best = asked = 0
    for count in (1, 2, 3, 4):
        left = {rack: [around[rack[: depth + 1]] for depth in range(len(rack))] for rack in free if free[rack] >= count}
        if not left:
            continue
        answer = solve(fleet, Request(count, NEEDS, "me"))
        assert isinstance(answer, Placed)
        racks = {domain_path(fleet.nodes[name], fleet.policy.topology.labels) for name in answer.nodes}
        assert len(racks) == 1
        asked += 1
        best += left[racks.pop()] == min(left.values())
    return best, asked
