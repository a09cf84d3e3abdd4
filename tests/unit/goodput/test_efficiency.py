"""Tokens per second and MFU: the formula, the peaks, and that nothing is told that cannot be true."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.goodput.test_history import at

from muster.api.goodput import MAX_STEP, Account, Bucket, Segment
from muster.api.throughput import MAX_FLOPS, MAX_PARAMETERS, MAX_PEAK, MAX_TOKENS, Throughput
from muster.goodput.efficiency import (
    AS_GIVEN,
    BY_PARAMETERS,
    Efficiency,
    cost_per_checkpoint,
    cost_per_million,
    efficiency,
    peak_tflops,
)
from muster.goodput.figures import KeptWork, figures
from muster.goodput.segments import cut_after

SUCCEEDED = KeptWork(is_known=True, ended=True, succeeded=True)


def made(steps: int | None = 1000, model: str = "NVIDIA-H200", **said: Any) -> Efficiency:
    """8 GPUs that train for 1,000 s in steps that count, and hold for 250 s more."""
    given = {"tokens_per_step": 100_000, "parameters": 7_000_000_000} | said
    seconds = {"compute": 900, "communication": 100, "restarting": 250}
    return efficiency(
        steps, seconds, {name: 8 * amount for name, amount in seconds.items()}, Throughput(**given), model
    )


def test_mfu_is_what_the_model_needs_of_what_the_accelerators_could() -> None:
    """100,000 tokens a second; 6 * 7e9 operations each = 4.2e15/s, of 8 * 989e12."""
    found = made()
    assert (found.tokens, found.tokens_per_second, found.tokens_per_gpu_second) == (100_000_000, 100_000.0, 12_500.0)
    assert found.mfu == pytest.approx(4.2e15 / (8 * 989e12))
    assert found.overall == pytest.approx(4.2e15 / (8 * 989e12) * 1000 / 1250)
    assert (found.formula, found.peak_tflops) == (BY_PARAMETERS, 989)


def test_delivered_throughput_is_a_share_of_what_the_burn_in_measured() -> None:
    """4.2e15 operations a second of 8 * 700e12; without a data sheet's peak it is known all the same."""
    throughput = Throughput(tokens_per_step=100_000, parameters=7_000_000_000)
    for model in ("NVIDIA-H200", "of nobody"):
        found = efficiency(1000, {"compute": 1000}, {"compute": 8000}, throughput, model, 700)
        assert found.delivered == pytest.approx(4.2e15 / (8 * 700e12))
        assert found.measured_tflops == 700
    for measured in (None, 0, 500):  # unknown, or beyond what was measured
        found = efficiency(1000, {"compute": 1000}, {"compute": 8000}, throughput, "NVIDIA-H200", measured)
        assert (found.delivered, found.measured_tflops) == (None, None)
        assert found.mfu is not None


def test_the_job_may_give_operations_and_peak_itself_and_the_formula_is_told() -> None:
    found = made(parameters=None, flops_per_token=42_000_000_000, peak_tflops_per_gpu=1979, model="")
    assert found.mfu == pytest.approx(4.2e15 / (8 * 1979e12))
    assert (found.formula, found.peak_tflops) == (AS_GIVEN, 1979)


@pytest.mark.parametrize(
    ("model", "peak"),
    [
        ("NVIDIA-H200", 989),
        ("NVIDIA-H200-NVL", 835),
        ("NVIDIA-H100-80GB-HBM3", 989),
        ("NVIDIA-H100-PCIe", 756),
        ("NVIDIA-H100-NVL", 835),
        ("NVIDIA-A100-SXM4-80GB", 312),
        ("nvidia-h100-80gb", None),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", None),
        ("NVIDIA-H200-SHARED", None),
        ("NVIDIA-GH200-480GB", 989),
        ("AMD_Instinct_MI300X_OAM", 1307),
        ("Tesla-V100-SXM2-16GB", None),
        ("several", None),
        ("", None),
    ],
)
def test_the_peak_is_that_of_the_model_or_unknown(model: str, peak: int | None) -> None:
    assert peak_tflops(model) == peak


