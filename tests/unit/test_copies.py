"""What a copy of a model changes is a field of it, also in lines that no test runs: mypy does not read these names."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.parsed import parse

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("operator", "tools", "tests")
IS_MODEL = re.compile("ApiModel|RecordedModel")

Models = Mapping[str, Mapping[str, set[str]]]
"""Class -> field -> names in the field's annotation."""


@dataclass(frozen=True)
class Copy:
    """A call of `model_copy`, with the function around it and the names in the annotations of the parameters."""

    call: ast.Call
    function: ast.AST | None
    parameters: Mapping[str, set[str]]


def names_in(annotation: ast.expr | None) -> set[str]:
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)} if annotation else set()


def models_of(modules: Iterable[ast.Module]) -> Models:
    """The models that are declared at the top of modules. Those of one name are taken for one."""
    declared = [node for module in modules for node in module.body if isinstance(node, ast.ClassDef)]
    found: dict[str, dict[str, set[str]]] = {"ApiModel": {}}
    while more := [node for node in declared if any(names_in(base) & found.keys() for base in node.bases)]:
        for node in more:
            fields = found.setdefault(node.name, {})
            for base in set[str]().union(*map(names_in, node.bases)) & found.keys():
                fields.update(found[base])
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    named = names_in(line.annotation)
                    if "ClassVar" not in named:
                        fields[line.target.id] = fields.get(line.target.id, set()) | named
        declared = [node for node in declared if node not in more]
    return found


def copies_in(node: ast.AST, function: ast.AST | None, parameters: Mapping[str, set[str]]) -> Iterator[Copy]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = {**parameters, **{each.arg: names_in(each.annotation) for each in every}}
        function = function if isinstance(node, ast.Lambda) else node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "model_copy":
        yield Copy(node, function, parameters)
    for child in ast.iter_child_nodes(node):
        yield from copies_in(child, function, parameters)


def models_copied(copy: Copy, models: Models) -> set[str]:
    """The models of which one is copied, by the annotation of the parameter or field; all where neither says it."""
    assert isinstance(copy.call.func, ast.Attribute)
    named = set[str]()
    match copy.call.func.value:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            named = copy.parameters.get(name, set())
        case ast.Attribute(attr=name) | ast.Subscript(value=ast.Attribute(attr=name)):
            named = set[str]().union(*(fields.get(name, set()) for fields in models.values()))
        case ast.Call(func=ast.Name(id=name)):
            named = {name}
    return named & models.keys() or {*models}


def keys_of(update: ast.expr, function: ast.AST | None) -> Iterator[str]:
    """The literal keys of a dict, and of those from which it is made; of a variable, if the function is given."""
    match update:
        case ast.Dict():
            for key, value in zip(update.keys, update.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value)
                elif key is None:
                    yield from keys_of(value, function)
        case ast.BinOp(left=one, right=other) | ast.IfExp(body=one, orelse=other):
            yield from keys_of(one, function)
            yield from keys_of(other, function)
        case ast.Name(id=name) if function is not None:
            for node in ast.walk(function):
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(id=target)], value=ast.expr() as value)
                        | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
                        | ast.AugAssign(target=ast.Name(id=target), value=value)
                    ) if target == name:
                        yield from keys_of(value, None)
                    case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=target), slice=ast.Constant(value=key))]):
                        if target == name:
                            yield str(key)


def wrong_keys(module: ast.Module, models: Models) -> Iterator[str]:
    for copy in copies_in(module, None, {}):
        kinds = models_copied(copy, models)
        allowed = set[str]().union(*(models[kind] for kind in kinds))
        updates = [keyword.value for keyword in copy.call.keywords if keyword.arg == "update"]
        for key in [key for update in updates for key in keys_of(update, copy.function)]:
            if key not in allowed:
                kind = " or ".join(sorted(kinds)) if len(kinds) < len(models) else "any model"
                yield f"line {copy.call.lineno}: {key} is no field of {kind}"


def test_every_name_that_a_copy_changes_is_a_field_of_the_model() -> None:
    texts = {file: file.read_text() for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))}
    modules = {file: parse(text) for file, text in texts.items() if "model_copy(" in text or IS_MODEL.search(text)}
    models = models_of(modules.values())
    found = {str(file.relative_to(ROOT)): [*wrong_keys(module, models)] for file, module in modules.items()}
    assert {"Gang", "GangSpec", "Member"} <= models.keys()
    assert {file: wrong for file, wrong in found.items() if wrong} == {}


DECLARED = """
class Part(ApiModel):
    size: int
    unsaid: ClassVar[str]

class Whole(ApiModel):
    part: Part
    parts: list[Part]
    name: str

class Larger(Whole):
    more: int

class Other:
    color: str
"""


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("each.model_copy(update={'name': 'x', 'size': 1})", []),
        ("each.model_copy(update={'color': 'x'})", ["color is no field of any model"]),
        ("each.model_copy(update={'unsaid': 'x'})", ["unsaid is no field of any model"]),
        ("larger.model_copy(update={'name': 'x', 'more': 1})", []),
        ("larger.model_copy(update={'size': 1})", ["size is no field of Larger"]),
        ("each.part.model_copy(update={'name': 'x'})", ["name is no field of Part"]),
        ("each.parts[-1].model_copy(update={'name': 'x'})", ["name is no field of Part"]),
        ("Part(size=1).model_copy(update={'name': 'x'})", ["name is no field of Part"]),
        ("either.model_copy(update={'size': 1, 'name': 'x'})", []),
        ("either.model_copy(update={'more': 1})", ["more is no field of Part or Whole"]),
        ("each.part.model_copy(update={'size': {'name': 1}})", []),
        ("each.part.model_copy(update={**more, 'size': 1} if more else {'sized': 1})", ["sized is no field of Part"]),
        ("changes = {'sized': 1}; each.part.model_copy(update=changes | {'size': 1})", ["sized is no field of Part"]),
        ("changes = {}; changes['sized'] = 1; each.part.model_copy(update=changes)", ["sized is no field of Part"]),
    ],
)
def test_a_name_that_is_no_field_is_found_where_the_model_is_known(line: str, wrong: list[str]) -> None:
    function = f"def change(larger: Larger, either: Part | Whole | None, each):\n    {line}\n"
    found = wrong_keys(parse(function), models_of([parse(DECLARED)]))
    assert list(found) == [f"line 2: {words}" for words in wrong]


DECIDING = ("lifecycle", "burnin")


def test_who_decides_changes_no_record_but_by_calls_of_the_room_record() -> None:
    modules = [file for room in DECIDING for file in (ROOT / "operator/muster" / room).rglob("*.py")]
    copying = [str(file.relative_to(ROOT)) for file in modules if "model_copy(" in file.read_text()]
    assert len(modules) > len(DECIDING)
    assert copying == []
