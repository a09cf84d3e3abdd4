"""The tests of each node by itself: which are ordered, which are repeated and beside which nodes, and what they have
shown. Pure.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from muster.burnin.view import BurnInView
from muster.preflight import single_node
from muster.preflight.outcomes import BurnInMember, How, LocalOutcome
from muster.preflight.own_tests import OwnTests, evaluate_own_tests
from muster.protocol.checks import NODE, READY, STARTING, CheckAnswer, CheckOrder
from muster.world.checks import CheckerView
from muster.world.job import WorkerView

# The burn-in waits no more for a checker that is silent this long, or cannot test.
CHECKER_SECONDS = 60.0
# torch is imported in 4 to 30 s, on a busy node in minutes.
STARTING_SECONDS = 300.0
# Where the gang has to wait for a repair, tests that gave no answer are repeated after this long.
AGAIN_SECONDS = 120.0
# Nodes that repeat the tests beside those that were slow, late or hung.
BESIDE = 2


@dataclass(frozen=True, slots=True)
class NodeTests:
    """The tests of each node by itself: which are made once more, and what the checkers have answered.

    Attributes:
        burn_in: to which they belong.
        repeated: nodes that are tested once more: those that were slow, late or hung, and gave no wrong result.
        beside: nodes that repeat the tests together with these. A cause outside of the nodes makes all of them late.
    """

    burn_in: BurnInView
    repeated: frozenset[str]
    beside: frozenset[str]

    def answer(self, node: str) -> CheckAnswer | None:
        """Return the answer of the node's checker, the second one where there were two; None: none.

        It counts however long ago the checker was last heard.
        """
        view, orders = self.burn_in.world.checkers.get(node), self.burn_in.orders
        second_answer = view.answer(orders.again_id) if view and node in self.repeated else None
        return second_answer or (view.answer(orders.node_id) if view else None)

    def awaits_second_answer(self, node: str) -> bool:
        """Whether the answer to the node's second test is still missing."""
        return _awaits_second_answer(self.burn_in, self.repeated, node)

    def orders_for(self, node: str) -> list[CheckOrder]:
        """Return the orders that test a node by itself."""
        orders, is_repeated = self.burn_in.orders, node in self.repeated or node in self.beside
        return [orders.of_node(), *([orders.of_node(is_second=True)] if is_repeated else [])]

    def results(self, node: str) -> list[How]:
        """Return how the node's probes have ended."""
        return [outcome.how for outcome in single_node.outcomes_of_answer(node, self.answer(node))]

    def given_seconds(self, node: str) -> float:
        """Return for how many seconds the node's checker has had the first order."""
        return self.burn_in.world.checkers[node].given.get(self.burn_in.orders.node_id, 0.0)

    def outcomes(self, absent: Mapping[str, str]) -> Iterator[LocalOutcome]:
        """Yield the outcomes of all nodes that are tested.

        Args:
            absent: by node that cannot be tested, why.
        """
        for node in (worker_view.member.node for worker_view in self.burn_in.subjects):
            outcomes = single_node.outcomes_of_answer(node, self.answer(node))
            if node in absent:
                yield LocalOutcome(node, single_node.CHECKER, How.ENVIRONMENT, message=absent[node])
                # What it has found stands, whatever has become of the checker since.
                yield from (outcome for outcome in outcomes if outcome.how is How.RESULT)
            else:
                yield from outcomes

    def evaluate(self, members: Iterable[BurnInMember], outcomes: Iterable[LocalOutcome]) -> OwnTests:
        """Return what these outcomes show, by what the burn-in's thresholds ask for.

        Args:
            members: the nodes that take part in tests with others.
            outcomes: of nodes' own probes.
        """
        burn_in = self.burn_in
        thresholds, named = single_node.with_thresholds(outcomes, burn_in.checkers, burn_in.world.thresholds)
        return evaluate_own_tests(members, named, thresholds)

    def without_common_delays(self, outcomes: Iterable[LocalOutcome]) -> list[LocalOutcome]:
        """Return the outcomes, where late ones are compared with the nodes that repeated the tests beside them."""
        second_answers = {node: self.burn_in.orders.answer(node, self.burn_in.orders.again_id) for node in self.beside}
        in_time = [node for node, answer in second_answers.items() if single_node.ended_in_time(node, answer)]
        return single_node.without_common_delays(outcomes, in_time)


