"""No module of operator/muster defines or imports two classes of one name, and the number of class names that two
modules define only sinks."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.unit.parsed import nodes, parse

OPERATOR = Path(__file__).resolve().parents[2] / "operator"
MOST_TWICE = 40
"""The public class names that two modules or more define. Lower it after a rename."""


def modules() -> dict[str, str]:
    """The source of each module of the package."""
    found = {path: ".".join(path.relative_to(OPERATOR).with_suffix("").parts) for path in OPERATOR.rglob("*.py")}
    return {name.removesuffix(".__init__"): path.read_text() for path, name in found.items()}


def defined_classes(source: str) -> set[str]:
    return {
        node.name for node in parse(source).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def imported_names(source: str) -> dict[str, tuple[str, str]]:
    """What `from module import name` binds, by local name."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in nodes(source)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


class Names:
    """The classes that each module defines, and those that it uses of others."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources
        self.defined = {name: defined_classes(source) for name, source in sources.items()}
        self._imported = {name: imported_names(source) for name, source in sources.items()}

    def _origin(self, module: str, name: str) -> tuple[str, str]:
        """Where a name that one module has is defined, through any number of re-exports."""
        while name not in self.defined.get(module, ()) and name in self._imported.get(module, {}):
            module, name = self._imported[module][name]
        return module, name

    def _used(self, module: str) -> Iterator[tuple[str, str]]:
        """Module and name of each class that a module imports, by its name or with its module."""
        imported = self._imported[module]
        for source, name in imported.values():
            yield self._origin(source, name)
        for node in nodes(self._sources[module]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
                yield self._origin(".".join(imported[node.value.id]), node.attr)

    def clashes(self) -> list[str]:
        """Each class name that stands for two classes in one module."""
        found = []
        for module, own in self.defined.items():
            classes = {(source, name) for source, name in self._used(module) if name in self.defined.get(source, ())}
            classes |= {(module, name) for name in own}
            found += [f"{module}: {name}" for name, of in Counter(name for _, name in classes).items() if of > 1]
        return sorted(found)

    def twice(self) -> list[str]:
        counted = Counter(name for names in self.defined.values() for name in names)
        return sorted(name for name, of in counted.items() if of > 1)


def test_no_module_has_two_classes_of_one_name_and_fewer_names_stand_twice() -> None:
    names = Names(modules())
    assert names.clashes() == []
    twice = names.twice()
    assert twice, "it counts"
    assert len(twice) <= MOST_TWICE, twice


def test_two_classes_of_one_name_are_found_by_import_module_and_reexport() -> None:
    sources = {
        "m.a": "class Plan: ...\n",
        "m.b": "class Plan: ...\n",
        "m": "from m.b import Plan\n",
        "m.own": "from m.a import Plan as Other\nclass Plan: ...\n",
        "m.by_module": "from m import b\nfrom m.a import Plan\nb.Plan()\n",
        "m.reexported": "from m import Plan\nfrom m.a import Plan as Other\n",
        "m.one": "from m import Plan\nfrom m.b import Plan as Same\n",
    }
    names = Names(sources)
    assert names.clashes() == ["m.by_module: Plan", "m.own: Plan", "m.reexported: Plan"]
    assert names.twice() == ["Plan"]
