"""Defines the errors between Muster and the API server as types: callers decide by type, people read the message.

What only a message says is read here and nowhere else, and becomes a type or a property.

Tests: tests/unit/kube/test_paths_and_errors.py, tests/unit/reports/test_answers.py.
"""

# ruff: noqa: N818 - these are the API server's own words

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from muster.protocol.messages import readable


class LeadershipLost(Exception):
    """This process may no longer write: its lease has expired or is about to. The process has to exit; another replica
    takes over."""


class Refusal(StrEnum):
    """Which check of the API server's own refused an object, by what its message holds then."""

    QUOTA_EXCEEDED = "is forbidden: exceeded quota"
    QUOTA_UNKNOWN = "is forbidden: status unknown for quota"
    POD_SECURITY = "is forbidden: violates PodSecurity"
    NAMESPACE_TERMINATING = "because it is being terminated"
    PRIORITY_CLASS_MISSING = "is forbidden: no PriorityClass with name"


class NoCredentials(Exception):
    """This process cannot tell where the API server is, or who it is itself.

    Attributes:
        why: what is missing or wrong, without the remedy.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"no way to the API server: neither the token of a service account nor a kubeconfig can be used: {why}. In "
            "a pod, set automountServiceAccountToken: true; elsewhere, have KUBECONFIG name a kubeconfig"
        )
        self.why = why


class ApiError(Exception):
    """An answer of the API server that is not a success.

    Attributes:
        status: HTTP status, 0 when there was no answer.
        reason: metav1.Status.reason, e.g. `AlreadyExists`.
        message: metav1.Status.message.
        details: metav1.Status.details, with `causes` when the API server gave any.
        retry_after_seconds: the pause that the server asked for, if any.
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

    @property
    def refusal(self) -> Refusal | None:
        """Which check of the API server's own refused the object; None: another one, or none."""
        return next((refusal for refusal in Refusal if refusal in self.message), None)

    @property
    def policy(self) -> str:
        """Name of the ValidatingAdmissionPolicy that refused the request; "" if none did."""
        match = _ADMISSION.match(self.message)
        return (match["policy"] if match else None) or ""


class NotFound(ApiError):
    """The object (or its kind) does not exist."""


class AlreadyExists(ApiError):
    """An object of that name exists: read it and compare uids before treating it as one's own."""


class Conflict(ApiError):
    """The object has changed since it was read (or a precondition failed): read it again and decide again."""


class Unauthorized(ApiError):
    """The credentials were not accepted."""


class Forbidden(ApiError):
    """RBAC, a quota, an admission plugin or a terminating namespace refused the request; the message says which."""

    @property
    def is_cluster_wide(self) -> bool:
        """Whether the right that lacks is one for all namespaces."""
        return "at the cluster scope" in self.message

    @property
    def is_of_write(self) -> bool:
        """Whether the right that lacks is one to write."""
        return any(f" cannot {verb} resource " in self.message for verb in ("create", "update", "patch", "delete"))

    @property
    def refused_by(self) -> str:
        """What refused the request, as text: a policy or webhook by its name."""
        match = _ADMISSION.match(self.message)
        if match is None:
            return "RBAC" if self.is_cluster_wide else f"the API server ({self.status} {self.reason})"
        policy, webhook = match["policy"], match["webhook"]
        return f"ValidatingAdmissionPolicy {policy}" if policy else f"admission webhook {webhook}"


class Denied(Forbidden):
    """An admission webhook or policy denied the request, with a message and a code of its own: no right would change
    that."""


class Invalid(ApiError):
    """The object is not valid; `details["causes"]` names the fields."""


class Gone(ApiError):
    """The requested resourceVersion is too old: list again."""


class TooManyRequests(ApiError):
    """The server rejects the request because of its load."""


class ServerError(ApiError):
    """The server failed (5xx); for a write the outcome is unknown."""


class WebhookFailed(ServerError):
    """The server could not ask an admission webhook, and writes nothing until it can."""


class DryRunUnsupported(ApiError):
    """An admission webhook has side effects, so that the server refuses the dry run without asking it: the object may
    be valid."""


class Unreachable(ApiError):
    """The API server did not answer, or not in time; for a write the outcome is unknown.

    Attributes:
        cause: the server's address and what failed, without the request; "" if not known.
    """

    cause = ""


class PageTooLarge(ApiError):
    """A page of a list is larger than allowed: ask for fewer objects."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    422: Invalid,
    429: TooManyRequests,
}
# The message of admission, whatever its code: a webhook chooses its own (400 where it gives none), and a policy's
# is 422 unless it names a reason. Source: kubernetes/apiserver, pkg/admission/plugin/webhook/errors/statuserror.go and
# plugin/policy/validating/dispatcher.go.
_ADMISSION = re.compile(
    r"""(?:[\w.]+\ "[^"]*"\ is\ forbidden:\ )?
    (?:admission\ webhook\ "(?P<webhook>[^"]*)"\ denied\ the\ request(?:$|[:\ ])
      |ValidatingAdmissionPolicy\ '(?P<policy>[^']*)'(?:\ with\ binding\ '[^']*')?\ denied\ request:)""",
    re.VERBOSE,
)
# webhook/errors/statuserror.go too, with code 400; servers before 1.16 put it into an internal error.
_DRY_RUN = re.compile(r'(?:Internal error occurred: )?admission webhook "[^"]*" does not support dry run$')
_NOT_ASKED = re.compile(r'Internal error occurred: failed calling webhook "')
# The API server's own answers that are no Status: for a path that it does not serve, and when it sheds load.
_PLAIN = re.compile(r"404 page not found|Too many requests")


class _Status(msgspec.Struct):
    kind: str = ""
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None
    code: int = 0


_status_decoder = msgspec.json.Decoder(_Status)


def from_status(status: int, body: bytes, retry_after_seconds: float | None = None) -> ApiError:
    """Return the typed error for an answer with this HTTP status (0: take the code from the body) and body."""
    try:
        parsed = _status_decoder.decode(body)
        if parsed.kind != "Status":
            raise msgspec.MsgspecError
    except msgspec.MsgspecError:  # a proxy's HTML, or nothing
        parsed = _Status(message=body[:512].decode(errors="replace"))
        if status < 500 and status != 401 and not _PLAIN.match(parsed.message):
            message = f"no answer of the API server, but of something in between: {parsed.message or 'nothing'}"
            return Unreachable(status, "", message, None, retry_after_seconds)
    code = status or parsed.code
    kind = ServerError if code >= 500 else _BY_STATUS.get(code, ApiError)
    if _ADMISSION.match(parsed.message):
        kind = Denied
    elif _DRY_RUN.match(parsed.message):
        kind = DryRunUnsupported
    elif kind is ServerError and _NOT_ASKED.match(parsed.message):
        kind = WebhookFailed
    elif kind is Conflict and parsed.reason == "AlreadyExists":
        kind = AlreadyExists
    elif parsed.reason == "Expired":
        kind = Gone
    # It may quote what a tenant wrote, and is shown in a job's status.
    return kind(code, parsed.reason, readable(parsed.message) or "no message", parsed.details, retry_after_seconds)
