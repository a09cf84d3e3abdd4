"""What an agent makes of a boot: a GPU or a port that was missing and still is stays evidence, and nobody is well before he was looked at."""

import time
from typing import Any

import pytest

from muster.agent import kinds
from muster.agent.earlier import Earlier

MACHINE = "4c4c4544-0001"


def stored(gpus: int = 8, uuid: str = MACHINE, seen: int = 0, **status: Any) -> dict[str, Any]:
    """Of the boot before; an old agent did not tell how many it had seen."""
    agent = {"bootId": "boot-0", "systemUuid": uuid, "gpus": gpus, **({"gpusSeen": seen} if seen else {})}
    return {"agent": agent, "evidence": [], **status}


def evidence(kind: str, subject: str = "", threshold: str = "", first: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    times = {"firstSeen": first, "lastSeen": first}
    return {"kind": kind, "subject": subject, "threshold": threshold, "bootId": "boot-0", **times}


RELEASED = {"human": {"decision": "Release", "reason": "seven will do", "time": "2026-01-02T00:00:00Z"}}


def first_word(agent: Any) -> dict[str, Any]:
    agent.wait(lambda: agent.wrote.offers)
    word: dict[str, Any] = agent.wrote.offers[0][0]
    return word


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(stored(), id="all were there"),
        pytest.param(stored(7, evidence=[evidence(kinds.GPU_COUNT, threshold="8 GPUs")]), id="one was missing"),
        pytest.param(stored(0, evidence=[evidence(kinds.NVML_FAILED, threshold="8 GPUs")]), id="the driver failed"),
        pytest.param(stored(7, seen=8, evidence=[evidence(kinds.GPU_LOST, "GPU-1")]), id="one was lost, and counted"),
        pytest.param(stored(0, seen=8, evidence=[evidence(kinds.NVML_HANG)]), id="the driver hung"),
        pytest.param(stored(0, seen=8), id="there was no driver"),
        pytest.param(
            stored(7, seen=8, evidence=[evidence(kinds.GPU_LOST, "GPU-1")], spec=RELEASED),
            id="released, with all of them",
        ),
    ],
)
def test_a_gpu_that_is_missing_after_a_boot_is_told_with_the_first_word(
    node: Any, run: Any, before: dict[str, Any]
) -> None:
    node.faults("count=7")
    word = first_word(run(stored=before))
    assert [(item["kind"], item["threshold"], item["bootId"]) for item in word["evidence"]] == [
        (kinds.GPU_COUNT, "8 GPUs", "boot-1")
    ]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(stored(uuid="4c4c4544-0002"), id="another machine has the name"),
        pytest.param(stored(uuid=""), id="nobody knows which machine it was"),
        pytest.param(
            stored(7, seen=8, evidence=[evidence(kinds.GPU_COUNT, threshold="8 GPUs")], spec=RELEASED),
            id="released with seven",
        ),
        pytest.param({"agent": {"bootId": ["?"], "systemUuid": MACHINE, "gpus": "many"}}, id="nonsense"),
        pytest.param({"agent": "?", "evidence": [7], "spec": {"human": 3}}, id="more nonsense"),
    ],
)
def test_a_machine_that_never_had_more_misses_nothing(node: Any, run: Any, before: dict[str, Any]) -> None:
    node.faults("count=7")
    agent = run(stored=before)
    agent.wait_until_looking()
    assert agent.status["agent"]["gpus"] == 7
    assert agent.evidence == []


def test_a_release_from_before_the_fault_covers_nothing() -> None:
    later = evidence(kinds.GPU_COUNT, threshold="8 GPUs", first="2026-01-03T00:00:00Z")
    found = Earlier.of({"status": stored(7, evidence=[later]), "spec": RELEASED}, "boot-1", MACHINE)
    assert found.gpus == 8
    assert found.another_boot


