"""The gates of a start that are about the burn-in: a gang starts once its nodes are tested. Pure.

Tests: tests/unit/burnin/test_progress.py.
"""

from muster.burnin import progress as burnin
from muster.burnin.conclusion import patience_seconds
from muster.burnin.state import INCONCLUSIVE, BurnInState
from muster.burnin.view import tries
from muster.lifecycle.commit import commit
from muster.lifecycle.moves import with_members_moved
from muster.lifecycle.plan import Plan
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_nodes import are_few
from muster.lifecycle.start_wait import TICK_SECONDS, find_start_trouble
from muster.record import members
from muster.record.burn_in import (
    BURN_IN_FAILED,
    after_burn_in_release,
    after_inconclusive_release,
    with_failed,
    with_inconclusive,
)
from muster.recovery import holds
from muster.recovery.words import on_nodes
from muster.status.report import Announcement, State, StatusReport

MAX_FAILS_IN_NOTE = 4


def burn_in(start: StartContext) -> Plan | None:
    """Return the plan of a gang whose nodes are being tested before the start; None: no test is left."""
    world = start.world
    tested = burnin.burn_in_state(world)
    if tested is None or tested.missing is None:
        return None
    if tested.fails:
        return _plan_after_failed(start, tested)
    if burnin.is_given_up(world, start.spec, tested):
        return _plan_after_inconclusive(start, tested)
    reason, message = find_start_trouble(world) or (tested.missing.reason, tested.missing.message)
    return Plan((), StatusReport(State.STARTING, reason, message), wake_in_seconds=TICK_SECONDS)


def burn_in_before_pods(start: StartContext) -> Plan | None:
    """Return the plan of `burn_in` for a gang that has no pods; None: it has some, or no test is left."""
    has_pods = any(worker_view.pod is not None for worker_view in start.world.worker_views)
    return None if has_pods else burn_in(start)


def _plan_after_failed(start: StartContext, tested: BurnInState) -> Plan:
    """Return the plan after nodes failed the burn-in: their members move to other nodes.

    After too many tries in a row, all nodes are given back.
    """
    world, spec, profile = start.world, start.spec, str(burnin.profile_of(start.world))
    why = "; ".join(f"{fail.node}: {fail.message}" for fail in tested.fails[:MAX_FAILS_IN_NOTE])
    count, most = tries(spec) + 1, world.fleet.policy.preflight.max_replacements
    if count > most:
        after = after_burn_in_release(world, spec, tested.fails, profile)
        pause = holds.held_seconds(world, after)
        note = (
            f"nodes have failed the burn-in {count} times in a row ({why}). Muster frees all nodes of the job and "
            f"tries again in {pause:.0f} s"
        )
    else:
        failed = members.indices_on(spec, {fail.node for fail in tested.fails})
        after = with_members_moved(world, with_failed(world, spec, tested.fails, profile), failed, BURN_IN_FAILED)
        note = f"failed the burn-in: {why}; attempt {after.attempt}: {on_nodes(after)}"
    return commit(world, after, Announcement(after.reason, note, warning=True))


def _plan_after_inconclusive(start: StartContext, tested: BurnInState) -> Plan:
    """Return the plan after the tests of some nodes have given no answer for too long: their members move to other
    nodes.

    Where no other nodes are free, or too many are concerned, all nodes are given back.
    """
    world, spec, profile = start.world, start.spec, str(burnin.profile_of(start.world))
    count, nodes = tries(spec) + 1, tested.untested
    minutes = patience_seconds(burnin.profile_of(world)) / 60
    inconclusive_text = (
        f"the burn-in of {len(nodes)} of {len(spec.members)} nodes gave no result within {minutes:.0f} min "
        f"({tested.message})"
    )
    if are_few(len(nodes), len(spec.members)) and count <= world.fleet.policy.preflight.max_replacements:
        avoiding = with_inconclusive(world, spec, nodes, profile)
        moved = with_members_moved(world, avoiding, members.indices_on(spec, nodes), INCONCLUSIVE)
        if all(member.node for member in moved.members):
            note = f"{inconclusive_text}; attempt {moved.attempt}: {on_nodes(moved)}"
            return commit(world, moved, Announcement(INCONCLUSIVE, note, warning=True))
    released = after_inconclusive_release(world, spec, nodes, inconclusive_text, INCONCLUSIVE)
    pause = (released.hold_until - world.now).total_seconds() if released.hold_until else 0.0
    note = f"{inconclusive_text}. Muster frees all nodes of the job and tries again in {pause:.0f} s"
    return commit(world, released, Announcement(INCONCLUSIVE, note, warning=True))
