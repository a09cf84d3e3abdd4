"""No circle of files: none imports another that leads back to it, not even for its types."""

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tests.unit.parsed import nodes

ROOT = Path(__file__).resolve().parents[2]


def imports(root: Path, prefix: str = "") -> dict[str, set[str]]:
    """Module -> the modules below the same root that it imports, wherever in the file."""
    files = {_name(file.relative_to(root), prefix): file for file in root.rglob("*.py")}
    return {name: _imported(file.read_text(), files) - {name} for name, file in files.items()}


def _name(file: Path, prefix: str) -> str:
    parts = file.with_suffix("").parts
    return prefix + ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(source: str, files: Mapping[str, Path]) -> set[str]:
    found = set[str]()
    for node in nodes(source):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{each.name}" for each in node.names}
            found |= inner & files.keys() or {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & files.keys()


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of modules; none: empty."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize(("root", "prefix"), [("operator", ""), ("tools", ""), ("bench", "bench.")])
def test_no_files_import_each_other(root: str, prefix: str) -> None:
    graph = imports(ROOT / root, prefix)
    assert graph
    assert circle(graph) == []


def test_an_import_for_types_counts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b import B\n")
    (tmp_path / "b.py").write_text("def look() -> None:\n    import a\n")
    assert sorted(set(circle(imports(tmp_path)))) == ["a", "b"]
