"""When each pod of a namespace was created, bound, Running, failed and gone, as one watching client sees it.

It decodes only the few fields that it needs: on two cores the bench must not take the time that it measures.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from bench.api import Connection, Object
from localcluster.api import ApiError

_GONE = 410
_BOOKMARKS = {"allowWatchBookmarks": "true"}


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Spec(msgspec.Struct):
    node_name: str = msgspec.field(default="", name="nodeName")


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    # For an event ERROR the object is a Status, whose status is a text.
    status: _Status | str = msgspec.field(default_factory=_Status)
    code: int = 0


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_decode = msgspec.json.Decoder(_Event).decode


@dataclass
class Seen:
    """One pod, by its uid; times as time.time(), None: not seen so far."""

    name: str
    node: str = ""
    created: float | None = None
    bound: float | None = None
    running: float | None = None
    failed: float | None = None
    deleting: float | None = None
    gone: float | None = None

    @property
    def runs(self) -> bool:
        """Running, and nobody has asked it to end."""
        return self.running is not None and self.failed is None and self.deleting is None and self.gone is None


class PodWatch:
    """Watches the pods of one namespace in a thread, from the moment it is made until `close()`."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._changed = threading.Condition()
        self._pods: dict[str, Seen] = {}
        self._running: set[str] = set()
        self._closed = threading.Event()
        self.events = 0
        self.relists = 0
        self._version = self._list()
        threading.Thread(target=self._follow, name="pod watch", daemon=True).start()

    def wait(self, condition: Callable[[PodWatch], bool], deadline_seconds: float) -> bool:
        """Whether the condition came true in time; it is asked again after each event, so it has to be cheap."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), deadline_seconds)

    @property
    def running(self) -> int:
        """How many pods run."""
        return len(self._running)

    def any_runs(self, uids: Iterable[str]) -> bool:
        """Whether one of these pods runs."""
        return not self._running.isdisjoint(uids)

    @property
    def present(self) -> int:
        """How many pods exist, in whatever state."""
        return len(self._pods)

    def pods(self) -> dict[str, Seen]:
        """Every pod that exists, by uid."""
        with self._changed:
            return dict(self._pods)

    def close(self) -> None:
        """Stop watching; the thread ends with the next event."""
        self._closed.set()

    def _list(self) -> str:
        listed: Object = self._connection.get(self._path)
        now = time.time()
        present = {item["metadata"]["uid"]: item for item in listed["items"]}
        with self._changed:
            for uid in set(self._pods) - set(present):
                self._forget(uid, now)
            for item in listed["items"]:
                self._note(msgspec.convert(item, _Pod), now)
            self._changed.notify_all()
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                for line in self._connection.watch(self._path, {**_BOOKMARKS, "resourceVersion": self._version}):
                    self._note_line(line)
                    if self._closed.is_set():
                        return
            except (ApiError, OSError, http.client.HTTPException):
                if self._closed.is_set():
                    return
                # The server ends watches that fall behind; what was missed is seen now.
                self.relists += 1
                self._version = self._list()

    def _note_line(self, line: bytes) -> None:
        now = time.time()
        event = _decode(line)
        pod = event.object
        if event.type == "ERROR":
            raise ApiError(pod.code or _GONE, line.decode())
        self._version = pod.metadata.resource_version
        if event.type == "BOOKMARK":
            return
        with self._changed:
            self.events += 1
            if event.type == "DELETED":
                self._forget(pod.metadata.uid, now)
            else:
                self._note(pod, now)
            self._changed.notify_all()

    def _note(self, pod: _Pod, now: float) -> None:
        uid = pod.metadata.uid
        seen = self._pods.get(uid)
        if seen is None:
            seen = self._pods[uid] = Seen(pod.metadata.name, created=now)
        if pod.spec.node_name and seen.bound is None:
            seen.node, seen.bound = pod.spec.node_name, now
        phase = pod.status.phase if isinstance(pod.status, _Status) else ""
        if phase == "Running" and seen.running is None:
            seen.running = now
        if phase in ("Failed", "Succeeded") and seen.failed is None:
            seen.failed = now
        if pod.metadata.deletion_timestamp is not None and seen.deleting is None:
            seen.deleting = now
        (self._running.add if seen.runs else self._running.discard)(uid)

    def _forget(self, uid: str, now: float) -> None:
        seen = self._pods.pop(uid, None)
        if seen is not None:
            seen.gone = now
        self._running.discard(uid)


def latest(times: Iterable[float | None], since: float) -> float | None:
    """Seconds from `since` to the last of the times; None while one is missing or there is none."""
    last = since
    count = 0
    for moment in times:
        if moment is None:
            return None
        last, count = max(last, moment), count + 1
    return last - since if count else None
