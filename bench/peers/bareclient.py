"""The raw client behind `bare`: `bareclient SERVER CA NAMESPACE CONNECTIONS`, orders and answers as of `bench.child`.

An order {"delete": [PODS], "pods": {POD: NODE}} deletes, then creates all pods, then binds them all; it is answered by
"done" when the last answer of the API server is there. {"prepare": {POD: NODE}, "job": JOB} writes the bodies of pods
that will be asked for: those that Muster makes for this TrainingJob, or without one the client's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from bench.api import Object
from bench.bed import pod_spec
from bench.burst import Burst
from bench.peers.muster import LAUNCHER_IMAGE
from muster.api.gang import Member
from muster.api.trainingjob import TrainingJob
from muster.pods.worker_pod import WorkerSettings, worker_manifest

_SCHEDULER = "bench-bare"
_SETTINGS = WorkerSettings(LAUNCHER_IMAGE, "https://127.0.0.1:8443", "muster-coordinator", "", "nvidia.com/gpu")


class Client:
    """Carries out orders about the pods of one namespace."""

    def __init__(self, burst: Burst, namespace: str) -> None:
        self._burst = burst
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._bodies: dict[str, bytes] = {}

    async def carry_out(self, order: Object) -> None:
        """Prepare; delete, create all, then bind all."""
        if "prepare" in order:
            self._bodies = bodies(order["prepare"], order["job"])
        delete, pods = order.get("delete") or [], order.get("pods") or {}
        now = json.dumps({"gracePeriodSeconds": 0}).encode()
        await self._burst.send(self._request("DELETE", f"/{name}", now) for name in delete)
        known = self._bodies | bodies({name: node for name, node in pods.items() if name not in self._bodies}, None)
        await self._burst.send(self._request("POST", "", known[name]) for name in pods)
        binding = b'{"metadata":{"name":"%b"},"target":{"apiVersion":"v1","kind":"Node","name":"%b"}}'
        await self._burst.send(
            self._request("POST", f"/{name}/binding", binding % (name.encode(), node.encode()))
            for name, node in pods.items()
        )

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        return self._burst.request(method, self._pods + path, body)


def bodies(pods: dict[str, str], job: Object | None) -> dict[str, bytes]:
    """The body of the creation of each pod."""
    if job is None:
        spec = {**pod_spec(), "schedulerName": _SCHEDULER}
        return {name: json.dumps({"metadata": {"name": name}, "spec": spec}).encode() for name in pods}
    model, made = TrainingJob.model_validate(job), {}
    for index, (name, node) in enumerate(pods.items()):
        member = Member(index=index, rank=index, node=node)
        pod: dict[str, Any] = worker_manifest(model, member, _SETTINGS, direct=True)
        pod["metadata"]["name"] = name
        for owner in pod["metadata"]["ownerReferences"]:
            owner |= {"apiVersion": "v1", "kind": "ConfigMap"}  # there is no job
        made[name] = json.dumps(pod).encode()
    return made


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
