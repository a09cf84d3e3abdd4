"""Sends raw bytes to and from the API server, with deadlines, typed errors and the leader's permission to write.

`kubernetes.aio` brings configuration, credentials, TLS and the HTTP transport; its typed models are never touched
(decoding lean structs straight from bytes is two orders of magnitude cheaper). Reads are retried here; writes are
not, except where the server said 429 and therefore did nothing: whether to write again is the reconciler's decision.
"""

import asyncio
import contextlib
import copy
import email.utils
import functools
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import tenacity
from prometheus_client import Counter, Histogram

from muster.kube import jitter, library, paths
from muster.kube.errors import (
    ApiError,
    Invalid,
    NoCredentials,
    PageTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_status,
)
from muster.kube.pipes import Pipes

DEFAULT_DEADLINE_SECONDS = 10.0
LIST_DEADLINE_SECONDS = 60.0
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_MAX_ATTEMPTS = 4
_MAX_RETRY_AFTER_SECONDS = 5.0
# An API server that has not answered for this long counts as unavailable: no client can have heard from it meanwhile.
AWAY_SECONDS = 30.0
# Its last known time is not used after that: the clocks of machines differ.
DATED_SECONDS = 300.0
# A request is sent every two seconds at least (kube/lease.py): a server silent for longer than this is unreachable.
QUIET_SECONDS = 5.0
# How long its clients may take to reconnect after its first answer: kubelets retry every seven seconds, streams here
# every ten.
RETURN_SECONDS = 15.0
_CLOSE_SECONDS = 2.0  # for the other side to confirm the end of a websocket
_IN_CLUSTER_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

Query = Mapping[str, str | int]
Moment = Literal["before", "after"]

# The key set of service-account tokens has a type of its own.
_HEADERS = {"Accept": "application/json, */*", "User-Agent": "muster"}

