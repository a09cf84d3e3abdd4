"""Compute the training per time: tokens per second, model FLOP/s utilisation, and their costs. Pure.

MFU is that of PaLM (arXiv 2204.02311, appendix B): operations that the model needs, without recomputation, of those
that the accelerators could have made at their peak. The formula of a token's operations is published with it, because
the usual ones differ by tens of per cent. An impossible figure is left out: the reader gets the reason in its place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from muster.api.endedjob import EndedJobSpec
from muster.api.goodput import PRODUCTIVE, Goodput
from muster.api.throughput import Throughput

BY_PARAMETERS = "6N/v1"
"""Six operations for each weight that a token passes through; attention is left out."""
AS_GIVEN = "flopsPerToken/v1"
"""The job's own number of operations for a token."""
LEAST_SECONDS = 10
"""Times are whole seconds: rates of less time than this would be guesses."""
MILLION = 10**6

_WORDS = re.compile(r"[^A-Z0-9]+")
_SHARED = re.compile(r"MIG|SHARED|REPLICA|VGPU|GRID")
PEAK_TFLOPS: tuple[tuple[str, frozenset[str], int], ...] = (
    # family, words that the name must also have, dense bf16 10^12/s. The vendors' data sheets, without sparsity.
    ("A100", frozenset(), 312),
    ("A800", frozenset(), 312),
    ("H100", frozenset({"PCIE"}), 756),
    ("H100", frozenset({"NVL"}), 835),
    ("H100", frozenset({"HBM3"}), 989),
    ("H100", frozenset({"SXM5"}), 989),
    ("H800", frozenset({"PCIE"}), 756),
    ("H800", frozenset(), 989),
    ("H200", frozenset({"NVL"}), 835),
    ("H200", frozenset(), 989),
    ("GH200", frozenset(), 989),
    ("H20", frozenset(), 148),
    ("L40S", frozenset(), 362),
    ("B200", frozenset(), 2250),
    ("B300", frozenset(), 2250),
    ("GB200", frozenset(), 2500),
    ("GB300", frozenset(), 2500),
    ("MI300X", frozenset(), 1307),
    ("MI325X", frozenset(), 1307),
    ("MI355X", frozenset(), 2500),
)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Training per time and per accelerator. None: not known.

    Attributes:
        tokens: of the steps that count.
        tokens_per_second: of the whole gang, in the time of steps that count.
        tokens_per_gpu_second: the same for one accelerator.
        mfu: share of the peak, in the time of steps that count.
        overall: share of the peak, in all the time in which accelerators were held.
        delivered: share of the burn-in's speed on the same nodes, in the time of steps that count.
        measured_tflops: the burn-in's speed of one accelerator.
        formula: how the operations of a token are computed; "" where mfu is not known.
        peak_tflops: of one accelerator.
        why: why there is no MFU although the job asked for it; "" otherwise.
    """

    tokens: int | None = None
    tokens_per_second: float | None = None
    tokens_per_gpu_second: float | None = None
    mfu: float | None = None
    overall: float | None = None
    formula: str = ""
    peak_tflops: int | None = None
    why: str = ""
    delivered: float | None = None
    measured_tflops: int | None = None


def peak_tflops(model: str) -> int | None:
    """Return the dense bf16 peak of one accelerator, in 10^12 per second, by the model in its node's labels.

    None for an unknown model, and for a slice or a share of an accelerator.
    """
    name = model.upper()
    if _SHARED.search(name):
        return None
    parts = set(_WORDS.split(name))
    return next((peak for family, others, peak in PEAK_TFLOPS if family in parts and others <= parts), None)


def efficiency(
    steps: int | None,
    seconds: Mapping[str, int],
    gpu_seconds: Mapping[str, int],
    throughput: Throughput,
    model: str,
    measured: int | None = None,
    *,
    is_kept: bool = True,
) -> Efficiency:
    """Compute the efficiency of a job from its steps and its account.

    Args:
        steps: those that count; None: not known.
        seconds: the account, by bucket.
        gpu_seconds: the account times the accelerators that were held, by bucket.
        throughput: tokens and operations of a step, as the user states them.
        model: of the accelerators, "" where it is not known.
        measured: 10^12 operations a second that one accelerator has reached in the burn-in; None: not known.
        is_kept: whether the kept steps are known; otherwise only their pace is, and not the number of tokens.
    """
    if steps is None or throughput.tokens_per_step is None:
        return Efficiency()
    tokens = steps * throughput.tokens_per_step
    work = sum(seconds.get(bucket, 0) for bucket in PRODUCTIVE)
    gpu_work, held = sum(gpu_seconds.get(bucket, 0) for bucket in PRODUCTIVE), sum(gpu_seconds.values())
    kept = tokens if is_kept else None
    if not tokens or work < LEAST_SECONDS:
        return Efficiency(tokens=kept)
    result = Efficiency(
        tokens=kept,
        tokens_per_second=tokens / work,
        tokens_per_gpu_second=tokens / gpu_work if gpu_work else None,
    )
    flops, formula = _token_flops(throughput)
    if flops is None or not gpu_work:
        return result
    if measured:
        share = tokens * flops / (gpu_work * measured * 10**12)
        if share <= 1:  # a model of other precision, or parameters that cannot be right
            result = replace(result, delivered=share, measured_tflops=measured)
    peak = throughput.peak_tflops_per_gpu or peak_tflops(model)
    if peak is None:
        return _without(result, "the accelerators' peak is not known: set spec.throughput.peakTflopsPerGpu")
    mfu, overall = (tokens * flops / (time * peak * 10**12) for time in (gpu_work, held))
    if mfu > 1:
        # It is unknown which number is wrong: the tokens, and all that follows from them, may be wrong, too.
        return Efficiency(why="spec.throughput cannot be right: the accelerators would have worked beyond their peak")
    return replace(result, mfu=mfu, overall=overall if is_kept else None, formula=formula, peak_tflops=peak)


def job_efficiency(goodput: Goodput | EndedJobSpec, throughput: Throughput) -> Efficiency:
    """Compute the efficiency of a job from the figures of its status, or of its account in the history."""
    return efficiency(
        goodput.steps,
        goodput.seconds,
        goodput.gpu_seconds,
        throughput,
        goodput.gpu_model,
        goodput.measured_tflops,
        is_kept=not goodput.progress_unknown,
    )


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of one accelerator during a step, by what the job says of its steps. None: not known.

    Attributes:
        tflops: 10^12 operations a second.
        mfu: share of the peak.
    """

    tokens: float | None = None
    tflops: float | None = None
    mfu: float | None = None


