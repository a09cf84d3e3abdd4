"""The examples in the contract run as they are printed, and Muster finds the checkpoints that they write."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import yaml

from localcluster.patience import PATIENCE_SECONDS
from muster.node.checkpoint.find import Finder
from muster.node.checkpoint.formats.own import own

CONTRACT = Path(__file__).parents[3] / "docs" / "trainer-contract.md"


def block(language: str, has: str) -> str:
    """The first block of the contract with this text in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", CONTRACT.read_text(), re.DOTALL)
    return str(next(each for each in blocks if has in each))


def write_example(directory: Path) -> Path:
    source = block("python", 'Path("/checkpoints")')
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


class State:
    """A model, or an optimizer: what it loads is what it saves."""

    def __init__(self, value: str) -> None:
        self.value = value

    def state_dict(self) -> str:
        return self.value

    def load_state_dict(self, value: str) -> None:
        self.value = value


def write_archive(state: dict[str, Any], file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", json.dumps(state))


def read_archive(path: str, map_location: str) -> Any:
    assert map_location == "cpu"
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("archive/data.pkl"))


def run_plain_case(directory: Path, value: str) -> dict[str, Any]:
    """Run the lines of the plain case, with archives in place of torch's, and return what they define."""
    source = block("python", "torch.save(").replace("/shared/run-7", str(directory))
    torch = SimpleNamespace(save=write_archive, load=read_archive)
    defined = {"os": os, "torch": torch, "model": State(value), "optimizer": State(value)}
    exec(source, defined)
    return defined


def test_plain_case_saves_what_its_pattern_finds_and_resumes(tmp_path, monkeypatch):
    monkeypatch.delenv("MUSTER_RESUME_PATH", raising=False)
    checkpoint = yaml.safe_load(block("yaml", "stepPattern"))["spec"]["checkpoint"]
    assert checkpoint["directory"] == "/shared/run-7"
    first = run_plain_case(tmp_path, "trained")
    assert first["step"] == 0
    first["save"](500)
    (tmp_path / "step_600.pt.tmp").write_bytes((tmp_path / "step_500.pt").read_bytes())

    finder = Finder(str(tmp_path), settle_seconds=0, formats=[own(checkpoint["pattern"])])
    (found,) = finder.find(limit=100)
    assert found.step == 500

    monkeypatch.setenv("MUSTER_RESUME_PATH", found.path)
    second = run_plain_case(tmp_path, "new")
    assert (second["step"], second["model"].value, second["optimizer"].value) == (500, "trained", "trained")


def test_step_pattern_of_the_plain_case_reads_the_line_beside_it():
    text = block("yaml", "stepPattern")
    pattern = yaml.safe_load(text)["spec"]["progress"]["stepPattern"]
    (line,) = re.findall(r"how it prints a step: (.*)", text)
    found = re.search(pattern, line)
    assert found is not None
    assert found[1] == "12"
