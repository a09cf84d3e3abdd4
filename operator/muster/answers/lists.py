"""Read lists of the API server page by page: apart from what reads one job, which imports every kind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from muster.kube import decode

if TYPE_CHECKING:
    from muster.kube.client import Client

PAGE_SIZE = 500

T = TypeVar("T")


async def items(
    client: "Client", path: str, query: Mapping[str, str | int] | None = None, pause_seconds: float = 0.0
) -> AsyncIterator[msgspec.Raw]:
    """Yield the objects of a list, page by page, as the API server has them.

    Args:
        client: of the API server.
        path: of the list.
        query: its selectors.
        pause_seconds: between two pages.

    Raises:
        ApiError: it could not be listed.
    """
    asked: dict[str, str | int] = {**(query or {}), "limit": PAGE_SIZE}
    while True:
        page = decode.list_page(await client.get(path, asked))
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_
        if pause_seconds:
            await asyncio.sleep(pause_seconds)


async def listed(
    client: "Client", path: str, read: Callable[[msgspec.Raw], T], query: Mapping[str, str | int] | None = None
) -> tuple[list[T], int]:
    """Return the objects of a list, and how many of them could not be read.

    Raises:
        ApiError: it could not be listed.
    """
    objects: list[T] = []
    unreadable = 0
    async for item in items(client, path, query):
        try:
            objects.append(read(item))
        except (msgspec.MsgspecError, ValueError, RecursionError):  # one object must not hide the others
            unreadable += 1
    return objects, unreadable
