"""One checker: the shipped core and the shipped lines, driven by the loop of this process in place of threads.

What muster.node.checker.checker and muster.node.checker.talk do with threads, a zygote and a kept connection is done
here with timers, `probes` and the launchers' channel: thousands of threads would be what is measured.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from bench.checkers.journal import Trial, trial_of
from bench.checkers.probes import KEY, Probes
from bench.launchers.channel import Channel, Endpoint, UnreachableError
from muster.node.checker.core import CancelOrder, Core, KillZygote, Node, SendOrder, StartZygote
from muster.node.checker.lines import Lines, Send
from muster.node.checker.memory import Passes
from muster.node.checker.talk import report_for
from muster.protocol.checks import CHECK_PATH, CheckDirective, CheckReport, decode_check_directive
from muster.protocol.messages import digest_of, encode
from muster.protocol.retries import POLL, TELL, Pause

# The real one gives 5 s beyond the hold; here the machine may be far too small for so many, and that is no fault.
PATIENCE_SECONDS = 25.0


class Checker:
    """One node's checker.

    Args:
        tested: is told of each test that was made.
        counts: reports by what became of them.
    """

    def __init__(
        self,
        node: str,
        address: str,
        endpoint: Endpoint,
        token: str,
        probes: Probes,
        tested: Callable[[Trial], None],
        counts: Counter[str],
    ) -> None:
        self._node = node
        self._probes = probes
        self._tested = tested
        self._counts = counts
        self._channels = {name: Channel(endpoint, token, CHECK_PATH) for name in (POLL, TELL)}
        self._core = Core(Node(f"boot-{node}", address), Passes(), (), time.monotonic(), self._log)
        self._lines = Lines(lambda *_, **__: None, random.random)
        self._changed = {name: asyncio.Event() for name in (POLL, TELL)}
        self._timer: asyncio.TimerHandle | None = None
        self._asked: Mapping[str, Any] | None = None
        self._begun: dict[str, tuple[str, str, str, float]] = {}  # order -> kind, peer, profile, when
        self._running = ""
        self._heard: tuple[int, asyncio.Future[None]] | None = None  # which news, and who waits until it was answered

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._tick()
                for name in (POLL, TELL):
                    group.create_task(self._drive(name))
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for channel in self._channels.values():
                channel.close()

    def speak(self) -> asyncio.Future[None]:
        """Say that there is news, though nothing else is; done once that was answered."""
        self._core.news += 1
        answered = asyncio.get_running_loop().create_future()
        self._heard = self._core.news, answered
        self._notify()
        return answered

    # --- the process (muster.node.checker.checker)

    def _tick(self) -> None:
        """Do what is due."""
        core, loop = self._core, asyncio.get_running_loop()
        news = core.news
        while due := core.actions(time.monotonic()):
            for action in due:
                self._do(action)
        if core.news != news:
            self._notify()
        if self._timer is not None:
            self._timer.cancel()
        now = time.monotonic()
        self._timer = loop.call_later(max(0.0, core.wake_at(now) - now), self._tick)

    def _do(self, action: Any) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(action, StartZygote):
            loop.call_soon(self._ready)
        elif isinstance(action, SendOrder):
            self._asked = action.order
            answer = functools.partial(self._answered, action.order["id"])
            _, _, profile, _ = self._begun.get(self._running, ("", "", "Quick", 0.0))
            self._probes.begin(action.order, profile, answer)
        elif isinstance(action, CancelOrder) and self._asked is not None:
            loop.call_soon(self._probes.cancel, self._asked, functools.partial(self._answered, action.order_id))
        elif isinstance(action, KillZygote):
            self._asked = None

    def _ready(self) -> None:
        self._core.zygote_is_ready(KEY, time.monotonic())
        self._tick()

    def _answered(self, name: str, found: Mapping[str, Any]) -> None:
        if self._asked is None or self._asked["id"] != name:
            return  # it was cancelled
        self._asked = None
        news = self._core.news
        self._core.probe_has_answered({**found, "id": name}, time.monotonic())
        self._tick()
        if self._core.news != news:
            self._notify()

    def _log(self, event: str, **fields: Any) -> None:
        now = time.monotonic()
        if event == "an order begins":
            self._running = fields["order"]
            self._begun[self._running] = fields["kind"], fields["peer"], fields["profile"], now
        elif event == "an order is answered" and fields["order"] in self._begun:
            kind, peer, _, began = self._begun.pop(fields["order"])
            self._tested(trial_of(fields["order"], kind, self._node, peer, began, now))
            self._counts[f"answered {kind} {fields['how']}"] += 1

    # --- the conversation (muster.node.checker.talk)

    def _notify(self) -> None:
        for event in self._changed.values():
            event.set()

    async def _drive(self, name: str) -> None:
        core, lines, changed = self._core, self._lines, self._changed[name]
        while True:
            action = lines.next(name, core.news, time.monotonic())
            while isinstance(action, Pause):
                changed.clear()
                timer = None
                if action.seconds is not None:
                    timer = asyncio.get_running_loop().call_later(action.seconds, changed.set)
                await changed.wait()
                if timer is not None:
                    timer.cancel()
                action = lines.next(name, core.news, time.monotonic())
            report = report_for(core, action, time.monotonic())
            if action.hold_seconds:
                self._notify()  # what comes up from now on is the other line's
            await self._exchange(name, action, report)

    async def _exchange(self, name: str, sent: Send, report: CheckReport) -> None:
        try:
            body = await self._channels[name].exchange(encode(report), sent.timeout_seconds + PATIENCE_SECONDS)
        except UnreachableError as error:
            self._counts[f"unreachable: {error}"[:80]] += 1
            self._lines.failed(name, sent, str(error), time.monotonic())
        else:
            self._counts["reports"] += 1
            directive, seen = _decoded(body)
            if self._lines.answered(name, sent, directive, seen, time.monotonic()):
                self._core.hear(directive, time.monotonic())
            else:
                self._core.hear_anything(time.monotonic())
            self._tick()
            if self._heard is not None and sent.news >= self._heard[0]:
                _, answered = self._heard
                self._heard = None
                answered.set_result(None)
        self._notify()


@functools.lru_cache(maxsize=64)
def _decoded(body: bytes) -> tuple[CheckDirective, str]:
    """The directive and its digest; those of nodes that have nothing to do are all alike."""
    return decode_check_directive(body), digest_of(body)
