"""Real checkers against a coordinator over TLS: what they are told they do, and say."""

from __future__ import annotations

import json
import signal
import sys
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from localcluster.controlplane import free_port
from muster.node.checker import __main__ as program
from muster.protocol.checks import GANG, NODE, PAIR, READY, CheckGrant, CheckOrder, CheckReport


def pair(name: str, first: CheckReport, rank: int, port: int, **more: Any) -> CheckOrder:
    """One end of an all-reduce of two that meet at a port of the first one's."""
    # The profile with the longest deadlines: how fast this machine is must not decide.
    network = {
        "profile": "Deep",
        "master_address": first.address,
        "master_port": port,
        "node_rank": rank,
        "nodes": 2,
    }
    return CheckOrder(name, PAIR, peer=f"peer of {rank}", round=1, **{**network, **more})


def answered(*orders: str) -> Any:
    return lambda report: {answer.order for answer in report.answers} == set(orders)


def test_a_burn_in_of_two(coordinator: Any, nodes: Any) -> None:
    for name in ("a", "b"):
        nodes.start(name)
    first = coordinator.wait_for("a", lambda r: r.state == READY)
    coordinator.wait_for("b", lambda r: r.state == READY)
    assert (first.device, first.gpus, first.library) == ("cpu", 0, "torch-0.0.double/gloo")
    assert first.identity
    assert first.model

    # A node order and a pair, one after the other.
    port = free_port()
    for rank, name in enumerate("ab"):
        orders = (CheckOrder(f"node-{name}", NODE, "Deep", namespace="ml"), pair("pair", first, rank, port))
        coordinator.tell(name, orders=orders, hold_seconds=600.0)
    for rank, name in enumerate("ab"):
        report = coordinator.wait_for(name, answered(f"node-{name}", "pair"))
        of_node, of_pair = report.answers
        assert (of_node.kind, of_node.outcome, of_node.message) == (NODE, "Result", "")
        assert {probe.probe: probe.figure for probe in of_node.probes} == {
            "devices": 0.0,
            "context": 0.1,
            "gemm-bf16": 1.5,
            "memory-bandwidth": 9.0,
            "memory-pattern": 3.0,
            "bit-exact": None,
            "host-to-device": 4.0,
            "device-to-host": 5.0,
            "all-reduce-node": 2.5,
        }
        assert (of_pair.outcome, of_pair.gbps, of_pair.retransmits, of_pair.transport) == ("Result", 2.5, 1.0, "TCP")
        assert (of_pair.round, of_pair.peer) == (1, f"peer of {rank}")

    # A pair that never ends is taken back from one: that one is free, and the other one its victim.
    nodes.hang.touch()
    again = free_port()
    for rank, name in enumerate("ab"):
        done = (CheckOrder(f"node-{name}", NODE, namespace="ml"), pair("pair", first, rank, port))
        coordinator.tell(name, orders=(*done, pair("again", first, rank, again)), hold_seconds=600.0)
    for name in "ab":
        coordinator.wait_for(name, lambda r, name=name: r.running == "again")
    coordinator.tell("a", orders=(CheckOrder("node-a", NODE),), hold_seconds=600.0)
    report = coordinator.wait_for("a", lambda r: r.running == "" and len(r.answers) == 1)
    assert [answer.order for answer in report.answers] == ["node-a"]
    report = coordinator.wait_for("b", answered("node-b", "pair", "again"))
    assert report.answers[-1].outcome in ("OtherEnded", "NoResult", "CouldNotConnect")
    assert len(nodes.events("b", "an order is answered")) == 3, "an answer that is listed stays one"

    # What nobody knows is answered all the same.
    coordinator.tell("a", orders=(CheckOrder("odd", "Dance"), CheckOrder("other", GANG, profile="Endless", nodes=2)))
    report = coordinator.wait_for("a", answered("odd", "other"))
    assert {answer.outcome for answer in report.answers} == {"Environment"}
    assert report.answers[0].message == "this checker does not know orders of the kind Dance"

    port = nodes.events("a", "serving /healthz and /metrics")[0]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as told:
        assert told.read() == b"ok\n"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as told:
        assert b'muster_check_orders_total{how="Environment"} 2\n' in told.read()


