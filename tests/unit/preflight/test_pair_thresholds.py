"""By which figures of the fleet a gang's pairs are judged."""

from typing import Any

from muster.preflight.outcomes import PAIR
from muster.preflight.pair_thresholds import PairThresholds
from muster.world.checks import ProbeThreshold

KIND = ("H100", "nccl", "2.21")


def a_threshold(transport: str, **changes: Any) -> ProbeThreshold:
    model, library, version = KIND
    values: dict[str, Any] = {
        "probe": PAIR,
        "model": model,
        "transport": transport,
        "library": library,
        "version": version,
        "middle": 40.0,
        "ratio": 0.9,
        "floor": 0.0,
        "miss_share": 0.01,
        "unit": "GB/s",
        "source": "history",
    }
    return ProbeThreshold(**(values | changes))


def transports(*thresholds: ProbeThreshold, transport: str = "") -> list[str]:
    return [each.transport for each in PairThresholds.for_gang(thresholds, {KIND}, transport).known]


def test_the_history_of_one_transport_judges_pairs_over_any() -> None:
    assert transports(a_threshold("IB")) == [""]
    assert transports(a_threshold("IB"), a_threshold("Socket", middle=None, floor=1.0)) == ["", "Socket"]


def test_with_several_histories_each_judges_its_own() -> None:
    assert transports(a_threshold("IB"), a_threshold("Socket")) == ["IB", "Socket"]


def test_a_published_floor_holds_for_one_transport_a_required_one_for_any() -> None:
    assert transports(a_threshold("IB", middle=None, floor=10.0)) == ["IB"]
    assert transports(a_threshold("IB", middle=None, floor=10.0, is_required=True)) == [""]


def test_others_figures_judge_nobody() -> None:
    assert transports(a_threshold("IB", model="A100"), a_threshold("IB", probe="gemm")) == []
    assert transports(a_threshold("Socket"), transport="IB") == []


def test_a_gang_of_several_kinds_has_no_threshold() -> None:
    thresholds = (a_threshold("IB"), a_threshold("IB", version="2.18"))
    assert PairThresholds.for_gang(thresholds, {KIND, ("H100", "nccl", "2.18")}, "").known == ()
    assert len(PairThresholds.for_gang(thresholds, {KIND}, "").known) == 1
