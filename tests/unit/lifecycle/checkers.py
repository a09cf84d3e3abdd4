"""Checkers that do what orders say: each answers in its turn, and forgets what its directive does not list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.unit.lifecycle.builders import SETTINGS, Scene, idle

from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.protocol.checks import (
    GANG,
    NODE,
    READY,
    CheckAnswer,
    CheckOrder,
    CheckReport,
    PassReport,
    ProbeReport,
)
from muster.world.checks import CheckerView, NodeChecks
from muster.world.job import JobWorld


@dataclass
class Checker:
    """One node's checker."""

    node: str
    bad_pairs: bool = False
    wrong_pairs: bool = False
    wrong: bool = False
    fingerprint: str = ""
    gpus: int = 0
    library: str = ""
    version: str = ""
    hangs: bool = False
    starved: bool = False
    hung_tests: int = 0  # so many tests of its own hang, and then it is well
    slow_tests: int = 0
    late_tests: int = 0  # so many come to the end of the profile's time before they are done
    late_again: bool = False  # the second one does
    storage: str = ""  # how its probe of the storage ends; "": none is made
    tflops: float = 600.0
    environment: str = ""
    state: str = READY
    problem: str = ""
    answers: dict[str, CheckAnswer] = field(default_factory=dict)
    passes: dict[str, PassReport] = field(default_factory=dict)
    orders: tuple[CheckOrder, ...] = ()
    given: dict[str, float] = field(default_factory=dict)
    silent_seconds: float = 0.5
    state_seconds: float = 0.0
    runs: list[str] = field(default_factory=list)
    slow_to_learn: int = 0  # so many directives pass before a grant is taken in

    def told(self, checks: NodeChecks) -> None:
        if not checks.known:
            return
        self.orders = checks.orders
        listed = {order.id for order in checks.orders}
        self.answers = {name: answer for name, answer in self.answers.items() if name in listed}
        self.given = {order.id: self.given.get(order.id, 0.0) for order in checks.orders}
        if checks.grants and self.slow_to_learn > 0:
            self.slow_to_learn -= 1
            return
        for grant in checks.grants:
            self.passes.setdefault(grant.id, PassReport(grant.profile, 0.0, grant.id, grant.gpus))

    @property
    def next(self) -> CheckOrder | None:
        return next((order for order in self.orders if order.id not in self.answers), None)

    def view(self) -> CheckerView:
        """As the coordinator sees it."""
        report = CheckReport(
            1,
            state=self.state,
            problem=self.problem,
            device="cuda" if self.gpus else "cpu",
            gpus=self.gpus,
            library=self.library,
            version=self.version,
            address=f"10.1.0.{self.node[-1]}",
            answers=tuple(self.answers.values()),
            passes=tuple(self.passes.values()),
        )
        return CheckerView(self.silent_seconds, report, dict(self.given), self.state_seconds)

    def alone(self, order: CheckOrder) -> CheckAnswer:
        """The node's own probes."""
        if self.environment:
            probes = (ProbeReport("gemm-bf16", "Environment", message=self.environment),)
            return CheckAnswer(order.id, NODE, "Environment", probes=probes)
        self.hung_tests, self.slow_tests = self.hung_tests - 1, self.slow_tests - 1
        self.late_tests -= 1
        if self.late_tests >= 0 or (self.late_again and order.id.endswith("/again")):
            words = "the profile's 30 s are over"
            late = (ProbeReport(name, "Late", message=words) for name in ("memory-pattern", "bit-exact"))
            probes = (ProbeReport("gemm-bf16", "Result", self.tflops, "TFLOP/s"), *late)
            return CheckAnswer(order.id, NODE, "Late", probes=probes)
        if self.starved or self.hung_tests >= 0:
            return CheckAnswer(order.id, NODE, "NoResult", probes=(ProbeReport("memory-pattern", "NoResult"),))
        probes = (
            ProbeReport("gemm-bf16", "Result", 100.0 if self.slow_tests >= 0 else self.tflops, "TFLOP/s"),
            ProbeReport(
                "bit-exact",
                "Result",
                wrong=self.wrong,
                message="GPU 3: bits differ" if self.wrong else "",
                fingerprint=self.fingerprint,
            ),
        )
        if self.storage:
            failed = ProbeReport("storage", "Result", wrong=True, message="/checkpoints: No space left on device")
            late = ProbeReport("storage", "Late", message="it was still running when the profile's 30 s were over")
            how = {"full": failed, "hangs": ProbeReport("storage", "NoResult"), "late": late}
            probes = (*probes, how.get(self.storage, ProbeReport("storage", "Result", 3.0, "GB/s")))
        return CheckAnswer(order.id, NODE, "Result", probes=probes)


