"""The phrases that several messages about waiting share.

Tests: tests/unit/queueing/test_explain.py, tests/unit/queueing/test_queue.py.
"""

from collections.abc import Mapping

from muster.world.names import verb_for

MAX_NAMES = 3


def more_text(needs: int, size: int) -> str:
    """`more` if a gang of this size asks for nodes beside others that it has already, else ""."""
    return "more" if needs < size else ""


def jobs_text(amounts: Mapping[str, int]) -> str:
    """The names with their amounts, most first, a few only; a single name goes without its amount."""
    names = sorted(amounts, key=lambda name: (-amounts[name], name))
    if len(names) == 1:
        return names[0]
    shown = [f"{name} ({amounts[name]})" for name in names[:MAX_NAMES]]
    rest = len(names) - MAX_NAMES
    if rest > 0:
        return f"{', '.join(shown)} and {rest} more job{'s' if rest != 1 else ''}"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def before_in_queue_text(count: int) -> str:
    """Why the named jobs come first, in words, for one job or for several."""
    return "which is before it in the queue" if count == 1 else "which are before it in the queue"


def shortened_text(text: str, length: int) -> str:
    """The text, shortened to `length` characters if it is longer."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def part_text(count: int, total: int) -> str:
    """A part of the nodes just named, with the verb, such as `all of them are`."""
    if total == 1:
        return "it is"
    return f"{'all' if count == total else count} of them {verb_for(count)}"
