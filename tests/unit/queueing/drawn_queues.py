"""Random fleets with queues and limits, and what is answered to each job."""

from dataclasses import dataclass

from hypothesis import strategies as st
from tests.unit.queueing.builders import tree, wants

from muster.queueing.queue import plan
from muster.queueing.waiting import Waiting
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed

NAMESPACES = ["team-a", "team-b", "team-c"]


@dataclass
class Case:
    fleet: Fleet
    waiting: list[Waiting]
    limits: dict[str, int]
    held: dict[str, int]

    def answers(self, waiting: list[Waiting] | None = None) -> dict[str, Placed | NotPlaced]:
        turns = plan(self.fleet, self.waiting if waiting is None else waiting, self.limits, self.held)
        return {uid: turn.answer for uid, turn in turns.items()}


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    racks = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6))
    blocks = draw(st.integers(1, 3))
    return tree(" ".join(f"b{n % blocks}/r{n}:{free}+{held}" for n, (free, held) in enumerate(racks)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fleet = draw(fleets())
    names = sorted(fleet.nodes)
    waiting = []
    for number in range(draw(st.integers(0, 8))):
        replacement = bool(names) and draw(st.integers(0, 3)) == 0
        segment_size = 1 if replacement else draw(st.sampled_from([1, 1, 1, 2, 3]))
        waiting.append(
            wants(
                f"j{number}",
                segment_size * draw(st.integers(1, 8 // segment_size)),
                segment_size=segment_size,
                spares=draw(st.sampled_from([0, 0, 0, 1, 2])),
                seconds=draw(st.integers(0, 3)),
                namespace=draw(st.sampled_from(NAMESPACES)),
                priority=draw(st.integers(-1, 1)),
                required=draw(st.sampled_from([None, None, "block", "rack"])),
                replacement=replacement,
                kept=(draw(st.sampled_from(names)),) if replacement else (),
            )
        )
    limits = draw(st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 12)))
    held = draw(st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 8)))
    return Case(fleet, waiting, limits, held)


def taken(answer: Placed | NotPlaced) -> tuple[str, ...]:
    return (*answer.nodes, *answer.spares) if isinstance(answer, Placed) else ()
