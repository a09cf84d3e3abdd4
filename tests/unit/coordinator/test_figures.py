"""Histograms of what probes take and reach: each answer once, and never more labels than a fleet can have."""

from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from tests.unit.clock import Clock

from muster.coordinator import figures
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import CheckerHub
from muster.protocol.checks import GANG, NODE, PAIR, READY, CheckAnswer, CheckOrder, CheckReport, ProbeReport
from muster.world.checks import NodeChecks

CALLER = Caller("muster-check", "muster-check-n1", "pod-n1", "n1", "u", "muster-check")
NODE_ANSWER = CheckAnswer(
    "node",
    NODE,
    "Result",
    probes=(
        ProbeReport("gemm-bf16", "Result", 640.0, "TFLOP/s", seconds=2.5),
        ProbeReport("bit-exact", "Result", None, "", seconds=2.0),
        ProbeReport("memory-pattern", "Result", 9.0, "GB/s", wrong=True, seconds=1.5),
        ProbeReport("storage", "Environment", None, "GB/s", seconds=0.0),
    ),
)

BUCKETS = ("5600.0", "10000.0")


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """One that no other test counts for."""
    return f"model of {request.node.name}"


def seconds(probe: str, model: str) -> tuple[float | None, float | None]:
    """How often, and how long in all."""
    labels = {"probe": probe, "model": model}
    name = "muster_check_probe_seconds"
    return REGISTRY.get_sample_value(f"{name}_count", labels), REGISTRY.get_sample_value(f"{name}_sum", labels)


def reached(probe: str, model: str, unit: str) -> tuple[float | None, float | None]:
    """How often, and what in all."""
    labels = {"probe": probe, "model": model, "unit": unit}
    name = "muster_check_figure"
    return REGISTRY.get_sample_value(f"{name}_count", labels), REGISTRY.get_sample_value(f"{name}_sum", labels)


def orders(*ids: str) -> NodeChecks:
    return NodeChecks(tuple(CheckOrder(order, NODE) for order in ids))


def report(sequence: int, model: str, *answers: CheckAnswer) -> CheckReport:
    return CheckReport(sequence, state=READY, device="cuda", model=model, answers=answers)


@pytest.fixture
def hub(clock: Clock) -> CheckerHub:
    made = CheckerHub(clock)
    made.start_serving()
    return made


def test_each_probe_of_an_answer_counts_once_however_often_it_is_told(hub: CheckerHub, model: str) -> None:
    hub.record(CALLER, report(1, model))
    hub.set_orders("job", {"n1": orders("node")})
    for sequence in (2, 3):
        hub.record(CALLER, report(sequence, model, NODE_ANSWER))
    pair = CheckAnswer("pair", PAIR, "Result", gbps=48.0, seconds=3.0)
    whole = CheckAnswer("gang", GANG, "NoResult", seconds=30.0)
    hub.set_orders("job", {"n1": orders("node", "pair", "gang")})
    for sequence in (4, 5):
        hub.record(CALLER, report(sequence, model, NODE_ANSWER, pair, whole))
    assert seconds("gemm-bf16", model) == (1, 2.5)
    assert reached("gemm-bf16", model, "TFLOP/s") == (1, 640.0)
    assert seconds("bit-exact", model) == (1, 2.0)
    assert seconds("memory-pattern", model) == (1, 1.5)
    assert reached("memory-pattern", model, "GB/s") == (None, None), "something is wrong with it"
    assert seconds("storage", model) == (None, None), "it was not run"
    assert (seconds("pair", model), reached("pair", model, "GB/s")) == ((1, 3.0), (1, 48.0))
    assert (seconds("gang", model), reached("gang", model, "GB/s")) == ((1, 30.0), (None, None))


def test_the_memory_of_a_gpu_has_a_bucket(hub: CheckerHub, model: str) -> None:
    hub.set_orders("job", {"n1": orders("node")})
    probe = ProbeReport("memory-bandwidth", "Result", 7100.0, "GB/s", seconds=1.0)
    hub.record(CALLER, report(1, model, replace(NODE_ANSWER, probes=(probe,))))
    labels = {"probe": "memory-bandwidth", "model": model, "unit": "GB/s"}
    counts = {le: REGISTRY.get_sample_value("muster_check_figure_bucket", labels | {"le": le}) for le in BUCKETS}
    assert counts == {"5600.0": 0, "10000.0": 1}


def test_what_a_new_leader_is_told_of_his_predecessors_orders_does_not_count(hub: CheckerHub, model: str) -> None:
    hub.record(CALLER, report(1, model, NODE_ANSWER))
    hub.set_orders("job", {"n1": orders("node")})
    hub.record(CALLER, report(2, model, NODE_ANSWER))
    assert seconds("gemm-bf16", model) == (None, None)
    pair = CheckAnswer("pair", PAIR, "Result", gbps=48.0, seconds=3.0)
    hub.set_orders("job", {"n1": orders("node", "pair")})
    hub.record(CALLER, report(3, model, NODE_ANSWER, pair))
    assert (seconds("gemm-bf16", model), seconds("pair", model)) == ((None, None), (1, 3.0))


def test_an_order_that_is_given_anew_is_answered_anew(hub: CheckerHub, model: str) -> None:
    for sequence in (1, 3):
        hub.set_orders("job", {"n1": orders("node")})
        hub.record(CALLER, report(sequence, model, NODE_ANSWER))
        hub.set_orders("job", None)
        hub.record(CALLER, report(sequence + 1, model))
    assert seconds("gemm-bf16", model) == (2, 5.0)


def test_nobody_can_make_labels_without_end(hub: CheckerHub, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setattr(figures, "MAX_PROBES", 2)
    monkeypatch.setattr(figures, "MAX_MODELS", 2)
    hub.set_orders("job", {"n1": orders(*(f"o{i}" for i in range(6)))})
    for i in range(6):
        probe = ProbeReport(f"{model}-{i}", "Result", 1.0, "GB/s", seconds=1.0)
        answer = replace(NODE_ANSWER, order=f"o{i}", probes=(probe,))
        hub.record(CALLER, report(i + 1, f"{model}-{i}", answer))
    assert seconds(f"{model}-1", f"{model}-1") == (1, 1.0)
    assert seconds(f"{model}-2", f"{model}-2") == (None, None)
    assert seconds("Other", "Other") == (4, 4.0)
    assert reached("Other", "Other", "Other") == (4, 4.0)