def node_tests(burn_in: BurnInView) -> NodeTests:
    """Return the tests of each node by itself: which nodes repeat them, and then beside which others."""
    repeated = _repeated(burn_in)
    return NodeTests(burn_in, repeated, _beside(burn_in, repeated))


def evaluate_nodes(tests: NodeTests, members: Iterable[BurnInMember], absent: Mapping[str, str]) -> OwnTests:
    """Return what the nodes' own probes have shown so far.

    Args:
        tests: of each node by itself.
        members: the nodes that take part in tests with others.
        absent: by node that cannot be tested, why.
    """
    burn_in = tests.burn_in
    outcomes = single_node.with_wrong_bits(list(tests.outcomes(absent)), burn_in.world.checkers)
    # That a node cannot be paired is reported after what its own probes have found.
    subjects = burn_in.subject_nodes
    unlike = [outcome for node, outcome in sorted(burn_in.unlike.items()) if node in subjects]
    return tests.evaluate(members, [*tests.without_common_delays(outcomes), *unlike])


# Which tests are repeated


def _repeated(burn_in: BurnInView) -> frozenset[str]:
    """Return the nodes that are tested once more: those that were slow, late or hung, and gave no wrong result.

    Another program's load on the host, or a service that was down for a moment, is no fault of the node.
    """
    orders = burn_in.orders
    nodes = (worker_view.member.node for worker_view in burn_in.subjects)
    views = {node: view for node in nodes if (view := burn_in.world.checkers.get(node))}
    overdue = {node for node in burn_in.checkers if orders.is_overdue(node, orders.node_id, NODE)}
    first = {node: view.answer(orders.node_id) for node, view in views.items()}
    first = {node: answer for node, answer in first.items() if answer or node in overdue}
    in_time = {node for node, answer in first.items() if single_node.ended_in_time(node, answer)}
    outcomes = [outcome for node, answer in first.items() for outcome in single_node.outcomes_of_answer(node, answer)]
    comparable = single_node.without_common_delays(
        single_node.with_wrong_bits(outcomes, views),
        in_time.union(worker_view.member.node for worker_view in burn_in.proven),
    )
    thresholds, named = single_node.with_thresholds(comparable, views, burn_in.world.thresholds)
    failed = evaluate_own_tests([BurnInMember(node) for node in first], named, thresholds).failed
    # What has begun goes on, whatever has become of the thresholds since.
    begun_nodes = {node for node in first if _has_begun_again(burn_in, node) and node not in in_time}
    return frozenset(
        begun_nodes.union(fail.node for fail in failed).difference(fail.node for fail in failed if fail.wrong)
    )


def _beside(burn_in: BurnInView, repeated: Collection[str]) -> frozenset[str]:
    """Return the nodes that repeat the tests together with those that were slow, late or hung."""
    nodes = (worker_view.member.node for worker_view in burn_in.world.worker_views)
    begun_nodes = [node for node in nodes if _has_begun_again(burn_in, node) and node not in repeated]
    if not any(_awaits_second_answer(burn_in, repeated, node) for node in repeated):
        return frozenset(begun_nodes)
    proven = sorted(worker_view.member.node for worker_view in burn_in.proven)
    in_time = sorted(
        worker_view.member.node
        for worker_view in burn_in.subjects
        if worker_view.member.node not in repeated
        if burn_in.is_able(worker_view) and burn_in.is_free(worker_view) and _was_in_time(burn_in, worker_view)
    )
    return frozenset(list(dict.fromkeys([*begun_nodes, *proven, *in_time]))[: max(BESIDE, len(begun_nodes))])


def _was_in_time(burn_in: BurnInView, worker_view: WorkerView) -> bool:
    node = worker_view.member.node
    answer = burn_in.orders.answer(node, burn_in.orders.node_id)
    return answer is not None and single_node.ended_in_time(node, answer)


