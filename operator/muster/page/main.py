"""The page's process: connect, watch, serve until a signal."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from muster.cli import clock
from muster.cli.fleethours import hours
from muster.cli.fleetlives import lives
from muster.coordinator.probes import Beat
from muster.kube.access import Access
from muster.kube.client import Client
from muster.page.seen import Seen
from muster.page.server import KEEPALIVE_SECONDS, MAX_HEADER_BYTES, Page
from muster.page.settings import Settings
from muster.serve import Server

LOOPBACK = "127.0.0.1"
CLOSING_SECONDS = 2.0

log = structlog.get_logger()


def main() -> None:
    """Run the page until a signal ends it."""
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(),
    )
    asyncio.run(_run(Settings.from_environment()))


async def _run(settings: Settings) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    client = await Client.connect()
    try:
        # Questions about rights do not wait for lists of thousands.
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
    """Serve meanwhile; gives the ports of the page and of the probes.

    Raises:
        OSError: a port is taken, or the certificate cannot be read.
    """
    seen = Seen(client)
    page = Page(
        seen,
        Access(reviews),
        lambda now, since: lives(client, now, since=since),
        lambda: hours(client),
        now=lambda: clock.now(client.answers.server_time()),
    )
    context = None
    if settings.tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(settings.tls / "tls.crt", settings.tls / "tls.key")
    async with seen.running(), contextlib.AsyncExitStack() as stack:
        host = LOOPBACK if context is None else None
        port = await _listen(stack, page.application(), host, settings.port, context)
        beat = Beat(lambda: "", page.not_ready)
        await stack.enter_async_context(beat.running())
        probes = Server(("", settings.probe_port), page.probes(beat), node=settings.node_addresses)
        stack.callback(probes.close)
        yield port, probes.port


async def _listen(
    stack: contextlib.AsyncExitStack,
    application: web.Application,
    host: str | None,
    port: int,
    context: ssl.SSLContext | None,
) -> int:
    runner = web.AppRunner(
        application,
        access_log=None,
        keepalive_timeout=KEEPALIVE_SECONDS,
        max_field_size=MAX_HEADER_BYTES,
        shutdown_timeout=CLOSING_SECONDS,
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port, ssl_context=context).start()
    # Of any port (0) each kind of address has one of its own: IPv4's are pairs.
    return int(min(runner.addresses, key=len)[1])
