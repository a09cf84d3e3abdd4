"""A signal that comes and goes, and the ledger that keeps it."""

from muster.node.agent import kinds
from muster.node.agent.facts import Clock, Signal
from muster.node.agent.ledger import Ledger
from muster.node.agent.thresholds import DEFAULTS

WALL = 1_800_000_000.0


def at(seconds: float, wall: float | None = None) -> Clock:
    return Clock(seconds, WALL + seconds if wall is None else wall)


def hot(bad: bool, sustain: float = 0, clear: float = 0, code: int = 0, counter: float | None = None) -> Signal:
    return Signal(kinds.TEMPERATURE, "GPU-1", bad, code, "v", "t", "m", counter, sustain, clear)


def assert_that_it_is_gone_for_longer_each_time(pause: int, clear: float, seconds: int) -> None:
    """A link that went up and down by the minute made the node well, and a write, each time."""
    ledger = Ledger("boot", burst_seconds=180, growth=DEFAULTS["clear.growth"])
    written, bad_at = list[int](), 0
    for second in range(seconds):
        if not len(ledger) and ledger.news:
            bad_at = second + pause
        written += [second] if ledger.news else []
        ledger.news = False
        ledger.sample([hot(second == bad_at, clear=clear)], at(second))
    assert max(sum(first <= other < first + 3600 for other in written) for first in written) <= (
        13 if clear < 30 else 10
    )
