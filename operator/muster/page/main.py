"""Run the page's process: connect, watch, serve until a signal.

Tests: tests/integration/page/test_page.py, tests/unit/page/test_server.py, tests/unit/controller/test_main.py.
"""

import asyncio
import contextlib
import logging
import signal
import ssl
from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from muster.answers import clock
from muster.answers.fleethours import hours
from muster.answers.fleetlives import lives
from muster.coordinator.probes import LoopHeartbeat
from muster.kube.access import Access
from muster.kube.client import Client
from muster.kube.errors import NoCredentials
from muster.page.connections import Connections
from muster.page.seen import Seen
from muster.page.server import KEEPALIVE_SECONDS, LINGERING_SECONDS, MAX_HEADER_BYTES, Page
from muster.page.settings import Settings
from muster.serve import Server, open_as_many_files_as_allowed

LOOPBACK = "127.0.0.1"
CLOSING_SECONDS = 2.0

log = structlog.get_logger()


def main() -> None:
    """Run the page until a signal ends it."""
    open_as_many_files_as_allowed()
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(),
    )
    try:
        asyncio.run(_run(Settings.from_environment()))
    except NoCredentials as error:
        raise SystemExit(str(error)) from error


async def _run(settings: Settings) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    client = await Client.connect()
    try:
        # Reviews of rights do not wait for lists of thousands.
        reviews = client.sibling()
        try:
            async with serving(client, reviews, settings) as (port, probe_port):
                log.info("the page is served", port=port, probe_port=probe_port, tls=settings.tls is not None)
                await over.wait()
        finally:
            await reviews.close()
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def serving(client: Client, reviews: Client, settings: Settings) -> AsyncIterator[tuple[int, int]]:
    """Serve inside the context; yields the ports of the page and of the probes.

    Raises:
        OSError: a port is taken, or the certificate cannot be read.
    """
    seen = Seen(client)
    page = Page(
        seen,
        Access(reviews),
        lambda now, since: lives(client, now, since=since, history=seen.history()),
        lambda: hours(client),
        now=lambda: clock.current_time(client.answers.server_time()),
    )
    context = None
    if settings.tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.load_cert_chain(settings.tls / "tls.crt", settings.tls / "tls.key")
    host = LOOPBACK if context is None else ""
    async with seen.running(), serving_page(page, host, settings.port, context) as port:
        beat = LoopHeartbeat(lambda: "", page.not_ready)
        async with beat.running():
            probes = Server(("", settings.probe_port), page.probes(beat), node=settings.node_addresses)
            try:
                yield port, probes.port
            finally:
                probes.close()


@contextlib.asynccontextmanager
async def serving_page(page: Page, host: str, port: int, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve the page alone inside the context; yields its port.

    Raises:
        OSError: the port is taken.
    """
    runner = web.AppRunner(
        page.application(),
        handle_signals=False,
        access_log=None,
        keepalive_timeout=KEEPALIVE_SECONDS,
        max_field_size=MAX_HEADER_BYTES,
        lingering_time=LINGERING_SECONDS,
        shutdown_timeout=CLOSING_SECONDS,
    )
    # aiohttp would log ten lines for each request that is no HTTP: every client of the port could fill the node's disk.
    # The page itself logs requests that it cannot answer.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    await runner.setup()
    try:
        assert runner.server is not None
        connections = Connections(runner.server, context)
        page.connections = connections
        async with connections.serving(host, port) as bound:
            yield bound
    finally:
        await runner.cleanup()
