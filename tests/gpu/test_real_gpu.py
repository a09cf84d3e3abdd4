"""`make test-gpu`: the agent with the driver that is on this machine. Fails where there is none; nothing else runs it.

Nothing is changed on the GPU; no fault is made.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from muster.agent.gpus import Gpus
from muster.agent.nvml_process import NvmlProcess
from muster.agent.thresholds import DEFAULTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlProcess]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]))
    process = NvmlProcess()
    assert process.start(time.monotonic())
    yield process
    process.close()


def ask(child: NvmlProcess, batch: str, seconds: float) -> tuple[dict[str, Any], float]:
    """The answer to a batch, and how long it took."""
    began = time.monotonic()
    child.ask(batch, began, seconds)
    while True:
        for message in child.read(time.monotonic()):
            if message.get("batch") == batch:
                return message["answer"], time.monotonic() - began
        late = child.hung(time.monotonic())
        assert late is None, f"{late} has not been answered"
        assert not child.has_ended(), "the child has ended"
        time.sleep(0.001)


def test_the_gpus_of_this_machine_are_seen_and_healthy(child: NvmlProcess) -> None:
    gpus = Gpus(DEFAULTS, None)
    answer, seconds = ask(child, "start", 60)
    assert "init_error" not in answer, answer
    print(f"start: {seconds * 1e3:.1f} ms")
    signals = list(gpus.started(answer))
    bad = set()
    for moment in range(5):
        for batch, judge in (("fast", gpus.fast), ("slow", gpus.slow)):
            answer, seconds = ask(child, batch, 30)
            assert "errors" not in answer, answer
            print(f"{batch}: {seconds * 1e3:.1f} ms")
            signals += judge(answer)
        answer, seconds = ask(child, "normal", 5)
        assert "errors" not in answer, answer
        print(f"normal: {seconds * 1e3:.1f} ms {answer if moment == 0 else ''}")
        signals += gpus.normal(answer, time.monotonic())
        bad |= {(signal.kind, signal.message) for signal in signals if signal.bad}
        time.sleep(1)
    assert gpus.answering >= 1
    assert gpus.driver
    assert len(gpus.names) == gpus.answering
    assert bad == set()


def test_events_can_be_waited_for() -> None:
    pynvml.nvmlInit()
    try:
        from muster.agent.nvml_batches import Batches

        batches = Batches(pynvml)
        assert "init_error" not in batches.start()
        events = batches.listen()
        assert events is not None
        until = time.monotonic() + 5
        while time.monotonic() < until:
            event = batches.event(events, 500)
            assert event is None or "xid" not in event, event
    finally:
        pynvml.nvmlShutdown()


def test_looking_costs_little(child: NvmlProcess) -> None:
    """The batches of an hour, times what they cost here, are far below 1 % of a core per 8 GPUs."""
    gpus = len(ask(child, "start", 60)[0]["gpus"])
    cost = {}
    for batch, times in (("fast", 20), ("normal", 5), ("slow", 2)):
        cost[batch] = min(ask(child, batch, 30)[1] for _ in range(times)) / gpus
    share = sum(cost[batch] / DEFAULTS[f"nvml.{batch}_period"] for batch in cost)
    print({batch: f"{seconds * 1e3:.2f} ms a GPU" for batch, seconds in cost.items()}, f"{share:.4%} of a core a GPU")
    assert share * 8 < 0.01
