"""The results of the burn-in in the record. Pure.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Collection, Sequence

from muster.api.gang import BurnIn, BurnInAllReduce, BurnInFailure, GangSpec
from muster.preflight.outcomes import Fail
from muster.record import corruption, members
from muster.record.attempts import after_assembly_failed
from muster.record.exclusions import EXCLUSION, FAILED_EXCLUSION, with_excluded
from muster.world.job import JobWorld

BURN_IN_FAILED = "BurnInFailed"
MAX_BURN_IN_FAILURES = 64


def after_burn_in_release(world: JobWorld, record: GangSpec, fails: Sequence[Fail], profile: str) -> GangSpec:
    """Return the record of a gang that gives its nodes back, because too many in a row have failed the burn-in.

    The next try is held back for a while.
    """
    record = corruption.with_culprits(record, fails)
    spec = after_assembly_failed(world, record, members.indices_on(record, {fail.node for fail in fails}))
    spec = with_excluded(spec, (fail.node for fail in fails), world.now + FAILED_EXCLUSION)
    burn_in = _after_try(world, record, fails, profile).model_copy(update={"tries": 0})
    return spec.model_copy(update={"reason": BURN_IN_FAILED, "burn_in": burn_in})


def after_inconclusive_release(
    world: JobWorld, record: GangSpec, nodes: Collection[str], message: str, reason: str
) -> GangSpec:
    """Return the record of a gang that gives its nodes back, because the tests of some nodes have given no answer.

    The next try is held back for a while.
    """
    burn_in = (record.burn_in or BurnIn(time=world.now)).model_copy(
        update={"time": world.now, "tries": 0, "message": message[:512]}
    )
    spec = after_assembly_failed(world, record, members.indices_on(record, nodes), reason)
    return spec.model_copy(update={"burn_in": burn_in})


def with_failed(world: JobWorld, record: GangSpec, fails: Sequence[Fail], profile: str) -> GangSpec:
    """Return the record with nodes that failed the burn-in, which the gang avoids.

    Args:
        world: the state of the job.
        record: of the gang.
        fails: the failed nodes.
        profile: of the burn-in.
    """
    burn_in = _after_try(world, record, fails, profile)
    avoiding = with_excluded(record, (fail.node for fail in fails), world.now + FAILED_EXCLUSION)
    return corruption.with_culprits(avoiding, fails).model_copy(update={"burn_in": burn_in})


def with_inconclusive(world: JobWorld, record: GangSpec, nodes: Collection[str], profile: str) -> GangSpec:
    """Return the record with nodes whose tests have given no answer for too long. Nothing is held against them, but
    the gang avoids them for a while.

    Args:
        world: the state of the job.
        record: of the gang.
        nodes: those that are not proved.
        profile: of the burn-in.
    """
    burn_in = _after_try(world, record, (), profile)
    return with_excluded(record, nodes, world.now + EXCLUSION).model_copy(update={"burn_in": burn_in})


def _after_try(world: JobWorld, record: GangSpec, fails: Sequence[Fail], profile: str) -> BurnIn:
    """Return what the record has of the burn-in after one more try."""
    previous = record.burn_in
    failures = [
        BurnInFailure(
            node=fail.node,
            boot=node.boot_id if (node := world.fleet.nodes.get(fail.node)) else "",
            time=world.now,
            probe=fail.probe,
            message=fail.message[:512],
            partners=list(fail.partners[:16]),
        )
        for fail in fails
    ]
    return BurnIn(
        profile=profile,
        time=world.now,
        tries=1 + (previous.tries if previous else 0),
        since_attempt=previous.since_attempt if previous is not None and previous.tries else record.attempt,
        failures=[*(previous.failures if previous else ()), *failures][-MAX_BURN_IN_FAILURES:],
        untested=previous.untested if previous else [],
        all_reduce=previous.all_reduce if previous else None,
    )


def after_burn_in_passed(
    world: JobWorld, record: GangSpec, profile: str, untested: Sequence[str], words: str, measured: str
) -> GangSpec:
    """Return the record with the results of the burn-in before a start; nodes that failed in the last day stay in it.

    Args:
        world: the state of the job.
        record: with the start barrier open.
        profile: of the burn-in.
        untested: nodes of which nothing is proved.
        words: why not; "" if all are proved.
        measured: the result of the all-reduce of the whole gang; "": none was made, and an earlier one stays.
    """
    previous = record.burn_in
    whole = BurnInAllReduce(time=world.now, message=measured) if measured else previous.all_reduce if previous else None
    recent = [f for f in previous.failures if world.now - f.time < FAILED_EXCLUSION] if previous else []
    if not recent and not untested and whole is None:
        return record.model_copy(update={"burn_in": None})
    burn_in = BurnIn(
        profile=profile,
        time=world.now,
        failures=recent,
        untested=sorted(untested),
        message=words[:512],
        all_reduce=whole,
    )
    return record.model_copy(update={"burn_in": burn_in})
