"""What Prometheus learns of the page: its own routes and how they were answered, and nothing of who asked for what."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from tests.unit.page.conftest import Ask, Fleet, a_job
from tests.unit.waiting import until

from muster.coordinator.probes import LoopHeartbeat


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def count(route: str, code: int) -> float:
    return value("muster_page_requests_total", route=route, code=str(code))


@pytest.mark.parametrize(
    ("path", "token", "route", "code"),
    [
        ("/", None, "/", 200),
        ("/api/jobs", "admin-token", "/api/jobs", 200),
        ("/api/jobs/team-a/ours", "admin-token", "/api/jobs/{namespace}/{name}", 200),
        ("/api/jobs/team-a/none", "admin-token", "/api/jobs/{namespace}/{name}", 404),
        ("/api/fleet", None, "/api/fleet", 401),
        ("/wp-admin/secret", "admin-token", "other", 404),
    ],
)
async def test_each_request_counts_once_by_the_pages_own_pattern(
    fleet: Fleet, ask: Ask, path: str, token: str | None, route: str, code: int
) -> None:
    fleet.has(a_job("ours"))
    before, refused = count(route, code), value("muster_page_logins_refused_total")
    timed = value("muster_page_request_seconds_count", route=route)
    status, _, _ = await ask(path, token)
    assert status == code
    assert count(route, code) == before + 1
    assert value("muster_page_request_seconds_count", route=route) == timed + 1
    assert value("muster_page_logins_refused_total") == refused + (code == 401)
    assert value("muster_page_requests_open") == 0
    rows = {sample.labels.get("route") for family in REGISTRY.collect() for sample in family.samples}
    assert not any("ours" in row or "secret" in row for row in rows if row)


async def test_a_request_that_waits_is_open(fleet: Fleet, ask: Ask) -> None:
    fleet.reviews.wait = asyncio.Event()
    asked = asyncio.create_task(ask("/api/jobs"))
    await until(lambda: value("muster_page_requests_open") == 1)
    fleet.reviews.wait.set()
    assert (await asked)[0] == 200
    assert value("muster_page_requests_open") == 0


async def test_the_probes_port_has_the_figures(fleet: Fleet, ask: Ask) -> None:
    await ask("/api/jobs", "very-odd-token")
    metrics = fleet.page.probes(LoopHeartbeat(str, fleet.page.not_ready))["/metrics"]
    status, body = metrics("")
    text = body.decode()
    assert status == 200
    assert 'muster_page_requests_total{code="401",route="/api/jobs"}' in text
    assert "muster_page_data_age_seconds" in text
    assert "very-odd-token" not in text
