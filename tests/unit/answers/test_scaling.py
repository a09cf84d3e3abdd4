"""Scaling by the jobs that there are: numbers that are worked out by hand."""

from typing import Any

import pytest

from muster.answers.fleet_text import scaling_table
from muster.answers.scaling import RatedJob, scaling
from muster.api.endedjob import EndedJobSpec
from muster.goodput.efficiency import job_efficiency

SAID = {"tokensPerStep": 1000, "parameters": 7 * 10**9}


def a_job(gpus: int, steps: int, seconds: int, cost: float | None = None, **values: Any) -> RatedJob:
    """One that made so many steps in so many seconds, and held its accelerators for as long again."""
    made: dict[str, Any] = {
        "jobUid": "u",
        "namespace": "ns",
        "name": "job",
        "creationTime": "2026-01-01T00:00:00Z",
        "endTime": "2026-01-02T00:00:00Z",
        "state": "Succeeded",
        "gpus": gpus,
        "nodes": 1,
        "gpuModel": "H200",
        "throughput": SAID,
        "steps": steps,
        "seconds": {"compute": seconds, "starting": seconds},
        "gpuSeconds": {"compute": gpus * seconds, "starting": gpus * seconds},
    }
    spec = EndedJobSpec.model_validate(made | values)
    return RatedJob(spec, job_efficiency(spec, spec.throughput), cost)


def test_twice_the_accelerators_are_so_much_faster_and_the_tokens_cost_so_much_more() -> None:
    """8 GPUs make 1,000 tokens a second, 16 of them 1,800, 64 of them 4,000."""
    it = scaling(
        [
            a_job(64, 4000, 1000, cost=96.0),
            a_job(8, 1000, 1000, cost=6.0),
            a_job(16, 1800, 1000, cost=13.5),
        ]
    )
    assert [
        (each.gpus, each.tokens_per_second, each.times_gpus, each.times_speed, each.efficiency, each.times_cost)
        for each in it.sizes
    ] == [
        (8, 1000, 1, 1, 1, 1),
        (16, 1800, pytest.approx(2), 1.8, pytest.approx(0.9), pytest.approx(10 / 9)),
        (64, 4000, pytest.approx(8), 4, pytest.approx(0.5), pytest.approx(2)),
    ]
    # 1, 1.8 and 4 million tokens
    assert [each.cost_per_million_tokens for each in it.sizes] == [6.0, 7.5, 24.0]
    assert it.why == []
    _, heads, rows = scaling_table(it.sizes, 2)
    assert dict(zip(heads, rows[1], strict=True)) == {
        "MODEL": "7B, H200",
        "GPUS": "16",
        "JOBS": "1",
        "TOKENS/S": "1,800",
        "X GPUS": "2",
        "X SPEED": "1.8",
        "EFFICIENCY": "90.0%",
        "X COST": "1.11",
        "A MILLION TOKENS": "7.50",
    }
    assert len(rows) == 2


def test_all_jobs_of_a_size_count_together() -> None:
    """Two of 8 GPUs: 1,000 s at 1,000 tokens a second, 3,000 s at 600. Together 2,800,000 tokens in 4,000 s: 700."""
    it = scaling([a_job(8, 1000, 1000, 2.0), a_job(8, 1800, 3000, None), a_job(16, 1120, 1000, 4.48)])
    assert [(each.jobs, each.tokens_per_second, each.times_speed) for each in it.sizes] == [
        (2, 700, 1),
        (1, 1120, pytest.approx(1.6)),
    ]
    assert it.sizes[1].efficiency == pytest.approx(0.8)
    assert [each.cost_per_million_tokens for each in it.sizes] == [None, pytest.approx(4)], (
        "the cost of one is not known"
    )
    assert set(it.bases.values()) == {87.5}


def test_accelerators_that_a_job_holds_and_does_not_ask_for_count() -> None:
    """One that asks for 16 and holds 32, since a job holds whole nodes."""
    large = a_job(16, 2000, 1000, gpuSeconds={"compute": 32_000})
    size = scaling([a_job(8, 1000, 1000), large]).sizes[1]
    assert (size.times_gpus, size.times_speed, size.efficiency) == (4, 2, 0.5)


def test_models_are_not_mixed_and_the_larger_spend_comes_first() -> None:
    other = {"throughput": {"tokensPerStep": 1000, "flopsPerToken": 3 * 10**10}}
    it = scaling(
        [a_job(8, 100, 100), a_job(16, 100, 100), a_job(8, 9000, 9000, **other), a_job(32, 9000, 9000, **other)]
    )
    assert [(each.flops_per_token, each.gpus) for each in it.sizes] == [
        (3 * 10**10, 8),
        (3 * 10**10, 32),
        (None, 8),
        (None, 16),
    ]
    assert scaling_table(it.sizes, 9)[2][0][0] == "30 GFLOP a token, H200"


def test_what_is_not_comparable_is_said_and_not_guessed() -> None:
    lone = a_job(8, 100, 100)
    assert (scaling([lone]).sizes, scaling([lone]).why) == ([], [])
    it = scaling([lone, a_job(16, 100, 100, gpuModel="H100"), a_job(16, 100, 100, throughput={"tokensPerStep": 5})])
    assert it.sizes == []
    assert it.why == [
        "no scaling of 2 jobs: none of another size has the same accelerators, parameters and flopsPerToken",
        "no scaling of 1 job: spec.throughput says neither parameters nor flopsPerToken, so their models may differ",
    ]
    assert scaling([lone, a_job(16, 100, 100, throughput={})]).sizes == [], "no rate is known"
