"""Ports of the network that the policy leaves out: nothing about them counts, whatever their agents report."""

from typing import Any

import pytest
from tests.unit.health.builders import NOW, evidence, facts, rules, sick

from muster.api.nodehealth import AgentStatus, Evidence
from muster.health.assess import assess
from muster.health.ignored_ports import IgnoredPortFilter
from muster.health.node_world import NodeWorld

PORT_KINDS = (
    "IbPortDown",
    "IbPortFlap",
    "IbDeviceMissing",
    "IbPortOff",
    "FrontEndDown",
    "IbCounters",
    "EfaUnresponsive",
    "SysfsHang",
    "NicError",
    "NicFailed",
)


def ignored(*names: str, **labels: str) -> IgnoredPortFilter:
    return rules(ignoredPorts=[{"names": list(names), "nodeSelector": labels}]).ignored_ports


def about(kind: str, subject: str, threshold: str = "") -> Evidence:
    return evidence(kind, subject=subject, threshold=threshold)


def left_out(policy: IgnoredPortFilter, subject: str, kind: str = "IbPortDown", **labels: str) -> bool:
    return policy.ignores(labels, about(kind, subject), None)


@pytest.mark.parametrize(
    ("name", "subject", "out"),
    [
        ("mlx5_8", "mlx5_8", True),
        ("mlx5_8", "mlx5_8/1", True),
        ("mlx5_8", "mlx5_8/2", True),
        ("mlx5_8/1", "mlx5_8/1", True),
        ("mlx5_8/1", "mlx5_8/2", False),
        ("mlx5_8/1", "mlx5_8", False),
        ("mlx5_8", "mlx5_80/1", False),
        ("mlx5_8", "mlx5_", False),
        ("mlx5_?", "mlx5_8/1", True),
        ("mlx5_?", "mlx5_10/1", False),
        ("mlx5_bond*", "mlx5_bond_0/1", True),
        ("*bond*", "mlx5_bond_0/1", True),
        ("roce*s?f1", "rocep94s0f1/1", True),
        ("roce*s?f1", "rocep94s0f0/1", False),
        ("a*ab", "aab", True),
        ("a*b*b", "ab", False),
        ("e.h0", "eth0", False),
        ("0000:5e:00.?", "0000:5e:00.1", True),
        ("0000:5e:00.?", "PCI:0000:5e:00.1", True),
        ("*", "eth0", True),
        ("*", "", False),
    ],
)
def test_a_name_or_a_pattern(name: str, subject: str, out: bool) -> None:
    assert left_out(ignored(name), subject) is out


@pytest.mark.parametrize("kind", PORT_KINDS)
def test_whatever_is_said_of_a_port(kind: str) -> None:
    assert left_out(ignored("mlx5_8"), "mlx5_8", kind)


@pytest.mark.parametrize("kind", ["Xid", "DiskError", "PcieAerFatal", "GpuLost"])
def test_nothing_else_is_left_out(kind: str) -> None:
    assert not left_out(ignored("*"), "mlx5_8", kind)


def test_the_nodes_are_chosen_by_their_labels() -> None:
    policy = ignored("mlx5_0", **{"example.org/board": "a"})
    assert left_out(policy, "mlx5_0/1", **{"example.org/board": "a", "other": "b"})
    assert not left_out(policy, "mlx5_0/1", **{"example.org/board": "b"})
    assert not left_out(policy, "mlx5_0/1")


def test_many_stars_come_to_an_end() -> None:
    assert not left_out(ignored("*a" * 50), "a" * 49 + "b")


def agent(up: int, had: int, more: tuple[str, ...] = (), seen: int | None = None) -> AgentStatus:
    """Eight ports for training; `more`: others that were up then."""
    names = [f"mlx5_{number}/1" for number in range(8)]
    return AgentStatus(
        ports=up,
        ports_expected=had + len(more) if seen is None else seen,
        ports_up=names[:up],
        ports_expected_up=[*names[:had], *more],
    )


BONDS = ("mlx5_bond_0/1", "mlx5_bond_1/1")


@pytest.mark.parametrize(
    ("state", "expected", "out"),
    [
        (agent(8, 8, BONDS), "10 ports up", True),
        (agent(7, 8, BONDS), "10 ports up", False),
        (agent(8, 8), "9 ports up", False),  # of one nothing is known but that it was there
        (agent(8, 8, BONDS[:1], seen=11), "11 ports up", False),
        (agent(8, 8, BONDS), "", False),
        (None, "10 ports up", False),
    ],
)
def test_too_few_ports_where_those_that_count_are_up(state: AgentStatus | None, expected: str, out: bool) -> None:
    """After a boot nobody knows which port is missing."""
    found = about("IbPortDown", "", expected)
    assert ignored("mlx5_bond_*").ignores({}, found, state) is out
    assert not IgnoredPortFilter().ignores({}, found, state)


def test_how_many_count() -> None:
    state = agent(8, 8, BONDS)
    assert ignored("mlx5_bond_*").ports_that_count({}, state) == 8
    assert IgnoredPortFilter().ports_that_count({}, state) == 10
    assert ignored("mlx5_bond_*", rack="7").ports_that_count({}, state) == 10
    assert ignored("mlx5_bond_*").ports_that_count({}, AgentStatus()) is None


@pytest.mark.parametrize(("policy", "state"), [([], "Unhealthy"), ([{"names": ["mlx5_8"]}], "Healthy")])
def test_a_node_whose_only_fault_is_a_port_that_is_left_out(policy: list[dict[str, Any]], state: str) -> None:
    health = sick(about("IbPortDown", "mlx5_8/1"))
    verdict = assess(NodeWorld(facts(), health, rules(ignoredPorts=policy), NOW))
    assert verdict.conclusion.state == state
    assert len(verdict.conclusion.findings) == (state != "Healthy")
