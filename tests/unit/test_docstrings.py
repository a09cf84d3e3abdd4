"""Readers look for the parameters and names that docstrings and comments mention: they exist.

`Args:` lists all parameters in their order, or there is none.
"""

import ast
import functools
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.parsed import nodes

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator" / "muster"

ARGS = re.compile(r"^Args:\n((?: {4}.*\n?|\n(?= {4}))*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*):", re.MULTILINE)

# These describe files and functions of other programs.
FOREIGN = ("node/checkpoint/", "protocol/checkpoint_names.py", "protocol/presets.py")
WORDS = {
    "MicroTime",  # a type of the Kubernetes API
    "infiniband_verbs",  # a class of devices in /sys
}
QUOTED = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")
DOTTED = re.compile(r"(?<![\w/.-])([a-z_]+)\.(\w[\w.]*)")
COMMENT = re.compile("#.*")
NAME = re.compile(r"\b(?:\w*[A-Za-z0-9]_[A-Za-z0-9]\w*|_?[A-Z][a-z0-9]+[A-Z]\w*)\b")  # and no ordinary word


class Module(NamedTuple):
    """What a module says of itself.

    Attributes:
        unlike: functions and classes whose docstring lists other parameters than there are, or in another order.
        texts: docstrings and comments.
        names: what it defines, and its other strings: keys, reasons and fields of the API are among them.
    """

    unlike: list[str]
    texts: list[str]
    names: set[str]


def read(source: str) -> Module:
    """Parse a module."""
    module, standing = Module([], COMMENT.findall(source), set()), set[int]()
    for node in nodes(source):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as alone):  # before the string itself
                module.texts.append(text)
                standing.add(id(alone))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                module.names.add(name)
                section = ARGS.search(ast.get_docstring(node) or "") if "Args:" in source else None
                if section and ", ".join(ENTRY.findall(section[1])) != ", ".join(parameters(node)):
                    module.unlike.append(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                module.names.add(name)
            case ast.Constant(value=str(name)) if id(node) not in standing:
                module.names.add(name)
    return module


def parameters(node: ast.AST) -> list[str]:
    """The parameters of a function, or of a class's constructor."""
    if isinstance(node, ast.ClassDef):
        return next(parameters(each) for each in node.body if getattr(each, "name", "") == "__init__")
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    of = node.args
    every = [*of.posonlyargs, *of.args, of.vararg, *of.kwonlyargs, of.kwarg]
    return [each.arg for each in every if each is not None and each.arg not in ("self", "cls")]


@functools.cache
def modules() -> dict[str, Module]:
    """All modules of the package, read once for all tests."""
    return {str(file.relative_to(PACKAGE)): read(file.read_text()) for file in PACKAGE.rglob("*.py")}


def missing_names(text: str, known: Collection[str], files: Collection[str]) -> list[str]:
    """The names that a text mentions in backticks, or as those of one of these files, and that are not known."""
    mentioned = [*QUOTED.findall(text), *(tail for module, tail in DOTTED.findall(text) if module in files)]
    return [name for mention in mentioned for name in NAME.findall(mention) if name not in known]


def test_args_lists_every_parameter_or_is_not_there() -> None:
    assert len(modules()) > 100
    assert {name: module.unlike for name, module in modules().items() if module.unlike} == {}


@pytest.mark.parametrize(
    "signature", ["one, two, three", "two", "two, one", "one, *two, three", "self, one, two, **three"]
)
def test_a_list_unlike_the_parameters_is_found(signature: str) -> None:
    section = '"""Do it.\n\n    Args:\n        one: first,\n            two: lines.\n        two: last.\n    """'
    assert read(f"def do({signature}):\n    {section}\n").unlike == ["do"]
    assert read(f"class Do:\n    {section}\n    def __init__({signature}): ...\n").unlike == ["Do"]
    assert not read(f"def do(self, one, *two):\n    {section}\n").unlike


def test_names_in_docstrings_and_comments_exist() -> None:
    files = {Path(name).stem for name in modules()}
    known = WORDS.union(files, *(module.names for module in modules().values()))
    own = {name: module for name, module in modules().items() if not name.startswith(FOREIGN)}
    found = {name: missing_names("\n".join(module.texts), known, files) for name, module in own.items()}
    assert {name: missing for name, missing in found.items() if missing} == {}


@pytest.mark.parametrize(
    "text",
    ["`a_name`", "`a_name()` twice", "see `Known.a_name(1)`", "(record.members.a_name)", "`BadName`", "`_a_name`"],
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert missing_names(text, {"Known"}, {"record"}) in (["a_name"], ["BadName"], ["_a_name"])
    assert not missing_names(text, {"Known", "a_name", "BadName", "_a_name"}, {"record"})


def test_names_are_those_of_the_code() -> None:
    module = read('"""`a`"""\nclass B:\n    c: int = 1  # `d`\n    def e(self, f): self.g = {"h": 1}\n')
    assert module.names == {"B", "c", "e", "f", "g", "h", "self"}
    assert sorted(module.texts) == ["# `d`", "`a`"]
