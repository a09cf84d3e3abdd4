"""On a fleet too large to try everything: what is chosen costs what the tables say."""

from random import Random

from tests.unit.placement.cases import NEEDS
from tests.unit.placement.streams import a_fleet_of, domains

from muster.placement.knapsack import Knapsack
from muster.placement.parts import at_once
from muster.placement.points import Room, Shape
from muster.placement.request import Request
from muster.placement.space import solve
from muster.placement.tree import Tree
from muster.world.queuedecision import Placed


def digits(cost: int, count: int) -> tuple[int, ...]:
    """The counts that a cost is made of, from the outside in."""
    return tuple(cost >> 20 * place & (1 << 20) - 1 for place in reversed(range(count)))


def costs_what_the_tables_say(random: Random) -> None:
    fleet, _ = a_fleet_of(random)
    levels = len(fleet.policy.topology.levels)
    share = random.choice([0.02, 0.1, 0.3, 0.6])
    for name in [name for name in fleet.nodes if random.random() < share]:
        fleet.occupy(name, "other", frozenset({name}))
    size, spares = random.choice([1, 1, 2, 3]), random.choice([0, 1, 2, 5])
    segments = random.randint(1, max(1, len(fleet.nodes) // size // 2))
    wanted = Room(segments, segments * size + spares)
    knapsack = Knapsack(levels, Shape(size, spares))
    cost = at_once(knapsack.best(Tree.up_to_date(fleet, NEEDS).root, wanted))
    answer = solve(fleet, Request(segments * size, NEEDS, "me", segment_size=size, spares=spares))
    assert isinstance(answer, Placed) == (cost is not None)
    if isinstance(answer, Placed) and cost is not None:
        counts = digits(cost, levels * (2 if spares else 1))
        assert domains(fleet, answer.nodes) == counts[:levels]
        assert domains(fleet, (*answer.nodes, *answer.spares)) == counts[-levels:]
