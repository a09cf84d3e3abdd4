"""Lists the errors of `kubectl muster` from its code, with placeholders in capitals where a value stands."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import muster.cli

ERRORS = frozenset({"CliError", "JobDeletedError", "NoSuchJobError", "NotInTimeError", "BadParameter"})

# The commands whose errors a module has; "" where every command may print them.
COMMANDS = {
    "attached": "submit --wait, run",
    "bundle": "bundle",
    "burnin": "status --burn-in",
    "cancel": "cancel",
    "check": "check",
    "completion": "",
    "confirmation": "cancel, requeue, eject, lost",
    "created": "submit, run, fork",
    "decide": "cordon, release, check, lost",
    "eject": "eject",
    "errors": "",
    "experimentreport": "report --experiment",
    "follow": "logs --follow",
    "fork": "fork",
    "forked": "fork",
    "incident": "report --incident",
    "jobs": "",
    "jobset": "convert --to jobset",
    "kubeconfig": "",
    "logs": "logs",
    "lost": "lost",
    "move": "move",
    "node": "nodes NODE",
    "nodes": "nodes",
    "page": "page",
    "progress": "submit --wait, run",
    "prometheus": "report --prometheus",
    "report": "report",
    "requeue": "requeue",
    "save": "save",
    "session": "",
    "shell": "shell",
    "submitted": "submit, run",
    "uninstall": "uninstall",
    "waiting": "save, move",
    "whatif": "what-if",
}


class CliMessage(NamedTuple):
    """One error of the command line.

    Attributes:
        command: the commands that print it; "": every command may.
        text: the message, with placeholders.
    """

    command: str
    text: str


def cli_errors() -> list[CliMessage]:
    """Return every error whose text the code of the command line writes, in alphabetical order within a command."""
    found: set[CliMessage] = set()
    for path in sorted(Path(inspect.getfile(muster.cli)).parent.glob("[a-z]*.py")):
        for text in errors_in(importlib.import_module(f"muster.cli.{path.stem}"), path.read_text(encoding="utf-8")):
            found.add(CliMessage(COMMANDS[path.stem], text))
    return sorted(found)


def errors_in(module: ModuleType, source: str) -> Iterator[str]:
    """Yield the texts of the errors that a module makes.

    A message that another function returns is taken from that function. A message that is the text of an exception is
    left out: another program, or another module, has written it.

    Args:
        module: holds the constants and functions that the messages name.
        source: the module's code.
    """
    for function in [
        each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]:
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and call.args and _called(call) in ERRORS:
                yield from _texts(call.args[0], function, module)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _texts(value: ast.expr, function: ast.AST, module: ModuleType) -> Iterator[str]:
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.IfExp):
        yield from _texts(value.body, function, module)
        yield from _texts(value.orelse, function, module)
    elif isinstance(value, ast.Call) and inspect.isfunction(returning := getattr(module, _called(value), None)):
        tree = ast.parse(inspect.getsource(returning))
        owner = inspect.getmodule(returning)
        if returning.__module__.startswith("muster.cli") and owner is not None:
            for each in ast.walk(tree):
                if isinstance(each, ast.Return) and each.value is not None:
                    yield from _texts(each.value, tree, owner)
    elif isinstance(value, ast.Constant | ast.JoinedStr | ast.BinOp):
        text = " ".join(_filled(value, function, module).split())
        if any(letter.islower() for letter in text):  # else it only quotes
            yield text


def _filled(value: ast.expr, function: ast.AST, module: ModuleType) -> str:
    """Return the text of an expression, with the names of values in capitals."""
    match value:
        case ast.Constant():
            return str(value.value)
        case ast.JoinedStr():
            return "".join(_filled(part, function, module) for part in value.values)
        case ast.FormattedValue():
            text = _filled(value.value, function, module)
            return f"'{text}'" if value.conversion == ord("r") else text
        case ast.BinOp(op=ast.Add()):
            return _filled(value.left, function, module) + _filled(value.right, function, module)
        case ast.IfExp():
            return _filled(value.body, function, module)
        case ast.Name():
            constant = getattr(module, value.id, None)
            if isinstance(constant, str | int):
                return str(constant)
            assigned = [
                each.value
                for each in ast.walk(function)
                if isinstance(each, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == value.id for t in each.targets)
            ]
            if len(assigned) == 1 and isinstance(assigned[0], ast.Constant | ast.JoinedStr | ast.IfExp):
                return _filled(assigned[0], function, module)
            return value.id.strip("_").upper()
        case ast.Attribute():
            return value.attr.strip("_").upper()
        case ast.Call(func=ast.Name(id="one_line" | "str"), args=[first, *_]):
            return _filled(first, function, module)
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Name() | ast.Attribute() as joined]):
            return f"{_filled(joined, function, module)} ..."
        case _:
            return "..."
