"""What the node agent costs: `python -m bench.agent [--seconds 600]` writes build/bench/agent.json.

The real two processes, with the fake NVML library: 8 GPUs, each call of which burns the CPU time that it took on a real
H200 (an upper bound: there it is partly waiting), 8 InfiniBand ports, and an API server that takes what it is sent.
Then a flood of one XID, 10,000 lines a second. `--own-driver` takes this machine's own GPUs instead of the fake ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fakes.nvml.build import library
from tests.fakes.sink import Sink

from bench.processes import cpu_seconds

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build/bench/agent.json"
GPUS, PORTS = 8, 8
PSS_BUDGET_MB, CORE_BUDGET, TOLD_BUDGET_SECONDS = 80.0, 0.01, 1.0
_FLOOD_LINES, _FLOOD_SECONDS, _FLOOD_STEPS = 10_000, 10, 20
_SETTLE_SECONDS = 20.0
_XID = "NVRM: Xid (PCI:0000:11:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault"


def _node(folder: Path) -> None:
    for port in range(PORTS):
        path = folder / f"sys/class/infiniband/mlx5_{port}/ports/1"
        for part, counters in {
            "counters": ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
                         "excessive_buffer_overrun_errors", "local_link_integrity_errors"),
            "hw_counters": ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart"),
        }.items():  # fmt: skip
            (path / part).mkdir(parents=True)
            for counter in counters:
                (path / part / counter).write_text("0\n")
        (path / "state").write_text("4: ACTIVE\n")
        (path / "phys_state").write_text("5: LinkUp\n")
    (folder / "proc/1").mkdir(parents=True)
    (folder / "proc/1/mounts").write_text("/dev/nvme0n1p1 / ext4 rw,relatime 0 0\n")
    (folder / "boot_id").write_text("bench\n")
    (folder / "kmsg").touch()
    (folder / "control").write_text(f"gpus={GPUS}\nbusy=1\nnvlinks=18\n")


def _start(folder: Path, sink: Sink, *, own_driver: bool) -> subprocess.Popen[bytes]:
    files = {"KERNEL_LOG": "kmsg", "SYSFS": "sys", "PROC": "proc", "BOOT_ID_FILE": "boot_id"}
    environment = {
        **os.environ,
        **sink.environment,
        **{f"MUSTER_{name}": str(folder / file) for name, file in files.items()},
        "MUSTER_NODE": "bench",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]),
    }
    if not own_driver:
        environment |= {"LD_LIBRARY_PATH": str(library()), "FAKE_NVML_CONTROL": str(folder / "control")}
    log = (folder / "agent.log").open("wb")
    return subprocess.Popen([sys.executable, "-m", "muster.node.agent"], env=environment, stderr=log)


def _pids(parent: int) -> dict[str, int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    if len(children) != 1:
        raise RuntimeError(f"the agent has {len(children)} children, not one: see its log")
    return {"agent": parent, "nvml": int(children[0])}


def _memory_mb(pid: int, what: str = "Pss") -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel does not tell the {what} of process {pid}")


def _flood(folder: Path) -> None:
    for _ in range(_FLOOD_SECONDS * _FLOOD_STEPS):
        began = time.monotonic()
        moment = int(began * 1e6)
        with (folder / "kmsg").open("a") as stream:
            stream.writelines(f"4,1,{moment + n},-;{_XID} {n}\n" for n in range(_FLOOD_LINES // _FLOOD_STEPS))
        time.sleep(max(0.0, 1 / _FLOOD_STEPS - (time.monotonic() - began)))


def _reported_seconds(folder: Path, sink: Sink) -> float:
    """From a line of the kernel's log to the object, in seconds: the median of three.

    Raises:
        RuntimeError: it was not told within a minute.
    """
    took = []
    for code in (48, 79, 95):
        time.sleep(2.0)  # a write soon after the last one waits
        began = time.monotonic()
        with (folder / "kmsg").open("a") as stream:
            stream.write(f"4,1,{int(began * 1e6)},-;NVRM: Xid (PCI:0000:11:00): {code}, pid=1, something\n")
        while code not in [item["code"] for item in sink.status["evidence"]]:
            if time.monotonic() - began > 60:
                raise RuntimeError(f"Xid {code} was not told within a minute: {sink.status}")
            time.sleep(0.005)
        took.append(time.monotonic() - began)
    return statistics.median(took)


def measure(seconds: float, *, own_driver: bool = False) -> dict[str, Any]:
    """Run the agent for so long, then the flood.

    Raises:
        RuntimeError: the agent did not run as it should.
    """
    with tempfile.TemporaryDirectory(prefix="muster-bench-agent-") as name:
        folder = Path(name)
        _node(folder)
        sink = Sink(folder)
        process = _start(folder, sink, own_driver=own_driver)
        try:
            time.sleep(_SETTLE_SECONDS)
            gpus = sink.status.get("agent", {}).get("gpus", 0)
            if gpus < 1 or (gpus != GPUS and not own_driver) or sink.status["evidence"]:
                raise RuntimeError(f"the agent did not find {'' if own_driver else GPUS} healthy GPUs: {sink.status}")
            pids = _pids(process.pid)
            quiet_writes, before, began = sink.writes, cpu_seconds(pids), time.monotonic()
            time.sleep(seconds)
            took, after = time.monotonic() - began, cpu_seconds(pids)
            cpu = {part: round(after[part] - before[part], 2) for part in pids}
            pss = {part: round(_memory_mb(pid), 1) for part, pid in pids.items()}
            # PSS is shared with whatever other Python runs on this machine; this is not, and no less than PSS alone.
            rss = sum(_memory_mb(pid, "Rss") for pid in pids.values())
            quiet_writes = sink.writes - quiet_writes
            flooded, writes, began = cpu_seconds(pids), sink.writes, time.monotonic()
            _flood(folder)
            time.sleep(2.0)
            flood_took = time.monotonic() - began
            flood_cpu = sum(cpu_seconds(pids).values()) - sum(flooded.values())
            evidence = [(item["kind"], item["code"], item["count"]) for item in sink.status["evidence"]]
            if [item[0] for item in evidence] != ["Xid"] or _pids(process.pid) != pids:
                raise RuntimeError(f"after the flood there is {evidence}")
            return {
                "gpus": gpus,
                "ports": PORTS,
                "seconds": round(took, 1),
                "nvml_calls": "of this machine's driver" if own_driver else "burn what they took on a real H200",
                "cpu_seconds": cpu,
                "core_share": round(sum(cpu.values()) / took, 5),
                "pss_mb": {**pss, "total": round(sum(pss.values()), 1)},
                "rss_mb": round(rss, 1),
                "pss_after_flood_mb": round(sum(_memory_mb(pid) for pid in pids.values()), 1),
                "writes_while_quiet": quiet_writes,
                "flood": {
                    "lines_per_second": _FLOOD_LINES,
                    "seconds": _FLOOD_SECONDS,
                    "core_share": round(flood_cpu / flood_took, 4),
                    "evidence": len(evidence),
                    "writes": sink.writes - writes,
                },
                "told_seconds": round(_reported_seconds(folder, sink), 3),
                "budget": {"core_share": CORE_BUDGET, "pss_mb": PSS_BUDGET_MB, "told_seconds": TOLD_BUDGET_SECONDS},
            }
        finally:
            process.terminate()
            process.wait(10)


def main() -> int:
    """Measure, write, and fail if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--own-driver", action="store_true", help="this machine's own GPUs")
    options = parser.parse_args()
    found = measure(options.seconds, own_driver=options.own_driver)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    spent = {
        "core_share": found["core_share"],
        "pss_mb": found["pss_mb"]["total"],
        "told_seconds": found["told_seconds"],
    }
    return int(any(spent[what] > most for what, most in found["budget"].items()))


if __name__ == "__main__":
    sys.exit(main())
