"""One kept connection to the API server: a request costs the bench no handshake inside what it measures."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from localcluster.api import ApiError

_DEADLINE_SECONDS = 60.0
# The API server closes connections that are idle for 90 s.
_IDLE_SECONDS = 60.0
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Object = dict[str, Any]


class Connection:
    """Requests one after the other as the bearer of a token; any thread may ask."""

    def __init__(self, server: str, token: str, ca: Path) -> None:
        self.server, self.token, self.ca = server, token, ca
        self._lock = threading.Lock()
        self._connection = self._connect(_DEADLINE_SECONDS)
        self._used = time.monotonic()

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """An object or a list, decoded."""
        return json.loads(self.raw(path, query))

    def raw(self, path: str, query: Mapping[str, str | int] | None = None) -> bytes:
        """What a path answers."""
        return self._call("GET", path + ("?" + urlencode(query) if query else ""), None, "")

    def post(self, path: str, body: Object) -> Any:
        """Create an object; what the server made of it."""
        return json.loads(self._call("POST", path, json.dumps(body).encode(), "application/json"))

    def apply(self, path: str, body: Object) -> None:
        """Server-side apply."""
        query = "?fieldManager=muster-bench&force=true"
        self._call("PATCH", path + query, json.dumps(body).encode(), APPLY_PATCH)

    def patch(self, path: str, body: Object, kind: str = MERGE_PATCH) -> None:
        """Patch an object."""
        self._call("PATCH", path, json.dumps(body).encode(), kind)

    def delete(self, path: str, query: Mapping[str, str | int] | None = None) -> None:
        """Delete; nothing when it is not there."""
        with suppress(NotThereError):
            self._call("DELETE", path + ("?" + urlencode(query) if query else ""), None, "")

    def watch(self, path: str, query: Mapping[str, str | int]) -> Iterator[bytes]:
        """The lines of a watch on a connection of its own, until the server ends it.

        Raises:
            ApiError: the watch was refused.
            OSError: the connection broke.
        """
        connection = self._connect(None)
        try:
            connection.request("GET", f"{path}?{urlencode({**query, 'watch': 'true'})}", headers=self._headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            rest = b""
            while chunk := answer.read1(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}

    def _connect(self, deadline_seconds: float | None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.ca))
        host = self.server.removeprefix("https://")
        connection = http.client.HTTPSConnection(host, context=context, timeout=deadline_seconds)
        connection.connect()
        return connection

    def _call(self, method: str, path: str, body: bytes | None, kind: str) -> bytes:
        headers = self._headers | ({"Content-Type": kind} if kind else {})
        with self._lock:
            if time.monotonic() - self._used > _IDLE_SECONDS:
                self._connection.close()
                self._connection = self._connect(_DEADLINE_SECONDS)
            self._used = time.monotonic()
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        if answer.status == http.HTTPStatus.NOT_FOUND:
            raise NotThereError(answer.status, f"{method} {path}: not found")
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(answer.status, f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
        return content


class NotThereError(ApiError):
    """The object or the path does not exist."""
