"""What a GPU-hour costs: the command line goes before the policy, and what is not known is never a number."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.cli.test_fleetreport import NOW, a_spec, lives
from tests.unit.cli.test_report import PATH, a_job
from typer.testing import Result

from muster.answers.fleetreported import fleet_report
from muster.api.prices import PriceList
from muster.cli.prices import price_of
from muster.goodput.prices import NO_PRICES, Prices, listed
from muster.kube.errors import Forbidden, Unreachable

POLICY = "/apis/muster.dev/v1alpha1/fleetpolicies/default"
PRICES = {
    "currency": "EUR",
    "perGpuHour": "2.50",
    "models": [{"model": "NVIDIA-H200", "perGpuHour": "3.10"}, {"model": "NVIDIA-A100", "perGpuHour": "0"}],
}


def a_policy(**prices: Any) -> dict[str, Any]:
    return {"metadata": {"name": "default", "uid": "p", "resourceVersion": "1"}, "spec": {"prices": prices}}


def test_a_model_costs_what_is_listed_and_others_the_rest() -> None:
    prices = listed(PriceList.model_validate(PRICES))
    assert prices.price_of_model("NVIDIA-H200") == 3.1
    assert prices.price_of_model("NVIDIA-A100") == 0, "which is a price"
    assert prices.price_of_model("NVIDIA-B200") == 2.5
    assert prices.price_of_model("") is None, "it may be any of those that are listed"
    assert prices.price_of_model("several") is None
    assert Prices(2.0).price_of_model("") == Prices(2.0).price_of_model("several") == 2.0
    assert NO_PRICES.price_of_model("NVIDIA-H200") is None


@pytest.mark.parametrize("wrong", ["-1", "NaN", "inf", "1e308", "1e3", "", "2,5", "٣", "1_000", " 2"])
def test_what_is_no_price_is_none(wrong: str) -> None:
    made = PriceList.model_construct(per_gpu_hour=wrong)
    assert listed(made).price_of_model("x") is None
    both = {"model": "m", "per_gpu_hour": wrong}
    made = PriceList.model_construct(
        per_gpu_hour="2", models=[type(PriceList.model_validate(PRICES).models[0]).model_construct(**both)]
    )
    assert listed(made) == NO_PRICES


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.01, 1e308])
def test_nobody_can_write_a_price_that_is_none(wrong: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1000000"):
        price_of(wrong)


def test_the_fleet_costs_what_each_of_its_jobs_does_or_nothing_is_told() -> None:
    prices = Prices(None, {"dear": 4.0, "cheap": 1.0}, "EUR")
    dear, cheap = a_spec(1, gpu_model="dear"), a_spec(2, gpu_model="cheap")
    hours = 691_200 / 3600
    it = fleet_report(lives(dear, cheap), NOW, None, prices)
    assert it.cost == pytest.approx(hours * 5)
    assert sum(each.cost or 0 for each in it.buckets) == pytest.approx(it.cost)
    assert it.causes[0].cost == pytest.approx(51_200 / 3600 * 5)
    assert it.namespaces[0].cost == pytest.approx(it.cost)
    assert (it.price_per_gpu_hour, it.currency, it.unpriced_share) == (None, "EUR", 0)
    one = fleet_report(lives(dear), NOW, None, prices)
    assert one.price_per_gpu_hour == 4.0
    partly = fleet_report(lives(dear, cheap, a_spec(3)), NOW, None, prices)
    assert (partly.cost, partly.buckets[0].cost, partly.namespaces[0].cost, partly.causes[0].cost) == (None,) * 4
    assert partly.unpriced_share == pytest.approx(1 / 3)
    assert fleet_report(lives(dear), NOW).unpriced_share == 0, "nobody has asked for a price"


def test_a_jobs_page_tells_what_it_made_and_cost(command: Callable[..., Result], api: Any) -> None:
    job = a_job(steps=54_000, gpuModel="NVIDIA-H200")
    job["spec"]["throughput"] = {"tokensPerStep": 1_000_000, "parameters": 7_000_000_000}
    api.put(PATH, job)
    api.put(POLICY, a_policy(**PRICES))
    api.is_at(datetime(2026, 1, 5, 4, tzinfo=UTC))
    text = command("report", "llama").stdout
    # 5.4e10 tokens in 90 h of compute by 16 GPUs; 1,584 GPU-hours at 3.10.
    assert "Tokens per second          166,667 (10,416.7 for each GPU)" in text
    assert "MFU                        44.2% of 989 TFLOP/s (6N/v1)" in text
    assert "Cost                       4,910.40 EUR" in text
    assert "a million tokens         0.0909 EUR" in text
    assert "a trained checkpoint     90.93 EUR" in text, "54 of 1,000 steps: all that was held for them"
    assert "a save                   0.413 EUR" in text, "30 s of 16 GPUs"
    assert "3,960.00\n" in command("report", "llama", "--price", "2.5").stdout, "a price that is written goes before"


def test_without_a_price_or_a_right_to_it_no_cost_is_told(command: Callable[..., Result], api: Any) -> None:
    api.put(PATH, a_job(gpuModel="NVIDIA-H200"))
    assert "Cost                       unknown: some GPUs, or all," in command("report", "llama").stdout
    api.errors[POLICY] = Forbidden(403, "Forbidden", "no")
    result = command("report", "llama")
    assert result.exit_code == 0
    assert "Cost                       unknown: some GPUs, or all," in result.stdout
    assert "Tokens per second, MFU     unknown: the job does not say" in result.stdout
    assert command("report", "llama", "--price", "nan").exit_code == 2


def test_where_a_price_is_written_the_policy_is_not_asked(command: Callable[..., Result], api: Any) -> None:
    api.put(PATH, a_job(gpuModel="NVIDIA-H200"))
    api.errors[POLICY] = Unreachable(0, "Unreachable", "away")
    assert command("report", "llama").exit_code == 1
    result = command("report", "llama", "--price", "2.5")
    assert result.exit_code == 0, result.stderr
    assert "3,960.00\n" in result.stdout


def test_an_impossible_utilisation_is_said_to_be_so(command: Callable[..., Result], api: Any) -> None:
    job = a_job(steps=54_000, gpuModel="NVIDIA-H200")
    job["spec"]["throughput"] = {"tokensPerStep": 10**12, "parameters": 10**15}
    api.put(PATH, job)
    text = " ".join(command("report", "llama", "--price", "2.5").stdout.split())
    assert "MFU unknown: spec.throughput cannot be right" in text
    assert "Tokens unknown" in text
    assert "Tokens per second" not in text, "it rests on the same numbers"
    assert "a million tokens unknown: its tokens are unknown" in text
    assert "Cost 3,960.00" in text


def test_tokens_of_unknown_progress_are_unknown_and_their_rate_is_not(command: Callable[..., Result], api: Any) -> None:
    job = a_job(steps=54_000, gpuModel="NVIDIA-H200", progressUnknown=True, ettrPermille=None)
    job["spec"]["throughput"] = {"tokensPerStep": 1_000_000, "parameters": 7_000_000_000}
    api.put(PATH, job)
    text = " ".join(command("report", "llama", "--price", "2.5").stdout.split())
    assert "Tokens unknown until the job succeeds Tokens per second 166,667" in text
    assert "a million tokens unknown: its tokens are unknown" in text
    assert "of all GPU-hours unknown" in text
