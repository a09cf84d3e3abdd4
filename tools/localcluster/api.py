"""The few calls to the API server that the cluster's own tools need, on the standard library alone."""

from __future__ import annotations

import functools
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.errors import LocalClusterError

_REQUEST_SECONDS = 60.0
_POLL_SECONDS = 0.05
_LATER = 429

Object = dict[str, Any]


class ApiError(LocalClusterError):
    """The API server refused a request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@functools.cache
def _context(authority: str) -> ssl.SSLContext:
    """A context that trusts this certificate in PEM."""
    return ssl.create_default_context(cadata=authority)


@dataclass(frozen=True)
class Api:
    """One API server seen by one user."""

    server: str
    token: str
    ca: Path
    request_seconds: float = _REQUEST_SECONDS

    def get(self, path: str) -> Object:
        return self._json("GET", path)

    def raw(self, path: str) -> str:
        return self._call("GET", path, None, "").decode()

    def create(self, path: str, body: Object) -> Object:
        return self._json("POST", path, body)

    def would_create(self, path: str, body: Object) -> bool:
        """Whether the API server would create it: tried in a dry run."""
        try:
            self.create(f"{path}?dryRun=All", body)
        except ApiError:
            return False
        return True

    def apply(self, path: str, body: Object) -> Object:
        """Server-side apply: create or bring to `body`."""
        query = "?fieldManager=localcluster&force=true"
        return self._json("PATCH", path + query, body, "application/apply-patch+yaml")

    def merge(self, path: str, body: Object) -> Object:
        return self._json("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> Object:
        return self._json("DELETE", path)

    def _json(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        data = None if body is None else json.dumps(body).encode()
        answer: Object = json.loads(self._call(method, path, data, kind))
        return answer

    def _call(self, method: str, path: str, data: bytes | None, kind: str) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = kind
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        # No proxy of the environment stands between this machine and itself.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=_context(self.ca.read_text())),
        )
        until = time.monotonic() + self.request_seconds
        while True:
            try:
                with opener.open(request, timeout=self.request_seconds) as answer:
                    content: bytes = answer.read()
                    return content
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace")
                pause_seconds = float(error.headers.get("Retry-After", 1.0))
                # As kubectl does: a kind that was just defined is not served for a moment.
                if error.code == _LATER and time.monotonic() + pause_seconds < until:
                    time.sleep(pause_seconds)
                    continue
                raise ApiError(error.code, f"{method} {path}: {error.code} {text}") from error
            except (OSError, TimeoutError) as error:
                raise ApiError(0, f"{method} {path}: no answer from {self.server}: {error}") from error


def api_of_kubeconfig(kubeconfig: Path, ca: Path) -> Api:
    """The API server that a kubeconfig of ours, which is JSON, points to."""
    content = json.loads(kubeconfig.read_text())
    return Api(content["clusters"][0]["cluster"]["server"], content["users"][0]["user"]["token"], ca)


def wait_for(condition: Callable[[], bool], what: str, deadline_seconds: float) -> None:
    """Poll until `condition()`; an API error counts as not yet, and is named when the deadline passes."""
    end = time.monotonic() + deadline_seconds
    last: ApiError | None = None
    while True:
        try:
            if condition():
                return
        except ApiError as error:
            last = error
        if time.monotonic() > end:
            raise LocalClusterError(f"{what}: not within {deadline_seconds:.0f} s" + (f" ({last})" if last else ""))
        time.sleep(_POLL_SECONDS)
