"""Writes the evidence against the node from a thread of its own, so that a slow API server never delays the polls.

News is written at once, but never twice within a second; counts alone wait for half a minute, and are written a few
times in an hour only, whatever counts. While the API server is unavailable, the newest state waits. Before the first
write the object is read: evidence of an earlier agent in the same boot goes on.
"""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from muster.node.agent.client import ApiError, NodeHealthClient
from muster.node.agent.thresholds import Thresholds
from muster.node.log import log

_MAX_BACKOFF_SECONDS = 30.0
_HOUR_SECONDS = 3600.0


class Pace:
    """When a write without news is allowed: a few in short order, then a number each hour."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._pause, self._counts_pause = thresholds["write.pause"], thresholds["write.counts"]
        self._most = thresholds["write.quiet"]
        self._left = self._most
        self._counted = self._last = float("-inf")

    def due(self, urgent: bool) -> float:
        """Return the earliest moment for a write, on the monotonic clock."""
        if urgent:
            return self._last + self._pause
        waits = max(0.0, 1.0 - self._left) * _HOUR_SECONDS / self._most
        return max(self._last + self._counts_pause, self._counted + waits)

    def wrote(self, mono: float, urgent: bool) -> None:
        """Note a write."""
        self._last = mono
        if not urgent:
            gained = (mono - self._counted) * self._most / _HOUR_SECONDS
            self._left = min(self._most, self._left + gained) - 1.0
            self._counted = mono


class Writer:
    """Holds the newest status and sends it to the API server."""

    def __init__(
        self,
        client: NodeHealthClient,
        thresholds: Thresholds,
        on_stored: Callable[[dict[str, Any]], None],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._monotonic, self._sleep = monotonic, sleep
        self._pace = Pace(thresholds)
        self._check = thresholds["write.check"]
        self._on_stored = on_stored
        self._changed = threading.Condition()
        self._wanted: dict[str, Any] | None = None
        self._last_written: dict[str, Any] | None = None
        self._urgent = False
        self._failures = 0
        self._looked = 0.0
        self._first_refused: float | None = None
        self.writes = 0
        self.errors = 0
        self.refused = 0  # errors that are refusals
        self.refused_seconds = 0.0  # from the first refusal to the newest, since a request was last carried out
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread still writes."""
        return self._thread.is_alive()

    def offer(self, status: dict[str, Any], *, urgent: bool) -> None:
        """Replace the status to write by a newer one. Never blocks."""
        with self._changed:
            self._wanted = status
            self._urgent = self._urgent or urgent
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._try(self._read):
            self._sleep(self._backoff())
        while True:
            status = self._next()
            if not self._try(self._check_object if status is None else partial(self._write, status)):
                if status is not None:
                    self._put_back(status)
                self._sleep(self._backoff())

    def _next(self) -> dict[str, Any] | None:
        """Return the status to write, when it is time; None when it is time to check whether the object still
        exists."""
        with self._changed:
            while True:
                now = self._monotonic()
                due = self._looked + self._check if self._wanted is None else self._pace.due(self._urgent)
                if now >= due:
                    if self._wanted is not None:
                        self._pace.wrote(now, self._urgent)
                    status, self._wanted, self._urgent = self._wanted, None, False
                    return status
                self._changed.wait(min(due - now, self._check))

    def _put_back(self, status: dict[str, Any]) -> None:
        with self._changed:
            if self._wanted is None:
                self._wanted = status
            self._urgent = True

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except ApiError as error:
            self.errors += 1
            self._failures += 1
            if error.is_refusal:
                self._note_refusal()
            if str(error) != self.problem:
                self.problem = str(error)
                log("no word with the API server; trying again", problem=self.problem)
            return False
        if self.problem:
            log("the API server answers again")
        self.problem, self._failures = "", 0
        self._first_refused, self.refused_seconds = None, 0.0
        return True

    def _note_refusal(self) -> None:
        """Count a refusal; only these prove that the agent may not report, an API server that is away does not."""
        now = self._monotonic()
        if self._first_refused is None:
            self._first_refused = now
        self.refused += 1
        self.refused_seconds = now - self._first_refused

    def _read(self) -> None:
        stored = self._client.read()
        self._looked = self._monotonic()
        self._on_stored(stored or {})

    def _write(self, status: dict[str, Any]) -> None:
        self._client.apply(status)
        self._last_written = status
        self.writes += 1
        kinds = [item["kind"] for item in status["evidence"]]
        log("evidence written", evidence=len(kinds), kinds=sorted(set(kinds)))

    def _check_object(self) -> None:
        """Check whether the object still exists: it may have been deleted."""
        stored = self._client.read()
        if self._last_written is not None and not ((stored or {}).get("status") or {}).get("agent"):
            self._pace.wrote(self._monotonic(), urgent=True)
            self._write(self._last_written)
        self._looked = self._monotonic()

    def _backoff(self) -> float:
        longest = min(_MAX_BACKOFF_SECONDS, 0.5 * 2.0 ** min(self._failures, 10))
        return longest * random.uniform(0.5, 1.0)
