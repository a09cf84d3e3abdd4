"""The rooms that are read most keep their functions small: no more than 40 lines, and no more than 4 parameters.

A test's name has no more than 80 characters.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.parsed import nodes

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("operator/muster/health", "operator/muster/preflight", "operator/muster/burnin")
"""Folders, and patterns of files, from the root of the repository."""
MAX_LINES, MAX_PARAMETERS = 40, 4


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py")) or sorted(ROOT.glob(room))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    variable = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variable]
    return sum(argument.arg not in ("self", "cls") for argument in every)


def too_large(module: Path) -> Iterator[str]:
    for node in nodes(module.read_text()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_LINES or parameters(node) > MAX_PARAMETERS:
                name = f"{module.relative_to(ROOT)}:{node.lineno} {node.name}"
                yield f"{name}: {lines} lines, {parameters(node)} parameters"


def test_no_function_has_more_lines_or_parameters_than_a_reader_can_hold() -> None:
    found = {room: modules(room) for room in ROOMS}
    assert all(found.values()), "a room has moved"
    assert [text for room in ROOMS for module in found[room] for text in too_large(module)] == []


MAX_ATTRIBUTES = 15
OF_NODES = (
    "node*",
    "agents",
    "dirty",
    "equipment",
    "failurereports",
    "forgetting",
    "keptnodes",
    "offenders",
    "repairs",
)
"""What of the room `controller` is about nodes."""


def attributes(of: ast.ClassDef) -> set[str]:
    """What methods assign to `self`, and what the class declares."""
    fields = {
        node.target.id for node in of.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return fields | assigned


def test_no_class_about_nodes_has_more_attributes_than_a_reader_can_hold() -> None:
    found = {name: list((ROOT / "operator/muster/controller").glob(f"{name}.py")) for name in OF_NODES}
    assert all(found.values()), "a module has moved"
    classes = [
        node
        for paths in found.values()
        for path in paths
        for node in nodes(path.read_text())
        if isinstance(node, ast.ClassDef)
    ]
    counted = {node.name: len(attributes(node)) for node in classes}
    assert counted["NodeReconciler"] > 10, "it counts"
    assert {name: count for name, count in counted.items() if count > MAX_ATTRIBUTES} == {}


MAX_NAME = 80
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def long_names(source: str) -> list[str]:
    return [name for name in TEST.findall(source) if len(name) > MAX_NAME]


def test_no_test_has_a_longer_name_than_a_reader_can_hold() -> None:
    found = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}
    assert "tests/unit/test_shape.py" in found
    assert {path: names for path, source in found.items() if (names := long_names(source))} == {}


def test_a_longer_name_is_found_in_functions_and_in_classes() -> None:
    fits, longer = "test_" + "a" * (MAX_NAME - 5), "test_" + "b" * (MAX_NAME - 4)
    source = f"def {fits}(): ...\ndef {longer}(): ...\nclass TestNames:\n    async def {longer}(self): ...\n"
    assert long_names(source) == [longer, longer]
