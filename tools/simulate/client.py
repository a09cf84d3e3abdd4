"""The shipped client on a simulated way to the API server: retries, deadlines and the leader's permission are its
own."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from muster.kube import jitter, paths
from muster.kube.client import Answers, Client, Query
from muster.kube.errors import ApiError, Gone, Unreachable, from_status
from simulate.apiserver import ApiServer, where

LATENCY_SECONDS = 0.002, 0.02


@dataclass
class Way:
    """What can happen on the way from one process to the API server; faults change it.

    Attributes:
        stream: random numbers by verb and path: a request more moves no other request's.
        is_open: whether anything gets through.
        alive: whether the process is: one that is not never does anything again.
        slow_seconds: on top of a round trip.
        watch_lag_seconds: by resource; "" for all that are not named.
        refuses: (verb, resource) -> the HTTP status that such requests get, unexecuted; "" stands for any.
        loses_answers: of writes to these resources the answer is lost though they were executed; "" stands for any.
        asked: (verb, resource with its subresource) -> how many such requests were executed.
    """

    stream: Callable[..., Random]
    is_open: Callable[[], bool] = lambda: True
    alive: bool = True
    slow_seconds: float = 0.0
    watch_lag_seconds: dict[str, float] = field(default_factory=dict)
    refuses: dict[tuple[str, str], int] = field(default_factory=dict)
    loses_answers: set[str] = field(default_factory=set)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def latency_seconds(self, verb: str, path: str) -> float:
        """The time of one way of a request, now."""
        return self.stream(verb, path).uniform(*LATENCY_SECONDS) + self.slow_seconds / 2

    def lag_of(self, resource: str) -> float:
        """How late a watch of this kind shows changes."""
        lag = self.watch_lag_seconds.get(resource, self.watch_lag_seconds.get("", 0.0))
        return self.stream("lag", resource).uniform(*LATENCY_SECONDS) + lag

    def refusal(self, verb: str, resource: str) -> int:
        """The status that such a request gets now; 0: it is executed."""
        return next((self.refuses[k] for k in ((verb, resource), ("", resource), ("", "")) if k in self.refuses), 0)


class SimulatedClient(Client):
    """One process's connections to the simulated API server."""

    def __init__(self, server: ApiServer, way: Way, clock: Callable[[], float], answers: Answers | None = None) -> None:
        self.answers = answers or Answers(clock)
        self.before_write = None
        self.on_write = None
        self._configuration = SimpleNamespace(proxy=None)
        self._host = "simulated"
        self._server = server
        self._way = way
        self._clock = clock

    def sibling(self) -> "SimulatedClient":
        """On connections of its own."""
        return SimulatedClient(self._server, self._way, self._clock, self.answers)

    async def close(self) -> None:
        """Nothing to close."""

    async def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float = 75.0, gather_seconds: float = 0.0
    ) -> AsyncGenerator[bytes, None]:
        """The lines of one watch; see Client.watch."""
        await self._go("WATCH", path, 10.0)
        at = where(path)
        stream = _Stream()
        try:
            watch = self._server.watch(at, query, stream.put, self._way.lag_of(at.resource))
        except Gone as gone:
            await asyncio.sleep(self._way.latency_seconds("WATCH", path))
            raise from_status(410, b'{"kind":"Status","reason":"Expired","message":"too old"}') from gone
        try:
            self.answers.heard()
            while True:
                lines = await stream.take(read_timeout_seconds)
                if lines is None or not self._way.is_open():
                    what = "nothing came" if lines is None else "no route"
                    raise Unreachable(0, "Unreachable", f"WATCH {path}: {what}")
                self.answers.heard()
                for line in lines:
                    if not line:
                        return
                    yield line
                if gather_seconds:
                    await asyncio.sleep(gather_seconds)
        finally:
            self._server.close(watch)

    async def _write_in_pipe(
        self, verb: str, path: str, query: Query | None, body: Any, content_type: str, deadline_seconds: float
    ) -> bytes:
        return await self._request(verb, path, query, body, content_type, deadline_seconds)

    async def _request(
        self,
        verb: str,
        path: str,
        query: Query | None,
        body: Any,
        content_type: str,
        deadline_seconds: float,
        _most_bytes: int | None = None,
    ) -> bytes:
        until = self._clock() + deadline_seconds
        await self._go(verb, path, deadline_seconds)
        way = self._way
        resource = "" if path in self._server.documents else where(path).resource
        if self._clock() > until:
            raise Unreachable(0, "Unreachable", f"{verb} {path}: no answer in time")
        refused = way.refusal(verb, resource)
        error: ApiError | None = None
        answer = b""
        if refused:
            error = from_status(
                refused, b'{"kind":"Status","message":"as the fault says"}', 0.5 if refused == 429 else None
            )
        else:
            try:
                answer = self._execute(verb, path, query or {}, body, content_type)
            except ApiError as found:
                error = found
        lost = verb != "GET" and not error and bool(way.loses_answers & {"", resource})
        back = way.latency_seconds(verb, path)
        if lost or not way.is_open() or self._clock() + back > until:
            await asyncio.sleep(max(0.0, until - self._clock()))
            raise Unreachable(0, "Unreachable", f"{verb} {path}: no answer in time")
        await asyncio.sleep(back)
        if refused < 500:
            self.answers.heard()
        if error is not None:
            raise error
        return answer

    async def _go(self, verb: str, path: str, deadline_seconds: float) -> None:
        """To the API server; a process that is dead by then has not sent it."""
        jitter.generator.set(self._way.stream("jitter", verb, path))  # what this task draws next, its pauses
        if not self._way.is_open():
            await asyncio.sleep(min(deadline_seconds, 3.0))
            raise Unreachable(0, "Unreachable", f"{verb} {path}: no route")
        await asyncio.sleep(self._way.latency_seconds(verb, path))
        if not self._way.is_open():
            await asyncio.sleep(deadline_seconds)
            raise Unreachable(0, "Unreachable", f"{verb} {path}: no answer")

    def _execute(self, verb: str, path: str, query: Mapping[str, Any], body: Any, content_type: str) -> bytes:
        server = self._server
        if path in server.documents:
            return server.documents[path]
        at = where(path)
        self._way.asked[verb, f"{at.resource}/{at.subresource}".rstrip("/")] += 1
        match verb:
            case "GET" if at.name:
                return server.get(at)
            case "GET":
                return server.list(at, query, self._way.lag_of(at.resource))
            case "POST":
                return server.create(at, body, dry_run=bool(query.get("dryRun")))
            case "PUT":
                return server.update(at, body)
            case "PATCH":
                return server.patch(at, body, content_type, query.get("fieldManager", ""))
            case "DELETE":
                return server.delete(at, body)
        raise AssertionError(f"not simulated: {verb} {paths.resource_of(path)}")


class _Stream:
    """Lines that wait to be read."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, line: bytes) -> None:
        self._lines.append(line)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, seconds: float) -> list[bytes] | None:
        """All that there are, once there is one; None where none comes in time."""
        if not self._lines:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self._give_up, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        lines = list(self._lines)
        self._lines.clear()
        return lines or None

    @staticmethod
    def _give_up(waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_result(None)
