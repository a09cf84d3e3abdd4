"""Where the ranks of a hung attempt stood, as their launchers report it, and whether a few stand elsewhere. Pure.

A rank that stands elsewhere than the others is a suspicion and no proof: it may wait for what another one has done. So
it is named for people, and decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from muster.api.gang import MAX_STACK_GROUPS, GangSpec, StackGroup
from muster.protocol.messages import MAX_STACK_CHARS, RECLAIMING, RUNNING
from muster.recovery.failure import is_hang
from muster.world.job import JobWorld
from muster.world.names import index_of
from muster.world.redact import without_secrets
from muster.world.views import FRESH_SECONDS, LauncherView

MAX_NAMED = 4
# A launcher takes three seconds at most, once it has heard of the hang.
PRINT_SECONDS = 5.0
_MAX_RANKS_CHARS = 256


def hung_attempt(record: GangSpec) -> int | None:
    """Return the attempt that ended by a hang, while no ranks have started since; None: none did."""
    last = record.incidents[-1] if record.incidents else None
    if last is None or last.resumed_step is not None or not is_hang(last.reason):
        return None
    return last.attempt


def is_printing(world: JobWorld, pod_uid: str) -> bool:
    """Whether the ranks of a pod may still have to print their stacks, after a hang: then the pod is kept for a moment.

    Args:
        world: the state of the job.
        pod_uid: of the pod, whether it is a member's or a former member's.
    """
    attempt, view = hung_attempt(world.gang.spec) if world.gang else None, world.launchers.get(pod_uid)
    if attempt is None or view is None or world.attempt_age_seconds >= PRINT_SECONDS:
        return False
    lives = view.heard_age_seconds < FRESH_SECONDS and view.state in (RUNNING, RECLAIMING)
    return lives and view.attempt == attempt != view.stacks_attempt


def stacks_of(world: JobWorld, attempt: int) -> tuple[list[StackGroup], str]:
    """Return where the ranks of an attempt stood, most ranks first, with a sentence about it; empty: none is reported.

    Args:
        world: the state of the job.
        attempt: the number of the attempt that hung.
    """
    ranks_by_stack: dict[tuple[str, str], dict[int, int]] = {}  # stack and problem -> rank -> worker
    for index, view in _views(world):
        if view.stacks_attempt != attempt:
            continue
        for report in view.stacks:
            key = report.frames[:MAX_STACK_CHARS], "" if report.frames else report.problem
            ranks_by_stack.setdefault(key, {})[report.rank] = index
    if not ranks_by_stack:
        return [], ""
    ordered = sorted(ranks_by_stack.items(), key=lambda item: (-len(item[1]), min(item[1])))
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


def _views(world: JobWorld) -> list[tuple[int, LauncherView]]:
    """Return the last reports of the members' launchers and of those whose pods the record has dropped, by worker."""
    former = world.gang.spec.unfenced_workers if world.gang else ()
    left = ((unfenced_worker.pod, world.launchers.get(unfenced_worker.pod_uid)) for unfenced_worker in former)
    return [*world.views.items(), *((index_of(pod), view) for pod, view in left if view is not None)]


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
