"""What a burn-in still waits for, stage by stage: checkers, each node by itself, pairs, partners that are suspect, the
whole gang, and the checkers of nodes that have passed. Pure.

Each stage returns the state of the burn-in where something of it is missing, else None.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Sequence

from muster.burnin.orders import CONTROL_ROUND, PairTest, pairs_that_can_begin, pass_of_pairs
from muster.burnin.state import BURNING_IN, CHECKERS_MISSING, BurnInState
from muster.burnin.tests import BurnInTests, NodeOrders
from muster.checkpoints.resume import Missing
from muster.preflight.unproved import control_pairs
from muster.preflight.verdict import Outcome
from muster.protocol.profiles import PROFILES
from muster.world.job import WorkerView
from muster.world.names import verb_for

# After this long the gang no longer waits for the checkers of passed nodes to confirm the pass.
ECHO_SECONDS = 60.0


def checkers_missing(tests: BurnInTests) -> BurnInState | None:
    """Return the state while a checker is waited for that does not report, or is still starting."""
    if not tests.waiting:
        return None
    return BurnInState(Missing(CHECKERS_MISSING, tests.waiting), tests.checks(tests.all_orders(tests.pairs)))


def answers_missing(tests: BurnInTests) -> BurnInState | None:
    """Return the state while nodes are tested by themselves, or wait for that."""
    missing = _missing_answer(tests) or _missing_node(tests)
    if missing is None:
        return None
    # Where a node has to be tested by itself again, the gang begins again after that.
    orders = tests.burn_in.orders.with_pairs(tests.orders, tests.pairs)
    return BurnInState(Missing(BURNING_IN, missing), tests.checks(orders))


def _missing_answer(tests: BurnInTests) -> str | None:
    """Return which nodes have not answered yet, as text; None: all have."""
    burn_in, orders = tests.burn_in, tests.orders
    waited = {order.id for node, several in orders.items() for order in several if burn_in.orders.is_open(node, order)}
    if not waited:
        return None
    repeated_nodes = sorted(tests.nodes.repeated.intersection(orders))
    if repeated_nodes and waited == {burn_in.orders.again_id}:
        text = _repeated_text(repeated_nodes, sorted(tests.nodes.beside))
    else:
        count = len(burn_in.subject_nodes.intersection(orders))
        text = "1 node is tested alone" if count == 1 else f"{count} nodes are tested, each alone"
    return f"burn-in {burn_in.profile}: {text}"


def _repeated_text(repeated: Sequence[str], beside: Sequence[str]) -> str:
    subject = f"{repeated[0]} was" if len(repeated) == 1 else f"{repeated[0]} and {len(repeated) - 1} more were"
    compared = f"; for comparison also {', '.join(beside)}" if beside else ""
    return f"{subject} slow, late or hung, and {verb_for(len(repeated))} tested alone once more{compared}"


def _missing_node(tests: BurnInTests) -> str | None:
    """Return which node cannot be tested yet, as text; None: all can, or never will."""
    able_views = (worker_view for worker_view in tests.burn_in.subjects if worker_view.member.node not in tests.absent)
    held = next((worker_view for worker_view in able_views if worker_view.member.node not in tests.orders), None)
    return None if held is None else _held_text(held)


def _held_text(held: WorkerView) -> str:
    if held.pod is None or not held.pod.node:
        return f"burn-in: waiting for the pod of {held.where} to be bound"
    return f"burn-in: waiting for {held.where} to end its old ranks"


def pairs_missing(tests: BurnInTests) -> BurnInState | None:
    """Return the state while a round of pairs is tested."""
    burn_in, pairs = tests.burn_in, tests.pairs
    number, fresh = burn_in.orders.round(tests.fit, pairs, burn_in.thresholds, pass_of_pairs(pairs))
    if number is None:
        return None
    return _burning_in(tests, f"nodes in pairs, round {number}", tests.all_orders([*pairs, *fresh]))


def controls_missing(tests: BurnInTests) -> BurnInState | None:
    """Return the state while partners are tested by which alone a node would fail, and nodes that share its way."""
    pass_number = pass_of_pairs(tests.pairs)
    asked = (PairTest(CONTROL_ROUND, *ends, pass_number) for ends in control_pairs(tests.draft_verdict, tests.evidence))
    unheard = [pair for pair in asked if not tests.pairs.get(pair)]
    if not unheard:
        return None
    text = "nodes that failed only with a suspect partner are tested with each other"
    return _burning_in(tests, text, tests.all_orders({*tests.pairs, *pairs_that_can_begin(unheard, ())}))


def gang_missing(tests: BurnInTests) -> BurnInState | None:
    """Return the state while a gang that has passed is measured as a whole."""
    is_open = tests.burn_in.orders.is_open
    if tests.verdict.outcome is not Outcome.PASS or not any(
        is_open(node, order) for node, order in tests.gang_orders(begins=True).items()
    ):
        return None
    return _burning_in(tests, "all-reduce of the whole gang", tests.last_orders)


def echoes_missing(tests: BurnInTests) -> BurnInState | None:
    """Return the state while checkers do not know yet that their nodes have passed."""
    if tests.verdict.outcome is not Outcome.PASS and not tests.verdict.failed:
        return None
    orders, passed = tests.last_orders, tests.passed
    if not any(_has_to_hear(tests, node, orders) for node in passed):
        return None
    missing = Missing(BURNING_IN, f"burn-in {tests.burn_in.profile}: {len(passed)} nodes have passed")
    return BurnInState(missing, tests.checks(orders, passed), message=tests.notice)


def _has_to_hear(tests: BurnInTests, node: str, orders: NodeOrders) -> bool:
    """Whether the checker of a node that has passed does not know that yet, and can be expected to."""
    burn_in = tests.burn_in
    view = burn_in.checkers.get(node)
    if view is None or view.knows(burn_in.orders.key):
        return False
    newest = min((view.given.get(order.id, 0.0) for order in orders.get(node, ())), default=0.0)
    profile = PROFILES[str(burn_in.profile)]
    return newest <= max(profile.limit_seconds, *profile.deadline_seconds.values()) + ECHO_SECONDS


def _burning_in(tests: BurnInTests, text: str, orders: NodeOrders) -> BurnInState:
    return BurnInState(Missing(BURNING_IN, f"burn-in {tests.burn_in.profile}: {text}"), tests.checks(orders))
