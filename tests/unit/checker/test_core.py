"""The state machine of a checker: what it runs, keeps, gives up and remembers."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.checker.zygotes import KEY, Driven, done, look

from muster.node.checker.core import (
    ALONE_SECONDS,
    ANSWER_SECONDS,
    IDLE_SECONDS,
    IMPORT_SECONDS,
    ForwardPuts,
    SendOrder,
    StartZygote,
)
from muster.node.checker.memory import Pass, Passes
from muster.node.checker.talk import fitting
from muster.protocol.checks import (
    GANG,
    MAX_PUT_CHARS,
    MAX_PUTS,
    NODE,
    PAIR,
    READY,
    STARTING,
    UNFIT,
    CheckDirective,
    CheckGrant,
    CheckOrder,
    Put,
    decode_check_report,
)
from muster.protocol.messages import LONGEST_SECONDS, MAX_REPORT_BYTES, encode

QUICK = ["Devices", "Context", "Gemm", "Bandwidth", "Pattern", "Bits", "HostCopies", "AllReduce"]


def node_order(name: str, **more: Any) -> CheckOrder:
    return CheckOrder(name, NODE, **more)


def pair_order(name: str, **more: Any) -> CheckOrder:
    network = {
        "kind": PAIR,
        "peer": "other",
        "master_address": "10.0.0.1",
        "master_port": 21000,
        "node_rank": 1,
        "nodes": 2,
    }
    return CheckOrder(name, **{**network, **more})


def reduced(asked: Any, gbps: float = 40.0) -> dict[str, Any]:
    sizes = [{"bytes": size, "best_bus_gb_per_s": gbps} for size, _ in asked["sizes"]]
    return {**done(asked, sizes=sizes, world=16, backend="nccl"), "transports": ["NET/IB/GDRDMA"]}


@pytest.fixture
def driven() -> Driven:
    return Driven().start()


class TestOrders:
    def test_a_node_order_runs_its_profile_and_is_answered_once(self, driven: Driven) -> None:
        driven.tell(node_order("n", gpus=2))
        probes = []
        while driven.asked:
            probes.append(driven.asked[0]["probe"])
            assert driven.asked[0].get("expected", 2) == 2
            assert driven.report.running == "n"
            driven.reply()
        assert probes == QUICK
        assert driven.answers == {"n": "Result"}
        assert driven.report.running == ""
        driven.tell(node_order("n", gpus=2))
        assert driven.begun == ["n"]

    def test_orders_run_as_they_stand_one_after_the_other(self, driven: Driven) -> None:
        driven.tell(pair_order("1"), pair_order("2"), pair_order("3"))
        for name in "123":
            assert driven.report.running == name
            driven.reply(reduced(driven.asked[0]))
        assert driven.begun == ["1", "2", "3"]
        assert [answer.gbps for answer in driven.report.answers] == [40.0] * 3
        assert {answer.transport for answer in driven.report.answers} == {"IB"}

    def test_of_a_pair_both_ends_meet_as_the_order_says(self, driven: Driven) -> None:
        driven.tell(pair_order("1", master_port=21234))
        asked = driven.asked[0]
        assert (asked["probe"], asked["master"], asked["port"]) == ("AllReduce", "10.0.0.1", 21234)
        assert (asked["nodes"], asked["node_rank"], asked["devices"]) == (2, 1, [0, 1])
        assert asked["deadline_seconds"] == 30.0

    def test_a_gang_has_sizes_of_its_own(self) -> None:
        driven = Driven(looks=look(0)).start()
        driven.tell(pair_order("1", kind=GANG, gpus=0))
        assert driven.asked[0]["sizes"] == [[4096, 50], [2**20, 10]]
        assert (driven.asked[0]["device"], driven.asked[0]["devices"]) == ("cpu", [])

    def test_one_that_vanishes_is_cancelled_at_once_and_forgotten(self, driven: Driven) -> None:
        driven.tell(pair_order("1"), pair_order("2"))
        first = driven.asked[0]["id"]
        driven.tell(pair_order("2"))
        assert driven.cancelled == [first]
        assert driven.report.running == "1", "its GPUs are not free yet"
        driven.tell(pair_order("2"))
        assert driven.cancelled == [first]
        driven.reply({"outcome": "Cancelled", "parts": []})
        assert (driven.report.running, driven.answers) == ("2", {})

    def test_of_a_node_order_that_vanishes_no_further_probe_is_run(self, driven: Driven) -> None:
        driven.tell(node_order("n"))
        driven.reply()
        assert driven.asked[0]["probe"] == "Context"
        driven.tell()
        driven.reply()  # it was done before it could be cancelled
        assert (driven.asked, driven.report.running, driven.answers) == ([], "", {})

    def test_an_answer_is_kept_as_long_as_its_order_is_listed(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        driven.reply(reduced(driven.asked[0]))
        driven.tell(pair_order("1"), pair_order("2"))
        driven.tell(known=False)
        driven.reply(reduced(driven.asked[0]))
        assert driven.answers == {"1": "Result", "2": "Result"}
        driven.tell(pair_order("2"))
        assert driven.answers == {"2": "Result"}

    def test_a_leader_that_does_not_know_yet_changes_nothing(self, driven: Driven) -> None:
        driven.tell(pair_order("1"), grants=(CheckGrant("g", "Quick"),))
        driven.tell(known=False)
        assert driven.cancelled == []
        assert driven.report.running == "1"
        assert driven.report.passes

    @pytest.mark.parametrize(
        ("order", "words"),
        [
            (CheckOrder("1", "Dance"), "does not know orders of the kind Dance"),
            (CheckOrder("1", ""), "does not know orders of the kind"),
            (CheckOrder("1", "x" * 5000), "does not know orders of the kind x"),
            (CheckOrder("1", NODE, profile="Endless"), "does not know the profile Endless"),
            (CheckOrder("1", PAIR, nodes=1), "needs two, not 1"),
            (CheckOrder("1", PAIR, nodes=2, master_address="a" * 70000), "no address"),
        ],
    )
    def test_what_it_does_not_know_it_answers(self, driven: Driven, order: CheckOrder, words: str) -> None:
        driven.tell(order)
        (answer,) = driven.report.answers
        assert answer.outcome == "Environment"
        assert words in answer.message
        assert driven.asked == []
        decode_check_report(encode(driven.report))

    def test_what_cannot_be_answered_is_left_out(self, driven: Driven) -> None:
        driven.tell(CheckOrder("", NODE), CheckOrder("\ud800", NODE), CheckOrder("x" * 200, NODE), pair_order("1"))
        assert driven.begun == ["1"]
        decode_check_report(encode(driven.report))

    def test_what_the_zygote_refuses_without_an_id_is_the_probe_that_runs(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        driven.reply({"outcome": "Refused", "message": "no JSON", "parts": []}, id=None)
        assert driven.answers == {"1": "Environment"}

    def test_a_profile_that_is_out_of_time_says_what_was_not_run(self, driven: Driven) -> None:
        driven.tell(node_order("n"))
        driven.reply()
        driven.reply()
        driven.wait(28)
        assert driven.asked[0]["probe"] == "Gemm"
        driven.reply()
        assert driven.asked[0]["deadline_seconds"] == pytest.approx(2.0)
        driven.wait(5)
        driven.reply()
        (answer,) = driven.report.answers
        assert answer.outcome == "Late"
        assert [probe.probe for probe in answer.probes if probe.outcome == "Late"] == [
            "memory-pattern",
            "bit-exact",
            "host-to-device",
            "all-reduce-node",
        ]

    @pytest.mark.parametrize(("gone_seconds", "how"), [(28, "Late"), (1, "NoResult")])
    def test_a_probe_ended_by_the_profile_and_not_its_deadline_proves_nothing(
        self, driven: Driven, gone_seconds: float, how: str
    ) -> None:
        driven.tell(node_order("n"))
        driven.reply()
        driven.reply()
        driven.wait(gone_seconds)
        driven.reply()
        assert driven.asked[0]["probe"] == "Bandwidth"
        driven.reply({"outcome": "Hung", "message": "hung in copy", "parts": []})
        while driven.asked:
            driven.wait(5)
            driven.reply()
        (answer,) = driven.report.answers
        assert [probe.outcome for probe in answer.probes if probe.probe == "memory-bandwidth"] == [how]

    def test_fewer_devices_than_expected_are_a_finding(self, driven: Driven) -> None:
        driven.tell(node_order("n", gpus=3))
        driven.reply(look(2, "Missing", message="2 GPUs, expected 3"))
        (answer,) = driven.report.answers
        (probe,) = answer.probes
        assert (answer.outcome, probe.probe, probe.wrong, probe.message) == (
            "Result",
            "devices",
            True,
            "2 GPUs, expected 3",
        )
        assert driven.report.state == READY

    def test_without_gpus_nothing_is_tested_where_there_are_some(self, driven: Driven) -> None:
        driven.tell(node_order("n", gpus=0), pair_order("1", gpus=0))
        driven.reply(look(2))
        assert driven.asked == []
        assert driven.answers == {"n": "Environment", "1": "Environment"}
        assert all("without GPUs nothing is tested" in answer.message for answer in driven.report.answers)
        driven.tell(grants=(CheckGrant("g", "Quick"),))
        assert driven.report.figures == (), "what a processor reaches is no figure of the GPUs beside it"

    def test_a_pass_says_with_how_many_gpus(self, driven: Driven) -> None:
        driven.tell(node_order("n"), grants=(CheckGrant("g", "Quick", 2), CheckGrant("odd", "Quick", -1)))
        assert [(each.granted, each.gpus) for each in driven.report.passes] == [("g", 2)]

    def test_gpus_that_are_not_free_again_are_told(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        driven.reply({**reduced(driven.asked[0]), "given_back": {"free": None, "message": "NVML hangs"}})
        assert [answer.given_back for answer in driven.report.answers] == [False]

    def test_devices_are_looked_at_again_after_an_idle_time(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        assert driven.asked[0]["probe"] == "AllReduce"
        driven.reply(reduced(driven.asked[0]))
        driven.wait(IDLE_SECONDS)
        driven.tell(pair_order("1"), pair_order("2"))
        assert driven.asked[0]["probe"] == "Devices"
        driven.reply(look(2, "InUse", message="in use: GPU 1 by processes 7, 3.0 GiB"))
        assert driven.answers == {"1": "Result", "2": "Environment"}
        assert "processes 7" in driven.report.answers[1].message


class TestAlone:
    def test_what_runs_goes_on_for_a_minute_and_no_longer(self, driven: Driven) -> None:
        driven.tell(pair_order("1", profile="Deep"), pair_order("2"))
        driven.wait(ALONE_SECONDS, heard=False)
        assert driven.cancelled == []
        driven.wait(0.1, heard=False)
        assert len(driven.cancelled) == 1
        driven.reply({"outcome": "Cancelled", "parts": []})
        assert driven.answers == {}, "it says nothing of the node, and is run again"
        assert driven.asked == [], "nobody may hold a GPU for an operator that is gone"
        driven.wait(1)
        assert driven.report.running == "1"

    def test_it_wakes_for_that(self, driven: Driven) -> None:
        driven.tell(pair_order("1", profile="Deep"))
        while not driven.cancelled and driven.now < 1001 + ALONE_SECONDS:
            driven.now = driven.core.wake_at(driven.now)
            driven.turn()
        assert len(driven.cancelled) == 1


class TestZygote:
    def test_it_starts_at_once_and_is_ready_when_it_has_looked(self) -> None:
        driven = Driven()
        assert driven.turn() == [StartZygote()]
        assert driven.report.state == STARTING
        driven.core.zygote_is_ready(KEY, driven.now)
        assert driven.report.state == STARTING
        driven.turn()
        driven.reply()
        report = driven.report
        assert (report.state, report.device, report.gpus, report.model) == (READY, "cuda", 2, "NVIDIA H200")
        assert (report.library, report.version) == ("torch-2.9.0/cuda-12.8/nccl-2.28.9", "v1")
        assert len(report.identity) == 64

    def test_without_gpus_the_processor_is_the_device(self) -> None:
        report = Driven(looks=look(0)).start().report
        assert (report.device, report.gpus, report.model) == ("cpu", 0, "Xeon")
        assert report.library == "torch-2.9.0/gloo"

    def test_no_torch_is_unfit_and_tried_again_later_each_time(self) -> None:
        driven = Driven()
        driven.turn()
        pauses = []
        for _ in range(8):
            driven.die("no module named torch")
            assert (driven.report.state, driven.report.problem) == (UNFIT, "no module named torch")
            pauses.append(driven.core.wake_at(driven.now) - driven.now)
            driven.now += pauses[-1]
            while not driven.up:
                driven.turn()
                driven.now = driven.core.wake_at(driven.now)
        assert pauses[:3] == [10.0, 20.0, 40.0]
        driven.core.zygote_is_ready(KEY, driven.now)
        driven.turn()
        driven.reply()
        assert (driven.report.state, driven.report.problem) == (READY, "")

    def test_an_import_that_never_ends_is_ended(self) -> None:
        driven = Driven()
        driven.turn()
        driven.wait(IMPORT_SECONDS)
        assert not driven.up
        assert driven.report.problem == "torch was not imported within 180 s"

    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            (look(2, "Mig", message="GPUs cut into MIG slices: 0"), "GPUs cut into MIG slices: 0"),
            ({"outcome": "Hung", "message": "hung after 10.0 s in driver", "parts": []}, "hung after 10.0 s in driver"),
            ({"outcome": "Failed", "message": "no libnvidia-ml", "parts": [{"outcome": "Failed"}]}, "no libnvidia-ml"),
        ],
    )
    def test_devices_that_cannot_be_used_make_it_unfit_until_they_can(self, answer: Any, problem: str) -> None:
        driven = Driven(looks=answer).start()
        assert (driven.report.state, driven.report.problem) == (UNFIT, problem)
        driven.looks = look(2)
        driven.wait(10)
        driven.reply()
        assert driven.report.state == READY

    def test_gpus_in_use_are_no_problem_of_the_node(self) -> None:
        assert Driven(looks=look(2, "InUse", message="in use")).start().report.state == READY

    def test_a_driver_that_hangs_is_a_finding_of_a_node_order(self, driven: Driven) -> None:
        driven.tell(node_order("n"))
        driven.reply({"outcome": "Hung", "message": "hung after 10.0 s in driver", "parts": []})
        (answer,) = driven.report.answers
        assert (answer.outcome, answer.probes[0].outcome) == ("NoResult", "NoResult")

    def test_its_death_under_an_order_is_nobodys_fault_and_the_next_one_follows(self, driven: Driven) -> None:
        driven.tell(node_order("n"), pair_order("1"))
        driven.reply()
        driven.reply()
        driven.die("signal 9")
        (answer,) = driven.report.answers
        assert (answer.outcome, answer.given_back) == ("Environment", False)
        assert [(probe.probe, probe.outcome) for probe in answer.probes] == [
            ("devices", "Result"),
            ("context", "Result"),
            ("gemm-bf16", "Environment"),
        ]
        assert driven.up, "at once: it was good until then"
        identity = driven.report.identity
        driven.core.zygote_is_ready(KEY, driven.now)
        assert driven.report.identity == identity != ""
        driven.turn()
        driven.reply()
        assert driven.report.running == "1"

    def test_what_it_found_before_it_died_stands(self, driven: Driven) -> None:
        driven.tell(node_order("n"))
        driven.reply()
        driven.reply({"outcome": "Failed", "device": "cuda", "message": "", "parts": [
            {"device": 1, "outcome": "Failed", "message": "no context", "figures": {}}]})  # fmt: skip
        driven.die()
        (answer,) = driven.report.answers
        assert answer.outcome == "Result"
        assert [probe.message for probe in answer.probes if probe.wrong] == ["GPU 1: no context"]

    def test_one_that_does_not_answer_is_ended(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        driven.wait(30 + ANSWER_SECONDS)
        assert driven.answers == {"1": "Environment"}
        assert driven.up, "another one"

    def test_one_that_does_not_answer_for_its_own_node_is_late(self, driven: Driven) -> None:
        driven.tell(node_order("n"))
        driven.wait(10 + ANSWER_SECONDS)
        assert driven.answers == {"n": "Late"}

    def test_one_that_dies_again_before_it_has_answered_is_given_time(self, driven: Driven) -> None:
        driven.die()
        driven.core.zygote_is_ready(KEY, driven.now)
        driven.turn()
        driven.die()
        assert not driven.up
        driven.wait(10)
        assert driven.up

    def test_orders_wait_for_it(self) -> None:
        driven = Driven()
        driven.tell(pair_order("1"))
        assert driven.report.running == ""
        driven.start()
        assert driven.report.running == "1"

    def test_what_nobody_waits_for_is_of_no_interest(self, driven: Driven) -> None:
        driven.core.probe_has_answered({"id": "99", "outcome": "Done", "parts": []}, driven.now)
        driven.tell(pair_order("1"))
        driven.core.probe_has_answered({"id": "99", "outcome": "Done", "parts": []}, driven.now)
        assert driven.answers == {}

    def test_a_torch_without_cuda_beside_gpus_is_no_torch(self) -> None:
        driven = Driven()
        driven.turn()
        driven.core.zygote_is_ready({**KEY, "cuda": None}, driven.now)
        driven.turn()
        driven.reply()
        assert driven.report.problem == "the torch of this image has no CUDA"
        driven.tell(node_order("n"), pair_order("1"))
        driven.reply_all()
        assert driven.answers == {"n": "Environment", "1": "Environment"}


class TestMemory:
    def test_the_age_of_a_pass_begins_with_the_first_sight_of_its_grant(self, driven: Driven) -> None:
        driven.tell(grants=(CheckGrant("g", "Deep"),))
        driven.wait(100)
        driven.tell(grants=(CheckGrant("g", "Deep"),))
        driven.tell()
        (found,) = driven.report.passes
        assert (found.profile, found.granted, found.age_seconds) == ("Deep", "g", 100.0)

    def test_a_grant_waits_until_it_is_known_to_whom_it_is_given(self) -> None:
        driven = Driven()
        driven.tell(grants=(CheckGrant("g", "Deep"),))
        assert driven.core.passes.held == ()
        driven.start()
        assert driven.report.passes

    @pytest.mark.parametrize("later", [look(2, uuids="NEW"), look(1)], ids=["another GPU", "one less"])
    def test_another_identity_drops_passes_for_good(self, driven: Driven, later: Any) -> None:
        grants = (CheckGrant("g", "Deep"),)
        driven.tell(grants=grants)
        before = driven.report.identity
        driven.wait(IDLE_SECONDS)
        driven.looks = later
        driven.tell(node_order("n"), grants=grants)
        driven.reply()
        assert driven.report.identity != before
        assert driven.report.passes == ()
        driven.tell(grants=grants)
        assert driven.report.passes == (), "it was given to another"

    def test_passes_of_another_boot_are_dropped(self) -> None:
        driven = Driven(passes=Passes((Pass("g", "Deep", "somebody else", 10.0),))).start()
        assert driven.report.passes == ()
        assert driven.core.passes.knows("g")

    def test_figures_wait_for_a_grant(self, driven: Driven) -> None:
        driven.tell(pair_order("1", namespace="ml"))
        driven.reply(reduced(driven.asked[0]))
        assert driven.report.figures == ()
        driven.wait(5)
        driven.tell(grants=(CheckGrant("g", "Quick"),))
        (figure,) = driven.report.figures
        assert (figure.probe, figure.transport, figure.figure, figure.unit) == ("pair", "IB", 40.0, "GB/s")
        assert (figure.namespace, figure.age_seconds) == ("ml", 5.0)

    def test_figures_of_a_burn_in_that_is_not_passed_do_not_count(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        driven.reply(reduced(driven.asked[0]))
        driven.tell(pair_order("2"))
        driven.tell(grants=(CheckGrant("g", "Quick"),))
        assert driven.report.figures == ()

    def test_what_is_wrong_leaves_no_figures(self, driven: Driven) -> None:
        driven.tell(node_order("n"))
        driven.reply()
        driven.reply({**done(driven.asked[0], context_seconds=1.0)})
        driven.reply(
            {"outcome": "Wrong", "device": "cuda", "parts": [{"device": 0, "outcome": "Wrong", "message": "x"}]}
        )
        driven.reply_all()
        driven.tell(grants=(CheckGrant("g", "Quick"),))
        assert driven.report.figures == ()


WORDS = st.text(max_size=8) | st.sampled_from(
    ["", "\ud800", "x" * 130, "y" * 70_000, NODE, PAIR, GANG, "Quick", "Deep"]
)
NUMBERS = st.integers(-3, 3) | st.sampled_from([65_536, 2**53, -(2**70)])
SECONDS = st.floats(-LONGEST_SECONDS, LONGEST_SECONDS)
ORDERS = st.builds(
    CheckOrder, id=WORDS, kind=WORDS, profile=WORDS, gpus=st.none() | NUMBERS, namespace=WORDS, round=NUMBERS,
    peer=WORDS, master_address=WORDS, master_port=NUMBERS, node_rank=NUMBERS, nodes=NUMBERS,
)  # fmt: skip
GRANTS = st.builds(CheckGrant, id=WORDS, profile=WORDS)
DIRECTIVES = st.builds(
    CheckDirective, known=st.booleans(), orders=st.lists(ORDERS, max_size=4).map(tuple),
    grants=st.lists(GRANTS, max_size=3).map(tuple), poll_seconds=SECONDS, hold_seconds=SECONDS,
)  # fmt: skip


@given(st.lists(DIRECTIVES, max_size=4))
def test_whatever_the_coordinator_says_the_report_is_one_that_it_takes(directives: list[CheckDirective]) -> None:
    driven = Driven().start()
    for directive in directives:
        driven.core.hear(directive, driven.now)
        driven.turn()
        for _ in range(60):
            if driven.asked:
                driven.reply()
        decode_check_report(encode(driven.report))


NAMES = st.sampled_from("abcd")
KINDS = {"a": NODE, "b": PAIR, "c": "Dance", "d": NODE}


class Interleavings(RuleBasedStateMachine):
    """Directives, answers, deaths and silences in any order; Driven itself holds that two probes never run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.driven = Driven()
        self.driven.turn()
        self.listed: dict[str, CheckOrder] = {}
        self.kept: dict[str, Any] = {}
        self.identity = ""
        self.ready = False

    @rule(names=st.lists(NAMES, unique=True), granted=st.booleans())
    def tell(self, names: list[str], granted: bool) -> None:
        orders = [CheckOrder(name, KINDS[name], nodes=2) for name in names]
        self.listed = {order.id: order for order in orders}
        self.kept = {name: answer for name, answer in self.kept.items() if name in self.listed}
        running, cancelled = self.driven.report.running, list(self.driven.cancelled)
        grants = (CheckGrant("g", "Quick"),) if granted else ()
        self.driven.tell(*orders, grants=grants)
        if running and running not in self.listed and self.driven.asked and self.driven.report.running == running:
            assert self.driven.cancelled != cancelled or self.driven.asked[0]["id"] in cancelled, "it goes on"

    @rule()
    def a_leader_that_does_not_know(self) -> None:
        self.driven.tell(known=False)

    @precondition(lambda self: self.driven.up and not self.ready)
    @rule()
    def come_up(self) -> None:
        self.ready = True
        self.driven.core.zygote_is_ready(KEY, self.driven.now)
        self.driven.turn()

    @precondition(lambda self: self.driven.asked)
    @rule(
        name=st.sampled_from(["Done", "Done", "Done", "Hung", "Failed", "InUse", "Cancelled"]), gpus=st.integers(0, 2)
    )
    def answer(self, name: str, gpus: int) -> None:
        asked = self.driven.asked[0]
        if asked["id"] in self.driven.cancelled:
            name = "Cancelled"
        found = look(gpus) if asked["probe"] == "Devices" else done(asked)
        self.driven.reply({**found, "outcome": name} if name == "Done" else {"outcome": name, "parts": []})

    @precondition(lambda self: self.driven.up)
    @rule()
    def die(self) -> None:
        self.ready = False
        self.driven.die()

    @rule(seconds=st.sampled_from([0.5, 15.0, 45.0, 61.0, 400.0]), heard=st.booleans())
    def wait(self, seconds: float, heard: bool) -> None:
        starts = self.driven.core.starts
        self.driven.wait(seconds, heard)
        if self.driven.core.starts != starts or not self.driven.up:
            self.ready = False

    @invariant()
    def answers_of_listed_orders_are_never_lost_or_changed(self) -> None:
        told = {answer.order: answer for answer in self.driven.report.answers}
        assert set(told) <= set(self.listed)
        identity = self.driven.report.identity
        if identity != self.identity:  # another machine owes its own answers; that an order cannot be run stays true
            self.kept = {name: answer for name, answer in self.kept.items() if KINDS[name] == "Dance"}
        for name, answer in self.kept.items():
            assert told[name] is answer
        self.kept, self.identity = told, identity

    @invariant()
    def nothing_runs_that_is_answered(self) -> None:
        running = self.driven.report.running
        if running and running in self.driven.answers:
            raise AssertionError(f"{running} is answered")

    @invariant()
    def the_report_is_one_that_is_taken(self) -> None:
        decode_check_report(encode(self.driven.report))

    @invariant()
    def it_will_wake(self) -> None:
        assert self.driven.core.wake_at(self.driven.now) >= self.driven.now
        assert not [each for each in self.driven.core.actions(self.driven.now) if isinstance(each, SendOrder)]

    def teardown(self) -> None:
        """In the end all that is listed is answered."""
        driven = self.driven
        for _ in range(300):
            if set(driven.answers) == set(self.listed) and not driven.asked:
                break
            if driven.asked:
                driven.reply()
            elif driven.up and not self.ready:
                self.come_up()
            else:
                self.wait(61.0, True)
        assert set(driven.answers) == set(self.listed)


