"""Writes a job's record so that it is known whether it stands: a node is taken the moment the API server has the
record.

An answer can be lost though the write was done. Taken for refused, it would let another job have the same nodes, so the
record is read before anything else is decided. One that does not stand and may still be on its way is written again,
guarded by the same version: at most one of the two can be done.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from muster.api.gang import Gang
from muster.kube import decode, paths
from muster.kube.client import Client
from muster.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, Unreachable

MAX_WRITES = 3
LOOK_AGAIN_SECONDS = 0.5
TIMED_OUT = 504  # the API server has given up waiting for a write that may yet be done

log = structlog.get_logger()
_decode = decode.custom(Gang)


class RecordWriter:
    """Creates and replaces Gangs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, body: Mapping[str, Any]) -> bytes:
        """Create the Gang, or replace it where the body names a resourceVersion; returns it as the API server has it.

        Waits for as long as the API server is away and this process leads: no job could take a node meanwhile.

        Raises:
            LeadershipLost: this process must not write any more, and it is not known whether the write was done.
            ApiError: the write was not done.
        """
        lost: ApiError | None = None
        for _ in range(MAX_WRITES):
            try:
                return await self._try(body)
            except (Conflict, AlreadyExists):
                stored = await self._committed(body) if lost else None  # by the write that was thought lost
                if stored is None:
                    raise
                return stored
            except (ServerError, Unreachable) as error:
                lost = error
            stored = await self._committed(body)
            log.warning("the answer to a commit was lost", gang=_name(body), error=str(lost), stands=stored is not None)
            if stored is not None:
                return stored
            if lost.status not in (0, TIMED_OUT):
                break  # it was answered: nothing is on its way
        assert lost is not None
        raise lost

    async def _try(self, body: Mapping[str, Any]) -> bytes:
        if "resourceVersion" in body["metadata"]:
            return await self._client.put(_path(body), body)
        return await self._client.post(paths.muster("gangs", namespace=body["metadata"]["namespace"]), body)

    async def _committed(self, body: Mapping[str, Any]) -> bytes | None:
        """The Gang on the API server if it is what was to be written, else None."""
        while True:
            try:
                answer = await self._client.get(_path(body))
            except NotFound:
                return None
            except (
                ApiError
            ) as error:  # whatever it says, it does not say what stands; an API server that has just started refuses
                log.warning("cannot see whether a commit stands", gang=_name(body), error=str(error))
                if self._client.before_write is not None:
                    self._client.before_write()  # raises once another replica may decide
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            gang = _decode(answer)
            return answer if isinstance(gang, Gang) and gang.spec.to_json() == body["spec"] else None


def _path(body: Mapping[str, Any]) -> str:
    return paths.muster("gangs", namespace=body["metadata"]["namespace"], name=body["metadata"]["name"])


def _name(body: Mapping[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