@dataclass
class Play:
    """A gang in its burn-in: decisions, checkers, and what becomes of the record."""

    scene: Scene
    checkers: dict[str, Checker]
    bad_links: set[frozenset[str]] = field(default_factory=set)
    broken_ends: set[str] = field(
        default_factory=set
    )  # these cannot test with anybody, and their partners wait in vain
    transport: str = "TCP"  # that pairs run over
    plans: list[Plan] = field(default_factory=list)
    whole_gbps: float = 0.8  # of the all-reduce of the whole gang; 0: it ends for whoever is in it
    whole_is_wrong: bool = False  # its sums, on the second node

    @classmethod
    def of(cls, scene: Scene, **faults: Mapping[str, object]) -> Play:
        """Healthy checkers on all nodes of the scene, but for these."""
        return cls(scene, {name: Checker(name, **faults.get(name, {})) for name in scene.nodes})  # type: ignore[arg-type]

    def world(self) -> JobWorld:
        record = self.scene.record
        nodes = [member.node for member in record.members if member.node] if record else []
        views = {node: self.checkers[node].view() for node in nodes if node in self.checkers}
        return self.scene.but(checkers=views).world()

    def decide(self) -> Plan:
        """One decision, its orders given."""
        plan = decide(self.world(), SETTINGS)
        self.plans.append(plan)
        if plan.checks is not None:
            for node, checker in self.checkers.items():
                checker.told(plan.checks.get(node, NodeChecks()))
        return plan

    def answer(self) -> bool:
        """Whoever can answers his next order; whether anybody could."""
        moved = False
        for checker in self.checkers.values():
            order = checker.next
            if order is None or checker.hangs:
                continue
            if order.kind == NODE:
                checker.answers[order.id] = checker.alone(order)
                checker.runs.append(order.id)
                moved = True
                continue
            if order.kind == GANG:
                moved = self.meet(order) or moved
                continue
            peer = self.checkers[order.peer]
            theirs = peer.next
            if peer.hangs or theirs is None or theirs.id != order.id:
                continue
            if self.broken_ends.intersection((checker.node, peer.node)):
                for one, this in ((checker, order), (peer, theirs)):
                    how = "Environment" if one.node in self.broken_ends else "CouldNotConnect"
                    one.answers[this.id] = CheckAnswer(this.id, this.kind, how, this.round, this.peer)
                moved = True
                continue
            for one, this in ((checker, order), (peer, theirs)):
                slow = checker.bad_pairs or peer.bad_pairs or frozenset((order.peer, checker.node)) in self.bad_links
                wrong = checker.wrong_pairs or peer.wrong_pairs
                one.answers[this.id] = CheckAnswer(
                    this.id,
                    this.kind,
                    "Result",
                    this.round,
                    this.peer,
                    gbps=0.0 if wrong else 0.1 if slow else 1.0,
                    transport=self.transport,
                    message="8 words of the sums are wrong" if wrong else "",
                )
                one.runs.append(this.id)
            moved = True
        return moved

    def meet(self, order: CheckOrder) -> bool:
        """The all-reduce of the whole gang, once all are at it; whether they were."""
        at_it = {
            c.next.node_rank: c for c in self.checkers.values() if c.next and c.next.id == order.id and not c.hangs
        }
        if len(at_it) < order.nodes:
            return False
        for rank, checker in at_it.items():
            how, words = ("Result", "") if self.whole_gbps else ("OtherEnded", "connection closed by peer")
            if not self.whole_gbps and rank == 1:
                how, words = "NoResult", "all-reduce: it hung"
            # Of the slowest device on each node.
            figures = {"gbps": self.whole_gbps + 0.1 * rank, "transport": "TCP"} if self.whole_gbps else {}
            if self.whole_is_wrong and rank == 1:
                words, figures = "8 words of the sums are wrong", {}
            checker.answers[order.id] = CheckAnswer(order.id, GANG, how, message=words, **figures)  # type: ignore[arg-type]
            checker.runs.append(order.id)
        return True

    def pass_time(self, seconds: float) -> None:
        self.scene.seconds += seconds
        for checker in self.checkers.values():
            checker.given = {name: age + seconds for name, age in checker.given.items()}
            checker.state_seconds += seconds

    def until_commit(self, turns: int = 200, pace: float = 5.0) -> Plan:
        """Decide and answer until a record is to be committed; time passes at this pace while nobody can answer."""
        for _ in range(turns):
            plan = self.decide()
            if any(isinstance(action, CommitGang) for action in plan.actions):
                return plan
            if not self.answer():
                self.pass_time(pace)
        raise AssertionError(f"no commit: {self.plans[-1].status}")

    def take(self, plan: Plan) -> None:
        """The commit is made; everybody's launcher is idle in the new attempt, and pods are bound."""
        (commit,) = [action for action in plan.actions if isinstance(action, CommitGang)]
        self.scene.record = commit.spec
        self.scene.pod_views.clear()
        self.scene.launchers.clear()
        for member in commit.spec.members:
            if member.node:
                self.scene.pod(member.index, member.incarnation, node=member.node)
                view = idle(commit.spec.attempt, member.rank)
                self.scene.launcher(member.index, view, member.incarnation)
        # A directive that is withdrawn: its answers are forgotten.
        for checker in self.checkers.values():
            checker.told(replace(NodeChecks(), orders=()))
