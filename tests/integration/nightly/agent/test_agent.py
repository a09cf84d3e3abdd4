"""The agent as it runs on a node, against a real API server: what stands in NodeHealth."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.nightly.agent.conftest import QUICK

from localcluster.controlplane import ControlPlane


def what_stands(agent: Any) -> list[dict[str, Any]]:
    """All evidence, whenever it was seen last."""
    return [{**item, "lastSeen": None} for item in agent.status()["evidence"]]


@pytest.fixture
def agent(make_agent: Callable[[], Any]) -> Any:
    made = make_agent()
    made.start()
    made.wait(lambda: made.status().get("agent", {}).get("gpus") == 8)
    return made


def test_a_healthy_node_has_an_object_that_says_so(agent: Any) -> None:
    found = agent.object()
    assert found["status"]["evidence"] == []
    assert found["status"]["agent"]["driver"] == "580.159.04"
    assert found["status"]["agent"]["bootId"] == "boot-1"
    owned = [entry for entry in found["metadata"]["managedFields"] if entry["manager"] == "muster-agent"]
    of_status = [entry for entry in owned if entry.get("subresource") == "status"]
    assert [entry["operation"] for entry in of_status] == ["Apply"]
    assert set(of_status[0]["fieldsV1"]["f:status"]) == {"f:evidence", "f:agent"}


@pytest.mark.parametrize("way", ["event", "log", "recovery action"])
@pytest.mark.parametrize("gpus", [1, 3])
def test_a_fault_is_in_the_object(agent: Any, way: str, gpus: int) -> None:
    if way == "event":
        agent.faults(*(f"xid=79@gpu{number}" for number in range(1, gpus + 1)))
    elif way == "log":
        agent.log("\n".join(f"NVRM: Xid (PCI:0000:1{n}:00): 79, GPU has fallen off." for n in range(1, gpus + 1)))
    else:
        agent.faults(*(f"recovery_action=2@gpu{number}" for number in range(1, gpus + 1)))
    found = agent.wait(lambda: len(agent.status()["evidence"]) == gpus and agent.status()["evidence"])
    subjects = {f"GPU-00000000-0000-4000-8000-{number + 1:012}" for number in range(1, gpus + 1)}
    kind = ("RecoveryAction", 2) if way == "recovery action" else ("Xid", 79)
    assert {(item["kind"], item["code"]) for item in found} == {kind}
    assert {item["subject"] for item in found} == subjects


def test_evidence_goes_when_the_fault_is_gone(agent: Any) -> None:
    agent.faults("count=7", "remap_pending=1@gpu3")
    agent.wait(lambda: agent.kinds() == ["GpuCount", "RowRemapPending"])
    agent.faults()
    # A remap waits for a reset: that it waits no more shows that there was one.
    agent.wait(lambda: agent.kinds() == ["GpuReset"])


def test_nvml_that_hangs_is_told(agent: Any) -> None:
    agent.faults("hang_seconds=3600")
    agent.wait(lambda: agent.kinds() == ["NvmlHang"])
    agent.faults()
    agent.wait(lambda: agent.kinds() == [])


def test_a_quiet_node_is_not_written_about(agent: Any) -> None:
    # Its first word may come before it has looked at everything, and says so.
    agent.wait(lambda: agent.status()["agent"]["problem"] == "")
    version = agent.object()["metadata"]["resourceVersion"]
    time.sleep(5)
    assert agent.object()["metadata"]["resourceVersion"] == version


def test_a_flood_is_few_writes(agent: Any) -> None:
    line = "NVRM: Xid (PCI:0000:11:00): 31, pid=1, name=python, Ch 00000008, MMU Fault"
    before, began = len(agent.told(-1)), time.monotonic()
    for _ in range(30):
        agent.log("\n".join([line] * 1000))
        time.sleep(0.1)
    agent.wait(lambda: agent.kinds() == ["Xid"])
    # The news at once, counts from time to time.
    assert len(agent.told(-1)) - before <= 1 + (time.monotonic() - began) / QUICK["write.counts"]


def test_what_others_write_stays_and_is_not_undone(agent: Any, kubectl: Callable[..., Any]) -> None:
    ours = {"status": {"state": "Unhealthy", "reason": "Xid79"}}
    done = kubectl("patch", "nodehealth", agent.name, "--subresource=status", "--type=merge", "-p", json.dumps(ours))
    assert done.returncode == 0, done.stderr
    agent.faults("recovery_action=1@gpu0")
    agent.wait(lambda: agent.kinds() == ["RecoveryAction"])
    agent.faults()
    agent.wait(lambda: agent.kinds() == ["GpuReset"])
    assert agent.status()["state"] == "Unhealthy"
    assert agent.status()["reason"] == "Xid79"


def test_an_object_that_is_deleted_is_made_again(agent: Any, kubectl: Callable[..., Any]) -> None:
    assert kubectl("delete", "nodehealth", agent.name).returncode == 0
    agent.wait(lambda: agent.status().get("agent", {}).get("gpus") == 8)


def test_two_agents_on_one_node_do_not_fight(agent: Any) -> None:
    agent.start()
    agent.wait(lambda: agent.told(-1))
    agent.faults("xid=79@gpu1", "count=7")
    agent.wait(lambda: all(["GpuCount", "Xid"] in agent.told(number) for number in (0, 1)))
    time.sleep(3)
    version = agent.object()["metadata"]["resourceVersion"]
    time.sleep(4)
    assert agent.object()["metadata"]["resourceVersion"] == version
    assert agent.kinds() == ["GpuCount", "Xid"]


def test_an_agent_that_restarts_forgets_nothing_of_this_boot(agent: Any) -> None:
    agent.faults("xid=79@gpu1", "count=7")
    agent.wait(lambda: agent.kinds() == ["GpuCount", "Xid"])
    before = what_stands(agent)
    agent.stop()
    agent.start()
    agent.wait(lambda: agent.told(-1))
    time.sleep(3)
    assert what_stands(agent) == before
    (agent.folder / "boot_id").write_text("boot-2\n")
    agent.wait(lambda: agent.kinds() == [])
    assert agent.status()["agent"]["bootId"] == "boot-2"


def test_an_api_server_that_is_away_is_waited_for(agent: Any, api_server: ControlPlane) -> None:
    (agent.folder / "token").write_text("somebody")
    agent.faults("recovery_action=2@gpu0")
    agent.wait(lambda: any("401" in entry.get("problem", "") for entry in agent.logged()))
    (agent.folder / "token").write_text(api_server.api.token)
    agent.wait(lambda: agent.kinds() == ["RecoveryAction"])
