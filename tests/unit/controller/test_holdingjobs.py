"""A replica without jobs leads once no job holds nodes, and says until then which do."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.api.installation import InstallationProfile
from muster.controller import holdingjobs
from muster.controller.holdingjobs import HoldingJobs
from muster.kube.errors import Forbidden, NotFound, Unreachable

GROUP = "/apis/muster.dev/v1alpha1"
MEMBER = {"node": "n0"}
ENDED = {"status": {"completion": {"result": "Succeeded"}}}


class Server:
    """The API server, a lease on it, and what is asked of both, in order."""

    def __init__(self) -> None:
        self.kinds = ["trainingjobs", "gangs"]
        self.objects: dict[str, list[Any]] = {"trainingjobs": [], "gangs": []}
        self.refuses: dict[str, Exception] = {}
        self.done: list[str] = []
        self.late: list[Any] = []  # arguments of jobs that begin until the lease is taken

    def job(self, name: str, *, members: Iterable[Any] = (MEMBER,), namespace: str = "ns", **more: Any) -> None:
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
        self.objects["trainingjobs"].append({"metadata": metadata, **more})
        spec = {"jobUid": f"uid-{name}", "members": list(members)}
        self.objects["gangs"].append({"metadata": {"namespace": namespace, "name": f"{name}-record"}, "spec": spec})

    async def get(self, path: str, query: Any = None) -> bytes:
        what = path.removeprefix(GROUP).strip("/") or "kinds"
        self.done.append(what)
        if what in self.refuses:
            raise self.refuses[what]
        if what == "kinds":
            return json.dumps({"resources": [{"name": name} for name in self.kinds]}).encode()
        begin = int(query.get("continue", 0))
        items = self.objects[what][begin : begin + holdingjobs.PAGE]
        more = str(begin + holdingjobs.PAGE) if begin + holdingjobs.PAGE < len(self.objects[what]) else ""
        return json.dumps({"metadata": {"resourceVersion": "1", "continue": more}, "items": items}).encode()

    async def acquire(self) -> None:
        self.done.append("acquire")
        for name in self.late:
            self.job(name)
        self.late = []

    async def release(self) -> None:
        self.done.append("release")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def left(server: Server) -> HoldingJobs:
    return HoldingJobs(server, InstallationProfile.HEALTH)  # type: ignore[arg-type]


async def test_it_may_lead_where_nothing_holds_nodes(server: Server, left: HoldingJobs) -> None:
    assert left.problem, "until it has looked"
    server.job("waits", members=[])
    server.job("over", **ENDED)
    server.job("goes", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    server.job("orphaned")
    server.objects["trainingjobs"].pop()
    await left.acquire(server)  # type: ignore[arg-type]
    assert left.problem == ""
    assert server.done == ["kinds", "gangs", "trainingjobs", "acquire", "kinds", "gangs", "trainingjobs"]


async def test_kinds_that_are_not_installed_are_not_asked_for(server: Server, left: HoldingJobs) -> None:
    server.kinds = ["nodehealths", "fleetpolicies"]
    await left.acquire(server)  # type: ignore[arg-type]
    assert server.done == ["kinds", "acquire", "kinds"]
    server.refuses["kinds"] = NotFound(404, "NotFound", "no such group")
    await left.acquire(server)  # type: ignore[arg-type]


async def test_without_the_right_to_see_jobs_none_is_looked_for(server: Server, left: HoldingJobs) -> None:
    server.job("runs")
    server.refuses["gangs"] = Forbidden(403, "Forbidden", "no")
    await left.acquire(server)  # type: ignore[arg-type]
    assert left.problem == ""


async def test_jobs_that_hold_nodes_are_named_until_they_are_gone(
    server: Server, left: HoldingJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdingjobs, "PAGE", 2)
    server.refuses["gangs"] = Unreachable(0, "Unreachable", "away")
    problems = []

    async def sleep(seconds: float) -> None:
        assert seconds == holdingjobs.ASK_AGAIN_SECONDS
        problems.append(left.problem)
        if server.refuses:
            server.refuses.clear()
            for number in range(7):
                server.job(f"j{number}")
        elif len(problems) == 3:
            server.objects["gangs"] = []

    monkeypatch.setattr(holdingjobs.asyncio, "sleep", sleep)
    with capture_logs() as lines:
        await left.acquire(server)  # type: ignore[arg-type]
    assert problems[0] == "cannot look for jobs that hold nodes: away"
    assert (
        problems[1]
        == problems[2]
        == (
            "profile health runs no jobs, and jobs hold nodes: ns/j0, ns/j1, ns/j2, ns/j3, ns/j4 and 2 more. Suspend, "
            "eject or delete these jobs, or go back (kubectl -n muster-system set env deployment/muster "
            "MUSTER_PROFILE=jobs, or the same in your overlay). Until then this replica does not lead"
        )
    )
    assert [line["message"] for line in lines if line["event"] == "jobs hold nodes"] == [problems[1]], "once"
    assert server.done.index("acquire") == len(server.done) - 3


async def test_a_job_that_began_until_the_lease_was_given_up_has_it_given_back(
    server: Server, left: HoldingJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.late = ["late"]

    async def sleep(_: float) -> None:
        server.done.append(f"not ready: {'ns/late' in left.problem}")
        server.objects["gangs"] = []

    monkeypatch.setattr(holdingjobs.asyncio, "sleep", sleep)
    await left.acquire(server)  # type: ignore[arg-type]
    steps = [step for step in server.done if step not in ("kinds", "gangs", "trainingjobs")]
    assert steps == ["acquire", "release", "not ready: True", "acquire"]
