"""Jobs of examples/torch-ddp, and what must hold of their steps."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from testbed.jobs import Job
from testbed.kube import wait_until


def torch_command(steps: int) -> list[str]:
    """It saves when it is asked to, and at its end."""
    folders = '--run-dir="$RUN_DIR" --checkpoint-dir="$RUN_DIR/checkpoints"'
    options = f"--steps={steps} --pause-seconds=0.2 --checkpoint-every=100000"
    return ["sh", "-c", f"exec python3 /opt/torch-ddp/train.py {folders} {options}"]


def wait_torch_step(job: Job, step: int) -> None:
    wait_until(f"step {step} of {job.name}", lambda: any(line.get("step", 0) >= step for line in _lines(job)))


def torch_weights(job: Job, steps: int) -> str:
    """The digest of the weights of a job that succeeds and has made every step once."""
    completion = job.completion()
    assert completion["result"] == "Succeeded", completion
    made = Counter((line["rank"], line["step"]) for line in _lines(job) if line["event"] == "step")
    assert len(made) == steps * job.nodes
    assert set(made.values()) == {1}, "a step was lost and made again"
    return str(json.loads((job.folder / "result.json").read_text())["weights_sha256"])


def _lines(job: Job) -> list[dict[str, Any]]:
    logs = (job.folder / "log").glob("*.jsonl")
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]
