"""What can go wrong between Muster and the API server, as types: callers decide by type, people read the message."""

# ruff: noqa: N818 - these are the API server's own words

from collections.abc import Mapping
from typing import Any

import msgspec


class LeadershipLost(Exception):
    """This process may no longer write: its lease is over or nearly so. It has to exit; another replica takes over."""


class ApiError(Exception):
    """An answer of the API server that is not a success.

    Attributes:
        status: HTTP status, 0 when there was no answer.
        reason: metav1.Status.reason, e.g. `AlreadyExists`.
        message: metav1.Status.message.
        details: metav1.Status.details, with `causes` when the API server gave any.
        retry_after_seconds: what the server asked for, if it did.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{message} (HTTP {status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after_seconds = retry_after_seconds


class NotFound(ApiError):
    """No such object (or no such kind)."""


class AlreadyExists(ApiError):
    """An object of that name exists: read it and compare uids before believing that it is one's own."""


class Conflict(ApiError):
    """The object has changed since it was read (or a precondition failed): read it again and decide again."""


class Unauthorized(ApiError):
    """The credentials were not accepted."""


class Forbidden(ApiError):
    """RBAC, a quota, an admission plugin or a terminating namespace refused it; the message says which."""


class Invalid(ApiError):
    """The object is not valid; `details["causes"]` names the fields."""


class Gone(ApiError):
    """The resourceVersion asked for is too old: list again."""


class TooManyRequests(ApiError):
    """The server sheds load."""


class ServerError(ApiError):
    """The server failed (5xx); for a write the outcome is unknown."""


class Unreachable(ApiError):
    """No answer in time or no connection; for a write the outcome is unknown."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None
    code: int = 0


_status_decoder = msgspec.json.Decoder(_Status)


def from_status(status: int, body: bytes, retry_after_seconds: float | None = None) -> ApiError:
    """The typed error for an answer with this HTTP status (0: take the code from the body) and body."""
    try:
        parsed = _status_decoder.decode(body)
    except msgspec.MsgspecError:  # a proxy's HTML, or nothing
        parsed = _Status(message=body[:512].decode(errors="replace"))
    code = status or parsed.code
    kind = ServerError if code >= 500 else _BY_STATUS.get(code, ApiError)
    if kind is Conflict and parsed.reason == "AlreadyExists":
        kind = AlreadyExists
    if parsed.reason == "Expired":
        kind = Gone
    return kind(code, parsed.reason, parsed.message or "no message", parsed.details, retry_after_seconds)
