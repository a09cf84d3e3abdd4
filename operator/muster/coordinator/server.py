"""The launchers' one door: a report comes in over HTTPS, the directive goes out, held back while nothing is new.

A held answer is a long poll: it goes out the moment `notify` says that the pod's directive may have changed, so a
decision reaches thousands of launchers at once while each of them asks only every few seconds.
"""

import asyncio
import asyncio.sslproto
import functools
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable

import structlog
from aiohttp import web
from prometheus_client import Counter, Gauge

from muster.coordinator.auth import AuthError, Caller
from muster.coordinator.hub import Hub
from muster.coordinator.reports import decode_report
from muster.protocol import messages
from muster.protocol.messages import MAX_REPORT_BYTES, REPORT_PATH, Directive, ProtocolError

MAX_HOLD_SECONDS = 10.0
BODY_DEADLINE_SECONDS = 10.0
KEEPALIVE_SECONDS = 75.0
TLS_BUFFER_BYTES = 16 * 1024  # one TLS record
MAX_DIRECTIVES = 16384  # encoded ones that are kept

log = structlog.get_logger()
_reports = Counter("muster_reports_total", "Reports of launchers, by the status of the answer.", ["code"])
_held = Gauge("muster_reports_held", "Answers that are held back now.")


class CoordinatorServer:
    """Serves launchers.

    Args:
        verify: the caller behind an Authorization header (TokenVerifier.verify).
        directive_for: what this pod shall do, or None when it is not a worker of any job. Called twice per report and
            once per `notify`, so it should be cheap.
        not_ready: "" when directives may be served, else why not (not leading, not synced).
    """

    def __init__(
        self,
        hub: Hub,
        verify: Callable[[str], Awaitable[Caller]],
        directive_for: Callable[[Caller], Directive | None],
        not_ready: Callable[[], str],
    ) -> None:
        self._hub = hub
        self._verify = verify
        self._directive_for = directive_for
        self._not_ready = not_ready
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._stopping = False
        self._runner: web.AppRunner | None = None
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    async def start(self, host: str, port: int, certificate_pem: bytes, key_pem: bytes) -> int:
        """Listen; returns the port (which matters when asked for port 0)."""
        self.load_certificate(certificate_pem, key_pem)
        # asyncio gives each TLS connection a read buffer of 256 KiB: a gigabyte for 4,096 idle launchers.
        asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        app = web.Application(client_max_size=MAX_REPORT_BYTES)
        app.router.add_post(REPORT_PATH, self._report)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, backlog=4096)
        await site.start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def stop(self) -> None:
        """Answer what is held, then close."""
        self._stopping = True
        self.notify(list(self._waiting))
        if self._runner is not None:
            await self._runner.cleanup()

    def load_certificate(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Use this certificate for connections from now on; open ones stay."""
        # The ssl module reads files only; the key must not reach a disk.
        descriptor = os.memfd_create("muster-tls")
        try:
            os.write(descriptor, certificate_pem + b"\n" + key_pem)
            self._tls.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def notify(self, pod_uids: Iterable[str]) -> None:
        """The directives of these pods may have changed: look again, and answer those whose has."""
        for uid in pod_uids:
            self._wake(uid)

    async def _report(self, request: web.Request) -> web.Response:
        response = await self._answer(request)
        _reports.labels(response.status).inc()
        return response

    async def _answer(self, request: web.Request) -> web.Response:
        reason = self._unready()
        if reason:
            return _refusal(503, reason)
        try:
            caller = await self._verify(request.headers.get("Authorization", ""))
        except AuthError as error:
            return _refusal(error.status, str(error))
        try:
            async with asyncio.timeout(BODY_DEADLINE_SECONDS):
                body = await request.read()
            report = decode_report(body)
        except TimeoutError:
            return _refusal(408, f"the report did not arrive within {BODY_DEADLINE_SECONDS:.0f} s")
        except web.HTTPRequestEntityTooLarge:
            return _refusal(413, f"a report may have {MAX_REPORT_BYTES} bytes")
        except ProtocolError as error:
            return _refusal(400, f"{error}: the launcher and the operator do not understand each other")
        if self._directive_for(caller) is None:
            return _stranger(caller)
        self._hub.record(caller, report)
        return await self._hold(caller, report.directive_seen, min(report.hold_seconds, MAX_HOLD_SECONDS))

    async def _hold(self, caller: Caller, seen: str, hold_seconds: float) -> web.Response:
        loop = asyncio.get_running_loop()
        until = loop.time() + hold_seconds
        self._wake(caller.pod_uid, superseded=True)  # a newer request of the same pod releases the older one
        superseded = False
        while True:
            directive = self._directive_for(caller)
            if directive is None:
                return _stranger(caller)
            digest, body = _encoded(directive)
            if superseded or self._stopping or loop.time() >= until or digest != seen:
                return web.Response(body=body, content_type="application/json")
            superseded = await self._wait(caller.pod_uid, until)
            reason = self._not_ready()
            if reason:
                return _refusal(503, reason)

    async def _wait(self, pod_uid: str, until: float) -> bool:
        """Wait for `notify`, a newer request (then True) or the end of the hold."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting[pod_uid] = waiter
        timer = loop.call_at(until, _release, waiter)
        try:
            with _held.track_inprogress():
                return await waiter
        finally:
            timer.cancel()
            if self._waiting.get(pod_uid) is waiter:
                del self._waiting[pod_uid]

    def _unready(self) -> str:
        return "this replica is stopping: ask again" if self._stopping else self._not_ready()

    def _wake(self, pod_uid: str, *, superseded: bool = False) -> None:
        waiter = self._waiting.pop(pod_uid, None)
        if waiter is not None:
            _release(waiter, superseded=superseded)


def _release(waiter: "asyncio.Future[bool]", *, superseded: bool = False) -> None:
    if not waiter.done():
        waiter.set_result(superseded)


@functools.lru_cache(maxsize=MAX_DIRECTIVES)
def _encoded(directive: Directive) -> tuple[str, bytes]:
    return messages.digest(directive), messages.encode(directive)


def _stranger(caller: Caller) -> web.Response:
    return _refusal(
        403,
        f"pod {caller.namespace}/{caller.pod_name} is no worker of a job that Muster runs: it was replaced, or its job "
        "is gone; a pod that was created just now asks again",
    )


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
