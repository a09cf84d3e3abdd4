"""Records Events for people (events.k8s.io/v1): what happened to an object, posted once and counted when it repeats.

An Event's name is a digest of its content. The same occurrence is therefore the same Event after a restart and for the
next leader: its series grows, and no second Event appears. Recording never waits and never fails; Events that cannot be
posted are dropped and counted. Namespaces are served in rotation. When too many Events are pending, the namespace with
the most of them loses some: a flood in one namespace hides no Event of another.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import Counter

from muster.api.base import rfc3339
from muster.kube import decode, paths
from muster.kube.client import Client
from muster.kube.errors import AlreadyExists, ApiError, LeadershipLost, NotFound
from muster.protocol.messages import readable

NORMAL = "Normal"
WARNING = "Warning"

MAX_NOTE_BYTES = 1024  # the API server's limit, and it counts bytes
MAX_PENDING = 4096  # a rack that fails causes hundreds at once
MAX_REMEMBERED = 4096
PER_SECOND = 25.0
SERIES_SECONDS = 30.0  # a repetition is written at most this often

log = structlog.get_logger()
_dropped = Counter("muster_events_dropped_total", "Events that could not be posted.")


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    regarding: Regarding
    type: str
    reason: str
    action: str
    note: str

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or "default"  # where Events of cluster-scoped objects live

    @property
    def name(self) -> str:
        parts = (self.regarding.uid, self.type, self.reason, self.action, self.note)
        return f"{self.regarding.name[:200]}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class _Pending:
    count: int
    first: datetime
    last: datetime


class EventRecorder:
    """Records Events; `run()` posts them, a few per second.

    Args:
        client: posts.
        component: reportingController, e.g. `muster.dev/operator`.
        instance: reportingInstance, e.g. the operator's pod.
        per_second: the most posts in a second, on average.
        series_seconds: the least time between two writes about an Event that comes again.
        clock: monotonic seconds.
        wall_clock: aware times.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        instance: str,
        *,
        per_second: float = PER_SECOND,
        series_seconds: float = SERIES_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._pause_seconds = 1.0 / per_second
        self._series_seconds = series_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        # By namespace, the most recently served one last; within a namespace in the order in which they came.
        self._pending: OrderedDict[str, OrderedDict[_Event, _Pending]] = OrderedDict()
        self._written: OrderedDict[_Event, float] = OrderedDict()  # when each was last written
        self._count = 0  # number of pending Events
        self._wakeup = asyncio.Event()

    def record(self, regarding: Regarding, event_type: str, reason: str, note: str, action: str = "Reconcile") -> None:
        """Record an Event about an object. Call it after the write that makes it true has succeeded."""
        event, now = _Event(regarding, event_type, reason, action, _shortened(note)), self._wall_clock()
        of_namespace = self._pending.setdefault(event.namespace, OrderedDict())
        pending = of_namespace.get(event)
        if pending is not None:
            of_namespace[event] = replace(pending, count=pending.count + 1, last=now)
            return
        of_namespace[event] = _Pending(1, now, now)
        self._count += 1
        if self._count > MAX_PENDING:
            busiest = max(self._pending.values(), key=lambda several: len(several))
            self._enqueue(next(iter(busiest)))
            _dropped.inc()
        self._wakeup.set()

    async def run(self) -> None:
        """Post recorded Events until cancelled."""
        while True:
            if await self._post_one(only_due=True):
                await asyncio.sleep(self._pause_seconds)
                continue
            self._wakeup.clear()
            # Repetitions become due by time alone.
            timeout = self._series_seconds / 4 if self._pending else None
            try:
                async with asyncio.timeout(timeout):  # wait_for can lose a cancellation before Python 3.12
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    async def flush(self) -> None:
        """Post everything now: at a graceful end, after `run()` was cancelled."""
        while await self._post_one(only_due=False):
            pass

    async def _post_one(self, *, only_due: bool) -> bool:
        waiting = (event for several in self._pending.values() for event in several)
        event = next((e for e in waiting if not only_due or self._is_due(e)), None)
        if event is None:
            return False
        pending = self._enqueue(event)
        if event.namespace in self._pending:
            self._pending.move_to_end(event.namespace)
        self._written[event] = self._clock()
        self._written.move_to_end(event)
        while len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)
        try:
            await self._post(event, pending)
        except (ApiError, LeadershipLost) as error:
            _dropped.inc()
            log.warning("event dropped", reason=event.reason, object=event.regarding.name, error=str(error))
        return True

    def _enqueue(self, event: _Event) -> _Pending:
        several = self._pending[event.namespace]
        pending = several.pop(event)
        self._count -= 1
        if not several:
            del self._pending[event.namespace]
        return pending

    def _is_due(self, event: _Event) -> bool:
        written = self._written.get(event)
        return written is None or self._clock() - written >= self._series_seconds

    async def _post(self, event: _Event, pending: _Pending) -> None:
        collection = paths.group("events.k8s.io/v1", "events", namespace=event.namespace)
        body = self._body(event, pending)
        try:
            await self._client.post(collection, body)
            return
        except AlreadyExists:
            path = f"{collection}/{body['metadata']['name']}"
        try:
            existing = decode.without_metadata(await self._client.get(path))  # a tenant may write it
            count = (existing["series"].get("count") or 1) + pending.count
            series = {"series": {"count": count, "lastObservedTime": rfc3339(pending.last)}}
            await self._client.patch(path, series)
        except NotFound:  # the Event has just expired
            await self._client.post(collection, body)

    def _body(self, event: _Event, pending: _Pending) -> dict[str, Any]:
        about = event.regarding
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": event.namespace},
            "eventTime": rfc3339(pending.first),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "name": about.name,
                "uid": about.uid,
                **({"namespace": about.namespace} if about.namespace else {}),
            },
            "reportingController": self._component,
            "reportingInstance": self._instance[:128],
        }
        if pending.count > 1:
            body["series"] = {"count": pending.count, "lastObservedTime": rfc3339(pending.last)}
        return body


def _shortened(note: str) -> str:
    """Return the note without terminal controls, in Unicode, and cut at a whole character: the API server's limit."""
    data = readable(note).encode()
    if len(data) <= MAX_NOTE_BYTES:
        return data.decode()
    return data[: MAX_NOTE_BYTES - 3].decode(errors="ignore") + "..."
