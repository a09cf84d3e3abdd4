"""The process that says which nodes are sick: `evidence SERVER CA TOKENS`, orders on standard input, one JSON a line.

For every node with an agent it speaks as that agent does: the agent's own ledger and client, a connection of its own,
and the token that is bound to the agent's pod on the node (a file in TOKENS, named like the node). Conditions of the
other nodes are written as a node problem detector writes them.

    {"boot": [NODES]}                                     the nodes' agents begin, in a new boot: nothing is wrong
    {"sick": [[NODE, "agent" | "condition"]], "seconds": S}  one after the other, evenly within so many seconds
    {"well": [NODES]}                                     the conditions of these nodes are fine

An order is answered by one line, {NODE: [when it was sent, when the API server answered]}, once the last answer is
there.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.api import STRATEGIC_PATCH, Connection
from bench.sick.verdicts import SUBJECT, XID, XID_TEXT, condition
from muster.node.agent.client import ApiError, NodeHealthClient
from muster.node.agent.facts import Clock, FaultEvent
from muster.node.agent.kinds import XID as XID_KIND
from muster.node.agent.ledger import Ledger
from muster.node.agent.settings import from_environment
from muster.node.agent.thresholds import DEFAULTS

# As many as speak at once: who is due waits for nobody else's answer.
SPEAKERS = 256
# They have to be there before the first one is due.
START_SECONDS = 0.3
# Where it does not matter when.
THREADS = 32
_GPUS = 8
_RETRIES, _RETRY_SECONDS = 5, 0.5


class Agent:
    """One node's agent, without a machine to look at."""

    def __init__(self, node: str, server: str, ca: Path, token: Path) -> None:
        self._node = node
        environment = {"MUSTER_NODE": node, "MUSTER_API_SERVER": server}
        environment |= {"MUSTER_CA_FILE": str(ca), "MUSTER_TOKEN_FILE": str(token)}
        self._client = NodeHealthClient(from_environment(environment))
        self._ledger = Ledger("", DEFAULTS["burst"])

    def boot(self) -> None:
        """The node has booted: say that nothing is wrong."""
        self._ledger.restart(str(uuid.uuid4()))
        self._write()

    def fall_off(self) -> None:
        """A GPU falls off the bus."""
        now = Clock(time.monotonic(), time.time())
        self._ledger.record(FaultEvent(XID_KIND, SUBJECT, DEFAULTS["xid.expires"], XID, message=XID_TEXT), now)
        self._write()

    def _write(self) -> None:
        agent = {
            "version": "bench",
            "bootId": self._ledger.boot_id,
            "systemUuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, self._node)),
            "gpuSerials": [f"{self._node}-{gpu}" for gpu in range(_GPUS)],
            "gpuModel": "NVIDIA H200",
            "gpus": _GPUS,
            "driver": "580.95.05",
            "problem": "",
        }
        for last in (*(False,) * _RETRIES, True):
            try:
                self._client.apply({"evidence": self._ledger.evidence(), "agent": agent})
                return
            except ApiError:  # as the agent's writer does: an API server under load may take longer than its deadline
                if last:
                    raise
                time.sleep(_RETRY_SECONDS)


class Speaker:
    """All agents, and the writers of conditions."""

    def __init__(self, server: str, ca: Path, tokens: Path, token: str) -> None:
        self._server, self._ca, self._tokens = server, ca, tokens
        self._agents: dict[str, Agent] = {}
        self._token = token
        self._detectors: queue.SimpleQueue[Connection] = queue.SimpleQueue()

    def carry_out(self, order: dict[str, Any]) -> dict[str, tuple[float, float]]:
        """Do it; returns when each node was spoken of."""
        if "boot" in order:
            return self._all((node, self._agent(node).boot) for node in order["boot"])
        if "well" in order:
            self._warm_up(THREADS)
            return self._all((node, partial(self._mark, node, False)) for node in order["well"])
        self._warm_up(sum(by != "agent" for _, by in order["sick"]))
        acts = [
            (node, self._agent(node).fall_off if by == "agent" else partial(self._mark, node, True))
            for node, by in order["sick"]
        ]
        return self._all(acts, order["seconds"])

    def _warm_up(self, connections: int) -> None:
        """A node problem detector's connection is there already; an agent's, which writes once in ten minutes, is
        not."""
        while self._detectors.qsize() < connections:
            self._detectors.put(Connection(self._server, self._token, self._ca))
        for _ in range(self._detectors.qsize()):
            detector = self._detectors.get()
            detector.get("/version")
            self._detectors.put(detector)

    def _agent(self, node: str) -> Agent:
        if node not in self._agents:
            self._agents[node] = Agent(node, self._server, self._ca, self._tokens / node)
        return self._agents[node]

    def _mark(self, node: str, bad: bool) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        detector = self._detectors.get()
        try:
            detector.patch(f"/api/v1/nodes/{node}/status", condition(bad, now), STRATEGIC_PATCH)
        finally:
            self._detectors.put(detector)

    def _all(
        self, acts: Iterable[tuple[str, Callable[[], None]]], seconds: float = 0.0
    ) -> dict[str, tuple[float, float]]:
        """Do each when it is due."""
        each = list(acts)
        begin, times = time.monotonic() + (START_SECONDS if seconds else 0.0), {}

        def do(number: int) -> None:
            node, act = each[number]
            time.sleep(max(begin + seconds * number / len(each) - time.monotonic(), 0.0))
            sent = time.time()
            act()
            times[node] = (sent, time.time())

        with ThreadPoolExecutor(SPEAKERS if seconds else THREADS) as pool:
            list(pool.map(do, range(len(each))))
        return times


def main(server: str, ca: str, tokens: str) -> None:
    """Carry out orders until the input ends."""
    speaker = Speaker(server, Path(ca), Path(tokens), os.environ["BENCH_TOKEN"])
    for line in sys.stdin:
        print(json.dumps(speaker.carry_out(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
