"""What agents have written in the boot before, and what the one of this boot makes of it."""

from typing import Any

import pytest

from muster.node.agent import kinds
from muster.node.agent.earlier import Earlier

MACHINE = "4c4c4544-0001"


def stored(gpus: int = 8, uuid: str = MACHINE, seen: int = 0, **status: Any) -> dict[str, Any]:
    """Of the boot before; an old agent did not tell how many it had seen."""
    agent = {"bootId": "boot-0", "systemUuid": uuid, "gpus": gpus, **({"gpusExpected": seen} if seen else {})}
    agent |= {name: status.pop(name) for name in ("ports", "portsExpected") if name in status}
    return {"agent": agent, "evidence": [], **status}


def evidence(kind: str, subject: str = "", threshold: str = "", first: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    times = {"firstSeen": first, "lastSeen": first}
    return {"kind": kind, "subject": subject, "threshold": threshold, "bootId": "boot-0", **times}


RELEASED = {"override": {"decision": "Release", "reason": "seven will do", "time": "2026-01-02T00:00:00Z"}}


def first_word(agent: Any) -> dict[str, Any]:
    agent.wait(lambda: agent.wrote.offers)
    word: dict[str, Any] = agent.wrote.offers[0][0]
    return word


WITH_EIGHT_GPUS = [
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
]
WITHOUT_MORE_GPUS = [
    pytest.param(stored(uuid="4c4c4544-0002"), id="another machine has the name"),
    pytest.param(stored(uuid=""), id="nobody knows which machine it was"),
    pytest.param(
        stored(7, seen=8, evidence=[evidence(kinds.GPU_COUNT, threshold="8 GPUs")], spec=RELEASED),
        id="released with seven",
    ),
    pytest.param({"agent": {"bootId": ["?"], "systemUuid": MACHINE, "gpus": "many"}}, id="nonsense"),
    pytest.param({"agent": "?", "evidence": [7], "spec": {"override": 3}}, id="more nonsense"),
]
MISSED_PORTS = [
    pytest.param(stored(ports=4, portsExpected=4), True, id="all were up"),
    pytest.param(stored(ports=2, portsExpected=4), True, id="some were down already"),
    pytest.param(
        stored(portsExpected=4, evidence=[evidence(kinds.IB_PORT_DOWN, threshold="4 ports up")]),
        True,
        id="told before",
    ),
    pytest.param(stored(ports=3, portsExpected=3), False, id="no more were ever up"),
    pytest.param(stored(), False, id="an agent that did not tell"),
    pytest.param(stored(ports=4, portsExpected=4, uuid="4c4c4544-0002"), False, id="another machine has the name"),
    pytest.param(stored(ports="many", portsExpected=-1), False, id="nonsense"),
    pytest.param(
        stored(
            ports=3,
            portsExpected=4,
            evidence=[evidence(kinds.IB_PORT_DOWN, "mlx5_3/1", "ACTIVE, LinkUp")],
            spec=RELEASED,
        ),
        False,
        id="released without it",
    ),
    pytest.param(
        stored(
            ports=3,
            portsExpected=4,
            evidence=[evidence(kinds.IB_PORT_DOWN, "mlx5_3/1", first="2026-01-03T00:00:00Z")],
            spec=RELEASED,
        ),
        True,
        id="down since after the release",
    ),
]
WORN_GPUS = [
    pytest.param(["remap_failed=1@gpu3"], kinds.ROW_REMAP_FAILED, id="memory that is worn out"),
    pytest.param(["inforom=1@gpu3"], kinds.INFOROM, id="a damaged InfoROM"),
    pytest.param(["fabric=3", "fabric=1@gpu3"], kinds.FABRIC_STATE, id="a GPU that does not join the fabric"),
]
NO_COUNT = [
    pytest.param(("lost=3",), id="a GPU is lost, and NVML counts it"),
    pytest.param(("hang_seconds=3600",), id="the library hangs"),
    pytest.param(("init_error=999",), id="the library does not start"),
]


def assert_that_the_first_word_tells_of_the_missing_gpu(node: Any, run: Any, before: dict[str, Any]) -> None:
    node.faults("count=7")
    word = first_word(run(stored=before))
    assert [(item["kind"], item["threshold"], item["bootId"]) for item in word["evidence"]] == [
        (kinds.GPU_COUNT, "8 GPUs", "boot-1")
    ]


def assert_that_no_gpu_is_missed(node: Any, run: Any, before: dict[str, Any]) -> None:
    node.faults("count=7")
    agent = run(stored=before)
    agent.wait_until_looking()
    assert agent.status["agent"]["gpus"] == 7
    assert agent.evidence == []


def assert_that_a_port_is_missed(node: Any, run: Any, before: dict[str, Any], missed: bool) -> None:
    """By number: the names follow the order in which the kernel finds the cards, here of three instead of four."""
    for number in range(3):
        node.port(f"mlx5_{number}/1")
    agent = run(stored=before, thresholds={"boot.grace": 0.5})
    if missed:
        found = agent.wait_for(kinds.IB_PORT_DOWN)
        assert (found["value"], found["threshold"]) == ("3 ports up", "4 ports up")
        node.port("mlx5_3/1")
        agent.wait_until_gone(kinds.IB_PORT_DOWN)
        assert (agent.status["agent"]["ports"], agent.status["agent"]["portsExpected"]) == (4, 4)
    else:
        agent.wait_until_looking()
        agent.wait(lambda: agent.status["agent"]["ports"] == 3)
        agent.look_for(30.0)
        assert agent.evidence == []


def assert_that_the_first_word_tells_of_a_worn_gpu(node: Any, run: Any, faults: list[str], kind: str) -> None:
    """How many GPUs there are was told before the rest was looked at: the node came back for as long as that took."""
    node.faults(*faults)
    agent = run(stored=stored(evidence=[evidence(kinds.GPU_LOST, "GPU-1")]), thresholds={"fabric.sustain": 2.0})
    assert [item["kind"] for item in first_word(agent)["evidence"]] == [kind]


def assert_that_the_next_boot_knows_of_eight_gpus(node: Any, run: Any, faults: tuple[str, ...]) -> None:
    node.faults(*faults)
    deadline = {"nvml.start_deadline": 0.3} if "hang_seconds=3600" in faults else {}
    agent = run(stored=stored(), thresholds={**deadline, "boot.grace": 1.0, "nvml.failed": 0.1})
    agent.wait(lambda: agent.wrote.offers and agent.evidence)
    agent.stop()
    assert Earlier.from_stored({"status": agent.status}, "boot-2", MACHINE).gpus == 8
