"""What the agent tells people about an answer that is none it wanted, and when it asks a second time."""

import http.client
import json
from types import SimpleNamespace
from typing import Any

import pytest

from muster.node.agent.client import ApiError, NodeHealthClient, _Answer, _checked

WHO = "system:serviceaccount:muster-agent:muster-agent"
ROLES = (
    f'nodehealths.muster.dev "n-1" is forbidden: User "{WHO}" cannot %s in API group "muster.dev" at the cluster scope'
)
ADMISSION = (
    "nodehealths.muster.dev \"n-1\" is forbidden: ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s"
)
OTHER_NODE = "this token is of the agent on node n-2, which may write the NodeHealth of that node only"


def told(status: int, message: str) -> str:
    body = {"kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": status}
    with pytest.raises(ApiError) as caught:
        _checked(_Answer(status, json.dumps(body).encode()))
    assert caught.value.status == status
    return str(caught.value)


@pytest.mark.parametrize("right", ['get resource "nodehealths"', 'patch resource "nodehealths/status"'])
def test_a_right_that_is_missing_is_the_roles_affair(right: str) -> None:
    text = told(403, ROLES % right)
    assert right in text
    assert "get, create and patch of nodehealths, and patch of nodehealths/status" in text


def test_what_our_own_admission_refuses_is_no_affair_of_the_role() -> None:
    text = told(403, ADMISSION % ("muster-agent", "muster-agent", OTHER_NODE))
    assert OTHER_NODE in text
    assert "MUSTER_NODE has to be the node of this pod" in text
    assert "ClusterRole" not in text


@pytest.mark.parametrize(
    "message",
    [
        ADMISSION % ("freeze", "freeze", "no changes before the holidays"),
        'admission webhook "guard.example.org" denied the request: nodehealths are frozen',
    ],
)
def test_what_others_refuse_is_told_in_their_words_and_nothing_is_guessed(message: str) -> None:
    assert told(403, message) == f"it answered 403: {message}"


@pytest.mark.parametrize(("status", "says"), [(401, "MUSTER_TOKEN_FILE"), (404, "CustomResourceDefinition")])
def test_other_answers_have_their_remedies(status: int, says: str) -> None:
    assert says in told(status, "no")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b""])
def test_an_answer_that_is_no_status_is_told_as_it_is(body: bytes) -> None:
    with pytest.raises(ApiError, match="it answered 502: ") as caught:
        _checked(_Answer(502, body))
    assert caught.value.status == 502


class Unsteady(NodeHealthClient):
    """Fails as told, then answers; every connection is kept."""

    def __init__(self, errors: list[Exception], *, kept: bool) -> None:
        super().__init__(SimpleNamespace(node="n-1", api_server="https://127.0.0.1:1"))  # type: ignore[arg-type]
        self.errors, self.tries = errors, 0
        self._connection = http.client.HTTPSConnection("127.0.0.1") if kept else None

    def _once(self, method: str, path: str, data: Any) -> _Answer:
        self.tries += 1
        self._connection = http.client.HTTPSConnection("127.0.0.1")
        if self.errors:
            raise self.errors.pop(0)
        return _Answer(200, b"{}")


def test_a_kept_connection_that_was_closed_is_replaced_once() -> None:
    client = Unsteady([http.client.RemoteDisconnected("closed")], kept=True)
    assert (client.read(), client.tries) == ({}, 2)


@pytest.mark.parametrize(
    ("errors", "kept", "tries"),
    [
        pytest.param([ConnectionResetError("first"), ConnectionResetError("no more")], True, 2, id="closed again"),
        pytest.param([ConnectionRefusedError("no more")], False, 1, id="a new connection"),
        pytest.param([TimeoutError("no more")], True, 1, id="no answer in time"),
    ],
)
def test_nobody_is_asked_again_in_vain(errors: list[Exception], kept: bool, tries: int) -> None:
    client = Unsteady(errors, kept=kept)
    with pytest.raises(ApiError, match="no answer: no more"):
        client.read()
    assert (client.tries, client._connection) == (tries, None)
