"""What a bundle gets of the leader's decisions, and what it says of those that it does not get."""

from typing import Any, cast

import pytest
from tests.unit.cli.leading import LEASE, POD, Leader
from tests.unit.cli.test_status import a_gang, a_health, a_pod, incident

from muster.cli import recorded_decisions
from muster.cli.recorded_decisions import FOLDER, MAX_NODES, Recorded, leader_of, nodes_of, read
from muster.cli.session import Session
from muster.controller import operator
from muster.controller.settings import Settings
from muster.kube import portforward
from muster.kube.client import Client
from muster.kube.errors import Forbidden, PageTooLarge, Unreachable

JOB, NODE = f"{FOLDER}/job.jsonl", f"{FOLDER}/nodes/gpu-1.jsonl"
COLLECTED: dict[str, Any] = {
    "operator/leases.json": [{"metadata": {"name": "another"}, "spec": {}}, LEASE],
    "job/gangs.json": [a_gang()],
    "fleet/nodehealths.json": [
        a_health("gpu-0", "Healthy"),
        a_health("gpu-1", "Unhealthy"),
        a_health("gpu-9", "Suspect"),
    ],
}


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    made = Leader()
    monkeypatch.setattr(portforward, "forwarded_port", made.forwarded_port)
    made.answers = {"/worlds/team-a/llama": b'{"plan":1}\n{"plan":2}\n', "/nodes/gpu-1": b'{"verdict":{}}\n'}
    return made


async def recorded(most_file_bytes: int = 1000, **collected: Any) -> Recorded:
    files = {**COLLECTED, **{name.replace("__", "/") + ".json": value for name, value in collected.items()}}
    return await read(Session(cast("Client", None), "team-a"), "llama", "muster-system", files, most_file_bytes)


async def test_the_leader_is_asked_for_the_job_and_the_nodes_that_its_gang_has_or_had(leader: Leader) -> None:
    found = await recorded()
    assert leader.opened == [("muster-system", POD, 8081)]
    assert leader.asked == ["/nodes/gpu-1", "/nodes/gpu-0", "/worlds/team-a/llama"]
    assert {name: len(lines) for name, lines in found.files.items()} == {JOB: 2, NODE: 1}
    assert found.files[JOB][1] == {"plan": 2, "redacted": True}
    assert found.missing == [], "a node that was healthy all along has no decisions: none are missing"


async def test_of_a_job_that_the_leader_does_not_know_its_answer_is_the_reason(leader: Leader) -> None:
    del leader.answers["/worlds/team-a/llama"]
    assert (await recorded()).missing == [(JOB, "HTTP 404: nothing is kept")]


async def test_who_may_not_forward_ports_learns_which_right_lacks(leader: Leader) -> None:
    leader.refuses = Forbidden(403, "Forbidden", 'User "bob" cannot get resource "pods/portforward"')
    ((name, why),) = (await recorded()).missing
    assert name == FOLDER
    assert 'User "bob" cannot get resource "pods/portforward"' in why
    assert "Ask for get and create of pods/portforward in namespace muster-system" in why


@pytest.mark.parametrize(
    "leases",
    [[], [{"metadata": {"name": "muster-leader"}, "spec": {"holderIdentity": ""}}], [{"metadata": {"name": "x"}}]],
)
async def test_without_a_leader_none_is_asked_and_it_says_so(leader: Leader, leases: list[Any]) -> None:
    ((name, why),) = (await recorded(operator__leases=leases)).missing
    assert (name, leader.opened) == (FOLDER, [])
    assert "names a leader" in why


def test_the_leader_is_the_pod_before_the_last_underscore() -> None:
    assert leader_of(COLLECTED) == POD
    assert leader_of({}) == ""


async def test_a_leader_that_never_answers_is_given_up(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_decisions, "DEADLINE_SECONDS", 0.01)
    leader.silent = True
    ((name, why),) = (await recorded()).missing
    assert name == FOLDER
    assert f"0 of 3 answers are in it: pod {POD} did not send all of them" in why


