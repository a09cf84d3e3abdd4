"""The parent's side of the NVML child, with children that misbehave."""

import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent.nvml_process import NvmlProcess


@pytest.fixture
def child() -> Iterator[Callable[[str], NvmlProcess]]:
    made: list[NvmlProcess] = []

    def make(program: str) -> NvmlProcess:
        made.append(NvmlProcess((sys.executable, "-c", program)))
        return made[-1]

    yield make
    for process in made:
        process.close()


def read_until(process: NvmlProcess, condition: Callable[[], bool]) -> list[dict[str, Any]]:
    until = time.monotonic() + PATIENCE_SECONDS
    messages: list[dict[str, Any]] = []
    while not condition():
        assert time.monotonic() < until
        messages += process.read(time.monotonic())
        time.sleep(0.01)
    return messages


def wait_until_reaped(process: NvmlProcess) -> None:
    """The kernel takes its time to end a child that was killed."""
    until = time.monotonic() + PATIENCE_SECONDS
    while process.stuck:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_killed_child_that_does_not_go_is_not_joined_by_another(child: Callable[[str], NvmlProcess]) -> None:
    process = child("import time; time.sleep(3600)")
    there: list[None] = [None]
    process._dying.append(SimpleNamespace(poll=lambda: there[0] if there else 0))  # type: ignore[arg-type]
    assert process.stuck
    assert not process.start(0.0)
    there.clear()
    assert process.start(0.0)


def test_each_start_after_a_hang_waits_longer(child: Callable[[str], NvmlProcess]) -> None:
    process = child("import time; time.sleep(3600)")
    now, waits = 0.0, []
    for _ in range(9):
        assert process.start(now)
        process.ask("fast", now, 1.0)
        assert process.hung(now + 0.9) is None
        late = process.hung(now + 1.0)
        assert late is not None
        assert late.batch == "fast"
        ended = now = now + 1.0
        wait_until_reaped(process)
        while not process.start(now):
            now += 0.25
        waits.append(now - ended)
        process.renew()
        wait_until_reaped(process)
    assert waits == sorted(waits)
    assert waits[0] == 1.0
    assert waits[-1] == 60.0


def test_a_child_that_ends_is_noticed(child: Callable[[str], NvmlProcess]) -> None:
    process = child("pass")
    process.start(0.0)
    process.ask("fast", 0.0, 60.0)
    read_until(process, lambda: not process.running)
    assert process.has_ended()
    assert not process.has_ended()
    assert process.outstanding is None


def test_a_child_that_talks_nonsense_is_ended(child: Callable[[str], NvmlProcess]) -> None:
    process = child("import time; print('{nonsense', flush=True); time.sleep(3600)")
    process.start(0.0)
    assert read_until(process, lambda: not process.running) == []
    assert process.has_ended()


def test_a_child_that_never_ends_its_line_is_ended(child: Callable[[str], NvmlProcess]) -> None:
    process = child("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    process.start(0.0)
    read_until(process, lambda: not process.running)
    assert len(process._buffer) < 8 * 1024 * 1024


def test_an_answer_that_comes_in_pieces_is_one(child: Callable[[str], NvmlProcess]) -> None:
    parts = "import sys, time\nfor part in ('{\"batch\": \"fa', 'st\", \"answer\": {}}', '\\n'):\n"
    process = child(parts + "    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.1)\ntime.sleep(3600)")
    process.start(0.0)
    process.ask("fast", 0.0, 60.0)
    assert read_until(process, lambda: process.outstanding is None) == [{"batch": "fast", "answer": {}}]
