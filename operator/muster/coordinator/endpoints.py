"""What the coordinator does with a request, by path: launchers' reports at one desk, checkers' at another.

All else they share (`server`).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from muster.api.installation import name_component
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.hub import Hub, Membership
from muster.coordinator.reports import decode_check_report, decode_report
from muster.protocol import messages
from muster.protocol.checks import CHECK_PATH, CheckDirective, CheckReport
from muster.protocol.messages import REPORT_PATH, Directive, Report

CHECKER_ACCOUNT = "muster-check"
MAX_DIRECTIVES = 16384  # encoded ones that are kept

Encoded = tuple[str, bytes]
"""A directive as it is sent: its digest and its bytes."""

R = TypeVar("R", Report, CheckReport)


@dataclass(frozen=True, slots=True)
class ReportEndpoint(Generic[R]):
    """How the requests to one path of the coordinator are taken in and answered.

    Attributes:
        name: what the callers of this path are called in messages.
        is_known: whether this caller's reports are taken. Asked before a body is let in, and before it is read.
        refusal_message: the message for a caller whose reports are not taken.
        decode: parses a body; raises ProtocolError.
        record_report: takes in a report of a known caller.
        encoded_for: the directive of a caller (`encoded`); None where the caller is not known any more. Asked for each
            report, for each answer that was held to the end, and once per pod and `notify`, so it should be cheap.
    """

    path: str
    name: str
    is_known: Callable[[Caller], bool]
    refusal_message: Callable[[Caller], str]
    decode: Callable[[bytes], R]
    record_report: Callable[[Caller, R], object]
    encoded_for: Callable[[Caller], Encoded | None]


@functools.lru_cache(maxsize=MAX_DIRECTIVES)
def encoded(directive: Directive | CheckDirective) -> Encoded:
    """Return a directive's digest and bytes, from a cache where possible: workers that wait have equal directives, and
    those that run get the same one again and again."""
    data = messages.encode(directive)
    return messages.digest_of(data), data


def with_puts(directive: CheckDirective, puts: Sequence[bytes]) -> Encoded:
    """Return the digest and bytes of a directive without puts after these are put into it.

    Args:
        directive: the directive; its `puts` are empty.
        puts: as `CheckerHub.puts_for` returns them. Most of the bytes are the same for all nodes of a meeting.
    """
    digest, data = encoded(directive)
    if not puts:
        return digest, data
    assert data.endswith(_NO_PUTS)
    data = b"".join((data[: -len(_NO_PUTS)], _PUTS, b",".join(puts), _END))
    return messages.digest_of(data), data


_PUTS, _END = b'"puts":[', b"]}"
_NO_PUTS = _PUTS + _END


def launcher_endpoint(
    hub: Hub,
    directive_for: Callable[[Caller], Directive | None],
    is_worker: Callable[[Caller], bool],
    membership_of: Callable[[Caller], Membership],
) -> ReportEndpoint[Report]:
    """The endpoint to which the launchers of jobs' workers report."""

    def record_report(caller: Caller, report: Report) -> bool:
        return hub.record(caller, report, membership_of)

    def encoded_for(caller: Caller) -> Encoded | None:
        directive = directive_for(caller)
        return None if directive is None else encoded(directive)

    return ReportEndpoint(
        REPORT_PATH, "launcher", is_worker, _no_worker_message, decode_report, record_report, encoded_for
    )


def checker_endpoint(hub: CheckerHub, namespace: str, is_node: Callable[[str], bool]) -> ReportEndpoint[CheckReport]:
    """The endpoint to which Muster's own checker on each node reports; a checker is known by its service account alone.
    In the namespace "" there are none, and no pod is taken for one.
    """

    def is_checker(caller: Caller) -> bool:
        return bool(namespace) and (caller.namespace, caller.service_account) == (namespace, CHECKER_ACCOUNT)

    def refusal_message(caller: Caller) -> str:
        if is_checker(caller):
            return f"there is no node {caller.node_name}: a checker on a node that has just come asks again"
        if not namespace:
            return (
                f"pod {caller.namespace}/{caller.pod_name} is no checker: this operator trusts none. Install them with "
                f"{name_component('checkers')}, which sets MUSTER_CHECKER_NAMESPACE of the operator"
            )
        return (
            f"pod {caller.namespace}/{caller.pod_name} is no checker: it runs as service account "
            f"{caller.service_account or '(none)'}, and checks are told by pods in namespace {namespace} that run as "
            f"{CHECKER_ACCOUNT} alone. Where checkers run in another namespace, set MUSTER_CHECKER_NAMESPACE of the "
            "operator"
        )

    def encoded_for(caller: Caller) -> Encoded:
        directive = hub.directive_for(caller.node_name, caller.pod_uid)
        return with_puts(directive, hub.puts_for(caller.node_name, directive.meeting))

    return ReportEndpoint(
        CHECK_PATH,
        "checker",
        lambda caller: is_checker(caller) and is_node(caller.node_name),
        refusal_message,
        decode_check_report,
        hub.record,
        encoded_for,
    )


def _no_worker_message(caller: Caller) -> str:
    return (
        f"pod {caller.namespace}/{caller.pod_name} is no worker of a job that Muster runs: it was replaced, or its job "
        "is gone; a pod that was created just now asks again"
    )
