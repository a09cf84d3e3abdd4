"""Format the figures of one job's report as text, for the command line and for the page.

Tests: tests/unit/cli/test_report.py.
"""

from muster.answers.explanation import ENDED
from muster.answers.fleet_text import NO_PRICE, between_failures, money, small_money
from muster.answers.reported import Cost, JobReport, Yield
from muster.answers.text_parts import duration, percent
from muster.goodput.efficiency import LEAST_SECONDS
from muster.protocol.numerals import significant

JOULES_PER_KWH = 3_600_000
ALL_OF_IT = 0.995
NOT_KNOWN_TO_BE_KEPT = (
    "unknown until the job succeeds: without spec.checkpoint.directory Muster cannot know what is kept"
)
NEVER_KNOWN_TO_BE_KEPT = "unknown: the job had no spec.checkpoint.directory, so Muster cannot know what it has kept"
NO_WORTH_OF_A_STEP = "unknown: the job does not say what a step is worth (spec.throughput.tokensPerStep)"
UNTIMED = "unknown: no step has been timed yet; that takes two reported steps in one attempt, or a printed pace"


def figures(it: JobReport, *, with_cost: bool = True) -> list[tuple[str, str]]:
    """Return name and value of each figure; a name that is indented belongs to the one above it. Without `with_cost`
    what the job has cost is left out, for a reader without the right to prices.
    """
    back = it.recovery_seconds
    named = [
        *_progress(it),
        *between_failures("Time between failures", it),
        ("Back to training in", duration(back) if back is not None else ""),
        ("Steps lost", str(it.lost_steps)),
        ("A step takes", step_text(it)),
        ("First checkpoint after", _first_checkpoint(it)),
        (
            "Steps wait for data",
            percent(it.input_wait) if it.input_wait is not None else "unknown: the program does not report it",
        ),
        *_as_printed(it),
        *_yield_rows(it.throughput, ended=it.state in ENDED),
        *(_cost(it) if with_cost else []),
        *_energy(it),
    ]
    return [(name, value) for name, value in named if value]


def _progress(it: JobReport) -> list[tuple[str, str]]:
    """Return the share of the time that became progress, and what of it could still be lost."""
    if it.progress_unknown:
        return [("ETTR", why_no_ettr(it.state, untimed_steps=it.untimed_steps))]
    rows: list[tuple[str, str]] = [
        ("ETTR", ettr_text(it.ettr, it.ettr_at_most)),
        ("  without the first queue", percent(it.ettr_after_queue)),
    ]
    if it.unsaved_seconds:
        rows.append(("  not saved yet", duration(it.unsaved_seconds)))
    if it.lost_at_end_seconds:
        rows.append(("  not saved at the end", duration(it.lost_at_end_seconds)))
    return rows


def why_no_ettr(state: str, *, untimed_steps: bool) -> str:
    """Say why there is no ETTR of a job whose progress is unknown."""
    if untimed_steps:
        return UNTIMED
    return NEVER_KNOWN_TO_BE_KEPT if state in ENDED else NOT_KNOWN_TO_BE_KEPT


def ettr_text(ettr: float | None, at_most: float | None) -> str:
    """Format the ETTR, with its upper bound where some of the time is unknown."""
    return (
        percent(ettr)
        if at_most is None
        else f"{percent(ettr)} at least; at most {percent(at_most)}, by what is unknown"
    )


def _first_checkpoint(it: JobReport) -> str:
    if it.first_checkpoint_seconds is not None:
        return duration(it.first_checkpoint_seconds)
    if it.first_checkpoint_unknown:
        return f"unknown: {it.first_checkpoint_unknown}"
    return "none was seen until its end" if it.state in ENDED else "none seen yet"


def step_text(it: JobReport) -> str:
    """Format the usual time of a step, and its variation."""
    if it.step_seconds is None:
        printed = it.printed_step_seconds
        return "unknown: fewer than two have been seen" if printed is None else f"{significant(printed)} s, as printed"
    if it.step_stride > 1:
        seconds = it.step_seconds * it.step_stride
        return f"unknown: {it.step_stride:,} of them take {significant(seconds)} s, and the program prints no other"
    slow = f"; one in ten more than {significant(it.step_p90_seconds)} s" if it.step_p90_seconds is not None else ""
    return f"{significant(it.step_seconds)} s{slow}"


