"""Lists are read page by page; an object that cannot be read hides no other."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from muster.answers import lists
from muster.answers.lists import items, listed
from muster.kube.pages import MAX_PAGE_BYTES, PAGE_SIZE

PAGES: dict[object, tuple[list[Any], str]] = {None: ([1, "two"], "next"), "next": ([3], "last"), "last": ([], "")}


class Server:
    """Answers a list in three pages."""

    def __init__(self) -> None:
        self.queries: list[dict[str, Any]] = []

    async def get(self, path: str, query: Mapping[str, Any], *, most_bytes: int) -> bytes:
        assert (path, most_bytes) == ("/things", MAX_PAGE_BYTES)
        self.queries.append(dict(query))
        found, then = PAGES[query.get("continue")]
        return json.dumps({"metadata": {"continue": then}, "items": found}).encode()


def number(item: msgspec.Raw) -> int:
    return msgspec.json.decode(item, type=int)


async def test_pages_follow_each_other_with_the_same_query() -> None:
    server = Server()
    query = {"labelSelector": "a=b"}
    found = [bytes(item) async for item in items(server, "/things", query)]  # type: ignore[arg-type]
    assert found == [b"1", b'"two"', b"3"]
    first = {**query, "limit": PAGE_SIZE}
    assert server.queries == [first, {**first, "continue": "next"}, {**first, "continue": "last"}]
    assert query == {"labelSelector": "a=b"}


async def test_a_pause_is_made_between_two_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    server, seen = Server(), []

    async def sleep(seconds: float) -> None:
        seen.append((seconds, len(server.queries)))

    monkeypatch.setattr(lists.asyncio, "sleep", sleep)
    assert [item async for item in items(server, "/things", pause_seconds=0.1)]  # type: ignore[arg-type]
    assert seen == [(0.1, 1), (0.1, 2)]


@pytest.mark.parametrize(("read", "result"), [(number, ([1, 3], 1)), (bytes, ([b"1", b'"two"', b"3"], 0))])
async def test_what_cannot_be_read_is_counted(read: Any, result: tuple[list[Any], int]) -> None:
    assert await listed(Server(), "/things", read) == result  # type: ignore[arg-type]
