"""The raw client behind `bare`: `bareclient SERVER CA NAMESPACE CONNECTIONS`, orders and answers as of `bench.child`.

An order {"delete": [PODS], "pods": {POD: NODE}} deletes, then creates all pods, then binds them all; it is answered by
"done" when the last answer of the API server is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from bench.bed import pod_spec
from bench.burst import Burst

_SCHEDULER = "bench-bare"


class Client:
    """Carries out orders about the pods of one namespace."""

    def __init__(self, burst: Burst, namespace: str) -> None:
        self._burst = burst
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def carry_out(self, order: dict[str, object]) -> None:
        """Delete, create all, then bind all."""
        delete, pods = order.get("delete") or [], order.get("pods") or {}
        assert isinstance(delete, list)
        assert isinstance(pods, dict)
        now = json.dumps({"gracePeriodSeconds": 0}).encode()
        await self._burst.send(self._request("DELETE", f"/{name}", now) for name in delete)
        spec = json.dumps({**pod_spec(), "schedulerName": _SCHEDULER})
        await self._burst.send(
            self._request("POST", "", b'{"metadata":{"name":"%b"},"spec":%b}' % (name.encode(), spec.encode()))
            for name in pods
        )
        binding = b'{"metadata":{"name":"%b"},"target":{"apiVersion":"v1","kind":"Node","name":"%b"}}'
        await self._burst.send(
            self._request("POST", f"/{name}/binding", binding % (name.encode(), node.encode()))
            for name, node in pods.items()
        )

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        return self._burst.request(method, self._pods + path, body)


async def main(server: str, ca: str, namespace: str, connections: str) -> None:
    """Carry out orders until the input ends."""
    burst = Burst(server, os.environ["BENCH_TOKEN"])
    await burst.open(int(connections), ca)
    client = Client(burst, namespace)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await client.carry_out(json.loads(line))
        print(json.dumps("done"), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