_requests = Counter("muster_api_requests_total", "Requests to the API server.", ["verb", "resource", "code"])
_seconds = Histogram(
    "muster_api_request_seconds",
    "Time until a response of the API server was complete; watches are not counted.",
    ["verb", "resource"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)


# The library takes longer to find a label set than to count.
_requests_of = functools.lru_cache(maxsize=1024)(_requests.labels)
_seconds_of = functools.lru_cache(maxsize=256)(_seconds.labels)


@functools.lru_cache(maxsize=16)
def _read_date(date: str) -> datetime | None:
    try:
        parsed = email.utils.parsedate_to_datetime(date)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


class Answers:
    """Records when the API server last answered, on any connection, and what its clock showed. A stream that receives
    nothing while the server answers others is broken."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._dated = "", clock()
        self._last = self._back_since = self._attended_from = clock()
        self._attended = 0.0  # until `_attended_from`

    def heard(self, date: str = "") -> None:
        """Note that the server has just answered. `date` is its header Date (RFC 9110), "" where it sent none."""
        now = self._clock()
        if date:
            self._dated = date, now
        if now - self._last > AWAY_SECONDS:
            self._back_since = now
        if now - self._last > QUIET_SECONDS:
            self._attended, self._attended_from = self._attended_until(self._last), now + RETURN_SECONDS
        self._last = now

    def attended_seconds(self) -> float:
        """Return a clock in seconds that stands still while the API server is unavailable, and until its clients have
        found it again."""
        now = self._clock()
        return self._attended_until(now if now - self._last <= QUIET_SECONDS else self._last)

    def _attended_until(self, moment: float) -> float:
        return self._attended + max(moment - self._attended_from, 0.0)

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows now, to a second; None where that is unknown or the last answer is
        too old."""
        date, at = self._dated
        age = self._clock() - at
        server_date = _read_date(date) if date and age <= DATED_SECONDS else None
        return None if server_date is None else server_date + timedelta(seconds=age)

    def since_seconds(self, moment: float) -> float:
        """Return for how many seconds the server has been answering since a moment of the same clock. Its last absence
        restarts the count."""
        return max(self._last - max(moment, self._back_since), 0.0)


class Client:
    """The connection to one API server. Make it with `await Client.connect()`; close it with `await close()`.

    Attributes:
        answers: when the API server has answered, here or to a sibling.
        before_write: called before each guarded write. It raises LeadershipLost when this process must not write, and
            may return how many seconds it may still write for: no write is left pending for longer.
        on_write: for tests that stop the operator at each write: called with verb, path and before or after.
    """

    def __init__(
        self,
        configuration: Any,
        refresh_credentials: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        answers: Answers | None = None,
    ) -> None:
        self.answers = answers or Answers(clock)
        self.before_write: Callable[[], float | None] | None = None
        self.on_write: Callable[[str, str, Moment], Awaitable[None] | None] | None = None
        self._configuration = configuration
        self._refresh_credentials = refresh_credentials
        self._host = str(configuration.host).rstrip("/")
        # By default the transport reads the environment and ~/.netrc again for each request, each time in a thread.
        configuration.client_session_kwargs = {"trust_env": False}
        if configuration.proxy is None:
            configuration.proxy = _proxy(self._host)
        self._transport: Any = library.part("client.rest").RESTClientObject(configuration)
        self._pipes = Pipes(self._host, self._transport.ssl_context, configuration.tls_server_name, clock)
        self._clock = clock

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> "Client":
        """Connect with the given kubeconfig, else the one in KUBECONFIG, else in-cluster, else ~/.kube/config.

        Raises:
            NoCredentials: none of them can be used.
        """
        configuration = library.part("client").Configuration()
        files = kubeconfig or _kubeconfig_files()
        loading = library.part("config")

        async def load() -> None:
            await loading.load_kube_config(
                config_file=files, context=context, client_configuration=configuration, persist_config=False
            )

        try:
            if not files:
                loading.load_incluster_config(configuration)
                return cls(configuration)
            await load()
            return cls(configuration, refresh_credentials=load)
        except Exception as error:  # of the file, of YAML, of a program that has the credentials
            raise NoCredentials(" ".join(str(error).split()) or type(error).__name__) from error

    def sibling(self) -> "Client":
        """Return a client of the same user and API server with connections of its own: its requests wait behind no
        writes."""
        return Client(self._configuration, self._refresh_credentials, self._clock, self.answers)

    def guarded(self, before_write: Callable[[], float | None]) -> Self:
        """Return a client on the same connections whose guarded writes ask `before_write` first."""
        other = copy.copy(self)
        other.before_write = before_write
        return other

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()
        await self._pipes.close()

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        deadline_seconds: float | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        """Read an object or a list. The deadline is 60 s when the query asks for a page or a selector, else 10 s.

        Raises:
            PageTooLarge: the answer has more than `most_bytes`; no more of it was read.
            ApiError: the request failed, after retries of what may pass.
        """
        listing = bool(query and not query.keys().isdisjoint(("limit", "labelSelector", "fieldSelector", "continue")))
        deadline = deadline_seconds or (LIST_DEADLINE_SECONDS if listing else DEFAULT_DEADLINE_SECONDS)
        until = self._clock() + deadline
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type((Unreachable, ServerError, TooManyRequests)),
            # By this client's clock, which need not be the machine's as tenacity.stop_before_delay has it.
            stop=lambda it: it.attempt_number >= _MAX_ATTEMPTS or self._clock() + it.upcoming_sleep >= until,
            wait=_wait,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await self._request("GET", path, query, None, "", max(until - self._clock(), 0.1), most_bytes)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        query: Query | None = None,
        *,
        guarded: bool = True,
        one_of_many: bool = False,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
    ) -> bytes:
        """Create an object. `one_of_many` is for writes that come by the thousand: they bypass the HTTP library.

        Raises:
            LeadershipLost: this process must not write any more. Not raised when guarded is False (for the Lease
                itself).
            ApiError: the write was refused, or its outcome is unknown (ServerError, Unreachable).
        """
        return await self._write("POST", path, body, "application/json", query, guarded, deadline_seconds, one_of_many)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        guarded: bool = True,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
    ) -> bytes:
        """Replace an object; with metadata.resourceVersion only if it has not changed since. Raises the errors of
        `post`."""
        return await self._write(
            "PUT", path, body, "application/json", guarded=guarded, deadline_seconds=deadline_seconds
        )

    async def patch(
        self,
        path: str,
        body: Any,
        content_type: str = MERGE_PATCH,
        query: Query | None = None,
        *,
        one_of_many: bool = False,
    ) -> bytes:
        """Patch an object; `APPLY_PATCH` needs the query `fieldManager`. `one_of_many` and the errors raised are those
        of `post`."""
        return await self._write("PATCH", path, body, content_type, query, one_of_many=one_of_many)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Delete an object; `body` is DeleteOptions (preconditions!). Raises the errors of `post`."""
        return await self._write("DELETE", path, body, "application/json")

    def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float = 75.0, gather_seconds: float = 0.0
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of one watch, until the server ends it. Use inside `contextlib.aclosing`.

        Args:
            path: of the collection.
            query: parameters of the URL.
            read_timeout_seconds: how long the connection may be silent.
            gather_seconds: pause after each read, so that the lines that come meanwhile are read together: many lines
                at once cost much less than each by itself. The first line after a silence never waits.

        Raises:
            ApiError: the watch could not be opened, or nothing came for read_timeout_seconds (Unreachable).
        """
        return self._lines("WATCH", path, {**query, "watch": 1}, read_timeout_seconds, gather_seconds)

    def follow(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer that may go on for ever, and be silent for hours. Use inside
        `contextlib.aclosing`.

        Raises:
            ApiError: the stream could not be opened, or the connection broke (Unreachable).
        """
        return self._lines("GET", path, query, None, 0.0)

    async def websocket(self, path: str, query: Query, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket that speaks a protocol, e.g. to forward a port of a pod. Close it when done.

        Raises:
            ApiError: it was refused, or the API server did not answer.
        """
        if self._transport.pool_manager is None:  # as the library's own websockets do
            self._transport.pool_manager = self._transport._create_pool_manager()  # noqa: SLF001
        configuration = self._configuration
        try:
            async with asyncio.timeout(DEFAULT_DEADLINE_SECONDS):
                socket: aiohttp.ClientWebSocketResponse = await self._transport.pool_manager.ws_connect(
                    f"{self._host}{path}?{urlencode(query)}",
                    protocols=(protocol,),
                    headers={**_HEADERS, **await self._credentials()},
                    proxy=configuration.proxy,
                    proxy_headers=configuration.proxy_headers,
                    server_hostname=configuration.tls_server_name,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                )
                return socket
        except aiohttp.WSServerHandshakeError as error:
            with contextlib.suppress(Invalid):
                await self.get(path, query)  # the refusal of a plain request says why
            raise ApiError(error.status, "", f"no websocket at {path}") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unreachable("GET", path, error) from error

    async def _lines(
        self, verb: str, path: str, query: Query, read_timeout_seconds: float | None, gather_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield whole lines; a last line without an end is dropped."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=DEFAULT_DEADLINE_SECONDS, sock_read=read_timeout_seconds
        )
        try:
            response = await self._open("GET", path, query, None, "", timeout, verb)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unreachable(verb, path, error) from error
        try:
            rest = b""
            async for chunk in response.content.iter_any():
                self.answers.heard()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
                if gather_seconds and response.connection is not None and response.connection.transport is not None:
                    transport = response.connection.transport
                    transport.pause_reading()
                    await asyncio.sleep(gather_seconds)
                    transport.resume_reading()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unreachable(verb, path, error) from error
        finally:
            response.close()

    async def _write(
        self,
        verb: str,
        path: str,
        body: Any,
        content_type: str,
        query: Query | None = None,
        guarded: bool = True,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        one_of_many: bool = False,
    ) -> bytes:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            deadline = deadline_seconds
            if guarded:
                await self._note_answer(verb, path, "before")
                if self.before_write is not None:
                    left = self.before_write()
                    deadline = deadline if left is None else min(deadline, left)
            try:
                if one_of_many and self._configuration.proxy is None:
                    answer = await self._write_in_pipe(verb, path, query, body, content_type, deadline)
                else:
                    answer = await self._request(verb, path, query, body, content_type, deadline)
            except TooManyRequests as error:
                # A refused eviction is a 429 too; it carries a cause and is the caller's to judge.
                if error.retry_after_seconds is None or error.details.get("causes") or attempt == _MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(min(error.retry_after_seconds, _MAX_RETRY_AFTER_SECONDS))
                continue
            if guarded:
                await self._note_answer(verb, path, "after")
            return answer
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _note_answer(self, verb: str, path: str, moment: Moment) -> None:
        if self.on_write is not None:
            awaitable = self.on_write(verb, path, moment)
            if awaitable is not None:
                await awaitable

    async def _write_in_pipe(
        self, verb: str, path: str, query: Query | None, body: Any, content_type: str, deadline_seconds: float
    ) -> bytes:
        started, resource, data = self._clock(), paths.resource_of(path), msgspec.json.encode(body)
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            for last in (False, True):
                headers = {**_HEADERS, "Content-Type": content_type, **await self._credentials()}
                async with asyncio.timeout(deadline_seconds):
                    answer = await self._pipes.send(verb, target, headers, data)
                _requests_of(verb, resource, answer.status).inc()
                if answer.status < 500:
                    self.answers.heard()
                if answer.status < 400:
                    return answer.body
                error = from_status(answer.status, answer.body, answer.retry_after_seconds)
                if not isinstance(error, Unauthorized) or self._refresh_credentials is None or last:
                    raise error
                await self._refresh_credentials()
        except OSError as error:  # a deadline that has passed is one, too
            raise self._unreachable(verb, path, error) from error
        finally:
            _seconds_of(verb, resource).observe(self._clock() - started)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _request(
        self,
        verb: str,
        path: str,
        query: Query | None,
        body: Any,
        content_type: str,
        deadline_seconds: float,
        most_bytes: int | None = None,
    ) -> bytes:
        started = self._clock()
        try:
            response = await self._open(
                verb, path, query, body, content_type, aiohttp.ClientTimeout(total=deadline_seconds), verb
            )
            async with response:
                return await (response.read() if most_bytes is None else _read_bounded(response, path, most_bytes))
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unreachable(verb, path, error) from error
        finally:
            _seconds_of(verb, paths.resource_of(path)).observe(self._clock() - started)

    async def _open(
        self,
        verb: str,
        path: str,
        query: Query | None,
        body: Any,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
        label: str,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response with its body still to be read. An unsuccessful status is raised as an
        error."""
        url = f"{self._host}{path}?{urlencode(query)}" if query else f"{self._host}{path}"
        for last in (False, True):
            headers = {**_HEADERS, **await self._credentials()}
            if content_type:
                headers["Content-Type"] = content_type
            answer = await self._transport.request(verb, url, headers=headers, body=body, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            _requests_of(label, paths.resource_of(path), response.status).inc()
            if response.status < 500:
                self.answers.heard(response.headers.get("Date", ""))
            if response.status < 400:
                return response
            async with response:
                error = from_status(response.status, await response.read(), _retry_after(response))
            # Not authenticated means not executed: new credentials, one more time.
            if isinstance(error, Unauthorized) and self._refresh_credentials is not None and not last:
                await self._refresh_credentials()
                continue
            raise error
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _credentials(self) -> dict[str, str]:
        settings = await self._configuration.auth_settings()
        token = settings.get("BearerToken")
        return {"Authorization": str(token["value"])} if token else {}

    def _unreachable(self, verb: str, path: str, error: BaseException) -> Unreachable:
        _requests_of(verb, paths.resource_of(path), "0").inc()
        cause = f"{self._host}: {_failure_text(error)}"
        unreachable = Unreachable(0, "Unreachable", f"no answer to {verb} {path} from the API server at {cause}")
        unreachable.cause = cause
        return unreachable


def _failure_text(error: BaseException) -> str:
    """Say why a request got no answer, e.g. `Connection refused`, without the addresses that libraries add."""
    cause = error
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        cause = error.os_error
    if isinstance(cause, socket.gaierror):
        return str(cause.strerror)
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError | aiohttp.ClientSSLError):
        return os.strerror(cause.errno)
    return str(error) or type(error).__name__


async def _read_bounded(response: aiohttp.ClientResponse, path: str, most_bytes: int) -> bytes:
    parts, length = list[bytes](), 0
    async for part in response.content.iter_any():
        parts.append(part)
        length += len(part)
        if length > most_bytes:
            response.close()
            raise PageTooLarge(0, "PageTooLarge", f"a page of {path} has more than {most_bytes} bytes")
    return b"".join(parts)


def _proxy(host: str) -> str | None:
    """Return the proxy that the environment names for the API server (HTTPS_PROXY, NO_PROXY)."""
    url = urlsplit(host)
    if not url.hostname or proxy_bypass(url.hostname):
        return None
    return getproxies().get(url.scheme)


def _kubeconfig_files() -> str:
    """Return the kubeconfig to use, "" for the credentials that a pod has."""
    files = os.environ.get("KUBECONFIG", "")
    if files or _IN_CLUSTER_TOKEN.exists():
        return files
    return str(Path.home() / ".kube" / "config")


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None


_backoff = tenacity.wait_exponential(multiplier=0.1, max=2.0)


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, ApiError) and error.retry_after_seconds is not None:
        return min(error.retry_after_seconds, _MAX_RETRY_AFTER_SECONDS)
    return jitter.uniform(0.0, _backoff(state))
