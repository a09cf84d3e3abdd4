"""The burn-in of a gang: which nodes are tested together, what the tests show, and which nodes have to leave. Pure.

Nothing of it is stored while it lasts. It follows from the checkers' reports alone. They hold a pass that still counts,
and the answers to this attempt's orders, which checkers keep while the orders stand in their directives. A new leader
hears the same and concludes the same. Only a failure is recorded (record.burn_in.with_failed). At the start the record
gets the untested nodes and the result of the whole gang (record.burn_in.after_burn_in_passed).

It is decided from one frozen value, in this order: who takes part (view), each node by itself (nodes),
all tests together (tests), what is still missing of them (stages), and what came of it
(conclusion).
"""

from dataclasses import replace

from muster.api.gang import Examination, GangSpec
from muster.api.preflight import Profile
from muster.burnin.conclusion import concluded, known_to_have_passed, patience_seconds
from muster.burnin.stages import (
    answers_missing,
    checkers_missing,
    controls_missing,
    echoes_missing,
    gang_missing,
    pairs_missing,
)
from muster.burnin.state import BURNING_IN, INCONCLUSIVE, BurnInState
from muster.burnin.tests import all_tests, ended_tests
from muster.burnin.view import NEW_LEADER_SECONDS, BurnInView, requested_profile, view_of
from muster.checkpoints.resume import Missing
from muster.record import corruption
from muster.recovery import holds
from muster.recovery.words import what_tests_show
from muster.world.checks import NodeChecks
from muster.world.job import JobWorld

_UNHEARD = Missing(BURNING_IN, "burn-in: waiting for the checkers to report")
_STAGES = (checkers_missing, answers_missing, pairs_missing, controls_missing, gang_missing, echoes_missing)


def profile_of(world: JobWorld) -> Profile:
    """Return the profile of the job's burn-in."""
    return requested_profile(world, world.gang.spec.least_profile if world.gang else Profile.DISABLED)


def is_given_up(world: JobWorld, record: GangSpec, tested: BurnInState) -> bool:
    """Whether a gang has waited for too long for tests that give no answer."""
    inconclusive = tested.missing is not None and tested.missing.reason == INCONCLUSIVE
    return inconclusive and holds.seconds_since_hold(world, record) >= patience_seconds(profile_of(world))


def is_testing(world: JobWorld) -> bool:
    """Whether nodes are being tested because ranks reported wrong results: the job may not be to blame for these."""
    report = world.gang.spec.open_corruption if world.gang is not None else None
    if report is None or report.examination is not None:
        return False
    tested = burn_in_state(world)
    return tested is not None and tested.missing is not None


def with_test_results(world: JobWorld, record: GangSpec, *, ended: bool = False) -> tuple[GangSpec, str]:
    """Return the record with what tests have shown about wrong results, and the note of the Event that says so.

    Args:
        world: the state of the job; its record must hold such results.
        record: to be changed.
        ended: whether the job has ended, so that no start follows.
    """
    members = world.gang.spec.members if world.gang else []
    # Where a node has left that was not proved to give wrong results, those that stay cannot clear all.
    record = corruption.with_test_results(
        record, _test_results(burn_in_state(world), is_whole=not any(member.is_replacement for member in members))
    )
    assert record.corruption is not None
    note = (
        f"Muster has examined the nodes because of wrong results: {record.corruption.message}. "
        f"The tests show: {what_tests_show(record.corruption, ended=ended)}"
    )
    return record, note


def _test_results(tested: BurnInState | None, *, is_whole: bool) -> Examination:
    if tested is None or tested.missing is not None:
        return Examination.NOT_TESTED
    is_clear = is_whole and not tested.untested and not tested.is_wrong
    return Examination.NOTHING_FOUND if is_clear else Examination.INCONCLUSIVE


def burn_in_state(world: JobWorld) -> BurnInState | None:
    """Return the state of the gang's burn-in; None where nothing is to be tested. It is computed once for each
    decision."""
    return world.derived(_compute_state)


def _compute_state(world: JobWorld) -> BurnInState | None:
    gang, profile = world.gang, profile_of(world)
    if gang is None or profile is Profile.DISABLED or not all(member.node for member in gang.spec.members):
        return None
    if requested_profile(world) is Profile.DISABLED and not world.checkers:
        # Only because results were found wrong; checkers may never have been installed.
        young = world.leader_age_seconds < NEW_LEADER_SECONDS
        return BurnInState(_UNHEARD) if young else None
    burn_in = view_of(world, gang.spec, profile)
    return _with_not_owed(burn_in, _state(burn_in))


def _state(burn_in: BurnInView) -> BurnInState:
    """Return the state: of a burn-in that is over, of the first stage of which something is missing, or what all tests
    together have shown."""
    if not burn_in.subjects:
        return BurnInState()
    if all(burn_in.has_passed(worker_view) for worker_view in burn_in.subjects):
        return known_to_have_passed(ended_tests(burn_in))
    if burn_in.is_unheard:
        keep = NodeChecks(known=False)
        nodes = [worker_view.member.node for worker_view in burn_in.world.worker_views]
        return BurnInState(_UNHEARD, dict.fromkeys(nodes, keep))
    tests = all_tests(burn_in)
    for stage in _STAGES:
        if (state := stage(tests)) is not None:
            return state
    return concluded(tests)


def _with_not_owed(burn_in: BurnInView, state: BurnInState) -> BurnInState:
    """Return the state, where nodes that the job may not test count as untested after wrong results."""
    if state.missing is not None or not burn_in.not_owed or burn_in.record.open_corruption is None:
        return state
    untested = sorted({*state.untested, *(worker_view.member.node for worker_view in burn_in.not_owed)})
    words = "; ".join(part for part in (state.message, "a job without GPUs tests no node that has some") if part)
    return replace(state, untested=tuple(untested), message=words)
