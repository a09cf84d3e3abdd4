"""Makes the agent's two requests to the API server: read its NodeHealth, and apply its part of the status.

Standard library only. One kept connection, a deadline on everything, the token read again each time. What others have
written is never put right: of two agents on one node (an upgrade overlaps) the later writer wins, and neither insists.
"""

import http.client
import json
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from muster.node.agent.settings import Settings

API_VERSION = "muster.dev/v1alpha1"
FIELD_MANAGER = "muster-agent"
_PATH = f"/apis/{API_VERSION}/nodehealths"
_DEADLINE_SECONDS = 5.0
_MAX_ANSWER_BYTES = 2 * 1024 * 1024
_APPLY = "application/apply-patch+yaml"
_FORBIDDEN, _NOT_FOUND, _TOO_MANY_REQUESTS = 403, 404, 429
_REMEDIES = {
    401: "the token is not accepted: is MUSTER_TOKEN_FILE this cluster's?",
    404: "is the CustomResourceDefinition nodehealths.muster.dev installed?",
}
# Roles and admission both answer 403 Forbidden; only the message tells them apart.
_REFUSED_BY_ROLES = re.compile(r" cannot (get|create|patch) resource ")
_REFUSED_BY_OUR_POLICY = "ValidatingAdmissionPolicy 'muster-agent'"
_ROLES_REMEDY = (
    "the agent's ClusterRole has to allow get, create and patch of nodehealths, and patch of nodehealths/status"
)
_OUR_POLICY_REMEDY = "MUSTER_NODE has to be the node of this pod, and MUSTER_TOKEN_FILE the token of this pod"


class ApiError(Exception):
    """The API server did not do what was requested; the message says why."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """Whether the API server is available and refuses the request; otherwise the same request may succeed later."""
        return 400 <= self.status < 500 and self.status != _TOO_MANY_REQUESTS


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes


class NodeHealthClient:
    """Reads and writes one NodeHealth. Used by one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        address = urlsplit(settings.api_server)
        self._host, self._port, self._prefix = address.hostname or "", address.port or 443, address.path
        self._connection: http.client.HTTPSConnection | None = None
        self._context: tuple[tuple[int, int, int], ssl.SSLContext] | None = None

    def read(self) -> dict[str, Any] | None:
        """Return the object; None if it does not exist.

        Raises:
            ApiError: there is no usable answer.
        """
        answer = self._request("GET", f"{_PATH}/{self._settings.node}", None)
        if answer.status == _NOT_FOUND:
            return None
        try:
            document = json.loads(_checked(answer).body)
        except ValueError as error:
            raise ApiError(f"it answered no JSON: {error}") from error
        if not isinstance(document, dict) or not isinstance(document.get("status", {}), dict):
            raise ApiError("it answered something that is no NodeHealth")
        return document

    def apply(self, status: dict[str, Any]) -> None:
        """Set the agent's part of the status; the object is created if it does not exist.

        Raises:
            ApiError: the status was not written, or the outcome is unknown.
        """
        name = self._settings.node
        head = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        body = {**head, "status": status}
        answer = self._apply(f"{_PATH}/{name}/status", body)
        if answer.status == _NOT_FOUND:
            _checked(self._apply(f"{_PATH}/{name}", head))
            answer = self._apply(f"{_PATH}/{name}/status", body)
        _checked(answer)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _apply(self, path: str, body: dict[str, Any]) -> _Answer:
        return self._request("PATCH", f"{path}?fieldManager={FIELD_MANAGER}&force=true", body)

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> _Answer:
        data = None if body is None else json.dumps(body).encode()
        kept = self._connection is not None
        try:
            return self._once(method, path, data)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            # A kept connection may have been closed by the other side meanwhile; both requests may be made twice.
            if not kept or isinstance(error, TimeoutError):
                raise ApiError(f"no answer: {str(error) or type(error).__name__}") from error
        return self._request(method, path, body)  # over a new connection

    def _once(self, method: str, path: str, data: bytes | None) -> _Answer:
        token = self._settings.token_file.read_text(encoding="ascii").strip()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_DEADLINE_SECONDS, context=self._tls(self._settings.ca_file)
            )
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Content-Type": _APPLY}
        self._connection.request(method, self._prefix + path, body=data, headers=headers)
        response = self._connection.getresponse()
        body = response.read(_MAX_ANSWER_BYTES)
        if response.will_close or not response.isclosed():
            self.close()
        return _Answer(response.status, body)

    def _tls(self, ca_file: Path) -> ssl.SSLContext:
        status = os.stat(ca_file)  # noqa: PTH116
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if self._context is None or self._context[0] != version:
            self._context = (version, ssl.create_default_context(cafile=str(ca_file)))
        return self._context[1]


def _checked(answer: _Answer) -> _Answer:
    """Return the answer, unless it refuses the request.

    Raises:
        ApiError: with the API server's message, and what to do.
    """
    if answer.status < 300:
        return answer
    try:
        message = str(json.loads(answer.body).get("message", ""))
    except (ValueError, AttributeError):
        message = answer.body[:100].decode("utf-8", "replace")
    remedy = _remedy(answer.status, message)
    raise ApiError(f"it answered {answer.status}: {message[:400]}{f' ({remedy})' if remedy else ''}", answer.status)


def _remedy(status: int, message: str) -> str:
    """Return what to do; "" where only the answer itself is known, as for admission by other systems."""
    if status != _FORBIDDEN:
        return _REMEDIES.get(status, "")
    if _REFUSED_BY_OUR_POLICY in message:
        return _OUR_POLICY_REMEDY
    return _ROLES_REMEDY if _REFUSED_BY_ROLES.search(message) else ""
