"""What the page answers, and to whom: what somebody may not see is not in the answer at all."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.unit.cli.test_fleetreport import a_spec, lives
from tests.unit.page.conftest import HOUR, NOW, Ask, Fleet, a_health, a_job, a_life, a_node, a_policy
from tests.unit.waiting import until

from localcluster.patience import PATIENCE_SECONDS
from muster.answers.fleet_text import figures, remarks, tables
from muster.answers.fleetreported import fleet_report
from muster.answers.without_jobs import WITHOUT_JOBS
from muster.coordinator.connection_limiter import Limits
from muster.goodput.prices import NO_PRICES
from muster.kube import access
from muster.kube.access import Access
from muster.kube.errors import Unreachable
from muster.page import connections
from muster.page.server import clean
from muster.page.settings import Settings

OPERATOR = Path(__file__).resolve().parents[3] / "operator"


def two_tenants(fleet: Fleet) -> None:
    fleet.has(
        a_node("gpu-1"),
        a_node("gpu-2"),
        a_node("gpu-3", rack="r2"),
        a_health("gpu-3", "Unhealthy"),
        a_job("ours", "team-a", **a_life("gpu-1")),
        a_job("theirs", "team-b", state="Pending", reason="WaitingForNodes", nodes=["gpu-2"]),
    )


@pytest.mark.parametrize("path", ["/api/jobs", "/api/queue", "/api/fleet", "/api/jobs/team-a/ours"])
@pytest.mark.parametrize("token", [None, "", "unknown", "x" * 9000, "caf\u00e9"])
async def test_who_is_not_known_gets_nothing(fleet: Fleet, ask: Ask, path: str, token: str | None) -> None:
    two_tenants(fleet)
    status, body, headers = await ask(path, token)
    assert status in ((401,) if token != "x" * 9000 else (400, 401))
    if status == 401:
        assert set(body) == {"error"}
        assert headers["WWW-Authenticate"].startswith("Bearer")
    assert "ours" not in json.dumps(body)


async def test_no_token_costs_the_api_server_nothing(fleet: Fleet, ask: Ask) -> None:
    await ask("/api/jobs", None)
    assert fleet.reviews.asked == []


async def test_a_tenant_sees_his_own_jobs_and_nothing_of_others(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    token = fleet.reviews.tenant("anna", "team-a")
    status, body, _ = await ask("/api/jobs", token)
    assert (status, [job["name"] for job in body["jobs"]]) == (200, ["ours"])
    assert body["states"] == {"Running": 1}, "also sums are of what one may see"
    assert "team-b" not in json.dumps(body)
    status, body, _ = await ask("/api/jobs/team-b/theirs", token)
    hidden = (status, body)
    status, body, _ = await ask("/api/jobs/team-b/there-is-none", token)
    assert hidden == (status, body), "nobody learns what there is"
    assert status == 403
    status, body, _ = await ask("/api/fleet", token)
    assert status == 403
    assert "gpu" not in json.dumps(body)


async def test_who_may_see_nodes_learns_no_jobs_by_them(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    token = fleet.reviews.tenant("anna", "team-a")
    fleet.reviews.allowed["anna"] |= {("list", "nodes", ""), ("list", "nodehealths", "")}
    status, body, _ = await ask("/api/fleet", token)
    assert status == 200
    assert [[cell["name"] for cell in group["nodes"]] for group in body["groups"]] == [["gpu-1", "gpu-2"], ["gpu-3"]]
    assert body["groups"][0]["nodes"][0]["job"] == "team-a/ours"
    assert "job" not in body["groups"][0]["nodes"][1]
    assert body["counts"] == {"used": 1, "free": 1, "unhealthy": 1, "notReady": 0}


def waits(name: str, namespace: str, reason: str) -> Any:
    estimate = {"time": (NOW + timedelta(minutes=40)).isoformat(), "reason": reason, "generation": 1}
    waiting = {"needs": 4, "position": 1, "queued": 2, "reserved": 3}
    return a_job(name, namespace, state="Pending", reason="InsufficientNodes", waiting=waiting, startEstimate=estimate)


async def test_the_queue_is_that_of_the_command_line_and_of_what_its_reader_may_see(fleet: Fleet, ask: Ask) -> None:
    fleet.has(
        *(a_job("ours", "team-a", **a_life("gpu-1")), a_job("theirs", "team-b", state="Running", nodes=["gpu-2"])),
        *(waits("big", "team-a", "team-a/ours ends"), waits("far", "team-b", "team-b/theirs ends")),
    )
    status, body, _ = await ask("/api/queue")
    assert status == 200
    assert [[row[1] for row in table["rows"]] for table in body["tables"]] == [
        ["team-a/big", "team-b/far"],
        ["team-a/ours", "team-b/theirs"],
    ]
    assert body["tables"][0]["rows"][0][-2:] == [f"{NOW + timedelta(minutes=40):%H:%M}, in 40m", "team-a/ours ends"]
    assert body["remarks"][0].startswith("no start could be compared with an estimate yet (not counted:")
    tenant = (await ask("/api/queue", fleet.reviews.tenant("anna", "team-a")))[1]
    assert "team-b" not in json.dumps(tenant)
    assert "team-a/big" in json.dumps(tenant)


async def test_a_job_that_waits_says_when_it_may_start(fleet: Fleet, ask: Ask) -> None:
    fleet.has(waits("big", "team-a", "team-a/ours ends"), a_job("ours", "team-a", **a_life("gpu-1")))
    starts = (await ask("/api/jobs/team-a/big"))[1]["starts"]
    when = f"{NOW + timedelta(minutes=40):%H:%M}, in 40m"
    assert starts == f"by Muster's estimate it starts about {when} (UTC): team-a/ours ends"
    assert (await ask("/api/jobs/team-a/ours"))[1]["starts"] == ""


async def test_answers_made_for_one_are_not_given_to_another(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    anna, bert = fleet.reviews.tenant("anna", "team-a"), fleet.reviews.tenant("bert", "team-b")
    assert len((await ask("/api/jobs"))[1]["jobs"]) == 2
    assert [job["name"] for job in (await ask("/api/jobs", anna))[1]["jobs"]] == ["ours"]
    assert [job["name"] for job in (await ask("/api/jobs", bert))[1]["jobs"]] == ["theirs"]
    assert (await ask("/api/jobs/team-a/ours", anna))[0] == 200
    assert (await ask("/api/jobs/team-a/ours", bert))[0] == 403


async def test_what_a_job_costs_is_told_to_those_who_may_see_all_jobs(fleet: Fleet, ask: Ask) -> None:
    prices = {"currency": "EUR", "perGpuHour": "2.50"}
    fleet.has(a_policy(prices=prices), a_job("ours", "team-a", **a_life("gpu-1", "gpu-2")))
    cost = (await ask("/api/jobs/team-a/ours"))[1]["report"]["cost"]
    assert (cost["currency"], cost["total"]) == ("EUR", 2.50 * 16 * 99)
    tenant = (await ask("/api/jobs/team-a/ours", fleet.reviews.tenant("anna", "team-a")))[1]["report"]
    assert "cost" not in json.dumps(tenant)


async def test_a_job_has_the_figures_of_the_command_line_with_what_is_unknown_and_why(fleet: Fleet, ask: Ask) -> None:
    """16 accelerators drew 500 W each for 88 of the 99 hours in which ranks ran or may have run: 88.9 %. That is too
    little to tell the energy of a token."""
    job = a_job("ours", "team-a", **a_life("gpu-1", "gpu-2"))
    fleet.has(job)

    async def shown(token: str = "admin-token") -> dict[str, str]:
        body = (await ask("/api/jobs/team-a/ours", token))[1]
        return {each["name"]: each["value"] for each in body["figures"]}

    anna = fleet.reviews.tenant("anna", "team-a")
    first = await shown()
    assert first["Energy"].startswith("unknown: no launcher has read the drivers' counters; kubectl muster report")
    assert first["Tokens per second, MFU"].startswith("unknown: the job does not say what a step is worth")
    assert first["Cost"].startswith("unknown: some GPUs, or all, have no known price")
    assert [name for name in await shown(anna) if name not in first] == []
    assert "Cost" not in await shown(anna), "a tenant does not learn of prices, so that it is not told of their lack"
    metered = 88 * HOUR * 16
    goodput = {**a_life("gpu-1", "gpu-2")["goodput"], "joules": 500 * metered, "meteredGpuSeconds": metered}
    fleet.has(a_job("metered", "team-a", **a_life("gpu-1", "gpu-2", goodput=goodput)))
    body = (await ask("/api/jobs/team-a/metered"))[1]
    found = {each["name"]: each["value"] for each in body["figures"]}
    assert found["Energy"] == "704 kWh (500 W for each GPU, metered for 89% of the time)"
    assert found["  a token"] == "unknown: only 89% of the time was metered, and the rest may differ"


async def test_a_job_that_waits_for_its_first_nodes_has_the_wait_of_the_command_line(fleet: Fleet, ask: Ask) -> None:
    """It was created 100 hours ago, and has no account before it has nodes."""
    fleet.has(a_job("waits", "team-a", state="Pending"))
    body = (await ask("/api/jobs/team-a/waits"))[1]
    assert [(each["bucket"], each["seconds"]) for each in body["report"]["buckets"]] == [("queued", 100 * HOUR)]
    assert {"name": "ETTR", "value": "0.0%"} in body["figures"]


async def test_a_right_that_is_taken_ends_within_its_time(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    anna = fleet.reviews.tenant("anna", "team-a")
    assert len((await ask("/api/jobs", anna))[1]["jobs"]) == 1
    fleet.reviews.allowed["anna"] = set()
    del fleet.reviews.users[anna]
    fleet.clock.advance(access.KEPT_SECONDS - 1)
    assert (await ask("/api/jobs", anna))[0] == 200
    fleet.clock.advance(2)
    assert (await ask("/api/jobs", anna))[0] == 401


async def test_while_the_api_server_is_away_nobody_sees_anything_and_then_it_goes_on(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    fleet.reviews.error = Unreachable(0, "", "secret words about admin-token")
    status, body, _ = await ask("/api/jobs")
    assert status == 503
    assert "admin-token" not in json.dumps(body)
    fleet.reviews.error = None
    assert (await ask("/api/jobs"))[0] == 200


async def test_many_at_once_cost_one_question(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    await asyncio.gather(*(ask("/api/jobs") for _ in range(20)))
    assert sorted(fleet.reviews.asked) == ["subjectaccessreviews", "tokenreviews"]


async def test_what_is_remembered_is_bounded(fleet: Fleet) -> None:
    remembered: access.Remembered[int] = access.Remembered(10, fleet.clock)

    async def one() -> int:
        return 1

    for number in range(100):
        await remembered.ask(number, one)
    assert len(remembered) == 10


class Held:
    """An API server that says nothing of some, until it is let go."""

    def __init__(self, fleet: Fleet, whom: str) -> None:
        self.go = asyncio.Event()
        self.waiting = 0
        answer = fleet.reviews.post

        async def post(path: str, body: Any, **more: Any) -> bytes:
            if whom in json.dumps(body):
                self.waiting += 1
                await self.go.wait()
            return await answer(path, body, **more)

        fleet.reviews.post = post  # type: ignore[method-assign]


async def several(
    fleet: Fleet, address: str, asked: list[tuple[str, str]], held: Held, first: str, room: int
) -> list[int]:
    """The answers to all of these, for so many of whom there is room, while somebody who was known before looks, also
    when he has to be asked about anew."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def status(path: str, token: str) -> int:
            async with session.get(address + path, headers={"Authorization": f"Bearer {token}"}) as answer:
                return answer.status

        assert await status("/api/jobs", first) == 200
        tasks = [asyncio.create_task(status(*each)) for each in asked]
        await until(lambda: sum(each.done() for each in tasks) >= len(tasks) - room and held.waiting)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await status("/api/jobs", first) == 200
            held.go.set()
            return await asyncio.gather(*tasks)