def _as_printed(it: JobReport) -> list[tuple[str, str]]:
    """Return the program's own figures of its steps, in this attempt."""
    rows: list[tuple[str, str]] = [("Loss, as printed", it.printed_loss)] if it.printed_loss else []
    if it.printed_tokens_per_gpu_second:
        rows.append(("Tokens per second, as printed", f"{it.printed_tokens_per_gpu_second:,} for each GPU"))
    if it.printed_tflops_per_gpu is not None:
        rows.append(("TFLOP/s, as printed", f"{significant(it.printed_tflops_per_gpu, 4)} for each GPU"))
    if it.printed_mfu is not None:
        rows.append(("MFU, as printed", percent(it.printed_mfu)))
    return rows


def _yield_rows(it: Yield | None, *, ended: bool) -> list[tuple[str, str]]:
    """Return the efficiency, where the job has the tokens of a step."""
    if it is None:
        return [("Tokens per second, MFU", NO_WORTH_OF_A_STEP)]
    unknown = "unknown" if it.tokens_per_second is None or ended else "unknown until the job succeeds"
    tokens = unknown if it.tokens is None else f"{it.tokens:,}"
    rows: list[tuple[str, str]] = [("Tokens", tokens)]
    if it.tokens_per_second is not None:
        per_gpu = f" ({it.tokens_per_gpu_second:,.1f} for each GPU)" if it.tokens_per_gpu_second is not None else ""
        rows.append(("Tokens per second", f"{it.tokens_per_second:,.0f}{per_gpu}"))
    elif not it.mfu_unknown:
        rows.append(("Tokens per second", f"unknown: it has made steps that count for less than {LEAST_SECONDS} s"))
    if it.mfu is not None:
        rows.append(("MFU", f"{percent(it.mfu)} of {it.peak_tflops:,} TFLOP/s ({it.mfu_formula})"))
        rows.append(("  of all GPU-hours", percent(it.mfu_overall)))
    elif it.mfu_unknown:
        rows.append(("MFU", f"unknown: {it.mfu_unknown}"))
    elif it.tokens_per_second is not None:
        rows.append(("MFU", "unknown: spec.throughput has neither parameters nor flopsPerToken, or it holds no GPUs"))
    if it.delivered is not None:
        peak = it.peak_tflops
        machine = f", which is {percent((it.measured_tflops or 0) / peak)} of the peak" if peak else ""
        rows.append(("Of what burn-in measured", f"{percent(it.delivered)} of {it.measured_tflops:,} TFLOP/s{machine}"))
    elif it.mfu is not None:
        rows.append(
            ("Of what burn-in measured", "unknown: not of all of its nodes a burn-in has measured bf16 matrices")
        )
    return rows


def _cost(report: JobReport) -> list[tuple[str, str]]:
    it = report.cost
    if it is None:
        return [("Cost", NO_PRICE)] if report.gpu_hours else []
    million, checkpoint = it.per_million_tokens, it.per_checkpoint
    rows: list[tuple[str, str]] = [
        ("Cost", money(it.total, it.currency)),
        ("  no steps that count", _not_productive(report, it)),
    ]
    rows += [
        (
            "  a million tokens",
            "unknown: its tokens are unknown" if million is None else small_money(million, it.currency),
        ),
        (
            "  a trained checkpoint",
            "unknown: fewer than two complete ones have been seen"
            if checkpoint is None
            else small_money(checkpoint, it.currency),
        ),
    ]
    if it.per_save is not None:
        rows.append(("  a save", small_money(it.per_save, it.currency)))
    return rows


def _not_productive(report: JobReport, it: Cost) -> str:
    if it.not_productive is None:
        return "unknown: it is not known which steps count"
    return money(it.not_productive, it.currency) + (" at most" if report.ettr_at_most is not None else "")


def _energy(report: JobReport) -> list[tuple[str, str]]:
    it = report.energy
    if it is None:
        return [("Energy", f"unknown: {report.energy_unknown}")] if report.energy_unknown else []
    part = "" if it.metered > ALL_OF_IT else f", metered for {it.metered:.0%} of the time"
    per_token = (
        f"unknown: {it.joules_per_token_unknown}"
        if it.joules_per_token is None
        else f"{significant(it.joules_per_token)} J"
    )
    return [
        ("Energy", f"{significant(it.joules / JOULES_PER_KWH)} kWh ({it.watts_per_gpu:,.0f} W for each GPU{part})"),
        ("  a token", per_token),
    ]
