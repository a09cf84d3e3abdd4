"""A new attempt, when the current one is broken. Pure.

Tests: tests/unit/lifecycle/test_scenarios.py.
"""

from collections.abc import Sequence

from muster.api.gang import Gang
from muster.lifecycle import holding
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Plan
from muster.lifecycle.repair import after_failures
from muster.record.attempts import budget_exhausted
from muster.record.held_failure import with_failure_held
from muster.record.incidents import message_of_all
from muster.recovery import blame, repeats
from muster.recovery.failure import Failure, is_hang
from muster.recovery.words import WHAT_LEVELS_DO, after_corruption
from muster.status.report import Announcement
from muster.world.job import JobWorld


def plan(world: JobWorld, gang: Gang, failures: Sequence[Failure]) -> Plan:
    """Return the plan after failures: it commits the next attempt."""
    pause = blame.gathering_seconds(failures)
    if pause > 0 and gang.spec.start is not None:
        return Plan(wake_in_seconds=pause)
    cause = blame.culprit(failures)
    if holding.may_begin(world, gang.spec, failures):
        return commit(world, with_failure_held(world, gang.spec, failures))  # the status says so
    spec = after_failures(world, gang.spec, failures)
    follows = "its nodes are given back"
    if spec.members:
        follows = f"attempt {spec.attempt} follows ({spec.level.value}: {WHAT_LEVELS_DO[spec.level]})"
    is_last = bool(budget_exhausted(world, spec))
    if spec.open_corruption is not None:
        consequence = after_corruption(spec, budget_exhausted=is_last)
        follows = consequence if is_last else f"{follows}; {consequence}"
    elif is_last:
        follows = "no restart is left"
    repeat_text = repeats.repeated(spec.incidents)
    failure_text = f"attempt {gang.spec.attempt}: {message_of_all(world, failures)}"
    note = "; ".join(filter(None, (failure_text, repeat_text, follows, _where_ranks_stood(world, gang, cause))))
    return commit(world, spec, Announcement(cause.kind, note, warning=True))


def _where_ranks_stood(world: JobWorld, gang: Gang, cause: Failure) -> str:
    """Return the command that shows the stacks of a hung attempt, for people; "" where the cause is no hang."""
    if not is_hang(cause.kind):
        return ""
    job = f"{world.job.metadata.namespace}/{world.job.metadata.name}"
    return f"to see where its ranks stood: kubectl muster report {job} --incident {gang.spec.attempt}"
