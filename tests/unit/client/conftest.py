"""The Python library in this process, with an API server that is a table of answers."""

import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import KUBECONFIG, Api
from tests.unit.cli.test_status import EVENTS, GANG, JOBS, PODS, a_gang, a_job, a_pod

from muster.cli import progress as following
from muster.cli import waiting
from muster.client import Job, Muster
from muster.kube.client import Client


class WatchedApi(Api):
    """Also has watches: each takes the next list of `watches`, of versions of the job and of errors; then none comes.

    Attributes:
        queries: of the watches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watches: list[list[Any]] = []
        self.queries: list[Any] = []

    async def watch(self, path: str, query: Any, **_: Any) -> AsyncIterator[bytes]:
        self.queries.append((path, query))
        for each in self.watches.pop(0) if self.watches else []:
            if isinstance(each, Exception):
                raise each
            if callable(each):
                each()
                continue
            kind, body = each if isinstance(each, tuple) else ("MODIFIED", each)
            yield json.dumps({"type": kind, "object": body}).encode()

    async def post(self, path: str, body: Any, query: Any = None, **more: Any) -> bytes:
        """A created object is answered with a uid, as by an API server."""
        await super().post(path, body, query, **more)
        return json.dumps({**body, "metadata": {**body["metadata"], "uid": "u"}}).encode()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WatchedApi:
    """The API server that a connection of the test reaches, with the job `llama` of namespace team-a."""
    made = WatchedApi()

    async def connect(kubeconfig: str | None = None, context: str | None = None) -> WatchedApi:
        made.asked.append(f"context {context}")
        return made

    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr(Client, "connect", connect)
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0.0)
    made.put(f"{JOBS}/llama", a_job())
    made.put(GANG, a_gang())
    made.lists(PODS, a_pod(0), a_pod(1))
    made.lists(EVENTS)
    return made


@pytest.fixture
def muster(api: WatchedApi) -> Iterator[Muster]:
    """A connection in namespace team-a."""
    with Muster() as made:
        yield made


@pytest.fixture
def job(muster: Muster) -> Job:
    """The job `llama`."""
    return muster.job("llama")


@pytest.fixture
def operator(api: WatchedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job `llama` trains on gpu-0 and gpu-1; an operator has it save, and move from gpu-1 to gpu-2."""
    raw = a_job()
    raw["metadata"]["generation"] = 1
    raw["spec"]["checkpoint"] = {"directory": "/ckpt/llama", "saveTimeoutSeconds": 2}
    raw["status"]["observedGeneration"] = 1
    api.put(f"{JOBS}/llama", raw)
    write = api.patch

    async def patch(path: str, body: Any, content_type: str = "", query: Any = None, **more: Any) -> bytes:
        if name := body["spec"].get("checkpoint", {}).get("saveRequest"):
            time = "2026-01-05T03:00:02Z"
            request = {"name": name, "attempt": 3, "number": 1, "since": time, "deadline": time}
            raw["spec"]["checkpoint"]["saveRequest"] = name
            api.put(GANG, a_gang(saveRequest={**request, "over": True, "savedStep": 1234}))
        if "placement" in body["spec"]:
            raw["spec"]["placement"] = body["spec"]["placement"]
            api.put(GANG, a_gang(members=[{"node": "gpu-0"}, {"node": "gpu-2"}]))
        return await write(path, body, content_type, query, **more)

    monkeypatch.setattr(api, "patch", patch)
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def stands() -> Callable[..., dict[str, Any]]:
    """`stands(state, **status)`: the job with this status; a state that is its end has a completion."""

    def made(state: str, **status: Any) -> dict[str, Any]:
        job = copy.deepcopy(a_job(state=state, **{"reason": state, **status}))
        if state in ("Succeeded", "Failed"):
            reason = "Completed" if state == "Succeeded" else "ApplicationRestartsExhausted"
            end = {"result": state, "reason": reason, "message": "rank 3 exited with code 1", "attempt": 3}
            job["status"] |= {"reason": reason, "completion": {**end, "time": "2026-01-05T03:00:02Z"}}
        return job

    return made