def test_what_is_not_known_or_cannot_be_true_is_no_figure() -> None:
    assert made(tokens_per_step=None) == Efficiency()
    assert made(steps=None) == Efficiency()
    assert made(parameters=None).mfu is None
    assert made(parameters=None).why == "", "nobody has asked for it"
    assert "peakTflopsPerGpu" in made(model="Tesla-V100").why
    impossible = made(parameters=7 * 10**12)
    assert impossible.mfu is None
    assert "beyond their peak" in impossible.why
    assert efficiency(5, {"compute": 3}, {"compute": 24}, Throughput(tokens_per_step=10), "").tokens_per_second is None
    without = efficiency(5, {"compute": 30}, {}, Throughput(tokens_per_step=12, parameters=1), "NVIDIA-H200")
    assert (without.tokens_per_second, without.tokens_per_gpu_second, without.mfu) == (2.0, None, None)


amounts = st.dictionaries(st.sampled_from([str(bucket) for bucket in Bucket]), st.integers(0, 2**53 - 1), max_size=6)


@given(
    st.integers(0, MAX_STEP),
    amounts,
    amounts,
    st.builds(
        Throughput,
        tokens_per_step=st.none() | st.integers(1, MAX_TOKENS),
        parameters=st.none() | st.integers(1, MAX_PARAMETERS),
        flops_per_token=st.none() | st.integers(1, MAX_FLOPS),
        peak_tflops_per_gpu=st.none() | st.integers(1, MAX_PEAK),
    ),
    st.sampled_from(["NVIDIA-H200", "", "x" * 63]),
)
def test_whatever_is_said_every_figure_is_finite_and_no_share_is_more_than_all(
    steps: int, seconds: dict[str, int], gpu_seconds: dict[str, int], said: Throughput, model: str
) -> None:
    found = efficiency(steps, seconds, gpu_seconds, said, model)
    for figure in (found.tokens_per_second, found.tokens_per_gpu_second, found.mfu, found.overall):
        assert figure is None or (math.isfinite(figure) and figure >= 0)
    assert found.mfu is None or (found.overall is not None and found.overall <= found.mfu <= 1)
    assert (found.mfu is None) == (not found.formula)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10**6)), min_size=1, max_size=8), st.integers(0, 400))
def test_steps_that_are_taken_back_do_not_count(lengths: list[tuple[int, int]], back_to: int) -> None:
    stretches, top = [], 0
    for length, took in lengths:
        stretches.append(Segment(after_step=top, step=top + length, gpus=8, milliseconds={"compute": took}))
        top += length
    spent = sum(took for _, took in lengths)
    account = Account(creation_time=at(0), counted_until=at(0), milliseconds={"compute": spent}, segments=stretches)
    assert figures(account, None, None, SUCCEEDED).steps == top
    assert figures(cut_after(account, back_to)[0], None, None, SUCCEEDED).steps in (
        min(top, back_to),
        min(top, back_to) - 1,
    )


def test_steps_whose_time_nobody_saw_make_no_rate_faster() -> None:
    seen = Segment(after_step=0, step=10, gpus=8, milliseconds={"compute": 10_000})
    unseen = Segment(after_step=10, step=900, gpus=8)
    account = Account(
        creation_time=at(0), counted_until=at(10), milliseconds={"compute": 10_000}, segments=[seen, unseen]
    )
    assert figures(account, None, None, SUCCEEDED).steps == 10


def test_the_cost_of_tokens_needs_both() -> None:
    assert cost_per_million(5.0, 10_000_000) == 0.5
    assert cost_per_million(None, 10) is None
    assert cost_per_million(5.0, None) is None
    assert cost_per_million(5.0, 0) is None


@pytest.mark.parametrize(
    ("cost", "steps", "interval", "wanted"),
    [(3168.0, 54_000, 1000, 3168 / 54), (None, 54_000, 1000, None), (1.0, None, 10, None), (1.0, 100, 0, None)],
)
def test_a_checkpoint_costs_what_was_held_for_it(
    cost: float | None, steps: int | None, interval: int, wanted: float | None
) -> None:
    assert cost_per_checkpoint(cost, steps, interval) == pytest.approx(wanted)


def test_where_no_checkpoint_is_full_its_cost_is_unknown() -> None:
    assert cost_per_checkpoint(10.0, 99, 100) is None
