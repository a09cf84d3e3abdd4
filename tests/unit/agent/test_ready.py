"""An agent is Ready while it sees all of its node, and what it cannot see is neither forgotten nor called well."""

import os
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.unit.agent.test_boots import MACHINE, evidence, first_word, stored

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent import kinds
from muster.node.agent.inspections import LOG, NVML, PORTS, Inspections
from muster.serve import Server, probe

LONG = 100.0
"""Longer than a look counts."""


def wait_until_ready(agent: Any) -> None:
    agent.wait(lambda: agent.agent.not_ready() == "")


def wait_until_blind(agent: Any, part: str) -> None:
    agent.wait(lambda: part in agent.agent.not_ready())


def test_a_part_counts_for_as_long_as_a_look_lasts() -> None:
    looks = Inspections({NVML: 60.0, PORTS: 60.0, LOG: 90.0})
    assert looks.missing(0.0) == [NVML, PORTS, LOG]
    for part in (NVML, PORTS, LOG):
        looks.seen(part, 10.0)
    looks.seen(NVML, 5.0)  # an older look that is heard of later
    assert looks.missing(70.0) == []
    assert looks.missing(71.0) == [NVML, PORTS]
    assert looks.has(NVML, PORTS)
    looks.forget()
    assert not looks.has(NVML)


def test_readyz_tells_what_is_not_seen_and_healthz_does_not(node: Any, run: Any) -> None:
    agent = run()
    health = probe(lambda: "" if agent.agent.is_alive() else "stopped")
    port = Server(("127.0.0.1", 0), {"/healthz": health, "/readyz": probe(agent.agent.not_ready)}).port
    wait_until_ready(agent)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_SECONDS) as answer:
        assert answer.read() == b"ok\n"
    node.faults("hang_seconds=3600")
    agent.let_nvml_hang()
    wait_until_blind(agent, NVML)
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_SECONDS)
    assert b"NVML" in refused.value.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SECONDS) as answer:
        assert answer.read() == b"ok\n"
    agent.wait(lambda: "not checked lately: NVML" in agent.status["agent"]["problem"])
    node.faults()
    agent.end_what_hangs()
    wait_until_ready(agent)


def test_answers_of_errors_alone_are_no_look(node: Any, run: Any) -> None:
    agent = run()
    wait_until_ready(agent)
    node.faults("every_call_fails=999")
    agent.look_for(LONG)
    wait_until_blind(agent, NVML)


def test_a_gpu_that_is_lost_was_seen(node: Any, run: Any) -> None:
    agent = run()
    wait_until_ready(agent)
    node.faults("lost=1@gpu0")
    agent.wait_for(kinds.GPU_LOST)
    agent.look_for(LONG)
    wait_until_ready(agent)


@pytest.mark.parametrize("expected", [None, 8])
def test_a_node_without_a_driver_is_not_blind(run: Any, expected: int | None) -> None:
    agent = run(driver=None, expected_gpus=expected)
    wait_until_ready(agent)
    agent.look_for(LONG, ("start",))
    wait_until_ready(agent)


def test_a_log_that_cannot_be_read_is_not_seen(node: Any, run: Any) -> None:
    (node.folder / "kmsg").unlink()
    agent = run()
    agent.wait(lambda: agent.agent.not_ready().endswith(f"s: {LOG}"))
    (node.folder / "kmsg").touch()
    wait_until_ready(agent)


def test_a_device_whose_sysfs_hangs_blinds_only_itself_and_is_a_finding(node: Any, run: Any) -> None:
    state = node.port("mlx5_0/1") / "state"
    node.port("mlx5_1/1")
    agent = run(thresholds={"sysfs.deadline": 0.5, "sysfs.device_wait": 0.05})
    wait_until_ready(agent)
    before = state.read_bytes()
    state.unlink()
    os.mkfifo(state)  # who opens it waits for a writer
    try:
        agent.wait(
            lambda: (
                [(each["subject"], each["threshold"]) for each in agent.about(kinds.SYSFS_HANG)]
                == [("mlx5_0", "0.5 s")]
            )
        )
        node.port("mlx5_1/1", "1: DOWN", "2: Polling")
        assert agent.wait_for(kinds.IB_PORT_DOWN)["subject"] == "mlx5_1/1"
        node.faults("recovery_action=1@gpu0")
        agent.wait_for(kinds.RECOVERY_ACTION)
        agent.wait(agent.agent.is_alive)
        agent.advance(LONG)
        wait_until_ready(agent)
    finally:
        fifo = os.open(state, os.O_RDWR)
        os.write(fifo, before)
        state.unlink()
        state.write_bytes(before)
        os.close(fifo)
    agent.wait_until_gone(kinds.SYSFS_HANG)
    wait_until_ready(agent)


def test_a_device_that_hangs_from_the_start_is_seen_once_that_is_told(node: Any, run: Any) -> None:
    state = node.port("mlx5_0/1") / "state"
    node.port("mlx5_1/1")
    state.unlink()
    os.mkfifo(state)
    try:
        before = stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
        agent = run(stored=before, thresholds={"sysfs.deadline": 1.0, "sysfs.device_wait": 0.05})
        assert [item["kind"] for item in first_word(agent)["evidence"]] == [kinds.SYSFS_HANG]
        wait_until_ready(agent)
    finally:
        with state.open("w") as late:
            late.write("4: ACTIVE\n")


def test_faults_from_before_a_boot_stand_until_everything_has_been_seen(node: Any, run: Any) -> None:
    """That may take any time."""
    node.faults("hang_seconds=3600")
    before = stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
    agent = run(stored=before, thresholds={"nvml.deadline": 0.2, "nvml.start_deadline": 1e9})
    agent.wait(lambda: agent.agent._inspections.has(PORTS))
    agent.advance(1e6)
    assert agent.wrote.offers == []
    assert agent.agent.not_ready() != ""


def test_evidence_without_a_boot_stands_until_the_agent_has_looked(node: Any, run: Any) -> None:
    """The agent that wrote it did not know its boot."""
    node.faults("hang_seconds=3600")
    before = {"agent": {"bootId": "", "systemUuid": MACHINE}, "evidence": [evidence(kinds.GPU_LOST, "GPU-1")]}
    agent = run(stored=before, thresholds={"nvml.deadline": 0.2, "nvml.start_deadline": 1e9})
    agent.wait(lambda: agent.agent._inspections.has(PORTS))
    agent.advance(1e6)
    assert agent.wrote.offers == []


def test_a_first_look_from_before_the_past_was_known_is_made_again(node: Any, run: Any) -> None:
    node.faults("count=7")
    agent = run(stored=stored())
    assert [item["kind"] for item in first_word(agent)["evidence"]] == [kinds.GPU_COUNT]
    wait_until_ready(agent)


def test_an_agent_whose_requests_are_refused_for_long_is_not_ready(run: Any) -> None:
    agent = run(thresholds={"ready.refused": 120.0})
    wait_until_ready(agent)
    agent.wrote.refused_seconds, agent.wrote.problem = 120.0, "403: no"
    assert agent.agent.not_ready() == ""
    agent.wrote.refused_seconds = 150.0
    assert agent.agent.not_ready() == "the API server has refused all requests for 150 s: 403: no"
    agent.wrote.refused_seconds = 0.0
    assert agent.agent.not_ready() == ""
