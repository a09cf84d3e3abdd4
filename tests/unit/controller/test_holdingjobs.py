"""A replica without jobs leads once no job holds nodes, and says until then which do."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from localcluster.patience import PATIENCE_SECONDS
from muster.api.installation import InstallationProfile
from muster.controller import holdingjobs
from muster.controller.holdingjobs import HoldingJobs
from muster.kube import pages
from muster.kube.errors import Forbidden, NotFound, PageTooLarge, Unreachable

GROUP = "/apis/muster.dev/v1alpha1"
MEMBER = {"node": "n0"}
ENDED = {"status": {"completion": {"result": "Succeeded"}}}
MOST_SLEEPS = 10  # of any test here

_yield = asyncio.sleep


class Server:
    """The API server, a lease on it, and what is asked of both, in order."""

    def __init__(self) -> None:
        self.kinds = ["trainingjobs", "gangs"]
        self.objects: dict[str, list[Any]] = {"trainingjobs": [], "gangs": [], "pods": []}
        self.refuses: dict[str, Exception] = {}
        self.done: list[str] = []
        self.late: list[Any] = []  # arguments of jobs that begin until the lease is taken

    def job(self, name: str, *, members: Iterable[Any] = (MEMBER,), namespace: str = "ns", **more: Any) -> None:
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
        self.objects["trainingjobs"].append({"metadata": metadata, **more})
        spec = {"jobUid": f"uid-{name}", "members": list(members)}
        self.objects["gangs"].append({"metadata": {"namespace": namespace, "name": f"{name}-record"}, "spec": spec})

    def pod(self, job: str, phase: str = "Running", *, owned: bool = True, node: str = "n0") -> None:
        uid = f"uid-{job}"
        owners = [{"controller": True, "uid": uid}] if owned else []
        metadata = {"namespace": "ns", "name": f"{job}-0", "labels": {"muster.dev/job-uid": uid}}
        self.objects["pods"].append(
            {
                "metadata": {**metadata, "ownerReferences": owners},
                "spec": {"nodeName": node},
                "status": {"phase": phase},
            }
        )

    async def get(self, path: str, query: Any = None, *, most_bytes: int | None = None) -> bytes:
        what = path.removeprefix(GROUP).removeprefix("/api/v1").strip("/") or "kinds"
        self.done.append(what)
        if what in self.refuses:
            raise self.refuses[what]
        if what == "kinds":
            return json.dumps({"resources": [{"name": name} for name in self.kinds]}).encode()
        begin, end = (int(query.get("continue", 0)) + some for some in (0, query["limit"]))
        items = self.objects[what][begin:end]
        if what == "pods":
            assert query["labelSelector"] == "muster.dev/job-uid"
            items = [pod for pod in items if f"phase!={pod['status']['phase']}" not in query["fieldSelector"]]
        more = str(end) if end < len(self.objects[what]) else ""
        answer = json.dumps({"metadata": {"resourceVersion": "1", "continue": more}, "items": items}).encode()
        if most_bytes is not None and len(answer) > most_bytes:
            raise PageTooLarge(0, "PageTooLarge", "a page has more")
        return answer

    async def acquire(self) -> None:
        self.done.append("acquire")
        for name in self.late:
            self.job(name)
        self.late = []

    async def release(self) -> None:
        self.done.append("release")


class Sleep:
    """Takes the place of `asyncio.sleep` and takes no time. It fails where a loop would otherwise never end."""

    def __init__(self, left: HoldingJobs) -> None:
        self._left = left
        self.problems: list[str] = []  # at each sleep
        self.meanwhile: Callable[[], object] = lambda: None

    async def __call__(self, seconds: float) -> None:
        assert seconds == holdingjobs.ASK_AGAIN_SECONDS
        assert len(self.problems) < MOST_SLEEPS, f"it waits for ever: {self._left.problem}"
        self.problems.append(self._left.problem)
        self.meanwhile()
        await _yield(0)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def left(server: Server) -> HoldingJobs:
    return HoldingJobs(server, InstallationProfile.HEALTH)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def sleep(left: HoldingJobs, monkeypatch: pytest.MonkeyPatch) -> Sleep:
    double = Sleep(left)
    monkeypatch.setattr(holdingjobs.asyncio, "sleep", double)
    return double


async def test_it_may_lead_where_nothing_holds_nodes(server: Server, left: HoldingJobs) -> None:
    assert left.problem, "until it has looked"
    server.job("waits", members=[])
    server.job("over", **ENDED)
    server.job("goes", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    server.job("orphaned")
    server.objects["trainingjobs"].pop()
    server.pod("waits", "Failed")
    server.pod("over", "Succeeded")
    server.pod("over", owned=False)
    server.pod("over", "Pending", node="")
    server.pod("waits", "Pending", node="")
    server.job("ejected")
    server.objects["gangs"][-1]["spec"]["ejected"] = True
    server.pod("goes")
    server.pod("orphaned")
    await left.acquire(server)  # type: ignore[arg-type]
    assert left.problem == ""
    requests = ["kinds", "gangs", "pods", "trainingjobs"]
    assert server.done == [*requests, "acquire", *requests]


@pytest.mark.parametrize("status", [{}, ENDED], ids=["suspended", "ended"])
async def test_a_job_holds_nodes_until_its_pods_have_ended(
    server: Server, left: HoldingJobs, sleep: Sleep, status: Any
) -> None:
    server.job("stops", members=[], **status)
    server.pod("stops")
    sleep.meanwhile = server.objects["pods"].clear
    await left.acquire(server)  # type: ignore[arg-type]
    assert ["ns/stops" in problem for problem in sleep.problems] == [True]


async def test_while_it_waits_for_the_lease_it_looks_again(
    server: Server, left: HoldingJobs, sleep: Sleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = asyncio.Event()

    def meanwhile() -> None:
        """The leader of before gives a job nodes, which goes, and ends."""
        if len(sleep.problems) == 1:
            server.job("began")
        elif len(sleep.problems) == 2:
            server.objects["gangs"].clear()
        else:
            free.set()

    async def acquire() -> None:
        await free.wait()

    sleep.meanwhile = meanwhile
    monkeypatch.setattr(server, "acquire", acquire)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await left.acquire(server)  # type: ignore[arg-type]
    assert ["ns/began" in problem for problem in sleep.problems[:3]] == [False, True, False]
    assert len(asyncio.all_tasks()) == 1, "a leader looks no more"


async def test_kinds_that_are_not_installed_are_not_asked_for(server: Server, left: HoldingJobs) -> None:
    server.kinds = ["nodehealths", "fleetpolicies"]
    await left.acquire(server)  # type: ignore[arg-type]
    assert server.done == ["kinds", "acquire", "kinds"]
    server.refuses["kinds"] = NotFound(404, "NotFound", "no such group")
    await left.acquire(server)  # type: ignore[arg-type]


async def test_without_the_right_to_see_jobs_it_does_not_lead(server: Server, left: HoldingJobs, sleep: Sleep) -> None:
    server.refuses["gangs"] = Forbidden(403, "Forbidden", "no")

    def meanwhile() -> None:
        if len(sleep.problems) == 3:
            server.refuses.clear()

    sleep.meanwhile = meanwhile
    await left.acquire(server)  # type: ignore[arg-type]
    assert sleep.problems == ["cannot look for jobs that hold nodes: no (HTTP 403 Forbidden)"] * 3
    assert left.problem == ""


async def test_jobs_that_hold_nodes_are_named_until_they_are_gone(
    server: Server, left: HoldingJobs, sleep: Sleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 2)
    server.refuses["gangs"] = Unreachable(0, "Unreachable", "away")

    def meanwhile() -> None:
        if server.refuses:
            server.refuses.clear()
            for number in range(7):
                server.job(f"j{number}")
        elif len(sleep.problems) == 3:
            server.objects["gangs"] = []

    sleep.meanwhile = meanwhile
    with capture_logs() as lines:
        await left.acquire(server)  # type: ignore[arg-type]
    assert sleep.problems[0] == "cannot look for jobs that hold nodes: away"
    assert (
        sleep.problems[1]
        == sleep.problems[2]
        == (
            "profile health runs no jobs, and jobs hold nodes: ns/j0, ns/j1, ns/j2, ns/j3, ns/j4 and 2 more. Suspend, "
            "eject or delete these jobs, or go back: apply the overlay of before again, or take MUSTER_PROFILE back "
            "if you changed nothing else. Until then this replica does not lead. If no other "
            "replica leads, no job can be suspended or ejected: go back, or delete these jobs"
        )
    )
    assert [line["message"] for line in lines if line["event"] == "jobs hold nodes"] == [sleep.problems[1]], "once"
    assert server.done[-4:] == ["acquire", "kinds", "gangs", "pods"]


async def test_large_jobs_are_read_a_few_at_a_time(
    server: Server, left: HoldingJobs, sleep: Sleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1000)
    for number in range(7):
        server.job(f"j{number}", spec={"template": "x" * 300})
    sleep.meanwhile = server.objects["gangs"].clear
    await left.acquire(server)  # type: ignore[arg-type]
    assert "ns/j4 and 2 more" in sleep.problems[0]
    first = server.done.index("trainingjobs")
    assert server.done[first:].count("trainingjobs") > 4, "in pages of two, after one that was too large"


async def test_a_job_that_began_until_the_lease_was_given_up_has_it_given_back(
    server: Server, left: HoldingJobs, sleep: Sleep
) -> None:
    server.late = ["late"]

    def meanwhile() -> None:
        server.done.append(f"not ready: {'ns/late' in left.problem}")
        server.objects["gangs"] = []

    sleep.meanwhile = meanwhile
    await left.acquire(server)  # type: ignore[arg-type]
    steps = [step for step in server.done if step not in ("kinds", "gangs", "pods", "trainingjobs")]
    assert steps == ["acquire", "release", "not ready: True", "acquire"]
