"""What a launcher does next, by its directive and its ranks. test_cut_off.py and test_fence_file.py have the fence."""

from __future__ import annotations

import pytest

from muster.node.launcher.moves import Move, next_move
from muster.protocol.messages import EXIT, RUN, WAIT, Directive

LISTED = 2, 1


@pytest.mark.parametrize(
    ("directive", "attempt", "move"),
    [
        (Directive(RUN, 2), None, Move.START),
        (Directive(RUN, 2), 2, Move.GO_ON),
        (Directive(RUN, 3), 2, Move.END),
        (Directive(WAIT, 3), 2, Move.END),
        (Directive(EXIT), 2, Move.END),
        (Directive(EXIT), None, Move.EXIT),
        (Directive(WAIT, 3), None, Move.LIST),
        (Directive(WAIT, 2, listing_round=2), None, Move.LIST),
        (Directive(WAIT, 2, listing_round=1), None, Move.NOTHING),
        pytest.param(Directive(WAIT, 2), None, Move.NOTHING, id="an answer that was overtaken"),
    ],
)
def test_what_a_directive_asks_for(directive: Directive, attempt: int | None, move: Move) -> None:
    assert next_move(directive, attempt, LISTED) is move
