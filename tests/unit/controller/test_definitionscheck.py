"""Who may lead beside older definitions: no replica of this version, and one that leads ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from tests.unit.kube.test_schemas import Server

from muster import __version__
from muster.api.installation import InstallationProfile
from muster.controller.definitionscheck import DefinitionsCheck
from muster.kube.errors import ApiError, Forbidden, NotFound, Unreachable

GANG = "dev.muster.v1alpha1.Gang"


@pytest.fixture
def server() -> Any:
    return Server()


@pytest.fixture
def ended() -> list[str]:
    return []


def a_check(server: Any, ended: list[str], profile: InstallationProfile = InstallationProfile.JOBS) -> DefinitionsCheck:
    """Of a replica that leads."""
    lease: Any = SimpleNamespace(leading=True)
    return DefinitionsCheck(server, profile, lease, ended.append)


@pytest.fixture
def check(server: Any, ended: list[str]) -> DefinitionsCheck:
    return a_check(server, ended)


def make_older(server: Any) -> None:
    del server.schemas[GANG]["properties"]["spec"]["properties"]["unfencedWorkers"]


def outdated(resource: str) -> float | None:
    return REGISTRY.get_sample_value("muster_definition_outdated", {"resource": resource})


def fail(server: Any, error: ApiError) -> None:
    async def get(_path: str) -> bytes:
        raise error

    server.get = get


async def test_it_waits_until_it_has_compared(check: DefinitionsCheck) -> None:
    waiting = asyncio.create_task(check.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert "not been compared" in check.problem
    await check.compare()
    await waiting
    assert check.problem == ""
    assert outdated("gangs") == 0.0


async def test_an_older_definition_is_reported_once_and_ends_a_leader(
    server: Any, check: DefinitionsCheck, ended: list[str]
) -> None:
    shipped = Server()
    make_older(server)
    with capture_logs() as lines:
        await check.compare()
        await check.compare()
    (line,) = lines
    assert (line["event"], line["message"]) == ("definitions lack fields", check.problem)
    assert check.problem == (
        f"CustomResourceDefinition gangs.muster.dev has no .spec.unfencedWorkers. Version {__version__} needs them, "
        "and the API server drops them without an error. This replica does not lead until the definitions of its "
        "version are there: kubectl apply -k manifests/definitions (in a release: -f definitions.yaml)"
    )
    assert ended == [check.problem] * 2
    assert (outdated("gangs"), outdated("nodehealths")) == (1.0, 0.0)
    assert not check._allowed.is_set()
    server.schemas = shipped.schemas
    await check.compare()
    await check.wait()
    assert (check.problem, outdated("gangs"), len(ended)) == ("", 0.0, 2)


async def test_of_a_definition_that_is_not_shown_the_last_result_holds(server: Any, check: DefinitionsCheck) -> None:
    make_older(server)
    await check.compare()
    problem = check.problem
    del server.schemas[GANG]
    await check.compare()
    assert check.problem == problem
    for error in (Unreachable(0, "", "away"), NotFound(404, "NotFound", "no"), Forbidden(403, "Forbidden", "no")):
        fail(server, error)
        await check.compare()
        assert check.problem == problem


@pytest.mark.parametrize("error", [NotFound(404, "NotFound", "none"), Forbidden(403, "Forbidden", "no right")])
async def test_where_nothing_can_be_compared_it_may_lead(server: Any, check: DefinitionsCheck, error: ApiError) -> None:
    fail(server, Unreachable(0, "", "away"))
    await check.compare()
    assert check.problem, "an answer will come"
    fail(server, error)
    with capture_logs() as lines:
        await check.compare()
        await check.compare()
    assert check.problem == ""
    assert [line["event"] for line in lines] == ["definitions not compared"]


async def test_a_profile_does_not_ask_for_what_it_does_not_need(server: Any, ended: list[str]) -> None:
    make_older(server)
    check = a_check(server, ended, InstallationProfile.HEALTH)
    await check.compare()
    assert check.problem == ""
