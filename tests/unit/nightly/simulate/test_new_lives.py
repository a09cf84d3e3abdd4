"""Lives that nobody has seen yet. SIMULATE_SECONDS bounds the run; MUSTER_SEED repeats one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from simulate.many import lives

SECONDS = float(os.environ.get("SIMULATE_SECONDS", "300"))


def test_new_lives(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """In a process of its own, so that a seed that fails is the same life when `make simulate SEED=...` plays it."""
    seed = os.environ.get("MUSTER_SEED") or str(time.time_ns() // 1000)
    record_property("seed", seed)
    command = [sys.executable, "-um", "simulate", "--seed", seed, "--minutes", str(SECONDS / 60)]
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    assert subprocess.run(command, env=environment, cwd=tmp_path, check=False).returncode == 0, f"SEED={seed}"
    assert json.loads((tmp_path / "build/bench/simulate.json").read_text())["faults"] > 0


def test_lives_side_by_side_are_those_of_their_seeds() -> None:
    alone, beside = (
        {outcome.story.seed: (outcome.seconds, outcome.events) for outcome, _ in lives(150, 2, 600.0, jobs)}
        for jobs in (1, 2)
    )
    assert sorted(beside) == [150, 151]
    assert alone == beside
