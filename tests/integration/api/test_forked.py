"""What `kubectl muster fork` makes is what an API server takes, the rules in CEL included."""

from collections.abc import Callable
from typing import Any

import pytest

from muster.api.trainingjob import TrainingJob
from muster.cli.forked import forked

TIME = "2026-01-31T12:00:00Z"


@pytest.mark.parametrize("argument", [None, ["--load", "/ckpt/small"]], ids=["by a preset", "by words of its own"])
def test_a_forked_job_is_accepted(
    argument: list[str] | None, manifest: Callable[..., Any], apply: Callable[..., Any]
) -> None:
    checkpoint = {"directory": "/ckpt/small", "resumeFrom": 5, **({"resumeArgument": argument} if argument else {})}
    job = manifest("TrainingJob", {"spec.checkpoint": checkpoint})
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["torchrun", "pretrain_gpt.py", "--save=/ckpt/small"]
    seen = {"step": 5000, "path": "/ckpt/small/iter_0005000", "format": "Megatron", "time": TIME}
    status = {"state": "Running", "checkpoint": seen}
    made = forked(
        TrainingJob.model_validate({**job, "status": status}), job, from_step=3000, sets=["LR=0.1", "spec.nodes=4"]
    )
    assert made.manifest["spec"]["checkpoint"].get("resumePreset") == (None if argument else "Megatron")
    metadata = {name: value for name, value in made.manifest["metadata"].items() if name != "namespace"}
    found = apply({**made.manifest, "metadata": metadata}, "--dry-run=server")
    assert found.returncode == 0, found.stderr
