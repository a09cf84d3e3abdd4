"""What the fleet's owner asks for, and when it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.api.preflight import PreflightLimit
from muster.preflight.evidence import BurnInEvidence, MemberTopology
from muster.preflight.limits import SOURCE, Best, apply_limits
from muster.preflight.outcomes import BurnInMember, How, PairOutcome
from muster.preflight.pair_thresholds import PairThresholds
from muster.world.checks import ProbeThreshold

LIKE = ProbeThreshold("", "NVIDIA H200", "", "nccl", "1", None, 0.75, 0.0, 0.01, "", "")
GEMM = ("gemm-bf16", "")
FLOOR = replace(LIKE, probe="gemm-bf16", floor=556.0, unit="TFLOP/s", source="published")
HISTORY = replace(FLOOR, middle=690.0, ratio=0.85, source="history")
SHOWN = {GEMM: Best(700.0, "TFLOP/s")}


def limit(probe: str = "gemm-bf16", model: str = "", **what: object) -> PreflightLimit:
    return PreflightLimit.model_validate({"probe": probe, "model": model, **what})


def least(
    *limits: PreflightLimit, known: tuple[ProbeThreshold, ...] = (HISTORY,), shown: dict[tuple[str, str], Best] = SHOWN
) -> float:
    """What the product has to reach."""
    (one,) = apply_limits(LIKE, known, shown, limits).thresholds
    return one.least


def test_a_figure_goes_before_history_and_floor() -> None:
    assert least(limit(minimum="650")) == 650.0
    assert least(limit(minimum="500")) == 500.0, "lower, too"
    (one,) = apply_limits(LIKE, [HISTORY], SHOWN, [limit(minimum="650")]).thresholds
    assert (one.unit, one.source, one.is_required) == ("TFLOP/s", SOURCE, True)


def test_a_share_is_of_the_fleets_own_middle() -> None:
    assert least(limit(minimum_percent=95)) == pytest.approx(655.5)
    assert least(limit(minimum_percent=95), known=(FLOOR,)) == 556.0, "there is none yet"


def test_a_share_beyond_healthy_figures_is_lowered_to_theirs_and_named() -> None:
    varied = replace(HISTORY, healthy=0.9)
    found = apply_limits(LIKE, [varied], SHOWN, [limit(minimum_percent=95)])
    (one,) = found.thresholds
    assert one.least == pytest.approx(0.9 * 690.0)
    assert one.source.startswith("90 % of the fleet's middle")
    (words,) = found.unused
    for part in ("95 %", "90 % counts", "NVIDIA H200", "Lower percent"):
        assert part in words
    assert apply_limits(LIKE, [varied], SHOWN, [limit(minimum_percent=90)]).unused == ()
    assert least(limit(minimum_percent=85), known=(replace(HISTORY, healthy=0.4),)) == pytest.approx(0.85 * 690.0), (
        "as without"
    )


def test_a_published_floor_holds_beside_a_share_and_is_named() -> None:
    (one,) = apply_limits(LIKE, [HISTORY], SHOWN, [limit(minimum_percent=50)]).thresholds
    assert one.least == 556.0
    assert one.source == f"50 % of the fleet's middle of 690 ({SOURCE}); not below 556"
    assert not one.is_required


def test_what_nobody_has_reached_counts_for_nothing_and_is_named() -> None:
    found = apply_limits(LIKE, [HISTORY], SHOWN, [limit(minimum="900")])
    assert found.thresholds == (HISTORY,)
    (words,) = found.unused
    for part in ("spec.preflight.limits", "gemm-bf16", "900", "700 TFLOP/s", "Lower minimum"):
        assert part in words
    assert least(limit(minimum="900"), known=(FLOOR,), shown={}) == 556.0
    assert apply_limits(LIKE, [FLOOR], {}, [limit(minimum="900")]).unused == (), "nobody has tried yet"


def test_less_than_is_asked_now_counts_at_once() -> None:
    assert least(limit(minimum="0"), known=(FLOOR,), shown={}) == 0.0


def test_a_probe_without_history_and_floor_gets_one() -> None:
    shown = {("storage", ""): Best(3.0, "GB/s")}
    (one,) = apply_limits(LIKE, [], shown, [limit("storage", minimum="2")]).thresholds
    assert (one.probe, one.floor, one.unit, one.model) == ("storage", 2.0, "GB/s", "NVIDIA H200")


def test_pairs_have_it_for_each_transport() -> None:
    shown = {("pair", name): Best(figure, "GB/s") for name, figure in (("IB", 48.0), ("TCP", 2.0))}
    found = apply_limits(LIKE, [], shown, [limit("pair", minimum="40")])
    assert [(one.transport, one.floor) for one in found.thresholds] == [("IB", 40.0)]
    assert not found.unused, "one of them has reached it"
    (ib, tcp) = apply_limits(LIKE, [], shown, [limit("pair", minimum="60")]).unused
    assert "no NVIDIA H200 that is heard has reached more than 48 GB/s over IB:" in ib
    assert "2 GB/s over TCP:" in tcp


@pytest.mark.parametrize(("figure", "want"), [("30", 30.0), ("0", 0.0), ("49", 49.0)], ids=["less", "none", "more"])
def test_pairs_keep_what_a_healthy_one_reaches_and_the_figure_is_the_least(figure: str, want: float) -> None:
    """The gang's own pairs would be the measure where there is no history."""
    history = replace(LIKE, probe="pair", transport="IB", middle=48.0, ratio=0.85, floor=18.0, unit="GB/s")
    shown = {("pair", "IB"): Best(50.0, "GB/s")}
    (one,) = apply_limits(LIKE, [history], shown, [limit("pair", minimum=figure)]).thresholds
    assert one.middle == 48.0
    evidence = BurnInEvidence(
        MemberTopology([BurnInMember("a"), BurnInMember("b")]),
        [PairOutcome(1, "a", "b", How.RESULT, 1.0)],
        PairThresholds((replace(one, transport=""),)),
    )
    assert evidence.threshold_gbps(0) == pytest.approx(want)


def test_with_no_history_nothing_is_too_slow_for_pairs_either() -> None:
    (one,) = apply_limits(LIKE, [], {("pair", "IB"): Best(50.0, "GB/s")}, [limit("pair", minimum="0")]).thresholds
    assert (one.middle, one.ratio, one.floor) == (None, 0.0, 0.0)


def test_of_several_the_longest_name_counts() -> None:
    several = [
        limit(minimum="600"),
        limit(model="NVIDIA H200", minimum="650"),
        limit(model="NVIDIA H100", minimum="500"),
    ]
    assert least(*several) == 650.0
    assert least(several[2]) == pytest.approx(690.0 * 0.85)


def test_other_probes_stay_as_they_are() -> None:
    assert apply_limits(LIKE, [HISTORY], SHOWN, [limit("storage", minimum="2")]).thresholds == (HISTORY,)