def test_a_gang_of_three_is_measured_and_one_that_dies_in_it_ends_it_for_the_others(
    coordinator: Any, nodes: Any
) -> None:
    for name in "abc":
        nodes.start(name)
    for name in "abc":
        coordinator.wait_for(name, lambda r: r.state == READY)

    def together(order_id: str, port: int) -> list[CheckOrder]:
        meeting: dict[str, Any] = {"master_address": "127.0.0.1", "master_port": port, "nodes": 3}
        return [CheckOrder(order_id, GANG, "Deep", node_rank=rank, **meeting) for rank in range(3)]

    first = together("job.q/1/gang", free_port())
    for name, order in zip("abc", first, strict=True):
        coordinator.tell(name, orders=(order,), hold_seconds=600.0)
    for name in "abc":
        (answer,) = coordinator.wait_for(name, answered("job.q/1/gang")).answers
        assert (answer.kind, answer.outcome, answer.gbps, answer.transport) == (GANG, "Result", 2.5, "TCP")

    nodes.hang.touch()
    second = together("job.q/2/gang", free_port())
    for name, order in zip("abc", second, strict=True):
        coordinator.tell(name, orders=(order,), hold_seconds=600.0)
    for name in "abc":
        coordinator.wait_for(name, lambda r: r.running == "job.q/2/gang" and not r.answers)
    # A new leader that does not know yet changes nothing; then a node is gone.
    coordinator.tell("a", known=False, hold_seconds=600.0)
    coordinator.tell("a", orders=(second[0],), hold_seconds=600.0)
    nodes.kill("b")
    for name in "ac":
        (answer,) = coordinator.wait_for(name, answered("job.q/2/gang")).answers
        assert answer.outcome in ("OtherEnded", "NoResult", "CouldNotConnect")
    assert len(nodes.events("a", "an order begins")) == 2


def test_passes_and_figures_outlive_the_process(coordinator: Any, nodes: Any) -> None:
    nodes.start("a")
    coordinator.tell("a", orders=(CheckOrder("1", NODE, "Deep", namespace="ml"),), hold_seconds=600.0)
    coordinator.wait_for("a", answered("1"))
    coordinator.tell("a", grants=(CheckGrant("g", "Quick"),), hold_seconds=600.0)
    before = coordinator.wait_for("a", lambda r: r.passes)
    assert [(each.profile, each.granted) for each in before.passes] == [("Quick", "g")]
    coordinator.tell("a")  # so that what the next process knows it has read
    assert nodes.stop("a") == 0

    nodes.start("a")
    after = coordinator.wait_for("a", lambda r: r.passes)
    assert after.passes[0].granted == "g"
    assert after.passes[0].age_seconds >= before.passes[0].age_seconds
    assert {each.probe: (each.figure, each.unit, each.namespace) for each in after.figures}["gemm-bf16"] == (
        1.5,
        "TFLOP/s",
        "ml",
    )
    nodes.stop("a")

    # Another boot is another node, and a torn file of figures no hindrance.
    (nodes.directory / "a/lib/figures.json").write_text("{")
    (nodes.directory / "boot").write_text("another boot")
    coordinator.tell("a")
    nodes.start("a", MUSTER_BOOT_ID_FILE=str(nodes.directory / "boot"))
    anew = coordinator.wait_for("a", lambda r: r.state == READY)
    assert (anew.boot_id, anew.passes, anew.figures) == ("another boot", (), ())
    assert anew.identity != after.identity
    assert len(nodes.events("a", "a file cannot be read and starts again empty")) == 1


def test_no_torch_is_said_in_words(coordinator: Any, nodes: Any) -> None:
    (nodes.directory / "torch/__init__.py").write_text("raise ImportError('libcudart.so.12: no such file')")
    nodes.start("a")
    report = coordinator.wait_for("a", lambda r: r.state == "Unfit")
    assert report.problem == "torch cannot be imported: ImportError: libcudart.so.12: no such file"
    assert nodes.stop("a") == 0


def test_state_files_are_whole_or_not_there(nodes: Any, coordinator: Any) -> None:
    (nodes.directory / "a").mkdir()
    (nodes.directory / "a/run").write_text("no directory")
    nodes.start("a")
    coordinator.tell("a", grants=(CheckGrant("g", "Quick"), CheckGrant("h", "Deep")), hold_seconds=600.0)
    coordinator.wait_for("a", lambda r: len(r.passes) == 2)
    coordinator.tell("a", grants=(CheckGrant("i", "Deep"),), hold_seconds=600.0)
    coordinator.wait_for("a", lambda r: len(r.passes) == 3)
    assert nodes.stop("a") == 0
    assert len(nodes.events("a", "a file cannot be written")) == 1
    assert json.loads((nodes.directory / "a/log").read_text().splitlines()[-1])["event"] == "stopping"


def test_the_kubelet_shares_nothing_with_other_addresses_of_the_hosts_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    def serve(*_: Any, node: frozenset[str]) -> SimpleNamespace:
        served.append(node)
        return SimpleNamespace(port=9476)

    monkeypatch.setattr(program, "Server", serve)
    monkeypatch.setattr(program, "from_environment", lambda _: SimpleNamespace(listen=("127.0.0.1", 9476)))
    monkeypatch.setattr(program, "Checker", lambda *_: SimpleNamespace(run=lambda: None))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["muster.node.checker"])
    assert program.main() == 0
    assert served == [frozenset({"127.0.0.1"})]
