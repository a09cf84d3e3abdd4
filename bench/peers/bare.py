"""The floor: one raw client creates all pods, then posts all bindings. It decides nothing and keeps no record.

Its own pods are the smallest that there can be. With a mode it makes the pods that Muster makes in that mode: the floor
of everything but what a pod costs the API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.api import Object
from bench.bed import NAMESPACE, PODS, Bed
from bench.child import Child
from bench.peers.muster import training_job
from bench.peers.system import GANG, System

_OWNERS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class Bare(System):
    """The gang by a client of its own process with a fixed number of connections."""

    name = "bare"

    def __init__(self, bed: Bed, connections: int, mode: str | None = None) -> None:
        super().__init__(bed)
        self.connections, self.mode = connections, mode
        self._client: Child | None = None
        self._nodes: dict[str, str] = {}
        self._job: Object | None = None

    def begin(self) -> None:
        """Start the client and open its connections."""
        api, log = self.bed.connection, self.bed.cluster.directory / "logs" / "bare.log"
        arguments = [api.server, str(api.ca), NAMESPACE, str(self.connections)]
        self._client = Child("bench.peers.bareclient", arguments, {"BENCH_TOKEN": api.token}, log)
        self._ask({})
        if self.mode is not None:
            # Pods whose owner is not there would be deleted.
            owner = self.bed.connection.post(_OWNERS, {"metadata": {"name": GANG}})
            self._job = training_job(self.bed.size, self.mode)
            self._job["metadata"] |= {"namespace": NAMESPACE, "uid": owner["metadata"]["uid"]}

    def end(self) -> None:
        """End the client."""
        if self._client is not None:
            self._client.close()
        if self._job is not None:
            self.bed.connection.delete(f"{_OWNERS}/{GANG}")

    def prepare(self) -> None:
        """Have the bodies of the requests written."""
        self._nodes = {f"{GANG}-{index}-0": f"gpu-{index:05d}" for index in range(self.bed.size)}
        self._ask({"prepare": self._nodes, "job": self._job})

    def submit(self) -> None:
        """Order the gang; returns when every pod is bound."""
        self._ask({"pods": self._nodes})

    def replace(self, pods: Sequence[str]) -> None:
        """Order each failed pod anew, on its node."""
        made = {}
        for pod in pods:
            index, incarnation = pod.split("-")[1:]
            made[f"{GANG}-{index}-{int(incarnation) + 1}"] = self._nodes.pop(pod)
        self._nodes |= made
        self._ask({"delete": list(pods), "pods": made})

    def remove(self) -> None:
        """Delete all pods at once."""
        self.bed.connection.delete(PODS, {"gracePeriodSeconds": 0})

    def managers(self) -> Mapping[str, int]:
        """The client: it is all there is."""
        return {"bare": self._client.pid} if self._client is not None else {}

    def notes(self) -> Mapping[str, int | str]:
        """How many connections it has."""
        return {"connections": self.connections}

    def _ask(self, command: Mapping[str, Any]) -> None:
        """Give an order and wait until it is carried out."""
        assert self._client is not None
        self._client.ask(command)