def _has_begun_again(burn_in: BurnInView, node: str) -> bool:
    """Whether the node's checker has the order of the second test, or has answered it."""
    view, second_order_id = burn_in.world.checkers.get(node), burn_in.orders.again_id
    return view is not None and (second_order_id in view.given or view.answer(second_order_id) is not None)


def _awaits_second_answer(burn_in: BurnInView, repeated: Collection[str], node: str) -> bool:
    return node in repeated and burn_in.orders.answer(node, burn_in.orders.again_id) is None


# Which nodes can be tested


def absent_nodes(tests: NodeTests) -> tuple[dict[str, str], str]:
    """Return, by node that cannot be tested, why; and why the burn-in still waits for a checker, "" if it does not."""
    burn_in, world = tests.burn_in, tests.burn_in.world
    absent: dict[str, str] = {}
    waiting = ""
    for node in (worker_view.member.node for worker_view in burn_in.subjects):
        checker_view = burn_in.checkers.get(node)
        # An answer stands, whatever has become of the checker since; after a hang it has to import torch again.
        state = checker_view.report.state if checker_view is not None else ""
        is_awaited = tests.awaits_second_answer(node) and state == STARTING
        has_answered = (
            checker_view is not None and checker_view.answer(burn_in.orders.node_id) is not None and not is_awaited
        )
        if state == READY or has_answered:
            continue
        most_silent_seconds = min(world.leader_age_seconds, world.attempt_age_seconds)
        why, seconds = _absence(node, world.checkers.get(node), most_silent_seconds)
        if seconds > 0.0:
            waiting = waiting or why
        else:
            absent[node] = why
    return absent, waiting


def _absence(node: str, last_view: CheckerView | None, most_silent_seconds: float) -> tuple[str, float]:
    """Return why a node's checker cannot test, and for how many more seconds it is waited for; 0 or less: no longer.

    Args:
        node: its name.
        last_view: the checker's last report, however old; None: it was never heard.
        most_silent_seconds: the longest time for which a checker that was never heard can have been silent.
    """
    if last_view is None or not last_view.is_fresh:
        silent_seconds = most_silent_seconds if last_view is None else last_view.heard_age_seconds
        text = f"no checker on {node} reports: check that a pod of DaemonSet muster-check runs there"
        return text, CHECKER_SECONDS - silent_seconds
    if last_view.report.state == STARTING:
        return f"the checker on {node} is still starting", STARTING_SECONDS - last_view.state_seconds
    return f"the checker on {node} cannot test: {last_view.report.problem}", 0.0


def node_orders(tests: NodeTests, absent: Collection[str]) -> dict[str, list[CheckOrder]]:
    """Return, by node, the orders that test it by itself; without nodes that are not free for a test that is missing.

    Args:
        tests: of each node by itself.
        absent: nodes that cannot be tested.
    """
    orders = {}
    for worker_view in tests.burn_in.subjects:
        node, is_free = worker_view.member.node, tests.burn_in.is_free(worker_view)
        is_able = node not in absent and tests.burn_in.is_able(worker_view)
        awaits = tests.awaits_second_answer(node)
        if tests.answer(node) is None and not (is_able and is_free):
            continue
        # Until the node is free again its first answer does not count against it; orders not listed are forgotten.
        if is_able and awaits and not is_free:
            continue
        orders[node] = tests.orders_for(node) if is_able or not awaits else [tests.burn_in.orders.of_node()]
    kept = _tested_together(tests, orders)
    for node in tests.beside - kept.keys():  # those that stand
        kept[node] = [tests.burn_in.orders.of_node(is_second=True)]
    return kept


def _tested_together(tests: NodeTests, orders: Mapping[str, list[CheckOrder]]) -> dict[str, list[CheckOrder]]:
    """Return the orders without those of nodes that had no result before: while others are tested again, these are
    tested with them, or they would be blamed alone."""
    results = {node: tests.results(node) for node in orders}
    newest = min((tests.given_seconds(node) for node in orders if How.RESULT not in results[node]), default=0.0)
    return {
        node: several
        for node, several in orders.items()
        if How.NO_RESULT not in results[node] or tests.given_seconds(node) - newest < AGAIN_SECONDS / 2
    }
