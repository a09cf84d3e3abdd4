"""What is known of all nodes from one decision to the next, and the decision about all of them. Pure.

The operator and the simulator of fleets run it. The caller judges the nodes that have changed and those that `woken`
returns, stores their verdicts here, and carries out the orders of `decide`.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime

from muster.api.nodehealth import NodeHealthStatus
from muster.health.ahead import FutureTimes
from muster.health.figures import Breaker
from muster.health.job_failures import TestRequests
from muster.health.memory import MachineOffences
from muster.health.orders import Circumstances, Order, View, decide
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.health.verdict_index import NodeIndex, VerdictIndex


class Engine:
    """What is known of all nodes from one decision to the next.

    Attributes:
        node_index: facts about all nodes that rulings need.
        verdict_index: the verdicts on all nodes, and counts of them.
        memory: the offences on record, by machine.
        breaker: the breaker's state after the last decision; None before the first.
    """

    def __init__(self) -> None:
        self.node_index, self.verdict_index, self.memory = NodeIndex(), VerdictIndex(), MachineOffences()
        self.breaker: Breaker | None = None
        self._wakes: dict[str, datetime] = {}  # node -> when to judge it again by time alone
        self._echoes: set[str] = set()  # nodes whose record is what Muster wrote last
        self._judged_in: dict[str, str] = {}  # node -> the pool by whose rules it was judged last
        self._ahead = FutureTimes()
        self._test_requests = TestRequests()

    def note_record(self, name: str, status: NodeHealthStatus | None) -> None:
        """Take in a node's record as it was read: its offences and incidents.

        Args:
            name: of the node.
            status: of its NodeHealth; None: there is no record.
        """
        self.memory.set_accounts(name, [status.offences, *status.earlier_offences] if status else ())
        self.node_index.put_incidents(name, status.incidents if status else ())

    def note_echo(self, name: str, *, is_echo: bool) -> None:
        """Remember whether the record of a node, as read, is what Muster wrote last.

        If it is, and the node's verdict stays the same, nothing has to be done about the node.
        """
        (self._echoes.add if is_echo else self._echoes.discard)(name)

    def forget_echoes(self) -> None:
        """Forget which records are what Muster wrote last: none of the records is to be relied on."""
        self._echoes.clear()

    def woken(self, now: datetime) -> set[str]:
        """Return the names of the nodes to be judged now by time alone, each once."""
        names = {name for name, moment in self._wakes.items() if moment <= now}
        for name in names:
            del self._wakes[name]
        return names

    def wake_at(self, name: str, moment: datetime) -> None:
        """Have a node judged again at this moment at the latest."""
        self._wakes[name] = min(moment, self._wakes.get(name, moment))

    def set_verdict(self, name: str, verdict: Verdict | None) -> None:
        """Replace the verdict on a node, and have the node judged again at the verdict's `wake`; None: the node is
        gone."""
        self.verdict_index.set_verdict(name, verdict)
        if verdict is None:
            self._judged_in.pop(name, None)
        if verdict is not None and verdict.follow_up.wake is not None:
            self.wake_at(name, verdict.follow_up.wake)

    def note_difference(self, name: str, previous: Verdict | None) -> bool:
        """Return whether a node's new verdict may ask for something that is not yet in force or on record, and note
        that this was asked: to be called once for each verdict.

        In another pool the same verdict may have another effect and another text.

        Args:
            name: of the node; its new verdict was put already.
            previous: the verdict before; None: there was none.
        """
        is_echo = name in self._echoes
        self._echoes.discard(name)
        pool = self.node_index.pools.get(name, "")
        has_moved = self._judged_in.get(name, pool) != pool
        self._judged_in[name] = pool
        if has_moved:
            return True
        return not (is_echo and previous is not None and _same(previous, self.verdict_index.verdicts.get(name)))

    def decide(self, now: datetime, rules: Rules, judged: Collection[str], circumstances: Circumstances) -> list[Order]:
        """Return the orders: what to put into force, and for which nodes. The breaker's state is kept in `breaker`.

        Args:
            now: the time.
            rules: the fleet's policy.
            judged: the names of the nodes whose verdict or record is not what is in force.
            circumstances: what else is known.
        """
        orders, self.breaker = decide(View(now, rules, self.verdict_index, self.node_index, judged, circumstances))
        return orders

    def begin(self, order: Order) -> None:
        """Take in that an order is being carried out: what it charges counts now, not once it is written."""
        if order.ruling.charge:
            self.verdict_index.set_verdict(order.name, order.verdict)

    def with_test_if_allowed(self, name: str, verdict: Verdict, rules: Rules) -> tuple[Verdict, set[str]]:
        """Decide whether a node whose verdict asks for a test is offered for one: only a share of a pool is at a time.

        Returns:
            The verdict, which asks for a test only if it is the node's turn, and the names of the nodes whose turn it
            may be as a result.
        """
        pool, follow_up = self.node_index.pools.get(name, ""), verdict.follow_up
        others = self._test_requests.set_request(name, pool if follow_up.wants_check else None, follow_up.asked_by)
        if not follow_up.wants_check:
            return verdict, others
        most = rules.window_limit(pool, self.node_index.pool_sizes[pool])
        is_allowed = self._test_requests.may_be_tested(name, most)
        return replace(verdict, follow_up=replace(follow_up, wants_check=is_allowed)), others

    def forget_test(self, name: str) -> set[str]:
        """Drop a node's request for a test; returns the names of the nodes whose turn it may be as a result."""
        return self._test_requests.set_request(name, None)

    def ages_of_future_times(self, nodes: Collection[str], now: datetime, clock: float) -> dict[datetime, float]:
        """Return for how many seconds this process has known each time ahead of `now` at which a node was taken out.

        Args:
            nodes: names of the nodes that exist.
            now: the time.
            clock: seconds of a monotonic clock.
        """
        return self._ahead.ages_of_future_times(self._times_taken_out(nodes), now, clock)

    def _times_taken_out(self, nodes: Collection[str]) -> Iterator[datetime]:
        """The times at which Muster has taken nodes out of use, as far as they may be charged to a budget."""
        verdicts, incidents = self.verdict_index.verdicts, self.node_index.incidents
        present = (verdicts[name].record.incidents for name in self.verdict_index.concerned)
        removed_incidents = (incidents[name] for name in incidents if name not in nodes)
        for several in (*present, *removed_incidents):
            yield from (i.taken_out_time for i in several if i.taken_out_time is not None)

    def moments(self) -> list[datetime]:
        """Return the moments at which a node has to be judged, or a held node may be taken out, by time alone."""
        next_try = self.breaker.next_try if self.breaker is not None else None
        return [*self._wakes.values(), *([next_try] if next_try is not None else [])]


def _same(verdict: Verdict, other: Verdict | None) -> bool:
    """Whether two verdicts come to the same now; their `wake` and `offences_if_taken`, which concern later, are not
    compared."""
    if other is None:
        return False
    record = replace(other.record, offences_if_taken=verdict.record.offences_if_taken)
    return verdict == replace(other, record=record, follow_up=replace(other.follow_up, wake=verdict.follow_up.wake))