async def test_known_users_are_answered_during_a_burst_of_unknown_tokens(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LIMITS", Limits(unauthenticated=200))  # all of them come in
    two_tenants(fleet)
    anna, held = fleet.reviews.tenant("anna", "team-a"), Held(fleet, "wrong-")
    async with fleet.served() as address:
        wrong = [("/api/jobs", f"wrong-{at}") for at in range(100)]
        assert sorted(await several(fleet, address, wrong, held, anna, 32)) == [401] * 32 + [503] * 68


async def test_a_known_token_needs_no_slot_of_unknown_tokens_when_it_is_reviewed_again(fleet: Fleet) -> None:
    two_tenants(fleet)
    who, held = Access(fleet.reviews, fleet.clock), Held(fleet, "wrong-")  # type: ignore[arg-type]
    assert (await who.user_of_token("admin-token")).name == "admin"
    crowd = [asyncio.create_task(who.user_of_token(f"wrong-{at}")) for at in range(2000)]
    await until(lambda: held.waiting >= access.UNKNOWN_TOKENS_AT_ONCE)
    fleet.clock.advance(access.KEPT_SECONDS + 1)
    assert who.was_known("admin-token"), "two thousand others do not push him out"
    assert (await asyncio.wait_for(who.user_of_token("admin-token"), PATIENCE_SECONDS)).name == "admin"
    held.go.set()
    assert {type(each) for each in await asyncio.gather(*crowd, return_exceptions=True)} == {access.RefusedError}


async def test_a_token_that_is_no_longer_valid_counts_as_unknown(fleet: Fleet) -> None:
    who = Access(fleet.reviews, fleet.clock)  # type: ignore[arg-type]
    await who.user_of_token("admin-token")
    del fleet.reviews.users["admin-token"]
    fleet.clock.advance(access.KEPT_SECONDS + 1)
    with pytest.raises(access.RefusedError, match="get a new one"):
        await who.user_of_token("admin-token")
    assert not who.was_known("admin-token")
    fleet.reviews.users["admin-token"] = "admin"
    fleet.clock.advance(access.KEPT_SECONDS + 1)
    assert (await who.user_of_token("admin-token")).name == "admin"
    assert who.was_known("admin-token")


async def test_one_user_cannot_take_the_room_of_all(fleet: Fleet) -> None:
    two_tenants(fleet)
    anna, greedy = fleet.reviews.tenant("anna", "team-a"), fleet.reviews.tenant("greedy", "team-g")
    held = Held(fleet, '"resource": "trainingjobs", "namespace": "n-')
    async with fleet.served() as address:
        async with aiohttp.ClientSession() as session:  # he is known
            await session.get(f"{address}/api/jobs", headers={"Authorization": f"Bearer {greedy}"})
        asked = [(f"/api/jobs/n-{at}/x", greedy) for at in range(100)]
        assert sorted(await several(fleet, address, asked, held, anna, 16)) == [403] * 16 + [503] * 84


async def test_many_service_accounts_of_many_namespaces_leave_room_for_requests_of_others(fleet: Fleet) -> None:
    two_tenants(fleet)
    anna = fleet.reviews.tenant("anna", "team-a")
    names = [f"system:serviceaccount:team-{at % 6}:sa-{at}" for at in range(18)]
    greedy = [fleet.reviews.tenant(name, "team-g") for name in names]
    held = Held(fleet, '"resource": "trainingjobs", "namespace": "n-')
    async with fleet.served() as address:
        async with aiohttp.ClientSession() as session:  # they are known
            for token in greedy:
                await session.get(f"{address}/api/jobs", headers={"Authorization": f"Bearer {token}"})
        asked = [(f"/api/jobs/n-{at}/x", greedy[at % 18]) for at in range(180)]
        answers = await several(fleet, address, asked, held, anna, 60)
        assert set(answers) == {403, 503}
        assert answers.count(403) < 60


async def test_a_cluster_without_trainingjobs_says_so_in_place_of_jobs(fleet: Fleet, ask: Ask) -> None:
    token = fleet.reviews.tenant("ann", "team-a")
    assert (await ask("/api/jobs", token))[1]["notes"] == []
    fleet.seen._jobs.is_absent = True
    fleet.clock.advance(5)
    _, body, _ = await ask("/api/jobs", token)
    assert (body["jobs"], body["notes"]) == ([], [WITHOUT_JOBS])
    status, body, _ = await ask("/api/jobs/team-a/llama", token)
    assert (status, body["error"]) == (404, WITHOUT_JOBS)


async def test_until_the_cluster_has_been_read_nothing_is_shown(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    fleet.seen._jobs.synced.clear()
    assert (await ask("/api/jobs"))[0] == 503


async def test_one_job_has_its_life_its_report_and_its_incidents(fleet: Fleet, ask: Ask) -> None:
    two_tenants(fleet)
    status, body, _ = await ask("/api/jobs/team-a/ours")
    assert status == 200
    assert body["report"]["ettr"] == 0.88
    assert body["report"]["advice"]
    assert [each["reason"] for each in body["incidents"]] == ["NodeLost", "Maintenance"]
    assert {each["kind"] for each in body["life"]["stretches"]} >= {"queued", "training", "recovering", "lostWork"}
    assert (await ask("/api/jobs/team-a/none"))[0] == 404


async def test_names_that_nothing_can_have_are_not_asked_about(fleet: Fleet, ask: Ask) -> None:
    token = fleet.reviews.tenant("anna", "team-a")
    assert (await ask(f"/api/jobs/{'x' * 254}/y", token))[0] == 404
    assert fleet.reviews.asked == ["tokenreviews"]


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/api/jobs", "/nowhere", "/static/../main.py"])
async def test_every_answer_forbids_what_the_page_does_not_need(fleet: Fleet, ask: Ask, path: str) -> None:
    _, body, headers = await ask(path, None)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "import asyncio" not in str(body)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_written(fleet: Fleet, ask: Ask, method: str) -> None:
    assert (await ask("/api/jobs/team-a/ours", method=method))[0] == 405


def test_what_moves_text_is_taken_out() -> None:
    assert clean({"a": ["x\u202ey\x1b[31mz", 1, None]}) == {"a": ["xyz", 1, None]}


def test_what_the_page_is_made_of_is_in_the_operators_image() -> None:
    code = "import sys; sys.modules.update(rich=None, typer=None); import muster.page.main"
    subprocess.run([sys.executable, "-c", code], cwd=OPERATOR, check=True, timeout=PATIENCE_SECONDS)


def test_without_a_certificate_it_listens_at_the_loopback_alone() -> None:
    made = Settings.from_environment({})
    assert (made.tls, made.port, made.probe_port) == (None, 8444, 8080)
    assert Settings.from_environment({"MUSTER_PAGE_TLS": "/tls"}).tls == Path("/tls")
    with pytest.raises(SystemExit, match="MUSTER_PAGE_PORT"):
        Settings.from_environment({"MUSTER_PAGE_PORT": "70000"})


class TestReport:
    """The fleet's report, read from the history when somebody asks."""

    async def test_it_says_what_the_command_line_says(self, fleet: Fleet, ask: Ask) -> None:
        fleet.lives = lives(a_spec(end_time=NOW, creation_time=NOW - timedelta(days=1)), a_spec(2, namespace="team-b"))
        status, body, _ = await ask("/api/report?days=0")
        assert status == 200
        it = fleet_report(fleet.lives, NOW, None, NO_PRICES, ["a note"])
        assert [(each["name"], each["value"]) for each in body["figures"]] == figures(it)
        assert sum(each["share"] for each in body["buckets"]) == pytest.approx(1)
        assert [(each["heads"], each["rows"]) for each in body["tables"]] == [
            (heads, rows) for _, heads, rows in tables(it, 50, 50)
        ]
        assert body["remarks"] == remarks(it)
        assert fleet.reads == [None]

    async def test_who_may_not_see_all_of_it_sees_nothing_and_nothing_is_read(self, fleet: Fleet, ask: Ask) -> None:
        fleet.lives = lives(a_spec())
        token = fleet.reviews.tenant("anna", "team-a")
        for more in (set(), {("list", "trainingjobs", "")}, {("list", "endedjobs", "muster-system")}):
            fleet.clock.advance(access.KEPT_SECONDS + 1)
            fleet.reviews.allowed["anna"] = {("list", "trainingjobs", "team-a"), *more}
            status, body, _ = await ask("/api/report", token)
            assert (status, set(body)) == (403, {"error"})
        assert fleet.reads == []

    async def test_many_who_look_cost_one_reading_in_half_a_minute(self, fleet: Fleet, ask: Ask) -> None:
        await asyncio.gather(*(ask("/api/report?days=7") for _ in range(10)))
        assert fleet.reads == [NOW - timedelta(days=7)]
        fleet.clock.advance(access.KEPT_SECONDS + 1)
        await ask("/api/report?days=7")
        assert len(fleet.reads) == 2

    @pytest.mark.parametrize("days", ["8", "-1", "x", "", "1e3"])
    async def test_another_period_is_refused_with_those_that_there_are(self, fleet: Fleet, ask: Ask, days: str) -> None:
        status, body, _ = await ask(f"/api/report?days={days}")
        assert status == 400
        assert "7, 30, 90, 365" in body["error"]
        assert fleet.reads == []

    async def test_a_history_that_cannot_be_read_is_told_and_tried_again(self, fleet: Fleet, ask: Ask) -> None:
        fleet.history_error = Unreachable(0, "", "away")
        status, body, _ = await ask("/api/report")
        assert (status, body["error"].startswith("the history cannot be read")) == (503, True)
        fleet.history_error = None
        assert (await ask("/api/report"))[0] == 200
