"""`make test-gpu`: the Quick burn-in on this machine's GPUs, with the torch that its `python3` has."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pynvml

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
ZYGOTE = [
    *os.environ.get("MUSTER_TORCH_PYTHON", "/usr/bin/env python3").split(),
    "-m",
    "muster.node.checker.probes.zygote",
]


def burn_in(*options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and findings."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    command = [sys.executable, "-m", "muster.node.checker.probes", "--json", *options, "--zygote", *ZYGOTE]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    print(told.stdout)
    return told.returncode, json.loads(told.stdout)


def used_bytes() -> int:
    """Of all GPUs."""
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    finally:
        pynvml.nvmlShutdown()


def test_quick_passes_in_its_time_and_leaves_the_gpus_clean(tmp_path: Path) -> None:
    before = used_bytes()
    code, found = burn_in("--profile", "Quick", "--directory", str(tmp_path))
    assert (code, found["problems"], found["device"]) == (0, [], "cuda")
    assert found["seconds"] < 30
    assert all(answer.get("given_back", {"free": True})["free"] for answer in found["answers"])
    assert used_bytes() <= before + 2**26


def test_standard_fills_nearly_all_memory_and_finds_nothing_wrong() -> None:
    code, found = burn_in("--profile", "Standard")
    assert (code, found["problems"]) == (0, [])
    parts = {answer["probe"]: answer["parts"] for answer in found["answers"]}
    (gpu,) = parts["Devices"][0]["figures"]["gpus"][:1]
    assert parts["Pattern"][0]["figures"]["bytes"] > 0.97 * gpu["total_bytes"]


def test_a_gpu_in_use_is_told_as_such_and_left_alone() -> None:
    other = subprocess.Popen([sys.executable, str(PROGRAM), "work", "60"])
    try:
        time.sleep(3)
        code, found = burn_in("--profile", "Quick")
    finally:
        other.kill()
        other.wait()
    assert code == 1
    assert [answer["outcome"] for answer in found["answers"]] == ["InUse"]


def test_a_gpu_too_few_is_missed() -> None:
    code, found = burn_in("--profile", "Quick", "--expected", "64")
    assert code == 1
    assert [answer["outcome"] for answer in found["answers"]] == ["Missing"]
