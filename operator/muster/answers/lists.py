"""Read the objects of lists of the API server: apart from what reads one job, which imports every kind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from muster.kube.pages import pages

if TYPE_CHECKING:
    from muster.kube.client import Client

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
    async for page in pages(client, path, query):
        for item in page.items or ():
            yield item
        if pause_seconds and page.metadata.continue_:
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
