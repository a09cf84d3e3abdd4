"""Decides what a checker does and reports: a state machine without threads, sockets or clocks.

Its caller passes in each event (a directive, an answer of the zygote, its end) and gets the due actions from `actions`;
`wake_at` is when these may change by themselves. The directive is declared state: all orders of a burn-in, which run
one after the other. An answered order keeps its answer as long as it is listed; an order that is not listed any more is
cancelled at once. One probe runs at a time. Without contact to the operator no probe holds GPUs.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from muster.node.checker import translate
from muster.node.checker.facts import Facts, unfitness
from muster.node.checker.memory import Measured, Passes, figure_reports, with_figures
from muster.node.checker.probes import outcome
from muster.node.checker.runs import Run, environment_answer, refusal, run_of
from muster.protocol.checks import (
    MAX_GPUS,
    MAX_ID_CHARS,
    NODE,
    PAIR,
    READY,
    STARTING,
    UNFIT,
    CheckAnswer,
    CheckDirective,
    CheckGrant,
    CheckOrder,
    CheckReport,
    Put,
    can_be_put,
)
from muster.protocol.messages import is_plain

IMPORT_SECONDS = 180.0
"""The time for the import of torch: 4 to 8 CPU seconds, and the image may still be read from the disk."""
ANSWER_SECONDS = 30.0
"""The time for an answer after a probe's deadline or cancellation: the probe has to die, and its GPUs have to be
free."""
ALONE_SECONDS = 60.0
"""After this long without contact to the coordinator the running order is cancelled."""
IDLE_SECONDS = 60.0
"""After this long a GPU or a driver may have been changed: the devices are inspected before anything else."""
_TAKEN_BACK = "it was taken back"
_ALONE = "no word from the coordinator for %g s" % ALONE_SECONDS
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0


@dataclasses.dataclass(frozen=True)
class StartZygote:
    """The action to start a zygote."""


@dataclasses.dataclass(frozen=True)
class KillZygote:
    """The action to kill the zygote."""


@dataclasses.dataclass(frozen=True)
class SendOrder:
    """The action to send an order to the zygote."""

    order: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class CancelOrder:
    """The action to cancel the order with this id."""

    order_id: str


@dataclasses.dataclass(frozen=True)
class ForwardPuts:
    """The action to pass on what processes on other nodes have put, to the processes of the order with this id."""

    order_id: str
    puts: Tuple[Put, ...]


Action = Union[StartZygote, KillZygote, SendOrder, CancelOrder, ForwardPuts]


@dataclasses.dataclass(frozen=True)
class Node:
    """The fixed facts about the node.

    Attributes:
        address: the address at which other checkers reach the node.
        directory: where the storage probe writes; "" for none.
        ethernet: whether its InfiniBand devices are Ethernet ports.
    """

    boot_id: str
    address: str = ""
    directory: str = ""
    ethernet: bool = False


@dataclasses.dataclass
class _Probe:
    """The order that the zygote works on."""

    order: Dict[str, Any]
    overdue_at: float
    cancelled: bool = False
    puts: Dict[Tuple[int, str], Put] = dataclasses.field(default_factory=dict)
    met: Tuple[Put, ...] = ()
    """What processes on other nodes have put."""
    handed: Tuple[Put, ...] = ()
    """The part of it that was passed to the zygote."""


class Core:
    """The state of a checker. All times are readings of one clock that never goes back.

    Attributes:
        passes: the node's passes in this boot.
        figures: the newest good figures, also those from before this boot.
        news: a counter that grows with everything to report to the coordinator at once.
        answered: number of orders by outcome, since the start.
        starts: how often a zygote was started.
    """

    def __init__(
        self, node: Node, passes: Passes, figures: Tuple[Measured, ...], now: float, log: Callable[..., None]
    ) -> None:
        self.passes = passes
        self.figures = figures
        self.news = 0
        self.answered: Dict[str, int] = {}
        self.starts = 0
        self._node = node
        self._log = log
        self._orders: Tuple[CheckOrder, ...] = ()
        self._grants: Tuple[CheckGrant, ...] = ()
        self._answers: Dict[str, CheckAnswer] = {}
        self._candidates: Dict[str, List[Measured]] = {}
        self._heard_at = now
        self._run: Optional[Run] = None
        self._probe: Optional[_Probe] = None
        self._ids = 0
        self._facts: Optional[Facts] = None
        self._key: Optional[Mapping[str, Any]] = None  # None while no zygote is ready
        self._is_starting = False
        self._zygote_at = now  # the deadline of its start; without a zygote, the earliest time of the next start
        self._failures = 0  # failed zygotes since the last one that answered
        self._problem = ""
        self._look_at = now  # when the devices are inspected without an order
        self._looks_in_vain = 0
        self._used_at = now - IDLE_SECONDS

    # --- events

    def hear(self, directive: CheckDirective, now: float) -> None:
        """Apply a directive; its content is not trusted."""
        self.hear_anything(now)
        if not directive.known:
            return
        orders, grants = _usable_orders(directive.orders), _usable_grants(directive.grants)
        self._apply_grants(grants, now)
        listed = {order.id for order in orders}
        if not listed & self._candidates.keys() and listed - {order.id for order in self._orders}:
            self._candidates = {}  # of another burn-in, which this node has not passed
        self._orders = orders
        dropped_ids = self._answers.keys() - listed
        if dropped_ids:
            self._answers = {name: answer for name, answer in self._answers.items() if name in listed}
            self._publish()
        running = self._order
        if running is not None and running.id not in listed:
            self._cancel_run(_TAKEN_BACK)
        if (
            running is not None
            and directive.meeting == running.id
            and self._run is not None
            and self._probe is not None
        ):
            self._run.is_acknowledged = True
            self._probe.met = directive.puts
        for order in orders:
            why = refusal(order) if order.id not in self._answers else ""
            if why:
                self._answer(environment_answer(order, why))

    def hear_anything(self, now: float) -> None:
        """Note that the coordinator is reachable."""
        self._heard_at = now

    def zygote_is_ready(self, key: Mapping[str, Any], now: float) -> None:
        """Note that torch is imported; `key` has its versions."""
        self._is_starting, self._key = False, key
        self._look_at, self._looks_in_vain = now, 0
        self._used_at = now - IDLE_SECONDS
        if self._facts is not None and self._facts.key != key:
            self._facts = None
        self._log("torch is imported", **{name: str(value) for name, value in key.items()})

    def zygote_has_ended(self, why: str, now: float, *, late: bool = False) -> None:
        """Note that the zygote did not start, or has ended: by itself, by `KillZygote`, or (late) killed because it had
        not answered in time.
        """
        was_ready, self._key, self._is_starting = self._key is not None, None, False
        pause = 0.0
        if not was_ready or self._failures:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(max(self._failures - was_ready, 0), 10))
        self._failures += 1
        self._zygote_at = now + pause
        self._log("the zygote has ended", why=why, again_in_seconds=pause)
        if not was_ready:
            self._set_problem(why)
        run, probe = self._run, self._probe
        self._probe = None
        if run is not None:
            if probe is not None:
                run.abort(probe.order, outcome.NO_TIME if late else outcome.UNFIT, why)
            self._finish(run, now)
        self._publish()

    def probe_has_answered(self, answer: Mapping[str, Any], now: float) -> None:
        """Apply an answer of the zygote; an answer to no open order is ignored."""
        run, probe = self._run, self._probe
        # The zygote refuses an unreadable order without an id.
        if run is None or probe is None or answer.get("id") not in (probe.order["id"], None):
            return
        self._probe, self._failures, self._used_at = None, 0, now
        looked_before = run.looked
        run.note_answer(probe.order, {name: value for name, value in answer.items() if name != "id"})
        if run.looked is not looked_before:
            self._note_inspection(run, now)
        if run.leaving:
            self._finish(run, now)

    def probe_has_put(self, message: Mapping[str, Any]) -> None:
        """Apply a value that a process of the running probe publishes; values beyond the limits are dropped."""
        probe, put = self._probe, Put(**message["put"])
        if self._order is None or probe is None or message.get("id") != probe.order["id"]:
            return
        puts = {**probe.puts, (put.rank, put.key): put}
        if can_be_put(puts.values()):
            probe.puts = puts
            self._publish()

    # --- actions

    def actions(self, now: float) -> List[Action]:
        """Return the actions that are due now. A second call returns none until an event comes or time passes."""
        if self._order is not None and now - self._heard_at > ALONE_SECONDS:
            self._cancel_run(_ALONE)
        due = self._of_zygote(now)
        if self._key is not None:
            due += self._of_run(now)
        return due

    def wake_at(self, now: float) -> float:
        """Return when to call `actions` again if no event comes before."""
        times = [now + IDLE_SECONDS]
        if self._key is None:
            times.append(self._zygote_at)
        elif self._run is None:
            times.append(self._look_at)
        if self._probe is not None:
            times += [self._probe.overdue_at]
        if self._order is not None and not self._leaving:
            times.append(self._heard_at + ALONE_SECONDS + 0.001)
        return min(times)

    def _of_zygote(self, now: float) -> List[Action]:
        if self._key is None and not self._is_starting and now >= self._zygote_at:
            self._is_starting, self._zygote_at = True, now + IMPORT_SECONDS
            self.starts += 1
            return [StartZygote()]
        if self._is_starting and now >= self._zygote_at:
            self.zygote_has_ended("torch was not imported within %g s" % IMPORT_SECONDS, now)
            return [KillZygote()]
        probe = self._probe
        if probe is not None and now >= probe.overdue_at:
            self.zygote_has_ended("the zygote has not answered in time", now, late=True)
            return [KillZygote()]
        return []

    def _of_run(self, now: float) -> List[Action]:
        if self._probe is not None:
            return self._follow_probe(self._probe, now)
        while True:
            run = self._run or self._begin(now)
            if run is None:
                return []
            asked = run.next(now)
            if asked is not None:
                self._ids += 1
                self._probe = _Probe({**asked, "id": str(self._ids)}, now + asked["deadline_seconds"] + ANSWER_SECONDS)
                return [SendOrder(self._probe.order)]
            self._finish(run, now)

    def _follow_probe(self, probe: _Probe, now: float) -> List[Action]:
        if not self._leaving and probe.met != probe.handed:
            probe.handed = probe.met
            return [ForwardPuts(str(probe.order["id"]), probe.met)]
        if not self._leaving or probe.cancelled:
            return []
        probe.cancelled, probe.overdue_at = True, now + ANSWER_SECONDS
        return [CancelOrder(str(probe.order["id"]))]

    def _begin(self, now: float) -> Optional[Run]:
        """Begin the first order without an answer; else an inspection of the devices, where one is due."""
        assert self._key is not None
        alone = now - self._heard_at > ALONE_SECONDS
        order = None if alone else next((listed for listed in self._orders if listed.id not in self._answers), None)
        if order is not None:
            looks = now - self._used_at >= IDLE_SECONDS
            node = self._node
            self._run = run_of(order, self._facts, self._key, now, looks, node.directory, node.ethernet)
            self._log("an order begins", order=order.id, kind=order.kind, peer=order.peer, profile=order.profile)
            self._publish()
        elif now >= self._look_at:
            self._look_at = float("inf")
            self._run = Run(None, self._facts, self._key, now, looks=True)
        return self._run

    def _finish(self, run: Run, now: float) -> None:
        self._run = None
        self._used_at = now
        order = run.order
        if order is None:
            return
        self._publish()
        if any(listed.id == order.id for listed in self._orders) and order.id not in self._answers:
            if run.leaving in (_TAKEN_BACK, _ALONE):
                return  # the order was given again meanwhile, or is still listed when contact is back
            answer = run.answer(now)
            self._answer(answer)
            if run.facts is not None:
                self._candidates[order.id] = _measured(order, answer, run.facts, now)
        else:
            self._log("an order was given up", order=order.id, why=run.leaving)

    def _cancel_run(self, why: str) -> None:
        if self._run is not None and not self._run.leaving:
            self._run.leaving = why
            self._log("an order is cancelled", order=self._run.order.id if self._run.order else "", why=why)

    # --- knowledge

    def _note_inspection(self, run: Run, now: float) -> None:
        assert run.looked is not None
        previous_facts, self._facts = self._facts, run.facts
        why = unfitness(run.looked, run.facts)
        self._set_problem(why)
        if self._problem:
            self._looks_in_vain += 1
            self._look_at = now + min(
                LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._looks_in_vain - 1, 10)
            )
        else:
            self._look_at, self._looks_in_vain = float("inf"), 0
        if self._facts != previous_facts and self._facts is not None:
            facts = self._facts
            if previous_facts is not None:  # the answers are about another machine, except those that refuse an order
                refused = {order.id for order in self._orders if refusal(order)}
                self._answers = {name: answer for name, answer in self._answers.items() if name in refused}
                self._candidates.clear()
            self._log("this node", device=facts.device, gpus=len(facts.indexes), model=facts.model, driver=facts.driver)
            self._remember(self.passes.of_identity(self._identity))
            self._apply_grants(self._grants, now)
            self._publish()

    @property
    def _identity(self) -> str:
        return self._facts.identity(self._node.boot_id) if self._facts is not None else ""

    def _apply_grants(self, grants: Tuple[CheckGrant, ...], now: float) -> None:
        self._grants = grants
        if self._facts is None:
            return  # later
        passes = self.passes.with_grants(grants, self._identity, now)
        if passes != self.passes:
            self._log("this node has passed", grants=[grant.id for grant in grants])
            new = [measured for figures in self._candidates.values() for measured in figures]
            self._candidates = {}
            self.figures = with_figures(self.figures, new)
            self._remember(passes)

    def _remember(self, passes: Passes) -> None:
        if passes != self.passes:
            self.passes = passes
            self._publish()

    def _set_problem(self, words: str) -> None:
        if words != self._problem:
            self._problem = words
            self._log("something can be tested here again" if not words else "nothing can be tested here", why=words)
            self._publish()

    def _answer(self, answer: CheckAnswer) -> None:
        self._answers[answer.order] = answer
        self.answered[answer.outcome] = self.answered.get(answer.outcome, 0) + 1
        self._log(
            "an order is answered",
            order=answer.order,
            kind=answer.kind,
            how=answer.outcome,
            seconds=answer.seconds,
            gbps=answer.gbps,
            words=answer.message,
        )
        self._publish()

    def _publish(self) -> None:
        self.news += 1

    @property
    def _order(self) -> Optional[CheckOrder]:
        return self._run.order if self._run is not None else None

    @property
    def _leaving(self) -> bool:
        return self._run is not None and self._run.leaving != ""

    # --- reports

    @property
    def state(self) -> str:
        """Return the state in the form of the report."""
        if self._problem:
            return UNFIT
        return READY if self._key is not None and self._facts is not None else STARTING

    def heard_seconds(self, now: float) -> float:
        """Return the seconds since the last contact with the coordinator."""
        return max(0.0, now - self._heard_at)

    def report(self, now: float) -> CheckReport:
        """Return the complete report, without the fields that the connection adds."""
        facts = self._facts
        puts = tuple(self._probe.puts.values()) if self._probe is not None else ()
        plain = CheckReport(
            sequence=0,
            boot_id=self._node.boot_id[:MAX_ID_CHARS],
            state=self.state,
            problem=translate.cut(self._problem),
            address=self._node.address[:MAX_ID_CHARS],
            running=self._order.id if self._order is not None else "",
            answers=tuple(self._answers[order.id] for order in self._orders if order.id in self._answers),
            meeting=self._order.id if self._order is not None and puts else "",
            puts=puts,
        )
        if facts is None:
            return plain
        return dataclasses.replace(
            plain,
            passes=self.passes.reports(now),
            identity=self._identity,
            device=facts.device,
            gpus=min(len(facts.indexes), MAX_GPUS),
            model=facts.model,
            library=facts.library,
            version=facts.version,
            figures=figure_reports(self.figures, facts, now),
        )


def _measured(order: CheckOrder, answer: CheckAnswer, facts: Facts, now: float) -> List[Measured]:
    """Return the figures of an answer without faults."""
    rows: List[Tuple[str, str, Optional[float], str]] = []
    if answer.outcome != translate.RESULT or any(probe.wrong for probe in answer.probes):
        return []
    if order.kind == NODE:
        rows = [
            (
                probe.probe,
                answer.transport if probe.probe == translate.ALL_REDUCE_NODE else "",
                probe.figure,
                probe.unit,
            )
            for probe in answer.probes
            if probe.outcome == translate.RESULT
        ]
    else:
        rows = [("pair" if order.kind == PAIR else "gang", answer.transport, answer.gbps, "GB/s")]
    namespace = order.namespace if len(order.namespace) <= 63 else ""
    return [
        Measured(probe, transport, figure, unit, namespace, facts.model, facts.library, facts.version, now)
        for probe, transport, figure, unit in rows
        if figure is not None and figure > 0.0
    ]


def _usable_orders(orders: Sequence[CheckOrder]) -> Tuple[CheckOrder, ...]:
    """Return the orders that can be answered: an answer names its order, and an invalid name would spoil the whole
    report."""
    orders_by_id: Dict[str, CheckOrder] = {}
    for order in orders:
        if _is_id(order.id) and is_plain(order.kind) and is_plain(order.peer) and is_plain(order.namespace):
            orders_by_id.setdefault(order.id, order)
    return tuple(orders_by_id.values())


def _usable_grants(grants: Sequence[CheckGrant]) -> Tuple[CheckGrant, ...]:
    return tuple(
        grant
        for grant in grants
        if _is_id(grant.id) and _is_id(grant.profile) and len(grant.profile) <= 64 and 0 <= grant.gpus <= MAX_GPUS
    )


def _is_id(text: str) -> bool:
    return 0 < len(text) <= MAX_ID_CHARS and is_plain(text)
