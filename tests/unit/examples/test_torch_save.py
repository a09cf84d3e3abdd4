"""examples/torch-save: its manifest finds the files that its program saves, and the steps that it prints."""

import ast
import os
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import yaml

from muster.node.checkpoint.find import Finder
from muster.node.checkpoint.formats.own import own
from recipes.play import saved_step

EXAMPLE = Path(__file__).parents[3] / "examples" / "torch-save"
PROGRAM = (EXAMPLE / "train.py").read_text()
SPEC = yaml.safe_load((EXAMPLE / "trainingjob.yaml").read_text())["spec"]


def write_archive(state: dict[str, Any], file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", repr(state))


def save_function(directory: Path) -> Any:
    """The program's own function, with an archive in place of torch's."""
    (function,) = (
        node for node in ast.parse(PROGRAM).body if isinstance(node, ast.FunctionDef) and node.name == "save"
    )
    no_state = SimpleNamespace(state_dict=dict)
    namespace = {
        "KEPT": 3,
        "model": SimpleNamespace(module=no_state),
        "optimizer": no_state,
        "options": SimpleNamespace(out=directory),
        "os": os,
        "torch": SimpleNamespace(save=write_archive),
    }
    exec(compile(ast.Module([function], []), "train.py", "exec"), namespace)
    return namespace["save"]


def found_steps(directory: Path) -> list[int]:
    finder = Finder(str(directory), settle_seconds=0, formats=[own(SPEC["checkpoint"]["pattern"])])
    return [checkpoint.step for checkpoint in finder.find(limit=100)]


def test_the_pattern_finds_the_newest_three_saves_and_no_unfinished_one(tmp_path: Path) -> None:
    save = save_function(tmp_path)
    for step in range(20, 120, 20):
        save(step)
    (tmp_path / "step_120.tmp").write_bytes((tmp_path / "step_100.pt").read_bytes())
    assert found_steps(tmp_path) == [100, 80, 60]


def test_a_save_after_going_back_is_kept_beside_those_of_later_steps(tmp_path: Path) -> None:
    save = save_function(tmp_path)
    for step in (900, 920, 940, 20):
        save(step)
    assert found_steps(tmp_path) == [940, 920, 900, 20]


def test_the_step_pattern_reads_what_the_program_prints() -> None:
    (printed,) = re.findall(r'print\(f"(step .*?)"', PROGRAM)
    line = printed.replace("{step}", "12")
    assert re.search(SPEC["progress"]["stepPattern"], line).groups() == ("12",)


def test_its_readme_has_the_lines_of_manifest_and_program() -> None:
    text = (EXAMPLE / "README.md").read_text()
    assert f"`checkpoint.pattern: {SPEC['checkpoint']['pattern']}`" in text
    assert f"`progress.stepPattern: '{SPEC['progress']['stepPattern']}'`" in text
    assert 'path := os.environ.get("MUSTER_RESUME_PATH")' in PROGRAM
    assert '`path = os.environ.get("MUSTER_RESUME_PATH")`' in text


def test_its_recipe_sees_its_saves_and_not_the_unfinished_one() -> None:
    assert saved_step("step_20.pt") == 20
    assert saved_step("step_20.tmp") is None
