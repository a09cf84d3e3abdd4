"""The informer against a scripted API server: where it resumes, when it lists again, what it survives."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.kube import decode, informer, pages
from muster.kube.errors import Gone, NotFound, PageTooLarge, ServerError, Unreachable
from muster.kube.informer import Informer, Kind


def pod(name: str, version: int, labels: Any = None) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    return {"metadata": meta, "spec": {}}


def page(version: int, *items: dict[str, Any], more: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": str(version), "continue": more}, "items": items}).encode()


def event(kind: str, value: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode()


BOOKMARK_9 = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
GONE = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
BROKEN = Unreachable(0, "Unreachable", "connection reset")
UNAVAILABLE = ServerError(503, "ServiceUnavailable", "starting")

Step = bytes | Exception


class Script:
    """Plays the API server: lists and streams in order; when the script is over the stream stays silent."""

    def __init__(self, *steps: Step | list[Step]) -> None:
        self.steps: Iterator[Step | list[Step]] = iter(steps)
        self.calls: list[str] = []
        self.asked: list[tuple[int, int | None]] = []
        self.versions: list[object] = []
        self.over = asyncio.Event()

    async def get(self, _: str, query: dict[str, Any], most_bytes: int | None = None) -> bytes:
        self.asked.append((int(query["limit"]), most_bytes))
        self.versions.append(query.get("resourceVersion"))
        self.calls.append(f"list {query.get('continue', '')}".strip())
        step = next(self.steps)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, bytes)
        return step

    async def watch(
        self, _: str, query: dict[str, Any], *, read_timeout_seconds: float, gather_seconds: float
    ) -> AsyncIterator[bytes]:
        assert read_timeout_seconds > 60 > gather_seconds
        self.calls.append(f"watch {query['resourceVersion']}")
        stream = next(self.steps, None)
        if stream is None:
            self.over.set()
            await asyncio.Event().wait()
        assert isinstance(stream, list)
        for line in stream:
            if isinstance(line, Exception):
                raise line
            yield line


async def play(script: Script, monkeypatch: pytest.MonkeyPatch) -> Informer[Any]:
    monkeypatch.setattr(informer, "MAX_BACKOFF_SECONDS", 0.01)
    made = Informer(script, Kind("test", "/pods", decode.pod, decode.flat_meta))  # type: ignore[arg-type]
    task = asyncio.create_task(made.run())
    await asyncio.wait_for(script.over.wait(), PATIENCE_SECONDS)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return made


def names(made: Informer[Any]) -> set[str]:
    return {value.name for value in made.store.values()}


async def test_pages_then_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(page(5, pod("a", 1), more="t1"), page(5, pod("b", 2)), [event("ADDED", pod("c", 6))])
    made = await play(script, monkeypatch)
    assert script.calls == ["list", "list t1", "watch 5", "watch 6"]
    assert names(made) == {"a", "b", "c"}
    assert made.synced.is_set()


async def test_a_list_names_no_version_which_means_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(page(5, pod("a", 1), more="t1"), page(5, pod("b", 2)), [GONE], page(9, pod("b", 8)))
    await play(script, monkeypatch)
    assert script.calls == ["list", "list t1", "watch 5", "list", "watch 9"]
    assert script.versions == [None] * 3


@pytest.mark.parametrize(
    ("stream", "resumes_at"),
    [
        pytest.param([BOOKMARK_9], "watch 9", id="ended by the server after a bookmark"),
        pytest.param([event("DELETED", pod("a", 7)), BROKEN], "watch 7", id="broken after an event"),
        pytest.param([BROKEN], "watch 5", id="broken at once"),
    ],
)
async def test_stream_is_resumed_where_it_was(
    stream: list[Step], resumes_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(page(5, pod("a", 1)), stream)
    await play(script, monkeypatch)
    assert script.calls == ["list", "watch 5", resumes_at]


async def test_a_kind_that_may_be_absent_has_no_objects_until_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "ABSENT_SECONDS", 0.001)
    absent = NotFound(404, "NotFound", "the server could not find the requested resource")
    script = Script(absent, absent, page(5, pod("a", 1)))
    made = Informer(script, Kind("test", "/pods", decode.pod, decode.flat_meta, may_be_absent=True))  # type: ignore[arg-type]
    task = asyncio.create_task(made.run())
    await asyncio.wait_for(made.synced.wait(), PATIENCE_SECONDS)
    assert (names(made), made.is_absent) == (set(), True)
    await asyncio.wait_for(script.over.wait(), PATIENCE_SECONDS)
    task.cancel()
    assert (names(made), made.is_absent) == ({"a"}, False)
    needed = await play(Script(absent, page(5, pod("a", 1))), monkeypatch)
    assert names(needed) == {"a"}


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([GONE], id="forgotten"),
        pytest.param([UNAVAILABLE], id="refused"),
        pytest.param([event("ADDED", pod("b", 6, labels=["not", "a", "map"]))], id="unreadable"),
        pytest.param([b"{"], id="no JSON"),
    ],
)
async def test_other_trouble_leads_to_a_list(trouble: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(page(5, pod("a", 1)), trouble, page(8, pod("c", 7)))
    made = await play(script, monkeypatch)
    assert script.calls == ["list", "watch 5", "list", "watch 8"]
    assert names(made) == {"c"}


async def test_stream_that_never_comes_back_leads_to_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[Step] = [BROKEN]
    script = Script(page(5), broken, broken, broken, broken, page(6, pod("a", 6)))
    made = await play(script, monkeypatch)
    assert script.calls == ["list", *["watch 5"] * 4, "list", "watch 6"]
    assert names(made) == {"a"}


async def test_page_that_expired_starts_the_list_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(page(5, pod("a", 1), more="t1"), informer.Gone(410, "Expired", "too old"), page(8, pod("b", 7)))
    made = await play(script, monkeypatch)
    assert script.calls == ["list", "list t1", "list", "watch 8"]
    assert names(made) == {"b"}


async def test_refresh_is_a_list_of_its_own_beside_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(page(5, pod("a", 1)), [event("ADDED", pod("b", 6))])
    made = await play(script, monkeypatch)
    script.steps = iter([page(9, pod("b", 8), more="t1"), page(9, pod("c", 7))])
    await made.refresh()
    assert script.calls[-2:] == ["list", "list t1"]
    assert {(value.name, value.resource_version) for value in made.store.values()} == {("b", 8), ("c", 7)}


async def test_what_cannot_be_read_is_no_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    unreadable = pod("b", 6, labels=["not", "a", "map"])
    script = Script(page(5, unreadable))
    made: Informer[Any] = Informer(
        script,  # type: ignore[arg-type]
        Kind("test", "/pods", decode.pod, decode.flat_meta),
        clock=lambda: now[0],
    )
    now[0] = 160.0
    with pytest.raises(ValueError, match="labels"):
        await made._list()
    assert made.last_contact_age_seconds() == 60.0
    script.steps = iter([page(5, pod("a", 1)), [event("ADDED", pod("c", 6)), event("ADDED", unreadable)]])
    await made._list()
    assert made.last_contact_age_seconds() == 0.0
    stream = script.watch

    async def later(*arguments: Any, **named: Any) -> AsyncIterator[bytes]:
        async for line in stream(*arguments, **named):
            now[0] += 10.0
            yield line

    monkeypatch.setattr(script, "watch", later)
    with pytest.raises(ValueError, match="labels"):
        await made._watch()
    assert made.last_contact_age_seconds() == 10.0


LARGE = PageTooLarge(0, "PageTooLarge", "too large")


async def test_a_page_that_is_too_large_is_asked_for_again_with_fewer_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (
        page(5, pod("a", 1), more="t1"),
        LARGE,
        LARGE,
        LARGE,
        page(5, pod("b", 2), more="t2"),
        page(5, pod("c", 3)),
    )
    script = Script(*steps)
    made = await play(script, monkeypatch)
    assert names(made) == {"a", "b", "c"}
    most = pages.MAX_PAGE_BYTES
    assert script.asked == [(500, most), (500, most), (62, most), (7, most), (1, None), (2, most)]
    assert script.calls == ["list", "list t1", "list t1", "list t1", "list t1", "list t2", "watch 5"]


async def test_a_list_that_expires_between_its_pages_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Gone(410, "Expired", "The provided continue parameter is too old")
    script = Script(page(5, pod("a", 1), more="t1"), gone, page(8, pod("b", 2), more="t2"), page(8, pod("c", 3)))
    made = await play(script, monkeypatch)
    assert names(made) == {"b", "c"}
    assert script.calls == ["list", "list t1", "list", "list t2", "watch 8"]


async def test_not_synced_before_the_first_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[bool] = []

    class Watched(Script):
        async def get(self, path: str, query: dict[str, Any], most_bytes: int | None = None) -> bytes:
            states.append(made.synced.is_set())
            return await super().get(path, query, most_bytes)

    script = Watched(UNAVAILABLE, page(5, pod("a", 1), more="t1"), page(5, pod("b", 2)))
    monkeypatch.setattr(informer, "MAX_BACKOFF_SECONDS", 0.01)
    made: Informer[Any] = Informer(script, Kind("test", ("/pods"), decode.pod, decode.flat_meta))  # type: ignore[arg-type]
    task = asyncio.create_task(made.run())
    await asyncio.wait_for(script.over.wait(), PATIENCE_SECONDS)
    task.cancel()
    assert states == [False, False, False]
    assert made.synced.is_set()


async def test_an_unreadable_object_keeps_its_identity_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    absurd = pod("b", 2)
    absurd["metadata"]["creationTimestamp"] = "0000-01-01T00:00:00Z"
    later = pod("d", 7)
    later["metadata"]["creationTimestamp"] = "0000-01-01T00:00:00Z"
    script = Script(page(5, pod("a", 1), absurd, pod("c", 3)), [event("ADDED", later), event("ADDED", pod("e", 8))])
    monkeypatch.setattr(informer, "MAX_BACKOFF_SECONDS", 0.01)
    made = informer.worker_pods(script)  # type: ignore[arg-type]
    task = asyncio.create_task(made.run())
    await asyncio.wait_for(script.over.wait(), PATIENCE_SECONDS)
    task.cancel()
    assert names(made) == {"a", "b", "c", "d", "e"}
    assert script.calls == ["list", "watch 5", "watch 8"]


async def test_a_change_that_somebody_fails_at_stands_and_is_told_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(page(5, pod("a", 1), pod("b", 2)))
    seen: list[str] = []

    def fails(_old: Any, new: Any) -> None:
        if new.name == "a":
            raise KeyError("a defect")

    made = Informer(script, Kind("test", "/pods", decode.pod, decode.flat_meta))  # type: ignore[arg-type]
    made.store.subscribe(fails)
    made.store.subscribe(lambda _old, new: seen.append(new.name))
    await made._list()
    assert (names(made), seen) == ({"a", "b"}, ["a", "b"])
