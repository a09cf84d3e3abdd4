"""What the operator saw when it decided, for administrators: plain HTTP that no process outside the pod can reach.

A job's world holds its template and the last output of its ranks, and a node's the names of jobs of all tenants that
failed there. So they are served on the loopback address alone: who comes there by `kubectl port-forward` or `exec` has
rights in the operator's own namespace.
"""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

LOOPBACK = "127.0.0.1"
PATH = "/worlds/{namespace}/{name}"
NODE_PATH = "/nodes/{name}"
_UNKNOWN = (
    "nothing is kept of {what}. Only the replica that leads decides (the holder of the Lease muster-leader), it "
    "remembers nothing of the time before it led, and only the last decisions{which}.\n"
)
Line = Callable[[], str]
"""Writes one decision as a line of JSON. It is called in another thread, because that takes a while."""


async def serve_worlds(
    port: int, kept: Callable[[tuple[str, str]], Sequence[Line]], kept_of_node: Callable[[str], Sequence[Line]]
) -> web.AppRunner:
    """Serve `GET /worlds/NAMESPACE/JOB` and `GET /nodes/NODE` on the loopback address: one line of JSON for each kept
    decision, the newest last.

    Args:
        port: 0 for any; `runner.addresses` then has the one chosen.
        kept: returns the decisions about the job of this (namespace, name).
        kept_of_node: returns the decisions about the node of this name.

    Raises:
        OSError: the port cannot be had.
    """

    async def worlds(request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        unknown = _UNKNOWN.format(what=f"{namespace}/{name}", which="")
        return await _lines(request, kept((namespace, name)), unknown)

    async def nodes(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        unknown = _UNKNOWN.format(what=f"node {name}", which=" about nodes that are or were not healthy")
        return await _lines(request, kept_of_node(name), unknown)

    app = web.Application()
    app.add_routes([web.get(PATH, worlds), web.get(NODE_PATH, nodes)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


async def _lines(request: web.Request, lines: Sequence[Line], unknown: str) -> web.StreamResponse:
    """Answer with a line for each decision; with the text `unknown` and status 404 where there is none."""
    if not lines:
        return web.Response(text=unknown, status=404)
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(request)
    for write in lines:
        line = await asyncio.to_thread(write)  # values do not change, whatever the loop does meanwhile
        await response.write(f"{line}\n".encode())
    return response
