"""The recipes' programs see that they are asked to leave, as the launcher asks, and say so as it reads."""

import ast
import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.node.launcher.progress import ProgressFile
from muster.node.launcher.requests import RankRequest, write_request
from muster.protocol.messages import LEAVE, SAVE
from recipes.play import Asked, Outcome
from recipes.table import RECIPES, options_of

EXAMPLES = Path(__file__).parents[3] / "examples"
CONTRACT = EXAMPLES.parent / "docs" / "trainer-contract.md"
TORCH = [name for name in RECIPES if name != "jax-orbax"]


def program(name: str) -> str:
    return (EXAMPLES / name / "train.py").read_text()


def function(name: str) -> ast.FunctionDef:
    """How the program sees whether it is asked."""
    body = ast.parse(program(name)).body
    return next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "asked")


class Number:
    """A tensor of one number."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0

    def max(self) -> int:
        return self.value


def distributed(of_others: int) -> SimpleNamespace:
    """torch.distributed on a rank beside others that have read this number, 0 for none."""

    def all_reduce(tensor: Number, operation: str) -> None:
        assert operation == "max"
        tensor.value = max(tensor.value, of_others)

    return SimpleNamespace(all_reduce=all_reduce, ReduceOp=SimpleNamespace(MAX="max"))


def asked(name: str, of_others: int) -> Any:
    """The program's own function, on a rank beside such others."""
    found = {
        "Path": Path,
        "contextlib": contextlib,
        "dist": distributed(of_others),
        "json": json,
        "multihost_utils": SimpleNamespace(process_allgather=lambda number: Number(max(number, of_others))),
        "np": SimpleNamespace(int32=int),
        "os": os,
        "torch": SimpleNamespace(tensor=Number),
        "followed": 0,
    }
    exec(compile(ast.Module([function(name)], []), "train.py", "exec"), found)
    return found["asked"]


def test_all_programs_of_torch_ask_with_the_same_lines() -> None:
    assert len({ast.dump(function(name)) for name in TORCH}) == 1


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("kind", "of_others", "request_kind", "answered"),
    [
        ("", 0, "", 0),
        (LEAVE, 0, LEAVE, 3),
        (SAVE, 0, SAVE, 3),
        ("", 7, LEAVE, 3),
        ("", 6, SAVE, 3),
        (SAVE, 9, LEAVE, 4),
        ("Later", 0, "", 0),
    ],
    ids=["nobody", "leave", "save", "another to leave", "another to save", "another later", "another kind"],
)
def test_ranks_agree_on_the_newest_request(
    name: str,
    kind: str,
    of_others: int,
    request_kind: str,
    answered: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests, progress = tmp_path / "requests", tmp_path / "progress"
    monkeypatch.setenv("MUSTER_REQUESTS", str(requests))
    monkeypatch.setenv("MUSTER_PROGRESS", str(progress))
    write_request(str(requests), RankRequest(3, kind, 300.0, "NodeCordoned").text() if kind else "")
    function = asked(name, of_others)
    assert function(12) == request_kind
    assert function(13) == ""  # it is saved once, although the file is still there
    reader = ProgressFile(str(progress))
    assert reader.read({3, 4}) == ([12] if answered else [])
    assert reader.answered == answered


@pytest.mark.parametrize(
    ("of_others", "number", "ends"), [(0, 0, False), (6, 3, False), (7, 3, True)], ids=["nobody", "save", "leave"]
)
def test_the_lines_of_the_contract_save_and_end(
    of_others: int, number: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_REQUESTS", raising=False)
    (lines,) = re.findall(r"```python\n(followed = 0.*?)```", CONTRACT.read_text(), re.DOTALL)
    said = io.StringIO()
    saved: list[int] = []
    torch = SimpleNamespace(tensor=lambda number, device: Number(number), distributed=distributed(of_others))
    modules = {"Path": Path, "contextlib": contextlib, "json": json, "os": os, "sys": sys, "torch": torch}
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext():
        exec(lines, {**modules, "device": "cuda", "step": 12, "progress": said, "save": saved.append})
    assert saved == ([12] if number else [])
    assert said.getvalue() == ('{"step": 12, "request": 3}\n' if number else "")


@pytest.mark.parametrize("name", RECIPES)
def test_without_muster_nothing_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_REQUESTS", raising=False)
    monkeypatch.delenv("MUSTER_PROGRESS", raising=False)
    assert asked(name, 0)(12) == ""


@pytest.mark.parametrize("name", RECIPES)
def test_a_program_that_leaves_ends_before_what_follows_the_training(name: str) -> None:
    ends = [
        node.lineno
        for node in ast.walk(ast.parse(program(name)))
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("request == 'Leave'", "saver.leaves")
        if ast.unparse(node.body[-1]) == "os._exit(0)"
    ]
    weights = next(number for number, line in enumerate(program(name).split("\n"), 1) if 'print(f"weights' in line)
    assert len(ends) == 1
    assert ends[0] < weights


@pytest.mark.parametrize("name", RECIPES)
def test_the_options_of_a_recipe_are_those_of_its_program(name: str) -> None:
    known = program(name) + "--save_steps" * ("TrainingArguments" in program(name))
    for option in options_of(name).values():
        assert option in known or option.removeprefix("--") in known


@pytest.mark.parametrize(
    ("step", "resumed", "weights", "problem"),
    [
        (12, 12, "a", ""),
        (13, 12, "a", "it was asked to leave, made step 13, and went on from 12"),
        (12, None, "a", "it was asked to leave, made step 12, and went on from None"),
        (12, 12, "b", "its weights are not those of the undisturbed run"),
        (12, 12, "", "its weights are not those of the undisturbed run"),
    ],
)
def test_a_lost_step_is_a_problem(step: int, resumed: int | None, weights: str, problem: str) -> None:
    asked = Asked(step, resumed, 1.0, 2.0, "Succeeded", weights)
    assert Outcome("torch-save", "Succeeded", "Pattern", (), asked, "a", "a").problem == problem