def speed(throughput: Throughput, step_milliseconds: int, gpus: int, model: str) -> Speed:
    """Compute the speed of steps that take `step_milliseconds` each."""
    if throughput.tokens_per_step is None or not step_milliseconds or not gpus:
        return Speed()
    tokens = throughput.tokens_per_step * 1000 / (step_milliseconds * gpus)
    flops, _ = _token_flops(throughput)
    if flops is None:
        return Speed(tokens)
    tflops, peak = tokens * flops / 10**12, throughput.peak_tflops_per_gpu or peak_tflops(model)
    return Speed(tokens, tflops, tflops / peak if peak else None)


def _token_flops(throughput: Throughput) -> tuple[int | None, str]:
    """Return the operations of a token, and the formula that gives them."""
    if throughput.flops_per_token is None and throughput.parameters is not None:
        return 6 * throughput.parameters, BY_PARAMETERS
    return throughput.flops_per_token, AS_GIVEN


def cost_per_million(cost: float | None, tokens: int | None) -> float | None:
    """Return the cost of a million tokens that count, waiting and failures included; None where either is not known."""
    return None if cost is None or not tokens else cost / tokens * MILLION


def cost_per_checkpoint(cost: float | None, steps: int | None, interval: int | None) -> float | None:
    """Return the cost of one checkpoint, waiting and failures included; None where it is not known.

    Args:
        cost: of all that the job has held.
        steps: those that count.
        interval: steps between two complete checkpoints.
    """
    if cost is None or not steps or not interval or steps < interval:
        return None
    return cost * interval / steps


def _without(result: Efficiency, why: str) -> Efficiency:
    return replace(result, why=why)
