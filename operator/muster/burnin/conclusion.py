"""What came of a burn-in, once all its tests are answered: the gang starts, nodes leave it, or it waits for another
answer. Pure.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.api.preflight import OnInconclusive, Profile
from muster.burnin.nodes import AGAIN_SECONDS
from muster.burnin.orders import PairTest, pass_of_pairs
from muster.burnin.state import BURNING_IN, INCONCLUSIVE, BurnInState
from muster.burnin.tests import BurnInTests
from muster.burnin.view import requested_profile
from muster.checkpoints.resume import Missing
from muster.preflight.outcomes import How
from muster.preflight.verdict import Outcome
from muster.protocol.profiles import PROFILES
from muster.world.checks import NodeChecks
from muster.world.names import nodes_text

# After this long, beyond what two tests of a node may take, the gang waits no more.
INCONCLUSIVE_SECONDS = 1800.0
_SAY_NOTHING = frozenset({How.ENVIRONMENT, How.LATE})


def patience_seconds(profile: Profile) -> float:
    """Return for how many seconds a gang waits while its tests give no answer.

    Args:
        profile: of the burn-in.
    """
    return INCONCLUSIVE_SECONDS + 2.0 * PROFILES[str(profile)].limit_seconds


def known_to_have_passed(tests: BurnInTests) -> BurnInState:
    """Return the state of a burn-in that all nodes have passed and whose checkers know it.

    The checkers keep their answers, because what was noticed is reported at the start.
    """
    answer = tests.burn_in.orders.answer
    kept = {
        node: NodeChecks(tuple(order for order in several if answer(node, order.id)))
        for node, several in tests.all_orders(tests.pairs).items()
    }
    return _may_start(tests, BurnInState(checks=kept, message=tests.notice))


def concluded(tests: BurnInTests) -> BurnInState:
    """Return the state of a burn-in all of whose tests are answered."""
    verdict = tests.verdict
    if verdict.outcome is Outcome.INCONCLUSIVE:
        return _inconclusive(tests)
    state = BurnInState(checks=tests.checks(tests.last_orders, tests.passed), message=tests.notice)
    if verdict.failed:
        return replace(state, missing=Missing(BURNING_IN, verdict.failed[0].message), fails=verdict.failed)
    return _may_start(tests, state)


def _inconclusive(tests: BurnInTests) -> BurnInState:
    """Return the state of a burn-in that proves nothing of some nodes: the gang waits, or starts with them."""
    verdict, measured = tests.verdict, tests.measured
    broken_by = [
        outcome.message for outcome in tests.own.outcomes if outcome.how is How.ENVIRONMENT and outcome.message
    ]
    others = "" if verdict.names_shared and len(verdict.shared) == 1 and not measured.is_odd else tests.notice
    words = "; ".join(dict.fromkeys(part for part in (verdict.message, *broken_by[:1], others) if part))
    repeated_pairs = _pairs_again(tests)
    orders = tests.all_orders(repeated_pairs) if repeated_pairs else tests.last_orders
    state = BurnInState(checks=tests.checks(orders, tests.passed), untested=verdict.open, message=words)
    if not _must_wait(tests):
        return _may_start(tests, state)
    text = (
        f"The burn-in {tests.burn_in.profile} has no result for {nodes_text(len(verdict.open))}: {words}. Muster "
        f"repeats the tests every {AGAIN_SECONDS:.0f} s, for {patience_seconds(tests.burn_in.profile) / 60:.0f} min at "
        "most. Then the job takes other nodes, or gives all back. Repair what is named"
    )
    return replace(state, missing=Missing(INCONCLUSIVE, text), checks=_without_stale_orders(tests, state.checks))


def _may_start(tests: BurnInTests, state: BurnInState) -> BurnInState:
    """Return the state of a burn-in after which the gang may start, with what was measured of the whole gang."""
    measured = tests.measured
    return replace(state, measured=measured.message, is_odd=measured.is_odd, is_wrong=measured.is_wrong)


def _must_wait(tests: BurnInTests) -> bool:
    """Whether the gang may not start with nodes of which nothing is proved."""
    world = tests.burn_in.world
    waits = world.fleet.policy.preflight.on_inconclusive is OnInconclusive.WAIT
    return waits and requested_profile(world) is not Profile.DISABLED


def _not_good_alone(tests: BurnInTests) -> frozenset[str]:
    """Return the nodes that are not proved good by the tests of the node by itself."""
    bad = {fail.node for fail in tests.own.failed}
    return tests.burn_in.subject_nodes.intersection(bad.union(tests.own.broken, tests.burn_in.unlike))


def _pairs_again(tests: BurnInTests) -> list[PairTest]:
    """Return the first pairs of another pass, once the last pass is old that has proved nothing of some of its
    nodes."""
    burn_in, orders = tests.burn_in, tests.burn_in.orders
    unproven = set(tests.verdict.open) - _not_good_alone(tests)
    if unproven.isdisjoint(member.name for member in tests.fit) or not _must_wait(tests):
        return []
    if orders.newest_seconds(tests.pairs) < AGAIN_SECONDS:
        return []
    return orders.round(tests.fit, {}, burn_in.thresholds, pass_of_pairs(tests.pairs) + 1)[1]


def _without_stale_orders(tests: BurnInTests, checks: Mapping[str, NodeChecks]) -> dict[str, NodeChecks]:
    """Return the checkers' tasks without old orders whose answers prove nothing: checkers forget what is not listed.

    Args:
        tests: of the burn-in.
        checks: the tasks, by node.
    """
    burn_in, nodes = tests.burn_in, tests.nodes
    # Of these nothing is proved, because too many had the same result.
    unproven = _not_good_alone(tests).intersection(tests.verdict.open)
    cleaned, order_ids = dict(checks), (burn_in.orders.node_id, burn_in.orders.again_id)
    void = [
        node
        for node in (worker_view.member.node for worker_view in burn_in.subjects)
        if node in burn_in.checkers and (node in unproven or not _SAY_NOTHING.isdisjoint(nodes.results(node)))
    ]
    if any(nodes.given_seconds(node) >= AGAIN_SECONDS for node in void):  # together: they are judged by each other
        for node in {*void, *nodes.beside}:
            dropped_ids = order_ids if node in void else order_ids[1:]
            kept = checks.get(node, NodeChecks())
            cleaned[node] = replace(kept, orders=tuple(order for order in kept.orders if order.id not in dropped_ids))
    return cleaned
