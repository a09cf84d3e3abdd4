"""The orders of one burn-in, and what checkers have answered to them: of single nodes, of pairs, round by round, and of
the whole gang. Pure.

Tests: tests/unit/burnin/test_progress.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b

from muster.api.preflight import Profile
from muster.preflight import single_node
from muster.preflight.evidence import merge_outcomes
from muster.preflight.outcomes import BurnInMember, How, PairOutcome, Round
from muster.preflight.pair_thresholds import PairThresholds
from muster.preflight.rounds import MOST_ROUNDS, next_round
from muster.protocol.checks import GANG, NODE, PAIR, CheckAnswer, CheckOrder
from muster.protocol.profiles import PROFILES
from muster.world.checks import CheckerView

# Beyond a test's own deadline: the checker has to end it, and to report.
ANSWER_SECONDS = 30.0
# Partners by which a node would fail are tested with each other after all rounds.
CONTROL_ROUND = MOST_ROUNDS + 1
PORTS = range(21000, 29000)
# Where pairs are tested again from the first round on, that is another pass: its orders are new to every checker.
_TURN = 10
_PAIR_ID = re.compile(r"(?P<round>\d{1,9})/(?P<a>\d{1,4})\+(?P<b>\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class PairTest:
    """One test of two nodes in one round. Node `a`, the first by name, listens for the other."""

    round: int
    a: str
    b: str
    pass_number: int = 0


OutcomesByPair = Mapping[PairTest, Sequence[PairOutcome]]


@dataclass(frozen=True)
class Orders:
    """The orders of one burn-in, and what checkers have answered to them.

    Attributes:
        key: the name of the burn-in, which its orders bear.
        profile: of the burn-in.
        checkers: by node, the reports of the checkers that are heard.
        indices: by node, the index of its member.
        gpus: with how many GPUs each node is tested.
        namespace: of the job.
    """

    key: str
    profile: Profile
    checkers: Mapping[str, CheckerView]
    indices: Mapping[str, int]
    gpus: int
    namespace: str

    @cached_property
    def nodes(self) -> Mapping[int, str]:
        """The node of each member, by its index."""
        return {index: node for node, index in self.indices.items()}

    # Any order

    def answer(self, node: str, order_id: str) -> CheckAnswer | None:
        """Return the answer of a node's checker to an order; None: it has not answered, or is not heard."""
        view = self.checkers.get(node)
        return view.answer(order_id) if view else None

    def is_open(self, node: str, order: CheckOrder) -> bool:
        """Whether a node's answer to an order may still come."""
        return self.answer(node, order.id) is None and not self.is_overdue(node, order.id, order.kind)

    def is_overdue(self, node: str, order_id: str, kind: str) -> bool:
        """Whether a node's checker has had an order for too long, or is not heard.

        Args:
            node: its name.
            order_id: of the order.
            kind: of the order: node, pair or gang.
        """
        view = self.checkers.get(node)
        if view is None:
            return True
        return view.given.get(order_id, 0.0) > self._limit_seconds(kind, view) + ANSWER_SECONDS

    def _limit_seconds(self, kind: str, view: CheckerView) -> float:
        profile = PROFILES[str(self.profile)]
        if kind == NODE:
            return profile.limit_seconds
        deadline = profile.deadline_seconds[_device(view)]
        # Orders wait for each other on a node: the partner may still run an earlier one. A gang begins together.
        return deadline if kind == GANG else 2 * deadline

    def device_on(self, node: str) -> str:
        """Return the device on which a node is tested whose checker is heard: "cuda" or "cpu"."""
        return _device(self.checkers[node])

    # Each node by itself

    @property
    def node_id(self) -> str:
        """The ID of the order that tests each node by itself; it is the same on every node."""
        return f"{self.key}/node"

    @property
    def again_id(self) -> str:
        """The ID of the second order of a node that was slow, late or hung, and of the nodes that are tested beside
        it."""
        return f"{self.node_id}/again"

    def of_node(self, *, is_second: bool = False) -> CheckOrder:
        """Return the order that tests a node by itself.

        Args:
            is_second: whether it is the second such order.
        """
        order_id = self.again_id if is_second else self.node_id
        return CheckOrder(order_id, NODE, str(self.profile), gpus=self.gpus, namespace=self.namespace)

    # Pairs

    def pair_outcomes(self, nodes: Iterable[str]) -> dict[PairTest, list[PairOutcome]]:
        """Return, by pair, the outcomes of the pairs of these nodes in the newest pass; empty for a pair that is under
        way."""
        asked, pairs = frozenset(nodes), set()
        read: dict[str, PairTest | None] = {}  # both ends have it
        for node in asked & self.checkers.keys():
            view = self.checkers[node]
            for order_id in {*view.given, *(answer.order for answer in view.report.answers)}:
                pair = read[order_id] if order_id in read else read.setdefault(order_id, self._pair_of(order_id))
                # A node's report about a pair counts only if the node is in it.
                if pair is not None and node in (pair.a, pair.b) and {pair.a, pair.b} <= asked:
                    pairs.add(pair)
        newest = pass_of_pairs(pairs)
        return {pair: self._outcomes(pair) for pair in sorted(pairs) if pair.pass_number == newest}

    def newest_seconds(self, outcomes: OutcomesByPair) -> float:
        """Return for how many seconds the newest of these pairs has been ordered; 0 without any."""
        ends = ((self.checkers.get(node), self._pair_id(pair)) for pair in outcomes for node in (pair.a, pair.b))
        return min((view.given.get(order_id, 0.0) for view, order_id in ends if view is not None), default=0.0)

    def round(
        self,
        members: tuple[BurnInMember, ...],
        outcomes: OutcomesByPair,
        thresholds: PairThresholds,
        pass_number: int,
    ) -> tuple[int | None, list[PairTest]]:
        """Return the round of pairs that is under way, and those of its pairs that can begin now.

        Args:
            members: the nodes that take part.
            outcomes: of the pairs so far.
            thresholds: what pairs have to reach.
            pass_number: the number of the pass through all rounds, from 0.

        Returns:
            The number of the round, None where all is tested; and the pairs.
        """
        outcomes = {pair: of_pair for pair, of_pair in outcomes.items() if pair.round <= MOST_ROUNDS}
        under_way = [pair for pair, of_pair in outcomes.items() if not of_pair]
        last = max((pair.round for pair in outcomes), default=0)
        if len(members) < 2 or all(member.proven for member in members):
            return (last if under_way else None), []
        # While a round lasts its plan hangs on those before it alone, and is made once.
        for upto in (last, last + 1):
            earlier = [outcome for of_pair in outcomes.values() for outcome in of_pair if outcome.round < upto]
            seed = f"{self.key}/{pass_number}" if pass_number else self.key
            planned = _planned(members, seed, tuple(merge_outcomes(earlier)), thresholds)
            fresh = [pair for pair in _pairs_of(planned, pass_number) if pair not in outcomes] if planned else []
            if planned and fresh and not under_way:
                return planned.number, pairs_that_can_begin(fresh, ())
            if under_way:
                return max(last, 1), pairs_that_can_begin(fresh, under_way)
        return None, []

    def with_pairs(
        self, orders: Mapping[str, Sequence[CheckOrder]], pairs: Iterable[PairTest]
    ) -> dict[str, list[CheckOrder]]:
        """Return all orders by node: the given ones, and after them those of these pairs."""
        by_node = {node: list(several) for node, several in orders.items()}
        for pair in sorted(pairs):
            for node, order in self._of_pair(pair):
                by_node.setdefault(node, []).append(order)
        return by_node

    def _of_pair(self, pair: PairTest) -> Iterator[tuple[str, CheckOrder]]:
        order_id = self._pair_id(pair)
        for rank, order in enumerate(self._meeting(order_id, PAIR, (pair.a, pair.b))):
            node, peer = (pair.a, pair.b) if rank == 0 else (pair.b, pair.a)
            yield node, replace(order, round=pair.round, peer=peer)

    def _meeting(self, order_id: str, kind: str, nodes: Sequence[str]) -> Iterator[CheckOrder]:
        """Yield the orders of an all-reduce of several nodes, one for each in their order; the first node listens."""
        first = self.checkers.get(nodes[0])
        digest = blake2b(order_id.encode(), digest_size=4).digest()
        for rank in range(len(nodes)):
            yield CheckOrder(
                order_id,
                kind,
                str(self.profile),
                gpus=self.gpus,
                namespace=self.namespace,
                master_address=first.report.address if first else "",
                master_port=PORTS[int.from_bytes(digest, "big") % len(PORTS)],
                node_rank=rank,
                nodes=len(nodes),
            )

    def _pair_id(self, pair: PairTest) -> str:
        """Return the ID of a pair's order, made of the members' indices, because names of nodes may be long."""
        return f"{self.key}/{_TURN * pair.pass_number + pair.round}/{self.indices[pair.a]}+{self.indices[pair.b]}"

    def _pair_of(self, order_id: str) -> PairTest | None:
        """Return the pair that an order of this burn-in is for; None for any other order."""
        prefix = f"{self.key}/"
        match = _PAIR_ID.fullmatch(order_id[len(prefix) :]) if order_id.startswith(prefix) else None
        if match is None:
            return None
        pass_number, number = divmod(int(match["round"]), _TURN)
        a, b = (self.nodes.get(int(match[end]), "") for end in ("a", "b"))
        return PairTest(number, a, b, pass_number) if a < b and 1 <= number <= CONTROL_ROUND else None

    def _outcomes(self, pair: PairTest) -> list[PairOutcome]:
        """Return the outcomes that both ends of a pair report, or what their silence means; empty: the pair is under
        way."""
        order_id = self._pair_id(pair)
        reported, silent, ended_node = [], False, ""
        for node in (pair.a, pair.b):
            answer = self.answer(node, order_id)
            if answer is not None:
                reported.append(_outcome(pair, answer))
            elif node not in self.checkers:
                ended_node = node
            elif not self.is_overdue(node, order_id, PAIR):
                silent = True
        if silent and not ended_node:
            return []
        if ended_node:
            reported.append(PairOutcome(pair.round, pair.a, pair.b, How.OTHER_ENDED, ended=ended_node))
        return reported or [PairOutcome(pair.round, pair.a, pair.b, How.UNHEARD)]

    # The whole gang

    @property
    def gang_id(self) -> str:
        """The ID of the order that tests the whole gang; it is the same on every node."""
        return f"{self.key}/gang"

    @property
    def members(self) -> list[str]:
        """The nodes of the gang, by index of the member."""
        return [node for _, node in sorted(self.nodes.items())]

    def of_gang(self) -> dict[str, CheckOrder]:
        """Return the orders of the all-reduce of the whole gang, by node."""
        return dict(zip(self.members, self._meeting(self.gang_id, GANG, self.members), strict=True))

    def has_begun(self, order_id: str) -> bool:
        """Whether any checker has an order with this ID, or has answered it."""
        return any(order_id in view.given or view.answer(order_id) for view in self.checkers.values())