def test_nobody_is_well_before_nvml_has_answered_in_the_new_boot(node: Any, run: Any) -> None:
    node.faults("hang_seconds=3600")
    agent = run(stored=stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")]), thresholds={"nvml.start_deadline": 3600.0})
    time.sleep(1.0)
    assert agent.wrote.offers == []  # what stood against it stands
    assert agent.agent.is_alive()


def test_a_driver_that_answers_nothing_after_a_boot_is_told_in_the_end(node: Any, run: Any) -> None:
    node.faults("every_call_fails=999")
    agent = run(stored=stored(), thresholds={"boot.look": 1.0, "nvml.failed": 0.1})
    assert agent.wait_for(kinds.NVML_FAILED)["threshold"] == "8 GPUs"


def test_a_driver_that_hangs_after_a_boot_is_told(node: Any, run: Any) -> None:
    node.faults("hang_seconds=3600")
    agent = run(stored=stored(), thresholds={"nvml.start_deadline": 0.3})
    assert first_word(agent)["evidence"][0]["kind"] == kinds.NVML_HANG


def test_a_driver_that_is_not_loaded_yet_after_a_boot_proves_nothing(node: Any, run: Any) -> None:
    """Found by simulated fleets: the agent was there before the driver, and a node with a GPU less came back for two minutes."""
    node.faults("init_error=9")
    before = stored(7, seen=8, evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
    agent = run(stored=before, thresholds={"nvml.retry_period": 0.2, "nvml.unloaded": 600.0})
    time.sleep(2.0)
    assert agent.wrote.offers == []
    assert agent.agent.not_ready() != ""
    node.faults("count=7")
    assert first_word(agent)["evidence"][0]["kind"] == kinds.GPU_COUNT


def test_a_driver_that_is_never_loaded_after_a_boot_is_told_in_the_end(node: Any, run: Any) -> None:
    node.faults("init_error=9")
    before = stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")])
    agent = run(stored=before, thresholds={"nvml.retry_period": 0.2, "nvml.unloaded": 0.5})
    assert [item["kind"] for item in first_word(agent)["evidence"]] == [kinds.NVML_FAILED]


def test_a_node_without_gpus_speaks_once_its_ports_were_seen(run: Any) -> None:
    word = first_word(run(driver=None, stored=stored(0)))
    assert word["agent"]["bootId"] == "boot-1"
    assert word["evidence"] == []


def test_a_port_that_is_down_before_and_after_a_boot_has_not_to_be_so_for_long_again(node: Any, run: Any) -> None:
    node.port("mlx5_0/1", "1: DOWN", "3: Disabled")
    before = stored(evidence=[evidence(kinds.IB_PORT_DOWN, "mlx5_0/1", "ACTIVE, LinkUp")])
    word = first_word(run(stored=before, thresholds={"infiniband.down": 3600.0}))
    assert [(item["kind"], item["subject"]) for item in word["evidence"]] == [(kinds.IB_PORT_DOWN, "mlx5_0/1")]


def test_an_agent_that_lives_through_a_boot_looks_as_one_that_starts(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("count=7", "xid=79@gpu1")
    agent.wait_for(kinds.GPU_COUNT)
    agent.wait_for(kinds.XID)
    node.boot("boot-2")
    agent.wait(lambda: agent.status["agent"]["bootId"] == "boot-2")
    words = [status for status, _ in agent.wrote.offers if status["agent"]["bootId"] == "boot-2"]
    assert all([item["kind"] for item in word["evidence"]] == [kinds.GPU_COUNT] for word in words)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(("lost=3",), id="a GPU is lost, and NVML counts it"),
        pytest.param(("hang_seconds=3600",), id="the library hangs"),
        pytest.param(("init_error=999",), id="the library does not start"),
    ],
)
def test_what_one_boot_cannot_count_the_next_one_misses(node: Any, run: Any, faults: tuple[str, ...]) -> None:
    node.faults(*faults)
    agent = run(stored=stored(), thresholds={"nvml.start_deadline": 0.3, "boot.look": 1.0, "nvml.failed": 0.1})
    agent.wait(lambda: agent.wrote.offers and agent.evidence)
    agent.stop()
    assert Earlier.of({"status": agent.status}, "boot-2", MACHINE).gpus == 8
