"""When each node got Muster's taint, as one watching client sees it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable

import msgspec

from bench.api import Connection
from localcluster.api import ApiError

_PATH = "/api/v1/nodes"


class _Metadata(msgspec.Struct):
    name: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Taint(msgspec.Struct):
    key: str = ""


class _Spec(msgspec.Struct):
    taints: list[_Taint] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Node


_decode = msgspec.json.Decoder(_Event).decode


class TaintWatch:
    """Watches all nodes in a thread for one taint, from the moment it is made until `close()`.

    A watch that breaks is an error: what was missed has no time.
    """

    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._key = key
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._since: dict[str, float] = {}
        self.broken = ""
        listed = connection.get(_PATH)
        self._version: str = listed["metadata"]["resourceVersion"]
        for item in listed["items"]:
            self._note(msgspec.convert(item, _Node), 0.0)
        self._thread = threading.Thread(target=self._follow, name="taint watch", daemon=True)
        self._thread.start()

    def tainted(self) -> dict[str, float]:
        """The nodes that have the taint now, and since when (time.time()); 0 for what had it before."""
        with self._changed:
            return dict(self._since)

    def wait(self, condition: Callable[[dict[str, float]], bool], deadline_seconds: float) -> bool:
        """Whether the condition on the tainted nodes came true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self.broken) or condition(self._since), deadline_seconds)

    def close(self) -> None:
        """Stop watching; the thread ends with the next event."""
        self._closed.set()

    def _follow(self) -> None:
        query: dict[str, str | int] = {"resourceVersion": self._version, "timeoutSeconds": 3600}
        try:
            for line in self._connection.watch(_PATH, query):
                now = time.time()
                if self._closed.is_set():
                    return
                event = _decode(line)
                if event.type == "ERROR":
                    raise ApiError(0, line.decode())
                with self._changed:
                    self._note(event.object, now)
                    self._changed.notify_all()
            ended = "the server ended it"
        except (ApiError, OSError, http.client.HTTPException) as error:
            ended = str(error) or type(error).__name__
        with self._changed:
            self.broken = ended
            self._changed.notify_all()

    def _note(self, node: _Node, now: float) -> None:
        has = any(taint.key == self._key for taint in node.spec.taints or ())
        if has:
            self._since.setdefault(node.metadata.name, now)
        else:
            self._since.pop(node.metadata.name, None)