Interleavings.TestCase.settings = settings(stateful_step_count=30)
TestInterleavings = Interleavings.TestCase


class TestMeetings:
    PUT: ClassVar = {"rank": 0, "key": "muster/here/0", "value": "eJwDAAAAAAE=", "add": 0}
    OTHER = Put(1, "muster/here/1", "eJwDAAAAAAE=")

    def put(self, driven: Driven, **changes: Any) -> None:
        driven.core.probe_has_put({"id": driven.asked[0]["id"], "put": {**self.PUT, **changes}})

    def test_what_processes_put_is_told_while_they_run(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        assert (driven.report.meeting, driven.report.puts) == ("", ())
        news = driven.core.news
        self.put(driven)
        assert (driven.report.meeting, driven.report.puts) == ("1", (Put(**self.PUT),))
        assert driven.core.news > news
        decode_check_report(encode(driven.report))
        driven.reply(reduced(driven.asked[0]))
        assert (driven.report.meeting, driven.report.puts) == ("", ())

    def test_what_others_have_put_is_handed_on_once(self, driven: Driven) -> None:
        order = pair_order("1")
        driven.tell(order)
        self.put(driven)
        for meeting, wanted in (("2", []), ("1", [ForwardPuts(driven.asked[0]["id"], (self.OTHER,))]), ("1", [])):
            driven.core.hear(CheckDirective(orders=(order,), meeting=meeting, puts=(self.OTHER,)), driven.now)
            assert driven.core.actions(driven.now) == wanted

    @pytest.mark.parametrize(("acknowledged", "how"), [(True, "CouldNotConnect"), (False, "Environment")])
    def test_who_was_never_heard_by_the_coordinator_says_nothing_of_the_network(
        self, driven: Driven, acknowledged: bool, how: str
    ) -> None:
        order = pair_order("1")
        driven.tell(order)
        self.put(driven)
        if acknowledged:
            driven.core.hear(CheckDirective(orders=(order,), meeting="1"), driven.now)
        driven.reply({"outcome": "CouldNotConnect", "message": "connect: timed out", "parts": []})
        assert driven.answers == {"1": how}

    def test_what_is_put_is_bounded(self, driven: Driven) -> None:
        driven.tell(pair_order("1"))
        for number in range(200):
            self.put(driven, key=f"k{number}")
        assert len(driven.report.puts) == MAX_PUTS
        driven.reply(reduced(driven.asked[0]))
        driven.tell(pair_order("2"))
        for number in range(20):
            self.put(driven, key=f"k{number}", value="x" * MAX_PUT_CHARS)
        report = driven.report
        assert len(report.puts) == 8
        assert len(encode(fitting(report))) <= MAX_REPORT_BYTES
