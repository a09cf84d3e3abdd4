"""Runs the process around the core: it owns the zygote, the two files and the loop that executes due actions.

The loop must run in a thread that lives as long as the process: the kernel ends the zygote with the thread that started
it.

Tests: tests/unit/checker/test_process.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import select
import threading
import time
from typing import Any, Callable, List, Optional, Sequence

from muster.node.checker import host, memory
from muster.node.checker.core import (
    IDLE_SECONDS,
    Action,
    CancelOrder,
    Core,
    ForwardPuts,
    KillZygote,
    Node,
    SendOrder,
    StartZygote,
)
from muster.node.checker.probes.prober import Prober, ZygoteError
from muster.node.checker.settings import Settings
from muster.node.checker.store import File
from muster.node.checker.talk import Talk
from muster.protocol.checks import READY, STARTING, UNFIT
from muster.serve import Metric

_ALIVE_SECONDS = IDLE_SECONDS + 60.0
"""The longest healthy pause between two rounds of the loop: a round comes once a minute at least, and closing a zygote
takes seconds."""
_END_SECONDS = 1.5
_READ_BYTES = 4096


def clock() -> float:
    """Return the seconds since the boot, including those in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Checker:
    """The checker of one node. `command` starts the zygote; `log` writes one line about an event."""

    def __init__(self, settings: Settings, command: Sequence[str], log: Callable[..., None]) -> None:
        self._command = command
        self._log = log
        self._changed = threading.Condition()
        self._passes_file = File(os.path.join(settings.run_directory, "passes.json"), log)
        self._figures_file = File(os.path.join(settings.lib_directory, "figures.json"), log)
        now, wall = clock(), time.time()
        passes = self._passes_file.load(functools.partial(memory.passes_from_json, now=now), memory.Passes())
        figures = self._figures_file.load(functools.partial(memory.figures_from_json, now=now, wall=wall), ())
        node = Node(
            host.boot_id(settings.boot_id_file),
            settings.address,
            settings.storage_directory,
            host.infiniband_is_ethernet(settings.sysfs),
        )
        self._core = Core(node, passes, figures, now, log)
        self._saved_passes: Any = passes
        self._saved_figures: Any = figures
        self._prober: Optional[Prober] = None
        self._wake_hear, self._wake_tell = os.pipe()
        for descriptor in (self._wake_hear, self._wake_tell):
            os.set_blocking(descriptor, False)
        self._talk = Talk(settings.endpoint, self._core, self._changed, clock, self.wake, log)
        self._stopping = False
        self._turned_at = now

    def run(self) -> None:
        """Run until `stop`; then the zygote is killed, with all that it runs."""
        self._talk.start()
        while not self._stopping:
            self._turned_at = clock()
            with self._changed:
                news = self._core.news
                due = self._core.actions(clock())
            for action in due:
                self._do(action)
            self._save()
            with self._changed:
                if self._core.news != news:
                    self._changed.notify_all()
                now = clock()
                pause = 0.0 if due else self._core.wake_at(now) - now
            self._wait(max(0.0, pause))
        self._save()  # the changes since the last round
        self._log("stopping")
        # A process that hangs in the kernel must not keep this one from ending.
        hurry = threading.Timer(_END_SECONDS, os._exit, (0,))
        hurry.daemon = True
        hurry.start()
        self._close()

    def stop(self) -> None:
        """End `run` soon. A signal handler may call it."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Start the next round of the loop."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_tell, b".")

    def is_alive(self) -> bool:
        """Whether the loop runs, and a thread still talks to the coordinator."""
        return clock() - self._turned_at < _ALIVE_SECONDS and self._talk.is_alive()

    def metrics(self) -> List[Metric]:
        """Return the metrics for Prometheus."""
        with self._changed:
            core, now = self._core, clock()
            state, heard = core.state, core.heard_seconds(now)
            answered, starts, passes = sorted(core.answered.items()), core.starts, len(core.passes.held)
        states = [({"state": name}, float(name == state)) for name in (STARTING, READY, UNFIT)]
        return [
            ("muster_check_state", "gauge", "1 for the state that the checker is in.", states),
            ("muster_check_passes", "gauge", "Passes that hold.", [({}, float(passes))]),
            (
                "muster_check_orders_total",
                "counter",
                "Orders answered, by how they ended.",
                [({"how": how}, float(count)) for how, count in answered],
            ),
            ("muster_check_zygote_starts_total", "counter", "How often torch was imported.", [({}, float(starts))]),
            ("muster_check_silence_seconds", "gauge", "Since the coordinator was heard.", [({}, heard)]),
        ]

    # --- the zygote

    def _do(self, action: Action) -> None:
        try:
            if isinstance(action, StartZygote):
                self._prober = Prober(self._command)
            elif isinstance(action, KillZygote):
                self._close()
            elif self._prober is not None and isinstance(action, SendOrder):
                self._prober.send(action.order)
            elif self._prober is not None and isinstance(action, ForwardPuts):
                puts = [dataclasses.asdict(put) for put in action.puts]
                self._prober.send({"meet": action.order_id, "puts": puts})
            elif self._prober is not None and isinstance(action, CancelOrder):
                self._prober.cancel(action.order_id)
        except (OSError, ZygoteError) as error:
            self._has_ended(str(error))

    def _has_ended(self, why: str) -> None:
        self._close()
        with self._changed:
            self._core.zygote_has_ended(why, clock())
            self._changed.notify_all()

    def _close(self) -> None:
        if self._prober is not None:
            self._prober.close()
            self._prober = None

    def _wait(self, seconds: float) -> None:
        """Wait for an answer of the zygote, or for `wake`, at most this long."""
        prober = self._prober
        descriptors = [self._wake_hear] if prober is None else [self._wake_hear, prober.fileno()]
        readable, _, _ = select.select(descriptors, [], [], seconds)
        if self._wake_hear in readable:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._wake_hear, _READ_BYTES):
                    pass
        if prober is not None and prober.fileno() in readable:
            self._listen(prober)

    def _listen(self, prober: Prober) -> None:
        try:
            message = prober.receive(0)
            while message is not None:
                self._note_message(prober, message)
                message = prober.receive(0) if self._prober is prober else None
        except (ZygoteError, ValueError) as error:  # ValueError: a line is not JSON
            if self._prober is prober:
                self._has_ended(str(error))

    def _note_message(self, prober: Prober, message: "dict[str, Any]") -> None:
        if prober.ready is not None:
            with self._changed:
                if "put" in message:
                    self._core.probe_has_put(message)
                else:
                    self._core.probe_has_answered(message, clock())
                self._changed.notify_all()
        elif message.get("ready"):
            prober.ready = message
            with self._changed:
                self._core.zygote_is_ready(message.get("key") or {}, clock())
                self._changed.notify_all()
        else:
            self._has_ended("torch cannot be imported: %s" % message.get("message"))

    # --- the host

    def _save(self) -> None:
        """Write changed files; a change that cannot be written waits for the next one."""
        with self._changed:
            passes, figures = self._core.passes, self._core.figures
        if passes is not self._saved_passes:
            self._saved_passes = passes
            self._passes_file.save(memory.passes_to_json(passes))
        if figures is not self._saved_figures:
            self._saved_figures = figures
            self._figures_file.save(memory.figures_to_json(figures, clock(), time.time()))