@pytest.mark.parametrize(
    "error", [PageTooLarge(0, "", "the answer is too large"), Unreachable(0, "", "connection refused")]
)
async def test_what_was_read_before_an_error_stays(leader: Leader, error: Any) -> None:
    leader.answers["/worlds/team-a/llama"] = error
    found = await recorded()
    assert set(found.files) == {NODE}
    ((_, why),) = found.missing
    assert "2 of 3 answers are in it" in why
    assert error.message in why


async def test_of_decisions_that_are_too_large_for_a_file_the_newest_are_kept(leader: Leader) -> None:
    found = await recorded(most_file_bytes=15)
    assert found.files[JOB] == [{"plan": 2, "redacted": True}]
    assert found.missing == [(JOB, "the newest 1 of 2 decisions are in it: too large")]
    assert JOB not in (await recorded(most_file_bytes=5)).files


@pytest.mark.parametrize("answer", [b"<html>", b"[1]\n", b'"x"', b"\xff\xfe", b"[" * 100_000])
async def test_what_is_no_decision_is_left_out(leader: Leader, answer: bytes) -> None:
    leader.answers["/worlds/team-a/llama"] = answer
    found = await recorded(most_file_bytes=1_000_000)
    assert set(found.files) == {NODE}
    assert found.missing == [(JOB, "the answer is no decision")]


async def test_the_port_is_the_one_that_the_leaders_pod_was_given(leader: Leader) -> None:
    def pod(name: str, value: str) -> dict[str, Any]:
        variables = [{"name": "X", "value": "1"}, {"name": "MUSTER_WORLDS_PORT", "value": value}]
        return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}, {"name": "m", "env": variables}]}}

    await recorded(operator__pods=[pod("another", "9000"), pod(POD, "9001")])
    await recorded(operator__pods=[pod(POD, "none")])
    assert [port for _, _, port in leader.opened] == [9001, 8081]


def test_the_lease_and_the_port_are_the_operators() -> None:
    assert recorded_decisions.LEASE == operator.LEASE_NAME
    environment = {"MUSTER_LAUNCHER_IMAGE": "launcher"}
    assert Settings.from_environment(environment).worlds_port == recorded_decisions.PORT
    environment[recorded_decisions.PORT_VARIABLE] = "9001"
    assert Settings.from_environment(environment).worlds_port == 9001


def test_the_nodes_are_those_of_workers_incidents_and_pods_whose_health_was_read() -> None:
    gang = a_gang(incidents=[incident(node="gpu-4")], members=[{"node": "gpu-0"}, {"node": ""}])
    files = {
        "job/gangs.json": [gang],
        "job/pods.json": [a_pod(3)],
        "fleet/nodehealths.json": [
            a_health("gpu-0", "Healthy"),
            a_health("gpu-3", "Healthy"),
            a_health("gpu-4", "Degraded"),
            {"metadata": {"name": "gpu-5"}},
        ],
    }
    assert nodes_of(files) == ["gpu-4", "gpu-0", "gpu-3"]
    del files["fleet/nodehealths.json"]
    assert nodes_of(files) == ["gpu-0", "gpu-3", "gpu-4"]
    assert nodes_of({}) == []


async def test_a_large_gangs_nodes_are_bounded(leader: Leader) -> None:
    names = [f"n{index:03}" for index in range(MAX_NODES + 1)]
    gang = a_gang(members=[{"node": name} for name in names])
    found = await recorded(job__gangs=[gang], fleet__nodehealths=[a_health(name, "Healthy") for name in names])
    assert len(leader.asked) == MAX_NODES + 1
    assert (f"{FOLDER}/nodes", f"{MAX_NODES} nodes were asked for: the job has {MAX_NODES + 1}") in found.missing
