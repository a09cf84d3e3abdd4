"""What a start and a recovery cost the API server, so that nobody makes them dearer by accident; -s shows the
figures."""

import os
import re
import time
from pathlib import Path

import pytest

from muster.controller.perform import COUNTS_WRITE_SECONDS
from stage.operators import OperatorProcess
from stage.scene import Scene


class Meter:
    """Requests and writes between two looks."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._before: dict[str, float] = {}
        self._began = 0.0

    async def start(self) -> None:
        await self._operator.arm()
        self._began = time.monotonic()
        self._before = await self._operator.requests()

    async def read(self, what: str) -> dict[str, int]:
        now = await self._operator.requests()
        spent = {kind: int(count - self._before.get(kind, 0)) for kind, count in now.items()}
        # The lease is renewed and definitions are compared whatever happens, watches are opened again now and then.
        spent = {kind: n for kind, n in spent.items() if n and not re.search("leases|openapi|^WATCH", kind)}
        print(f"\n{what}: {sum(spent.values())} requests {spent}; {usage(self._operator.pid)}")
        return spent

    def by_time(self) -> int:
        """As many requests as time alone may have brought: counts in the status, which are written now and then."""
        return int((time.monotonic() - self._began) / COUNTS_WRITE_SECONDS)


def usage(pid: int) -> str:
    """Memory and processor time of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return f"RSS {int(resident) // 1024} MiB, {cpu_seconds(pid):.2f} s of CPU so far"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("nodes", [3, 64])
async def test_requests_of_a_start_and_of_recoveries(scene: Scene, nodes: int) -> None:
    await scene.add_nodes(nodes + 1, "n")
    operator = await scene.operators.start()
    meter = Meter(operator)
    await scene.eventually("it leads", lambda: "after POST secrets 1" in operator.writes)
    await meter.start()
    began = time.monotonic()
    training = await scene.create_job(nodes=nodes)
    await scene.training_at(1, training)
    await scene.recovered(1)
    print(f"\n{nodes} workers train after {time.monotonic() - began:.1f} s")
    spent = await meter.read(f"start of {nodes}")
    assert spent["POST pods 201"] == nodes + 1, "one for each worker and one to try the template"
    assert sum(spent.values()) <= nodes + 25 + meter.by_time()
    await meter.start()
    began = time.monotonic()
    training.hold_at = 14
    scene.hand.launchers()[1].fail(signal=9)
    await scene.training_at(2, training)
    await scene.recovered(2)
    print(f"\n{nodes} workers train again after {time.monotonic() - began:.1f} s")
    assert sum((await meter.read(f"R0 of {nodes}")).values()) <= 10 + meter.by_time()
    await meter.start()
    began = time.monotonic()
    training.hold_at = 13
    await scene.hand.shut_down(scene.hand.worker(1).node)
    await scene.training_at(3, training)
    await scene.recovered(3)
    print(f"\n{nodes} workers train on another node after {time.monotonic() - began:.1f} s")
    spent = await meter.read(f"R2 of {nodes}")
    assert spent["POST pods 201"] == spent["DELETE pods 200"] == 1
    assert sum(spent.values()) <= 20 + meter.by_time()