def pairs_that_can_begin(pairs: Iterable[PairTest], under_way: Iterable[PairTest]) -> list[PairTest]:
    """Return the pairs that can begin now because both ends are free; a pair never overtakes one with the same node.

    Args:
        pairs: that have not begun, in order.
        under_way: that have begun.
    """
    busy = {node for pair in under_way for node in (pair.a, pair.b)}
    ready = []
    for pair in pairs:
        if busy.isdisjoint((pair.a, pair.b)):
            ready.append(pair)
        busy.update((pair.a, pair.b))
    return ready


def pass_of_pairs(pairs: Iterable[PairTest]) -> int:
    """Return the number of the newest pass to which any of these pairs belongs; 0 without any."""
    return max((pair.pass_number for pair in pairs), default=0)


def _pairs_of(planned: Round, pass_number: int) -> Iterator[PairTest]:
    for slot in planned.slots:
        for a, b, _ in slot:
            yield PairTest(planned.number, min(a, b), max(a, b), pass_number)


@lru_cache(maxsize=16)
def _planned(
    members: tuple[BurnInMember, ...], seed: str, outcomes: tuple[PairOutcome, ...], thresholds: PairThresholds
) -> Round | None:
    """Return the round that follows these outcomes; the plan is cached, as it is asked for at each decision."""
    return next_round(members, seed, outcomes, thresholds)


def _device(view: CheckerView) -> str:
    return "cuda" if view.report.device == "cuda" else "cpu"


def _outcome(pair: PairTest, answer: CheckAnswer) -> PairOutcome:
    how = single_node.how_ended(answer.outcome)
    plain = PairOutcome(pair.round, pair.a, pair.b, how)
    if how is not How.RESULT:
        return plain
    figures = replace(plain, gbps=answer.gbps, retransmits=answer.retransmits, transport=answer.transport)
    return replace(figures, wrong=single_node.has_wrong_sums(answer))
