"""Who may read the operator's metrics: the API server's word, asked about by the loop for a thread."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from muster.controller.metrics import guarded_metrics, note_memory_limit
from muster.kube.access import Access
from muster.kube.errors import Unreachable


class Reviews:
    """The API server: `prometheus` may read metrics, `tenant` may not."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error: Unreachable | None = None

    async def post(self, path: str, body: Any, **options: Any) -> bytes:
        assert options["guarded"] is False, "a standby asks, too"
        self.asked.append(body)
        if self.error is not None:
            raise self.error
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            name = body["spec"]["token"].removesuffix("-token")
            known = name in ("prometheus", "tenant")
            return json.dumps({"status": {"authenticated": known, "user": {"username": name}}}).encode()
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert body["spec"]["nonResourceAttributes"] == {"verb": "get", "path": "/metrics"}
        assert "resourceAttributes" not in body["spec"]
        return json.dumps({"status": {"allowed": body["spec"]["user"] == "prometheus"}}).encode()


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
async def read(reviews: Reviews) -> Callable[..., Any]:
    """`await read(authorization)`: status and text."""
    numbers, client = itertools.count(1), reviews
    api: Any = client
    endpoint = guarded_metrics(Access(api), lambda: b"rendered %d" % next(numbers), asyncio.get_running_loop())

    async def asked(authorization: str) -> tuple[int, str]:
        status, body = await asyncio.to_thread(endpoint, authorization)
        return status, body.decode()

    return asked


async def test_a_token_with_the_right_reads_and_is_asked_about_once(reviews: Reviews, read: Any) -> None:
    answers = await asyncio.gather(*(read("Bearer prometheus-token") for _ in range(5)))
    assert set(answers) == {(200, "rendered 1")}
    assert [each["kind"] for each in reviews.asked] == ["TokenReview", "SubjectAccessReview"]


@pytest.mark.parametrize("authorization", ["", "Basic prometheus-token", "Bearer"])
async def test_no_token_costs_the_api_server_nothing(reviews: Reviews, read: Any, authorization: str) -> None:
    status, text = await read(authorization)
    assert (status, reviews.asked) == (401, [])
    assert "Authorization: Bearer" in text


async def test_a_token_that_the_cluster_does_not_know_is_refused(read: Any) -> None:
    assert (await read("Bearer forged"))[0] == 401


async def test_a_token_without_the_right_is_told_what_to_ask_for(read: Any) -> None:
    status, text = await read("Bearer tenant-token")
    assert status == 403
    assert "muster-metrics-reader" in text


async def test_while_the_api_server_does_not_answer_nobody_reads(reviews: Reviews, read: Any) -> None:
    reviews.error = Unreachable(0, "", "secret words about prometheus-token")
    status, text = await read("Bearer prometheus-token")
    assert status == 503
    assert "secret" not in text


@pytest.mark.parametrize(("text", "want"), [("2147483648\n", 2147483648), ("max\n", 0), (None, 0)])
def test_the_memory_limit_is_the_containers(tmp_path: Path, text: str | None, want: float) -> None:
    if text is not None:
        (tmp_path / "memory.max").write_text(text)
    note_memory_limit(tmp_path)
    assert REGISTRY.get_sample_value("muster_memory_limit_bytes") == want
