"""Message texts that Events and the status share.

Tests: tests/unit/record/test_corruption.py.
"""

from collections.abc import Mapping, Sequence

from muster.api.gang import Corruption, Examination, GangSpec, Level
from muster.world.names import shortened

SHOWN_SUSPECTS = 4

WHAT_LEVELS_DO: Mapping[Level, str] = {
    Level.START: "the whole gang starts",
    Level.IN_PLACE: "ranks restart in place",
    Level.POD: "a new pod on the same node",
    Level.REPLACE: "another node takes the worker",
    Level.REBUILD: "the gang is rebuilt",
}

WHAT_TESTS_SHOW: Mapping[Examination, str] = {
    Examination.CULPRIT_FOUND: "{culprits} gave wrong results in the burn-in and left the gang",
    Examination.NOTHING_FOUND: "all nodes have passed the burn-in, and no culprit was found",
    Examination.INCONCLUSIVE: "the burn-in could not clear all nodes, and has found no culprit",
    Examination.NOT_TESTED: (
        "the nodes on which that happened were not tested: no checker there reports, or the gang has moved off them"
    ),
}


_GOES_ON = (
    ". Muster lets the gang go on with them. If wrong results come again at the same step, look at the data, the "
    "learning rate and the program"
)


def failures_text(count: int) -> str:
    """Return a number of failures as text: `1 failure`, `4 failures`."""
    return f"{count} failure{'s' if count != 1 else ''}"


def and_more_workers(count: int, nodes: Sequence[str] = ()) -> str:
    """Return the end of a message about one worker where the same happened to more; "" where it did not.

    Args:
        count: how many more.
        nodes: those of them whose nodes a reader has to know.
    """
    if count <= 0:
        return ""
    where = f", on {shortened(nodes)}" if nodes else ""
    return f" (and {count} more worker{'s' if count != 1 else ''}{where})"


def after_corruption(spec: GangSpec, *, budget_exhausted: bool = False, ended: bool = False) -> str:
    """Return what follows from wrong results, as text: which checkpoints are suspect, and what is known of the nodes.

    Args:
        spec: the record.
        budget_exhausted: whether the job has no restart left.
        ended: whether the job has ended.
    """
    corruption = spec.corruption
    if corruption is None:
        return ""
    if not corruption.open:
        suspects = suspects_text(corruption.suspect_steps, corruption.suspect_count, ended=ended)
    else:
        suspects = f"checkpoints beyond step {spec.branch.step} are suspect" if spec.branch else ""
    return "; ".join(
        part for part in (suspects, what_tests_show(corruption, budget_exhausted=budget_exhausted, ended=ended)) if part
    )


def suspects_text(steps: Sequence[int], count: int = 0, *, ended: bool = False) -> str:
    """Return which checkpoints are suspect, as text; "" where none is.

    Args:
        steps: of the newest suspect checkpoints, newest first.
        count: of all suspect checkpoints, where `steps` are fewer.
        ended: whether the job has ended, so that no checkpoint is written again.
    """
    if not steps:
        return ""
    shown = [str(step) for step in steps[:SHOWN_SUSPECTS]]
    more = max(count, len(steps)) - len(shown)
    if len(shown) + more == 1:
        rest = "" if ended else " and does not count until it is saved again"
        return f"checkpoint {shown[0]} {'was' if ended else 'is'} suspect{rest}"
    others = f" and {more} more" if more else ""
    rest = "" if ended else " and do not count until they are saved again"
    return f"checkpoints {', '.join(shown)}{others} {'were' if ended else 'are'} suspect{rest}"


def what_tests_show(corruption: Corruption, *, budget_exhausted: bool = False, ended: bool = False) -> str:
    """Return what is known of the nodes on which ranks found wrong results, as text.

    Args:
        corruption: the report of wrong results.
        budget_exhausted: whether the job has no restart left.
        ended: whether the job has ended.
    """
    if corruption.examination is not None:
        shown = WHAT_TESTS_SHOW[corruption.examination].format(culprits=", ".join(corruption.culprits))
        goes_on = corruption.examination is Examination.NOTHING_FOUND and not (budget_exhausted or ended)
        return shown + (_GOES_ON if goes_on else "")
    if ended:
        return "its nodes were not tested"
    if budget_exhausted:
        return "no restart is left unless the tests find a bad node"
    return "its nodes are tested before it goes on, where checkers are installed"


def on_nodes(spec: GangSpec) -> str:
    """Return where the gang is, as text that is short enough for an Event."""
    where = ", ".join(f"{count.domains} {count.level}{'s' * (count.domains != 1)}" for count in spec.topology)
    names = shortened([member.node or "(no node yet)" for member in spec.members])
    return f"on {names}" + (f" ({where})" if where else "")
