"""The example in the contract runs as it is printed, and Muster finds the checkpoints that it writes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from localcluster.patience import PATIENCE_SECONDS
from muster.node.checkpoint.find import Finder

CONTRACT = Path(__file__).parents[3] / "docs" / "trainer-contract.md"


def write_example(directory: Path) -> Path:
    (source, *_) = re.findall(r"```python\n(.*?)```", CONTRACT.read_text(), re.DOTALL)
    assert 'Path("/checkpoints")' in source
    example = directory / "example.py"
    example.write_text(source.replace('Path("/checkpoints")', f"Path({str(directory / 'checkpoints')!r})"))
    (directory / "checkpoints").mkdir()
    return example


def run(example: Path, progress: Path, **environment: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    variables = {**inherited, "RANK": "0", "MUSTER_PROGRESS": str(progress), **environment}
    subprocess.run([sys.executable, example], check=True, env=variables, timeout=PATIENCE_SECONDS)


def test_plain_example_saves_reports_and_resumes(tmp_path: Path) -> None:
    example = write_example(tmp_path)
    run(example, tmp_path / "first")
    found = Finder(str(tmp_path / "checkpoints")).find(limit=100)
    assert [checkpoint.step for checkpoint in found] == list(range(1000, 0, -50))
    final = Path(found[0].path) / "state.json"
    assert json.loads(final.read_text()) == {"sum": 500500}

    final.unlink()
    middle = found[10]
    run(example, tmp_path / "second", MUSTER_RESUME_PATH=middle.path, MUSTER_RESUME_STEP=str(middle.step))
    assert json.loads(final.read_text()) == {"sum": 500500}
    steps = [json.loads(line)["step"] for line in (tmp_path / "second").read_text().splitlines()]
    assert steps == list(range(middle.step + 1, 1001))
