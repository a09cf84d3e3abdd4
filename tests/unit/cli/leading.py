"""A leader of the operator that answers with what it has decided, behind a forwarded port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from muster.kube.errors import ApiError
from muster.kube.pipes import Answer

POD = "muster-operator-7c9d-x2x4v"
LEASE = {"metadata": {"name": "muster-leader"}, "spec": {"holderIdentity": f"{POD}_0a1b2c3d"}}


class Leader:
    """Answers by path: bytes, or an error; what it has no answer for is 404, as of a node that was healthy all along.

    Attributes:
        opened: namespace, pod and port of each forwarding.
        refuses: raised by the forwarding itself.
        silent: it never answers.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | ApiError] = {}
        self.asked: list[str] = []
        self.opened: list[tuple[str, str, int]] = []
        self.refuses: ApiError | None = None
        self.silent = False

    @asynccontextmanager
    async def forwarded_port(self, _client: Any, namespace: str, pod: str, port: int) -> AsyncIterator["Leader"]:
        self.opened.append((namespace, pod, port))
        if self.refuses:
            raise self.refuses
        yield self

    async def get(self, path: str, _most_bytes: int) -> Answer:
        self.asked.append(path)
        if self.silent:
            await asyncio.Event().wait()
        answer = self.answers.get(path)
        if isinstance(answer, ApiError):
            raise answer
        return Answer(404, b"nothing is kept") if answer is None else Answer(200, answer)
