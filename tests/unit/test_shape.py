"""The rooms that are read most keep their functions small: no more than 40 lines, and no more than 4 parameters."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("operator/muster/health",)
"""Folders and files, from the root of the repository."""
EXEMPT = frozenset({"operator/muster/health/engine.py"})
MAX_LINES, MAX_PARAMETERS = 40, 4


def modules(room: str) -> list[Path]:
    path = ROOT / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    variable = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variable]
    return sum(argument.arg not in ("self", "cls") for argument in every)


def too_large(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_LINES or parameters(node) > MAX_PARAMETERS:
                name = f"{module.relative_to(ROOT)}:{node.lineno} {node.name}"
                yield f"{name}: {lines} lines, {parameters(node)} parameters"


def test_no_function_has_more_lines_or_parameters_than_a_reader_can_hold() -> None:
    every = [module for room in ROOMS for module in modules(room)]
    assert every
    counted = [module for module in every if str(module.relative_to(ROOT)) not in EXEMPT]
    assert [text for module in counted for text in too_large(module)] == []
