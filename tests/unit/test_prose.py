"""No decision by prose: what text for people says is never looked through to find out what happened.

A message is reworded, or holds a name that a user chose. The fact is carried beside it, as an enum or a field of its
own.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.parsed import nodes

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator" / "muster"

# Names of what is written for people. `text` and `words` may be anything: they count, too.
TEXTS = re.compile(r"(?:^|_)(?:message|note|error|words|text|reason|remedy|doubt|trap|warning|why|tail|said|sentence)$")
METHODS = frozenset(
    {
        "startswith",
        "endswith",
        "find",
        "rfind",
        "index",
        "count",
        "partition",
        "rpartition",
        "removeprefix",
        "removesuffix",
    }
)
PATTERNS = frozenset({"search", "match", "fullmatch", "findall", "finditer"})

# Rooms that are not pure and read no text either: muster.kube.errors has the API server's refusals as types.
BESIDES = ("answers", "controller", "coordinator", "page")

# Files that read what other programs print, or that take text apart only to write other text.
ALLOWED = {
    "answers/inquiry.py": "shows the last lines of a rank apart from the message that ends with them",
    "controller/admission.py": "a set of policies that were reported",
    "controller/repairs.py": "a mapping from nodes to their repairs",
    "convert/job.py": "takes a remedy that is not for a manifest off a message, which then goes out",
    "convert/worker.py": "command lines and templates of other systems",
    "health/kinds.py": "the kernel's lines",
    "health/removals.py": "times in the messages of other systems' marks",
    "health/sources.py": "conditions and taints of other systems, and the reasons of rows as patterns",
    "health/xids.py": "the NVIDIA driver's lines",
    "health/weigh.py": "keeps the message of last time where only its figures differ: nothing but that text follows",
    "recovery/ended_well.py": "the last lines of trainers",
    "recovery/exits.py": "reasons and messages of kubelets and container runtimes",
    "recovery/last_lines.py": "the last lines of trainers",
    "whatif/rates.py": "an option of the command line",
    "world/redact.py": "takes secrets out of any text",
}


# What decisions may read of a job's own status, which is written for users: see muster.status.job_status.
READ_BACK = {"completion", "checkpoint", "attempt"}
DECIDING = (
    *("burnin", "checkpoints", "fencing", "lifecycle", "placement", "pods", "queueing", "record", "recovery", "status"),
)
PROJECTS = {
    "status/job_status.py",
    "checkpoints/unshared.py",
    "status/warnings.py",
    "queueing/explain.py",
    "queueing/ends.py",
    "status/start_estimate.py",
}  # these write the status: nothing is decided by when a job ends or starts


def pure_files() -> list[Path]:
    """The modules that decide without a client, as the import contract names them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    names = next(each["source_modules"] for each in contracts if each["name"].startswith("Pure rooms"))
    paths = [PACKAGE.joinpath(*name.split(".")[1:]) for name in names]
    return [file for path in paths for file in ([path.with_suffix(".py")] if not path.is_dir() else path.rglob("*.py"))]


def read_texts(source: str) -> Iterator[int]:
    """The lines that look through a text for people."""
    for node in nodes(source):
        if isinstance(node, ast.Compare):
            sides = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            if any(isinstance(op, ast.In | ast.NotIn) and _is_part_of(left, right) for left, op, right in sides):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called, on = node.func.attr, node.func.value
            if (called in METHODS and _is_text(on)) or (called in PATTERNS and any(map(_is_text, node.args))):
                yield node.lineno


def _is_part_of(left: ast.expr, right: ast.expr) -> bool:
    if isinstance(left, ast.Constant) and isinstance(left.value, str) and " " in left.value:
        return not isinstance(right, ast.Tuple | ast.List | ast.Set)
    return _is_text(right)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return TEXTS.search(node.id) is not None
    if isinstance(node, ast.Attribute):
        return TEXTS.search(node.attr) is not None
    if isinstance(node, ast.BoolOp):
        return any(map(_is_text, node.values))
    if isinstance(node, ast.Call):  # text.lower().startswith, str(error)
        on = [node.func.value] if isinstance(node.func, ast.Attribute) else node.args
        return any(map(_is_text, on))
    return False


def test_no_room_that_decides_or_explains_looks_through_text_for_people() -> None:
    files = [*pure_files(), *(file for room in BESIDES for file in (PACKAGE / room).rglob("*.py"))]
    found = {str(file.relative_to(PACKAGE)): list(read_texts(file.read_text())) for file in files}
    assert "lifecycle/evacuation_step.py" in found
    assert {name: lines for name, lines in found.items() if lines and name not in ALLOWED} == {}
    assert sorted(name for name in ALLOWED if not found[name]) == [], "allowed, and not needed"


def status_fields(source: str) -> Iterator[str]:
    """The fields of `job.status` that are read."""
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "status":
            job = node.value.value
            if getattr(job, "attr", getattr(job, "id", "")) == "job":
                yield node.attr


def test_decisions_read_three_fields_of_the_status_back() -> None:
    files = [file for room in DECIDING for file in (PACKAGE / room).rglob("*.py")]
    files = [file for file in files if str(file.relative_to(PACKAGE)) not in PROJECTS]
    assert {name for file in files for name in status_fields(file.read_text())} == READ_BACK


@pytest.mark.parametrize(
    "line",
    [
        'any("is degraded" in words for words in why.values())',
        '"maintenance" in words',
        'error.startswith("unverified: ")',
        "launcher.checkpoint_error.startswith(UNVERIFIED)",
        'str(error).lower().find("denied")',
        "PATTERN.search(pod.message)",
        'message.partition(":")[0]',
        '"left by others" in anything',
        "policy in refused.message",
        'error.message.partition("the API server at ")[2]',
    ],
)
def test_what_is_found(line: str) -> None:
    assert list(read_texts(line))


@pytest.mark.parametrize("line", ["reason in REASONS", "name.startswith('pod-')", "kind in ERROR_KINDS"])
def test_what_is_not_found(line: str) -> None:
    assert not list(read_texts(line))
