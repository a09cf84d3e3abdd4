"""A zygote that answers as it is told, in no time: what the core's tests drive it with."""

from __future__ import annotations

import dataclasses
from typing import Any

from muster.node.checker.core import CancelOrder, Core, KillZygote, Node, SendOrder, StartZygote
from muster.node.checker.memory import Passes
from muster.protocol.checks import CheckDirective, CheckOrder, CheckReport

KEY = {"torch": "2.9.0", "cuda": "12.8", "nccl": "2.28.9", "version": "v1"}


def look(gpus: int = 2, name: str = "Done", uuids: str = "GPU", **more: Any) -> dict[str, Any]:
    """What a Devices probe answers."""
    seen = [{"index": index, "uuid": f"{uuids}-{index}", "model": "NVIDIA H200"} for index in range(gpus)]
    mark = {"model": "Xeon", "instructions": "avx2"}
    figures = {"gpus": seen, "driver": "580", "found": gpus}
    return {
        "outcome": name,
        "device": "node",
        "parts": [{"device": 0, "mark": mark, "outcome": name, "figures": figures}],
        **more,
    }


def done(asked: Any, **figures: Any) -> dict[str, Any]:
    """What another probe answers."""
    parts = [{"device": index, "outcome": "Done", "figures": figures} for index in asked["devices"] or [0]]
    return {"outcome": "Done", "device": asked["device"], "parts": parts, "seconds": 1.0, "given_back": {"free": True}}


@dataclasses.dataclass
class Driven:
    """A core with its zygote, and a clock that the test turns.

    Attributes:
        asked: what the zygote has been given and not answered yet.
        begun: ids of the coordinator's orders as they came to run, in order.
    """

    core: Core = dataclasses.field(init=False)
    passes: Passes = dataclasses.field(default_factory=Passes)
    figures: tuple[Any, ...] = ()
    now: float = 1000.0
    looks: dict[str, Any] = dataclasses.field(default_factory=look)
    asked: list[Any] = dataclasses.field(default_factory=list)
    cancelled: list[str] = dataclasses.field(default_factory=list)
    log: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    up: bool = False  # a zygote runs, ready or not

    def __post_init__(self) -> None:
        self.core = Core(Node("boot-1", "10.0.0.1"), self.passes, self.figures, self.now, self._log)

    def _log(self, event: str, **fields: Any) -> None:
        self.log.append((event, fields))

    @property
    def begun(self) -> list[str]:
        return [fields["order"] for event, fields in self.log if event == "an order begins"]

    def turn(self) -> list[Any]:
        """Do what is due, as the process does."""
        every = []
        while True:
            due = self.core.actions(self.now)
            every += due
            for action in due:
                self._do(action)
            if not due:
                return every

    def _do(self, action: Any) -> None:
        if isinstance(action, StartZygote):
            assert not self.up, "two zygotes"
            self.up = True
        elif isinstance(action, KillZygote):
            self.up, self.asked = False, []
        elif isinstance(action, SendOrder):
            assert not self.asked, "two probes at once"
            self.asked.append(action.order)
        elif isinstance(action, CancelOrder):
            assert [order["id"] for order in self.asked] == [action.order_id]
            self.cancelled.append(action.order_id)

    def start(self) -> Driven:
        """The zygote comes up and the devices are looked at."""
        self.turn()
        self.core.zygote_is_ready(KEY, self.now)
        self.turn()
        self.reply()
        return self

    def reply(self, answer: dict[str, Any] | None = None, **more: Any) -> None:
        """The zygote answers what it was given last."""
        order = self.asked.pop()
        found = answer or (self.looks if order["probe"] == "Devices" else done(order))
        self.core.probe_has_answered({**found, "id": order["id"], "probe": order["probe"], **more}, self.now)
        self.turn()

    def reply_all(self) -> None:
        """Until nothing is asked any more."""
        while self.asked:
            self.reply()

    def die(self, why: str = "signal 9") -> None:
        self.up, self.asked = False, []
        self.core.zygote_has_ended(why, self.now)
        self.turn()

    def tell(self, *orders: CheckOrder, **more: Any) -> None:
        self.core.hear(CheckDirective(orders=orders, **more), self.now)
        self.turn()

    def wait(self, seconds: float, heard: bool = True) -> None:
        self.now += seconds
        if heard:
            self.core.hear_anything(self.now)
        self.turn()

    @property
    def report(self) -> CheckReport:
        return self.core.report(self.now)

    @property
    def answers(self) -> dict[str, str]:
        return {answer.order: answer.outcome for answer in self.report.answers}
