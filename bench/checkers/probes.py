"""Probes that take their time and find every device well: what a zygote would answer, without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.node.checker.facts import CUDA
from muster.node.checker.probes import outcome
from muster.node.checker.probes.node import steps_of
from muster.protocol.profiles import PROFILES

KEY = {"torch": "2.9.0", "cuda": "12.8", "nccl": "2.28.9", "version": "simulated"}
MODEL = "NVIDIA H200"
GPUS = 8
# Twice what is published as the least for any model (muster.preflight.baselines): a floor is not what is measured here.
_GOOD = 2600.0

Answer = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the probes take.

    Attributes:
        node_seconds: all probes of one node together, one after the other.
        pair_seconds: an all-reduce of several nodes, from the moment at which all are there.
    """

    node_seconds: float
    pair_seconds: float


@dataclass(slots=True)
class Probes:
    """The probes of all nodes.

    Attributes:
        late_seconds: how much later than it should a probe has ended at worst: this machine's doing.
    """

    pace: Pace
    late_seconds: float = 0.0
    _waiting: dict[tuple[str, int], dict[int, tuple[Mapping[str, Any], Answer]]] = field(default_factory=dict)

    def begin(self, asked: Mapping[str, Any], profile: str, answer: Answer) -> None:
        """Run an order of the zygote; the answer comes later."""
        if asked["probe"] == "Devices":
            self._after(0.0, answer, devices(asked))
        elif asked.get("nodes", 1) < 2:
            steps = len(steps_of(PROFILES[profile], CUDA, None))
            self._after(self.pace.node_seconds / steps, answer, done(asked))
        else:
            self._meet(asked, answer)

    def _meet(self, asked: Mapping[str, Any], answer: Answer) -> None:
        place = (asked["master"], asked["port"])
        here = self._waiting.setdefault(place, {})
        here[asked["node_rank"]] = asked, answer
        if len(here) == asked["nodes"]:
            for order, told in self._waiting.pop(place).values():
                self._after(self.pace.pair_seconds, told, done(order))
        elif len(here) == 1:
            asyncio.get_running_loop().call_later(asked["deadline_seconds"], self._too_few, place, here)

    def cancel(self, asked: Mapping[str, Any], answer: Answer) -> None:
        """An order was taken back."""
        here = self._waiting.get((asked.get("master", ""), asked.get("port", 0)), {})
        here.pop(asked.get("node_rank", 0), None)
        answer(_ended(asked, outcome.CANCELLED))

    def _too_few(self, place: tuple[str, int], here: Mapping[int, tuple[Mapping[str, Any], Answer]]) -> None:
        if self._waiting.get(place) is here:
            for asked, answer in self._waiting.pop(place).values():
                answer(_ended(asked, outcome.COULD_NOT_CONNECT))

    def _after(self, seconds: float, answer: Answer, found: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds

        def end() -> None:
            self.late_seconds = max(self.late_seconds, loop.time() - due)
            answer(found)

        loop.call_at(due, end)


def devices(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a look at the devices answers."""
    seen = [{"index": index, "uuid": f"GPU-{index}", "model": MODEL} for index in range(GPUS)]
    figures = {"gpus": seen, "driver": "580", "found": GPUS}
    mark = {"model": "simulated", "instructions": "simulated"}
    part = {"device": 0, "mark": mark, "outcome": outcome.DONE, "figures": figures}
    return {**_ended(asked, outcome.DONE), "device": "node", "parts": [part]}


def done(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What another probe answers."""
    if asked["probe"] == "AllReduce":
        sizes = [{"bytes": size, "best_bus_gb_per_s": _GOOD} for size, _ in asked["sizes"]]
        figures: dict[str, Any] = {"sizes": sizes, "world": GPUS * asked["nodes"], "backend": "nccl"}
        transports = ["NET/IB/GDRDMA"] if asked["nodes"] > 1 else ["P2P/CUMEM"]
    else:
        figures, transports = _figures(), []
    parts = [{"device": index, "outcome": outcome.DONE, "figures": figures} for index in asked["devices"] or [0]]
    return {**_ended(asked, outcome.DONE), "parts": parts, "transports": transports}


def _figures() -> dict[str, Any]:
    return {
        "context_seconds": 1.0,
        "best_tflops": _GOOD,
        "best_gb_per_s": _GOOD,
        "gb_per_s": _GOOD,
        "to_device": {"best_gb_per_s": _GOOD},
        "from_device": {"best_gb_per_s": _GOOD},
    }


def _ended(asked: Mapping[str, Any], name: str) -> dict[str, Any]:
    plain = {"probe": asked["probe"], "device": asked["device"], "outcome": name, "parts": []}
    return {**plain, "seconds": 1.0, "given_back": {"free": True}}
