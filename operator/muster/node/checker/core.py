"""What a checker does and says: a state machine that knows no thread, socket or clock.

Whoever drives it tells it what has happened (a directive, an answer of the zygote, its end) and asks `actions` for what
is due; `wake_at` is when that may change by itself. The directive is declared state: all orders of a burn-in, one run
after the other; what has an answer keeps it as long as it is listed, what is not listed any more is given up at once.
One probe at a time, and nobody's GPUs for an operator that is not heard any more.
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

IMPORT_SECONDS = 180.0
"""For torch; 4 to 8 CPU seconds, and the image may still be read from the disk."""
ANSWER_SECONDS = 30.0
"""Beyond a probe's deadline, and after it was cancelled: it has to die, and its GPUs have to be free."""
ALONE_SECONDS = 60.0
"""Without a word from the coordinator: then whatever runs is cancelled."""
IDLE_SECONDS = 60.0
"""After that long somebody may have changed a GPU or a driver: the devices are looked at before anything else."""
_TAKEN_BACK = "it was taken back"
_ALONE = "no word from the coordinator for %g s" % ALONE_SECONDS
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a zygote."""


@dataclasses.dataclass(frozen=True)
class End:
    """Kill the zygote."""


@dataclasses.dataclass(frozen=True)
class Ask:
    """Give the zygote an order."""

    order: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Cancel:
    """Take the order of this id back."""

    order_id: str


@dataclasses.dataclass(frozen=True)
class Meet:
    """Give the processes of the order of this id what those on other nodes have put."""

    order_id: str
    puts: Tuple[Put, ...]


Action = Union[Start, End, Ask, Cancel, Meet]


@dataclasses.dataclass(frozen=True)
class Node:
    """What is known of the node from the start.

    Attributes:
        address: where other checkers reach it.
        directory: to try storage in; "" for none.
        ethernet: whether its InfiniBand devices are Ethernet ports.
    """

    boot_id: str
    address: str = ""
    directory: str = ""
    ethernet: bool = False


@dataclasses.dataclass
class _Probe:
    """What the zygote is doing."""

    order: Dict[str, Any]
    overdue_at: float
    cancelled: bool = False
    puts: Dict[Tuple[int, str], Put] = dataclasses.field(default_factory=dict)
    met: Tuple[Put, ...] = ()
    """What has come from other nodes."""
    handed: Tuple[Put, ...] = ()
    """What of it the zygote has been given."""


class Core:
    """The state of a checker. All times are readings of one clock that never goes back.

    Attributes:
        passes: of this boot.
        figures: newest good ones, also from before.
        news: grows with everything that the coordinator should hear at once.
        answered: orders by how they ended, since the start.
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
        self._zygote_at = now  # until when it has to be ready; else from when on the next may be started
        self._failures = 0  # of zygotes, since one of them has answered
        self._problem = ""
        self._look_at = now  # when the devices are to be looked at though nobody asks
        self._looks_in_vain = 0
        self._used_at = now - IDLE_SECONDS

    # --- what happens

    def hear(self, told: CheckDirective, now: float) -> None:
        """A directive has come; whatever it says."""
        self.hear_anything(now)
        if not told.known:
            return
        orders, grants = _usable_orders(told.orders), _usable_grants(told.grants)
        self._take_grants(grants, now)
        listed = {order.id for order in orders}
        if not listed & self._candidates.keys() and listed - {order.id for order in self._orders}:
            self._candidates = {}  # of another burn-in, which was not passed
        self._orders = orders
        gone = self._answers.keys() - listed
        if gone:
            self._answers = {name: answer for name, answer in self._answers.items() if name in listed}
            self._publish()
        running = self._order
        if running is not None and running.id not in listed:
            self._leave(_TAKEN_BACK)
        if running is not None and told.meeting == running.id and self._run is not None and self._probe is not None:
            self._run.is_acknowledged = True
            self._probe.met = told.puts
        for order in orders:
            why = refusal(order) if order.id not in self._answers else ""
            if why:
                self._answer(environment_answer(order, why))

    def hear_anything(self, now: float) -> None:
        """The coordinator is there."""
        self._heard_at = now

    def zygote_is_ready(self, key: Mapping[str, Any], now: float) -> None:
        """torch is imported; `key` has its versions."""
        self._is_starting, self._key = False, key
        self._look_at, self._looks_in_vain = now, 0
        self._used_at = now - IDLE_SECONDS
        if self._facts is not None and self._facts.key != key:
            self._facts = None
        self._log("torch is imported", **{name: str(value) for name, value in key.items()})

    def zygote_has_ended(self, why: str, now: float, *, late: bool = False) -> None:
        """It did not come up, or it has died, by itself or by `End`.

        Args:
            late: it was ended because it had not answered in time.
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
        """A line of the zygote; one that nobody waits for is of no interest."""
        run, probe = self._run, self._probe
        # What it cannot read it refuses without an id.
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
        """A process of the probe that runs wants others to know something; beyond the bounds nobody is told."""
        probe, put = self._probe, Put(**message["put"])
        if self._order is None or probe is None or message.get("id") != probe.order["id"]:
            return
        known = {**probe.puts, (put.rank, put.key): put}
        if can_be_put(known.values()):
            probe.puts = known
            self._publish()

    # --- what is to be done

    def actions(self, now: float) -> List[Action]:
        """What is due now. Asking again gives nothing until something has happened or time has gone by."""
        if self._order is not None and now - self._heard_at > ALONE_SECONDS:
            self._leave(_ALONE)
        due = self._of_zygote(now)
        if self._key is not None:
            due += self._of_run(now)
        return due

    def wake_at(self, now: float) -> float:
        """When to ask again though nothing has happened."""
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
            return [Start()]
        if self._is_starting and now >= self._zygote_at:
            self.zygote_has_ended("torch was not imported within %g s" % IMPORT_SECONDS, now)
            return [End()]
        probe = self._probe
        if probe is not None and now >= probe.overdue_at:
            self.zygote_has_ended("the zygote has not answered in time", now, late=True)
            return [End()]
        return []

    def _of_run(self, now: float) -> List[Action]:
        if self._probe is not None:
            return self._take_back(self._probe, now)
        while True:
            run = self._run or self._begin(now)
            if run is None:
                return []
            asked = run.next(now)
            if asked is not None:
                self._ids += 1
                self._probe = _Probe({**asked, "id": str(self._ids)}, now + asked["deadline_seconds"] + ANSWER_SECONDS)
                return [Ask(self._probe.order)]
            self._finish(run, now)

    def _take_back(self, probe: _Probe, now: float) -> List[Action]:
        if not self._leaving and probe.met != probe.handed:
            probe.handed = probe.met
            return [Meet(str(probe.order["id"]), probe.met)]
        if not self._leaving or probe.cancelled:
            return []
        probe.cancelled, probe.overdue_at = True, now + ANSWER_SECONDS
        return [Cancel(str(probe.order["id"]))]

    def _begin(self, now: float) -> Optional[Run]:
        """The first order without an answer; else a look, where one is due."""
        assert self._key is not None
        alone = now - self._heard_at > ALONE_SECONDS
        order = None if alone else next((each for each in self._orders if each.id not in self._answers), None)
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
        if any(each.id == order.id for each in self._orders) and order.id not in self._answers:
            if run.leaving in (_TAKEN_BACK, _ALONE):
                return  # and given again meanwhile, or still given when there is word again
            answer = run.answer(now)
            self._answer(answer)
            if run.facts is not None:
                self._candidates[order.id] = _measured(order, answer, run.facts, now)
        else:
            self._log("an order was given up", order=order.id, why=run.leaving)

    def _leave(self, why: str) -> None:
        if self._run is not None and not self._run.leaving:
            self._run.leaving = why
            self._log("an order is cancelled", order=self._run.order.id if self._run.order else "", why=why)

    # --- what is known

    def _note_inspection(self, run: Run, now: float) -> None:
        assert run.looked is not None
        before, self._facts = self._facts, run.facts
        why = unfitness(run.looked, run.facts)
        self._set_problem(why)
        if self._problem:
            self._looks_in_vain += 1
            self._look_at = now + min(
                LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._looks_in_vain - 1, 10)
            )
        else:
            self._look_at, self._looks_in_vain = float("inf"), 0
        if self._facts != before and self._facts is not None:
            facts = self._facts
            if before is not None:  # the answers are about another machine, but for those about the orders alone
                refused = {order.id for order in self._orders if refusal(order)}
                self._answers = {name: answer for name, answer in self._answers.items() if name in refused}
                self._candidates.clear()
            self._log("this node", device=facts.device, gpus=len(facts.indexes), model=facts.model, driver=facts.driver)
            self._remember(self.passes.of_identity(self._identity))
            self._take_grants(self._grants, now)
            self._publish()

    @property
    def _identity(self) -> str:
        return self._facts.identity(self._node.boot_id) if self._facts is not None else ""

    def _take_grants(self, grants: Tuple[CheckGrant, ...], now: float) -> None:
        self._grants = grants
        if self._facts is None:
            return  # later
        passes = self.passes.with_grants(grants, self._identity, now)
        if passes != self.passes:
            self._log("this node has passed", grants=[grant.id for grant in grants])
            new = [each for found in self._candidates.values() for each in found]
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

    # --- what is told

    @property
    def state(self) -> str:
        """As the report has it."""
        if self._problem:
            return UNFIT
        return READY if self._key is not None and self._facts is not None else STARTING

    def heard_seconds(self, now: float) -> float:
        """Since the coordinator was heard."""
        return max(0.0, now - self._heard_at)

    def report(self, now: float) -> CheckReport:
        """All that there is to say, without what the connection adds."""
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
    """The figures of an answer with which nothing is wrong."""
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
    """Those that can be answered: an answer names its order, and one that is no name would spoil the whole report."""
    found: Dict[str, CheckOrder] = {}
    for order in orders:
        if _is_id(order.id) and _is_text(order.kind) and _is_text(order.peer) and _is_text(order.namespace):
            found.setdefault(order.id, order)
    return tuple(found.values())


def _usable_grants(grants: Sequence[CheckGrant]) -> Tuple[CheckGrant, ...]:
    return tuple(
        grant
        for grant in grants
        if _is_id(grant.id) and _is_id(grant.profile) and len(grant.profile) <= 64 and 0 <= grant.gpus <= MAX_GPUS
    )


def _is_id(text: str) -> bool:
    return 0 < len(text) <= MAX_ID_CHARS and _is_text(text)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
