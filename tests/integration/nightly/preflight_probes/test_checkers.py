"""Two checkers with a real torch, told by a coordinator over TLS to test themselves and each other on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.checker.conftest import Coordinator, Nodes

from localcluster.controlplane import free_port
from muster.protocol.checks import GANG, NODE, PAIR, READY, CheckGrant, CheckOrder


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    found = Coordinator(tmp_path)
    yield found
    found.close()


@pytest.fixture
def nodes(tmp_path: Path, coordinator: Coordinator, command: tuple[str, ...]) -> Iterator[Nodes]:
    (tmp_path / "nodes").mkdir()
    found = Nodes(tmp_path / "nodes", coordinator, command)
    yield found
    found.kill_all()


def test_two_nodes_pass_and_give_way(coordinator: Coordinator, nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name, MUSTER_STORAGE=str(nodes.directory))
    first = coordinator.wait_for("a", lambda report: report.state == READY)
    coordinator.wait_for("b", lambda report: report.state == READY)

    # The profile's deadlines are for a machine with less to do: one after the other.
    for name in "ab":
        coordinator.tell(name, orders=(CheckOrder("node", NODE, namespace="ml"),), hold_seconds=600.0)
        report = coordinator.wait_for(name, lambda report: report.answers)
        (answer,) = report.answers
        assert answer.outcome == "Result", answer
        assert not [probe for probe in answer.probes if probe.wrong or probe.outcome != "Result"]
        figures = {probe.probe: probe.figure for probe in answer.probes}
        assert figures["gemm-bf16"]
        assert figures["all-reduce-node"]
        assert figures["storage"]
        assert answer.transport == "TCP"

    def pair(name: str, rank: int, port: int) -> CheckOrder:
        meeting = {"master_address": first.address, "master_port": port, "nodes": 2, "node_rank": rank}
        return CheckOrder(name, PAIR, "Deep", peer="ab"[1 - rank], **meeting)  # type: ignore[arg-type]

    port = free_port()
    orders = {name: (CheckOrder("node", NODE), pair("pair", rank, port)) for rank, name in enumerate("ab")}
    for name in "ab":
        coordinator.tell(name, orders=orders[name], hold_seconds=600.0)
    for name in "ab":
        report = coordinator.wait_for(name, lambda report: len(report.answers) == 2)
        answer = report.answers[1]
        assert (answer.outcome, answer.transport) == ("Result", "TCP"), answer
        assert answer.gbps > 0.0
        assert 0.0 <= answer.retransmits <= 1000.0

    # All together, as at the end of a gang's burn-in; that there are only two makes no difference to them.
    meeting = {"master_address": first.address, "master_port": free_port(), "nodes": 2}
    for rank, name in enumerate("ab"):
        order = CheckOrder("job.d/1/gang", GANG, "Deep", node_rank=rank, **meeting)  # type: ignore[arg-type]
        coordinator.tell(name, orders=(order,), hold_seconds=600.0)
    for name in "ab":
        report = coordinator.wait_for(name, lambda report: [each.order for each in report.answers] == ["job.d/1/gang"])
        (answer,) = report.answers
        assert (answer.outcome, answer.transport) == ("Result", "TCP"), answer
        assert answer.gbps > 0.0

    # One of a pair is taken back before the other comes: it waits for nobody.
    coordinator.tell("a", orders=(pair("late", 0, free_port()),), hold_seconds=600.0)
    coordinator.wait_for("a", lambda report: report.running == "late")
    coordinator.tell("a", grants=(CheckGrant("g", "Quick"),), hold_seconds=600.0)
    report = coordinator.wait_for("a", lambda report: report.running == "" and report.passes)
    assert report.answers == ()
    assert nodes.stop("a") == 0
    coordinator.tell("a")
    nodes.start("a")
    report = coordinator.wait_for("a", lambda report: report.passes and report.state == READY)
    assert [each.granted for each in report.passes] == ["g"]
