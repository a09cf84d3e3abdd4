"""By which figures of the fleet a gang's pairs are judged."""

from typing import Any

from muster.preflight.limits import SOURCE
from muster.preflight.verdict import PAIR
from muster.preflight.yardsticks import yardsticks
from muster.world.checks import Standard

KIND = ("H100", "nccl", "2.21")


def a_standard(transport: str, **changes: Any) -> Standard:
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
    return Standard(**(values | changes))


def transports(*standards: Standard, transport: str = "") -> list[str]:
    return [each.transport for each in yardsticks(standards, {KIND}, transport)]


def test_the_history_of_one_transport_judges_pairs_over_any() -> None:
    assert transports(a_standard("IB")) == [""]
    assert transports(a_standard("IB"), a_standard("Socket", middle=None, floor=1.0)) == ["", "Socket"]


def test_with_several_histories_each_judges_its_own() -> None:
    assert transports(a_standard("IB"), a_standard("Socket")) == ["IB", "Socket"]


def test_a_published_floor_holds_for_its_own_transport_only() -> None:
    assert transports(a_standard("IB", middle=None, floor=10.0)) == ["IB"]
    assert transports(a_standard("IB", middle=None, floor=10.0, source=SOURCE)) == [""]


def test_others_figures_judge_nobody() -> None:
    assert transports(a_standard("IB", model="A100"), a_standard("IB", probe="gemm")) == []
    assert transports(a_standard("Socket"), transport="IB") == []


def test_a_gang_of_several_kinds_has_no_yardstick() -> None:
    standards = (a_standard("IB"), a_standard("IB", version="2.18"))
    assert yardsticks(standards, {KIND, ("H100", "nccl", "2.18")}, "") == ()
    assert len(yardsticks(standards, {KIND}, "")) == 1
