"""What the fleet's history says is healthy."""

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.preflight.baselines import (
    FLOORS,
    LEAST_NODES,
    LEAST_RATIO,
    MOST_RATIO,
    NAMESPACE_SHARE,
    PER_NODE,
    Key,
    Sample,
    baseline,
    floor,
    ratio_of,
)

KEY = Key("gemm-bf16", "NVIDIA H200", "", "torch-2.11", "1")
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def history(
    nodes: Iterable[int], figure: float = 660.0, sigma: float = 0.02, namespace: str = "", each: int = 4
) -> list[Sample]:
    """Figures of nodes, lognormal around one."""
    random = Random(1)
    return [
        Sample(KEY, f"n{node}", namespace, figure * math.exp(random.gauss(0, sigma)), NOW + timedelta(hours=number))
        for node in nodes
        for number in range(each)
    ]


def test_a_history_says_what_is_usual() -> None:
    known = baseline(KEY, history(range(40)))
    assert known
    assert known.middle == pytest.approx(660, rel=0.01)
    assert known.sigma == pytest.approx(0.02, rel=0.3)
    assert known.ratio == MOST_RATIO
    assert known.miss_share < 0.01
    assert known.nodes == 40


@pytest.mark.parametrize(("sigma", "want"), [(0.02, MOST_RATIO), (0.1, math.exp(-0.35)), (0.35, LEAST_RATIO)])
def test_the_threshold_follows_the_noise(sigma: float, want: float) -> None:
    assert ratio_of(sigma) == pytest.approx(want)


def test_a_young_history_says_nothing() -> None:
    assert baseline(KEY, history(range(LEAST_NODES - 1), each=100)) is None
    assert baseline(KEY, history(range(LEAST_NODES), each=1))


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, model="NVIDIA H100 80GB HBM3"),
        replace(KEY, library="torch-2.12"),
        replace(KEY, version="2"),
        replace(KEY, transport="TCP"),
    ],
)
def test_figures_of_another_key_do_not_count(other: Key) -> None:
    assert baseline(other, history(range(40))) is None


def test_what_a_tenants_pod_measured_does_not_count() -> None:
    lies = [replace(sample, own=False) for sample in history(range(100, 200), 66.0)]
    assert baseline(KEY, history(range(20)) + lies) == baseline(KEY, history(range(20)))


@pytest.mark.parametrize("figure", [0.0, -1.0, math.nan, math.inf])
def test_figures_that_are_none_do_not_count(figure: float) -> None:
    absurd = [replace(sample, figure=figure) for sample in history(range(100, 200))]
    assert baseline(KEY, history(range(20)) + absurd) == baseline(KEY, history(range(20)))


def test_a_node_that_is_tested_often_counts_once() -> None:
    often = history([7], 66.0, each=5000)
    before, after = baseline(KEY, history(range(20))), baseline(KEY, history(range(20)) + often)
    assert before
    assert after
    assert after.middle == pytest.approx(before.middle, rel=0.01)


def test_old_figures_give_way() -> None:
    old = history(range(20), 330.0, each=50)
    new = [replace(sample, at=NOW + timedelta(days=9)) for sample in history(range(20), each=PER_NODE)]
    known = baseline(KEY, old + new)
    assert known
    assert known.middle == pytest.approx(660, rel=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(12, 40), st.integers(1, 400), st.floats(1.0, 6600.0))
def test_a_tenant_moves_the_middle_no_further_than_honest_figures_reach(honest: int, many: int, figure: float) -> None:
    """However many nodes its namespace was tested on, and whatever they show."""
    clean = [
        replace(sample, namespace=f"team-{int(sample.node[1:]) % 6}") for sample in history(range(honest), sigma=0.05)
    ]
    bent = history(range(1000, 1000 + many), figure, namespace="tenant")
    known = baseline(KEY, clean + bent)
    figures = [sample.figure for sample in clean]
    assert known is None or min(figures) <= known.middle <= max(figures)
    assert known is None or known.nodes <= honest + math.ceil(honest * NAMESPACE_SHARE / (1 - NAMESPACE_SHARE))


@settings(max_examples=30, deadline=None)
@given(st.integers(LEAST_NODES, 40), st.integers(1, 60), st.integers(1, 20), st.floats(1.0, 6600.0))
def test_many_namespaces_of_one_tenant_move_it_no_further_either(
    own: int, many: int, names: int, figure: float
) -> None:
    """Beside enough nodes that were tested for nobody."""
    clean = history(range(own), sigma=0.05)
    bent = [
        replace(sample, namespace=f"bad-{int(sample.node[1:]) % names}")
        for sample in history(range(1000, 1000 + many), figure)
    ]
    known = baseline(KEY, clean + bent)
    assert known
    figures = [sample.figure for sample in clean]
    assert min(figures) <= known.middle <= max(figures)
    assert own <= known.nodes < 2 * own


def test_as_long_as_few_were_tested_for_nobody_each_namespace_has_its_share() -> None:
    teams = [
        replace(sample, namespace=f"team-{int(sample.node[1:]) % 6}") for sample in history(range(LEAST_NODES, 40))
    ]
    before, after = (baseline(KEY, [*history(range(LEAST_NODES - 1 + more)), *teams]) for more in (0, 1))
    assert before
    assert after
    assert (before.nodes, after.nodes) == (39, 2 * LEAST_NODES - 1)


def test_a_fleet_of_one_tenant_has_a_history_too() -> None:
    assert baseline(KEY, history(range(20), namespace="only"))


@pytest.mark.parametrize("model", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB", "NVIDIA H200 NVL"])
def test_boards_for_slots_do_not_owe_what_nvlink_carries(model: str) -> None:
    assert floor("all-reduce-node", model, "NVLink") is None
    assert floor("host-to-device", model) is not None
    assert floor("all-reduce-node", "NVIDIA H200", "NVLink") is not None


def test_every_floor_says_where_it_comes_from() -> None:
    assert all(each.source and each.unit and each.floor > 0 for each in FLOORS)
    assert len({(each.probe, each.model, each.transport) for each in FLOORS}) == len(FLOORS)
    found = floor("gemm-bf16", "NVIDIA H100 80GB HBM3")
    assert found
    assert found.floor == 556.0
    assert not any(each.probe == "pair" for each in FLOORS), "what pairs reach hangs on their fabric"
