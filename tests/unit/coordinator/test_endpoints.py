"""The checkers' desk at the door: whose word is taken for a node's, and what they are told there."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.test_server import CERTIFICATES, DEADLINE, Door
from tests.unit.waiting import until

from muster.coordinator import endpoints
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import CheckerHub
from muster.protocol import checks, messages
from muster.protocol.checks import CHECK_PATH, CheckDirective, CheckOrder, CheckReport, Put
from muster.protocol.messages import MAX_REPORT_BYTES, REPORT_PATH
from muster.world.checks import NodeChecks

CHECKER = "muster-check/muster-check/c1"
ORDER = CheckOrder("o1", checks.NODE)
GIVEN = CheckDirective(orders=(ORDER,))


class Checks(Door):
    """A door at which a checker reports; whoever serves has decided everything."""

    def __init__(self) -> None:
        super().__init__()
        self.checkers.note_all_decided()

    async def check(self, pod: str = CHECKER, **fields: Any) -> tuple[int, bytes]:
        self.sequence += 1
        return await self.post(messages.encode(CheckReport(self.sequence, **fields)), pod, CHECK_PATH)

    async def held_check(self, pod: str = CHECKER, seen: CheckDirective | None = None) -> "asyncio.Task[Any]":
        """A checker's request that the server holds by now."""
        digest = messages.digest_of(messages.encode(seen or CheckDirective()))
        before = set(self.server._waiting.values())
        task = asyncio.create_task(self.check(pod, directive_seen=digest, hold_seconds=10.0))
        await until(lambda: task.done() or not set(self.server._waiting.values()) <= before)
        assert not task.done()
        return task

    def give(self, *orders: CheckOrder) -> None:
        self.server.notify(self.checkers.pods_on(self.checkers.set_orders("job", {"node": NodeChecks(orders)})))


@pytest.fixture
async def door() -> AsyncIterator[Checks]:
    made = Checks()
    serving = CERTIFICATES.serving
    made.port = await made.server.start("localhost", 0, serving.certificate, serving.key)
    yield made
    await made.session.close()
    await made.server.stop()


def directive(answer: tuple[int, bytes]) -> CheckDirective:
    assert answer[0] == 200, answer[1]
    return checks.decode_check_directive(answer[1])


async def test_a_checker_speaks_for_the_node_of_its_token(door: Checks) -> None:
    door.give(ORDER)
    assert directive(await door.check(state=checks.READY, model="NVIDIA H200", address="another-node")) == GIVEN
    assert door.checkers.views_of(["node"])["node"].report.model == "NVIDIA H200"
    assert door.checkers.nodes == ["node"]


@pytest.mark.parametrize(
    ("pod", "body", "want", "says"),
    [
        pytest.param("", b"{}", 401, "send a token", id="no token"),
        pytest.param(CHECKER, b"nonsense", 400, "not JSON: ", id="no JSON"),
        pytest.param(CHECKER, b"{}", 400, "report.sequence is missing: the checker and the", id="incomplete"),
        pytest.param(CHECKER, b" " * (MAX_REPORT_BYTES + 1), 413, "262144 bytes", id="too large"),
        pytest.param("u1", b'{"sequence": 1}', 403, "it runs as service account default", id="a worker"),
        pytest.param("team/muster-check/c1", b'{"sequence": 1}', 403, "MUSTER_CHECKER_NAMESPACE", id="other namespace"),
        pytest.param(
            "muster-check/default/c1", b'{"sequence": 1}', 403, "run as muster-check alone", id="other account"
        ),
        pytest.param("muster-check//c1", b'{"sequence": 1}', 403, "service account (none)", id="no account"),
    ],
)
async def test_refused(door: Checks, pod: str, body: bytes, want: int, says: str) -> None:
    status, answer = await door.post(body, pod, CHECK_PATH)
    assert (status, says in json.loads(answer)["error"]) == (want, True), answer
    assert door.checkers.nodes == []


