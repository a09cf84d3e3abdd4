"""What the platform asks the operator: is it alive, is it ready, and its figures. Plain HTTP, for the pod's network."""

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


async def serve_http(
    port: int, healthz: Callable[[], str], readyz: Callable[[], str], host: str | None = None
) -> web.AppRunner:
    """Serve /metrics, /healthz and /readyz; close with `await runner.cleanup()`.

    Args:
        port: 0 for any; `runner.addresses` then tells.
        healthz: "" when all is well, else what is wrong (status 500).
        readyz: "" when ready, else why not (status 503).
        host: None for all addresses.
    """

    async def metrics(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(
            generate_latest
        )  # of 500 jobs it takes a while, and launchers wait for no scrape
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(_: web.Request) -> web.Response:
        wrong = healthz()
        return web.Response(text=wrong or "ok", status=500 if wrong else 200)

    async def ready(_: web.Request) -> web.Response:
        missing = readyz()
        return web.Response(text=missing or "ok", status=503 if missing else 200)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", health), web.get("/readyz", ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
