"""All tests of a burn-in: what is ordered, and what it has shown so far, each derived once in a decision. Pure.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from muster.burnin import gang as burnin_gang
from muster.burnin.gang import Measured
from muster.burnin.nodes import NodeTests, absent_nodes, evaluate_nodes, node_orders, node_tests
from muster.burnin.orders import OutcomesByPair, PairTest
from muster.burnin.view import BurnInView
from muster.preflight.evidence import BurnInEvidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import BurnInMember, PairOutcome
from muster.preflight.own_tests import OwnTests
from muster.preflight.pair_thresholds import PairThresholds
from muster.preflight.unproved import GangNodes, without_unproved_failures
from muster.preflight.verdict import BurnInVerdict, Outcome, reach_verdict
from muster.protocol.checks import CheckGrant, CheckOrder
from muster.world.checks import NodeChecks

NodeOrders = Mapping[str, Sequence[CheckOrder]]
"""By node, its orders."""


@dataclass(frozen=True)
class BurnInTests:
    """All tests of a burn-in.

    Attributes:
        burn_in: to which they belong.
        nodes: the tests of each node by itself.
        absent: by node that cannot be tested, why.
        waiting: why the burn-in still waits for a checker; "": it does not.
        orders: by node, those that test it by itself.
        members: the nodes that take part in tests with others.
        own: what the nodes' own probes have shown.
        pairs: the outcomes of the pairs so far.
    """

    burn_in: BurnInView
    nodes: NodeTests
    absent: Mapping[str, str]
    waiting: str
    orders: NodeOrders
    members: tuple[BurnInMember, ...]
    own: OwnTests
    pairs: OutcomesByPair

    @cached_property
    def fit(self) -> tuple[BurnInMember, ...]:
        """The nodes that are tested in pairs."""
        return tuple(member for member in self.members if member.name not in self.own.unfit)

    @cached_property
    def outcomes(self) -> Sequence[PairOutcome]:
        """The outcomes of all pairs."""
        return [outcome for several in self.pairs.values() for outcome in several]

    @cached_property
    def evidence(self) -> BurnInEvidence:
        """What the pairs show together."""
        return _evidence(self.fit, tuple(merge_outcomes(self.outcomes)), self.burn_in.thresholds)

    @cached_property
    def draft_verdict(self) -> BurnInVerdict:
        """The verdict on all tests, before its failures are proved."""
        levels = self.burn_in.world.fleet.policy.topology.levels
        return _verdict(self.evidence, self.own, tuple(level.name for level in levels))

    @cached_property
    def verdict(self) -> BurnInVerdict:
        """The verdict with the failures that are proved."""
        record = self.burn_in.record
        earlier = record.burn_in.failures if record.burn_in else ()
        nodes = GangNodes(
            len(record.members),
            {node: view.report.model for node, view in self.burn_in.checkers.items()},
            [(failure.node, failure.probe) for failure in earlier],
        )
        return without_unproved_failures(self.draft_verdict, self.evidence, self.own, nodes)

    @cached_property
    def measured(self) -> Measured:
        """The result of the all-reduce of the whole gang."""
        measurement = burnin_gang.gang_measurement(
            self.burn_in.orders, self.outcomes, self.burn_in.thresholds.transport
        )
        return replace(measurement, is_wrong=measurement.is_wrong or any(outcome.wrong for outcome in self.outcomes))

    @property
    def notice(self) -> str:
        """What people should know although it blames no node; "" if nothing."""
        shared = (part.message for part in self.draft_verdict.shared)
        return "; ".join([*shared, *([self.measured.message] if self.measured.is_odd else [])])

    @property
    def passed(self) -> list[str]:
        """The nodes that have passed. A partner that was proven before was not tested: its pass stays as old as it
        is."""
        subjects = self.burn_in.subject_nodes
        return [node for node in self.verdict.passed if node in subjects]

    # Orders

    def gang_orders(self, *, begins: bool = False) -> dict[str, CheckOrder]:
        """Return, by node, the order of the whole gang's all-reduce, where that has begun.

        Args:
            begins: whether it may begin now.
        """
        burn_in = self.burn_in
        able_nodes = (
            worker_view.member.node
            for worker_view in (*burn_in.subjects, *burn_in.proven)
            if burn_in.is_able(worker_view) and burn_in.is_free(worker_view)
        )
        return burnin_gang.gang_orders_due(burn_in.orders, able_nodes, begins=begins)

    def all_orders(self, pairs: Iterable[PairTest], *, gang_begins: bool = False) -> NodeOrders:
        """Return all orders by node: those of the node itself, of its pairs, and of the whole gang where that has
        begun.

        Args:
            pairs: that are ordered.
            gang_begins: whether the all-reduce of the whole gang may begin now.
        """
        orders = self.burn_in.orders.with_pairs(self.orders, pairs)
        for node, order in self.gang_orders(begins=gang_begins).items():
            orders.setdefault(node, []).append(order)
        return orders

    @cached_property
    def last_orders(self) -> NodeOrders:
        """All orders by node, once nothing of nodes and pairs is missing."""
        return self.all_orders(self.pairs, gang_begins=self.verdict.outcome is Outcome.PASS)

    def checks(self, orders: NodeOrders, passed: Iterable[str] = ()) -> dict[str, NodeChecks]:
        """Return the checkers' tasks by node.

        Args:
            orders: by node.
            passed: nodes that have passed.
        """
        granted = {node: (self._grant(node),) for node in passed if node in self.burn_in.checkers}
        return {
            node: NodeChecks(tuple(orders.get(node, ())), granted.get(node, ())) for node in sorted({*orders, *granted})
        }

    def _grant(self, node: str) -> CheckGrant:
        burn_in = self.burn_in
        gpus = burn_in.checkers[node].tested_gpus(burn_in.world.job.spec.gpus_per_node)
        return CheckGrant(burn_in.orders.key, str(burn_in.profile), gpus)


def all_tests(burn_in: BurnInView) -> BurnInTests:
    """Return the tests of a burn-in that is under way."""
    nodes, members = node_tests(burn_in), burn_in.members()
    absent, waiting = absent_nodes(nodes)
    orders, own = node_orders(nodes, absent), evaluate_nodes(nodes, members, absent)
    return BurnInTests(
        burn_in=burn_in,
        nodes=nodes,
        absent=absent,
        waiting=waiting,
        orders=orders,
        members=members,
        own=own,
        pairs=_pairs(burn_in),
    )


def ended_tests(burn_in: BurnInView) -> BurnInTests:
    """Return the tests of a burn-in that all nodes have passed: they are judged by what was answered alone."""
    nodes, members = node_tests(burn_in), burn_in.members()
    orders = {worker_view.member.node: nodes.orders_for(worker_view.member.node) for worker_view in burn_in.subjects}
    own = nodes.evaluate(members, nodes.without_common_delays(nodes.outcomes({})))
    return BurnInTests(
        burn_in=burn_in,
        nodes=nodes,
        absent={},
        waiting="",
        orders=orders,
        members=members,
        own=own,
        pairs=_pairs(burn_in),
    )


def _pairs(burn_in: BurnInView) -> OutcomesByPair:
    nodes = (worker_view.member.node for worker_view in (*burn_in.subjects, *burn_in.proven))
    return burn_in.orders.pair_outcomes(nodes)


@lru_cache(maxsize=8)
def _evidence(
    fit: tuple[BurnInMember, ...], outcomes: tuple[PairOutcome, ...], thresholds: PairThresholds
) -> BurnInEvidence:
    """Return the evidence of a burn-in's pairs; it is cached, because it is asked for at each decision."""
    return BurnInEvidence(MemberTopology(fit), outcomes, thresholds)


@lru_cache(maxsize=8)
def _verdict(evidence: BurnInEvidence, own: OwnTests, levels: tuple[str, ...]) -> BurnInVerdict:
    """Return the verdict on a burn-in; it is cached, because it is asked for until all checkers know of it."""
    return reach_verdict(evidence, own, levels)
