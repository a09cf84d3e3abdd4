"""The raw client behind the floor of the health bench: `taints SERVER CA CONNECTIONS`.

An order is one line of JSON, {"nodes": [NODES], "key": KEY}: each node gets a taint with the key, beside the one that
KWOK's nodes have, as fast as the API server takes the patches. An empty key takes it away. The answer is one line:
{NODE: when its patch was sent}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator

from bench.api import MERGE_PATCH
from bench.burst import Burst
from bench.sick.verdicts import OWN_TAINT


def requests(burst: Burst, nodes: Iterable[str], key: str, sent: dict[str, float]) -> Iterator[bytes]:
    """The patches; a time is noted when one is taken, which is when it is sent."""
    taints = [OWN_TAINT, *([{"key": key, "value": "Bench", "effect": "NoSchedule"}] if key else [])]
    body = json.dumps({"spec": {"taints": taints}}).encode()
    for node in nodes:
        sent[node] = time.time()
        yield burst.request("PATCH", f"/api/v1/nodes/{node}", body, MERGE_PATCH)


async def main(server: str, ca: str, connections: str) -> None:
    """Carry out orders until the input ends."""
    burst = Burst(server, os.environ["BENCH_TOKEN"])
    await burst.open(int(connections), ca)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order, sent = json.loads(line), dict[str, float]()
        await burst.send(requests(burst, order["nodes"], order["key"], sent))
        print(json.dumps(sent), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
