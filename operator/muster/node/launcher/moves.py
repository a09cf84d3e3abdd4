"""Decides what a launcher does next, by its directive and by what it observes. Pure: the supervisor carries it out."""

from __future__ import annotations

import dataclasses
import enum
from typing import Optional, Sequence, Tuple

from muster.node.launcher.fence_file import SILENT_SECONDS, FenceFile
from muster.node.launcher.reporter_core import OVERDUE_SECONDS
from muster.protocol.fence import is_cut_off, is_superseded
from muster.protocol.messages import RUN, WAIT, Directive


class Move(enum.Enum):
    """What a launcher does next: start ranks, let them go on, end them, list checkpoints, exit, or nothing."""

    START = "Start"
    GO_ON = "GoOn"
    END = "End"
    LIST = "List"
    EXIT = "Exit"
    NOTHING = "Nothing"


def next_move(directive: Directive, attempt: Optional[int], listed: Tuple[int, int]) -> Move:
    """Return what the directive asks of a launcher.

    Args:
        directive: the newest directive.
        attempt: of the launcher's ranks, alive or not; None: there are none.
        listed: attempt and round for which the launcher was last asked to list checkpoints.
    """
    if attempt is not None:
        return Move.GO_ON if directive.kind == RUN and directive.attempt == attempt else Move.END
    if directive.kind == RUN:
        return Move.START
    if directive.kind != WAIT:
        return Move.EXIT
    # Answers that overtake each other may ask for less than was asked for before.
    return Move.LIST if wanted_listing(directive) > listed else Move.NOTHING


def wanted_listing(directive: Directive) -> Tuple[int, int]:
    """Return the attempt and round for which the directive asks to list checkpoints."""
    return directive.attempt, directive.listing_round or 0


@dataclasses.dataclass(frozen=True)
class GangView:
    """What a launcher knows of its gang when it decides whether to end its ranks. Times are of one monotonic clock.

    Attributes:
        attempt: of the ranks.
        started_at: when they were started.
        stepped_at: when the last step was finished; before the first one, when the report was sent whose answer opened
            the start barrier.
        answered_at: when the last report was sent that the coordinator has answered.
        due_at: when the coordinator's next answer is due.
        fence_seconds: the length of the fence that the coordinator knows of.
        peer_seconds: for how long each neighbour has been silent.
        obeys_fence_file: whether the coordinator may rely on the fence file.
        newest_heard: the newest attempt of a neighbour; 0 = none.
        broken_at: when neighbours last found the gang broken; None: they have not.
    """

    attempt: int
    started_at: float
    stepped_at: float
    answered_at: float
    due_at: float
    fence_seconds: float
    peer_seconds: Sequence[float]
    obeys_fence_file: bool
    newest_heard: int = 0
    broken_at: Optional[float] = None


def is_alone(answered_at: float, due_at: float, now: float) -> bool:
    """Whether the coordinator is overdue and has been silent for long enough to read the fence file instead."""
    return now - answered_at >= SILENT_SECONDS and now - due_at >= OVERDUE_SECONDS


def why_to_fence(gang: GangView, fence_file: FenceFile, now: float) -> str:
    """Return why a launcher has to end its ranks without a directive; "" if it need not."""
    if is_superseded(gang.attempt, gang.newest_heard, now - gang.due_at):
        return "cut off: the coordinator does not answer, and the gang has gone on without"
    broken_seconds = None if gang.broken_at is None else now - gang.broken_at
    answered_seconds, step_seconds = now - gang.answered_at, now - gang.stepped_at
    if is_cut_off(gang.fence_seconds, answered_seconds, gang.peer_seconds, step_seconds, broken_seconds):
        return "cut off: the coordinator does not answer, and the gang stands still"
    standing = fence_file.standing
    if is_alone(gang.answered_at, gang.due_at, now) and standing.attempt > gang.attempt:
        return "the coordinator does not answer, and attempt %d has the checkpoints" % standing.attempt
    # A launcher that is alone reads it: before that the content is not needed.
    unread_seconds = fence_file.unread_seconds(now, max(gang.due_at, gang.started_at))
    if gang.obeys_fence_file and unread_seconds >= max(gang.fence_seconds, 2 * SILENT_SECONDS):
        return "the coordinator does not answer, and which worker has the checkpoints cannot be seen: %s" % (
            standing.error or "no answer"
        )
    return ""
