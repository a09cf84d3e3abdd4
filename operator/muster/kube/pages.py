"""Reads a list of the API server page by page, and none that takes the reader's memory.

Tests: tests/unit/kube/test_informer.py, tests/unit/answers/test_lists.py.
"""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from muster.kube import decode
from muster.kube.errors import PageTooLarge

if TYPE_CHECKING:
    from muster.kube.client import Client

PAGE_SIZE = 500
# A page of ordinary objects has 5 MB. Tenants write pods and jobs of megabytes: then fewer are requested at once.
MAX_PAGE_BYTES = 16 * 1024 * 1024
_FEWER = 8


async def pages(
    client: "Client", path: str, query: Mapping[str, str | int] | None = None
) -> AsyncIterator[decode.ListPage]:
    """Yield the pages of a list. The first request names no resourceVersion, which means the newest.

    Raises:
        ApiError: it could not be listed.
        Gone: the list took longer than the API server keeps its first page; begin again.
    """
    limit = PAGE_SIZE
    asked: dict[str, str | int] = dict(query or {})
    while True:
        asked["limit"] = limit
        try:
            data = await client.get(path, asked, most_bytes=MAX_PAGE_BYTES if limit > 1 else None)
        except PageTooLarge:
            limit = max(limit // _FEWER, 1)
            continue
        page, limit = decode.list_page(data), min(2 * limit, PAGE_SIZE)
        yield page
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_
