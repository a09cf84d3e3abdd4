"""What the operator saw when it decided, for administrators: plain HTTP that no process outside the pod can reach.

A world holds the job's template and the last output of its ranks, so it is served on the loopback address alone: who
comes there by `kubectl port-forward` or `exec` has rights in the operator's own namespace.
"""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from muster.lifecycle.decided import Decided, write

LOOPBACK = "127.0.0.1"
PATH = "/worlds/{namespace}/{name}"
_UNKNOWN = (
    "nothing is kept of {namespace}/{name}. Only the replica that leads decides (the holder of the Lease "
    "muster-leader), it remembers nothing of the time before it led, and only the last decisions.\n"
)


async def serve_worlds(port: int, kept: Callable[[tuple[str, str]], Sequence[Decided]]) -> web.AppRunner:
    """Serve `GET /worlds/NAMESPACE/JOB` on the loopback address: one line of JSON for each kept decision, the newest
    last.

    Args:
        port: 0 for any; `runner.addresses` then has the one chosen.
        kept: returns the decisions about the job of this (namespace, name).

    Raises:
        OSError: the port cannot be had.
    """

    async def worlds(request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        found = kept((namespace, name))
        if not found:
            return web.Response(text=_UNKNOWN.format(namespace=namespace, name=name), status=404)
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        for decided in found:
            line = await asyncio.to_thread(write, decided)  # values do not change, whatever the loop does meanwhile
            await response.write(f"{line}\n".encode())
        return response

    app = web.Application()
    app.add_routes([web.get(PATH, worlds)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
