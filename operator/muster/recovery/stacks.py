"""Where the ranks of a hung attempt stood, as their launchers report it, and whether a few stand elsewhere. Pure.

A rank that stands elsewhere than the others is a suspicion and no proof: it may wait for what another one has done. So
it is named for people, and decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from muster.api.gang import MAX_STACK_GROUPS, StackGroup
from muster.protocol.messages import MAX_STACK_CHARS
from muster.world.job import JobWorld
from muster.world.redact import without_secrets

MAX_NAMED = 4
_MAX_RANKS_CHARS = 256


def stacks_of(world: JobWorld, attempt: int) -> tuple[list[StackGroup], str]:
    """Return where the ranks of an attempt stood, most ranks first, with a sentence about it; empty: none is reported.

    Args:
        world: the state of the job.
        attempt: the number of the attempt that hung.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}  # stack and problem -> rank -> worker
    for index, view in world.views.items():
        if view.stacks_attempt != attempt:
            continue
        for each in view.stacks:
            key = each.frames[:MAX_STACK_CHARS], "" if each.frames else each.problem
            found.setdefault(key, {})[each.rank] = index
    if not found:
        return [], ""
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), min(item[1])))
    # Most ranks, and the few that stand elsewhere: what is between them says least.
    kept = ordered[:1] + ordered[1:][1 - MAX_STACK_GROUPS :]
    groups = [
        StackGroup(
            ranks=_ranges(ranks)[:_MAX_RANKS_CHARS],
            count=len(ranks),
            stack=without_secrets(stack, world.job.spec.containers),
            problem=problem,
        )
        for (stack, problem), ranks in kept
    ]
    return groups, without_secrets(_summary(ordered), world.job.spec.containers)


def _summary(ordered: Sequence[tuple[tuple[str, str], Mapping[int, int]]]) -> str:
    """Return where the ranks stood, in one sentence.

    Args:
        ordered: stack and problem of each group with its workers by rank; most ranks first.
    """
    (most, in_most), others = ordered[0], ordered[1:]
    total = sum(len(ranks) for _, ranks in ordered)
    if not others:
        who = f"all {total} ranks" if total > 1 else _named(in_most)
        return f"{who} stood at {_place(*most)}"
    few = total - len(in_most)
    if few <= MAX_NAMED and 3 * few <= total:
        who = f"{_named(others[0][1])} stands" if few == 1 else f"{few} ranks stand"
        where = "; ".join(("" if few == 1 else f"{_named(ranks)} at ") + _place(*key) for key, ranks in others)
        return f"{who} elsewhere than the {len(in_most)} others: {where} (a suspicion, no proof)"
    if total <= MAX_NAMED:
        return "; ".join(f"{_named(ranks)} stood at {_place(*key)}" for key, ranks in ordered)
    return f"the {total} ranks stood at {len(ordered)} places, {len(in_most)} of them at {_place(*most)}"


def _named(ranks: Mapping[int, int]) -> str:
    return ", ".join(f"rank {rank} (worker {ranks[rank]})" for rank in sorted(ranks))


def _place(stack: str, problem: str) -> str:
    """Return the innermost frame without its folders, such as `data.py:12 in load`; else why it is not known."""
    return stack.partition("\n")[0].rpartition("/")[2] if stack else f"no stack: {problem}"


def _ranges(numbers: Iterable[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)