@pytest.mark.parametrize("namespace", ["muster-check", ""])
def test_no_pod_is_a_checker_where_none_are_installed(namespace: str) -> None:
    """Whoever may create a namespace would else speak for every node on which it has a pod."""
    desk = endpoints.checker_endpoint(CheckerHub(), "", lambda _: True)
    caller = Caller(namespace, "c1", "u1", "node", "n1", "muster-check")
    assert not desk.is_known(caller)
    assert "Install them with manifests/components/checkers (in the chart: checkers" in desk.refusal_message(caller)


async def test_a_checker_of_a_node_that_nobody_knows_is_told_to_ask_again(door: Checks) -> None:
    door.controller.nodes.clear()
    status, body = await door.check()
    assert (status, json.loads(body)["error"]) == (
        403,
        "there is no node node: a checker on a node that has just come asks again",
    )


async def test_a_checker_is_no_worker_and_other_paths_are_none(door: Checks) -> None:
    assert (await door.post(b'{"sequence": 1, "state": "Idle"}', CHECKER, REPORT_PATH))[0] == 403
    status, body = await door.post(b"{}", CHECKER, "/v1/other")
    assert (status, json.loads(body)["error"]) == (404, "reports go to /v1/report or /v1/check")


async def test_a_replica_that_does_not_lead_names_the_leader_to_checkers_too(door: Checks) -> None:
    door.controller.leader = "10.0.0.7:8443"
    status, body = await door.check()
    assert (status, json.loads(body)["leader"]) == (421, "10.0.0.7:8443")


async def test_held_until_the_orders_change(door: Checks) -> None:
    task = await door.held_check()
    door.give()  # from nothing to nothing
    assert set(door.server._waiting) == {"c1"}
    door.give(ORDER)
    assert directive(await asyncio.wait_for(task, DEADLINE)) == GIVEN
    task = await door.held_check(seen=GIVEN)
    door.give()
    assert directive(await asyncio.wait_for(task, DEADLINE)) == CheckDirective()


async def test_a_checker_and_a_launcher_wait_side_by_side(door: Checks) -> None:
    launcher, checker = await door.held("u1"), await door.held_check()
    door.give(ORDER)
    assert directive(await asyncio.wait_for(checker, DEADLINE)) == GIVEN
    assert not launcher.done()
    del door.controller.directives["u1"]
    door.server.notify(["u1"])
    assert (await launcher)[0] == 403


async def test_a_node_that_goes_while_its_checker_waits(door: Checks) -> None:
    """It is told nothing new: what it hears when it asks again is clear enough."""
    task = await door.held_check()
    door.controller.nodes.clear()
    door.checkers.forget("node")
    door.give(ORDER)
    assert not task.done()
    assert (await door.check())[0] == 403
    task.cancel()


@given(
    st.lists(st.lists(st.builds(Put, st.integers(0, 99), st.text(min_size=1), st.text(), st.integers()), min_size=1))
)
def test_a_directive_with_puts_is_what_its_parts_are_together(of_nodes: list[list[Put]]) -> None:
    handed = [b",".join(map(messages.encode, puts)) for puts in of_nodes]
    whole = messages.encode(replace(GIVEN, meeting="o1", puts=tuple(put for puts in of_nodes for put in puts)))
    directive = replace(GIVEN, meeting="o1")
    assert endpoints.with_puts(directive, handed) == (messages.digest_of(whole), whole)


def test_directives_are_encoded_once_and_meeting_entries_are_not_kept() -> None:
    endpoints.encoded.cache_clear()
    assert endpoints.encoded(CheckDirective())[1] is endpoints.encoded(CheckDirective())[1]
    for number in range(3):
        endpoints.with_puts(CheckDirective(), [messages.encode(Put(0, f"key{number}", "A" * 8000))])
    assert endpoints.encoded.cache_info().currsize == 1
