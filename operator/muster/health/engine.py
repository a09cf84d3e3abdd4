"""The loop of health: which nodes have to be judged, and what is decided about all of them. Pure.

The operator and the simulator of fleets run it. Where facts come from, and how an order is carried out, is the
caller's: it stirs nodes, judges those that `due` names, puts their verdicts here, and carries out what `decide` orders.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from muster.api.nodehealth import NodeHealthStatus
from muster.health.assess import Verdict
from muster.health.books import Books, Ground
from muster.health.breaker import Breaker
from muster.health.effects import Effect
from muster.health.memory import Memory
from muster.health.orders import InForce, Order, View, decide
from muster.health.sources import Rules


class Engine:
    """What is known of all nodes from one look to the next.

    Attributes:
        dirty: nodes about which something may have changed since they were judged.
        breaker: as the last decision has left it.
    """

    def __init__(self) -> None:
        self.ground, self.books, self.memory = Ground(), Books(), Memory()
        self.dirty: set[str] = set()
        self.breaker: Breaker | None = None
        self._wakes: dict[str, datetime] = {}  # node -> when it has to be judged again by time alone
        self._echoes: set[str] = set()  # nodes whose record says what was written last

    def stir(self, nodes: Iterable[str]) -> None:
        """Something about these nodes may have changed."""
        self.dirty.update(nodes)

    def recorded(self, name: str, status: NodeHealthStatus | None) -> None:
        """The record of a node is as given; None: there is none."""
        self.memory.put(name, status.offences if status else None)
        self.ground.put_incidents(name, status.incidents if status else ())

    def echoed(self, name: str, *, is_echo: bool) -> None:
        """Whether the record of a node says what was written last: nothing has to be done if the verdict stays the
        same."""
        (self._echoes.add if is_echo else self._echoes.discard)(name)

    def forget_echoes(self) -> None:
        """What is on record is not to be relied on."""
        self._echoes.clear()

    def due(self, now: datetime, busy: Collection[str] = ()) -> set[str]:
        """The nodes to be judged now. Those that are busy stay dirty: they are judged by what is written then."""
        names = self.dirty | {name for name, moment in self._wakes.items() if moment <= now}
        self.dirty = names & set(busy)
        for name in names:
            self._wakes.pop(name, None)
        return names - self.dirty

    def wake_at(self, name: str, moment: datetime) -> None:
        """The node has to be judged again then, if it is not before."""
        self._wakes[name] = min(moment, self._wakes.get(name, moment))

    def put(self, name: str, verdict: Verdict | None) -> None:
        """The verdict on a node; None: it is gone."""
        self.books.put(name, verdict)
        if verdict is not None and verdict.wake is not None:
            self.wake_at(name, verdict.wake)

    def differs(self, name: str, before: Verdict | None) -> bool:
        """Whether the verdict on a node, after the one before, may ask for something that is not in force or on
        record."""
        is_echo = name in self._echoes
        self._echoes.discard(name)
        return not (is_echo and before is not None and _same(before, self.books.verdicts.get(name)))

    def decide(
        self,
        now: datetime,
        rules: Rules,
        nodes: Collection[str],
        judged: Collection[str],
        in_force: Mapping[str, InForce],
        under_way: Mapping[str, Effect],
        *,
        policy_unknown: bool = False,
        ahead: Mapping[datetime, float] | None = None,
    ) -> list[Order]:
        """What is to be done about which node; see `muster.health.orders.View`."""
        view = View(
            now, rules, self.books, self.ground, nodes, judged, in_force, under_way, policy_unknown, ahead or {}
        )
        orders, self.breaker = decide(view)
        return orders

    def moments(self) -> list[datetime]:
        """When something is due by time alone."""
        next_try = self.breaker.next_try if self.breaker is not None else None
        return [*self._wakes.values(), *([next_try] if next_try is not None else [])]


def _same(one: Verdict, other: Verdict | None) -> bool:
    """Whether two verdicts come to the same; what would follow later is not compared."""
    if other is None:
        return False
    return one == replace(other, wake=one.wake, offences_if_taken=one.offences_if_taken)
