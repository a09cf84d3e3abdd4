"""Rules of the house that no linter knows."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.unit.parsed import parse

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "operator/muster/"
TESTS = re.compile(r"^Tests: ([\w/]+\.py(?:, [\w/]+\.py)*)\.$", re.MULTILINE)


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return listed.stdout.splitlines() or [str(p.relative_to(ROOT)) for p in (ROOT / "operator").rglob("*.py")]


def test_the_source_root_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    code = "import operator, collections; print(operator.__file__)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "muster" not in told.stdout.split("/")[-2]


def test_lock_files_name_packages_only() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"https?://", lock.read_text()), lock
        pins = re.findall(r"^([A-Za-z0-9_.-]+)==", lock.read_text(), re.MULTILINE)
        assert pins
        assert lock.read_text().count("--hash=sha256:") >= len(pins)


def test_every_module_says_why_it_exists() -> None:
    modules = [path for path in tracked() if path.startswith("operator/") and path.endswith(".py")]
    assert modules
    silent = [path for path in modules if not (ROOT / path).read_text().lstrip().startswith('"""')]
    assert silent == []


def test_the_tests_that_the_gate_leaves_out_can_be_collected() -> None:
    """A renamed function or parameter shows here, not a day later in `make test-all`."""
    folders = [f"tests/{level}/nightly" for level in ("unit", "integration", "e2e")]
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--collect-only", "-qq", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout[-4000:]


def is_declaration(module: ast.Module) -> bool:
    """Whether a module only declares: no function of it has a body besides its docstring and `...`."""
    functions = (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return all(
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
        for function in functions
        for line in function.body
    )


def room_of(module: str) -> str:
    """The folder of tests that mirrors a module's room; the rooms of `node/` are one level down."""
    *rooms, _ = module.removeprefix(PACKAGE).removeprefix("node/").split("/")
    return "preflight_probes" if rooms[1:] == ["probes"] else "/".join(rooms[:1])


def missing_tests(module: str, source: str, tests: Collection[str]) -> str:
    """What a module lacks: a test file of its name in its room, or a line of its docstring that names its tests."""
    own = re.compile(rf"tests/(unit|integration)/(nightly/)?{room_of(module)}(/\w+)*/?")
    name = f"test_{Path(module).name}"
    is_tested = any(test.endswith(name) and own.fullmatch(test.removesuffix(name)) for test in tests)
    if is_tested and not TESTS.search(source):
        return ""
    parsed = parse(source)
    if is_declaration(parsed):
        return ""
    named = TESTS.findall(ast.get_docstring(parsed) or "")
    if gone := sorted({test for line in named for test in line.split(", ")} - {*tests}):
        return f"names {', '.join(gone)}"
    return "" if named or is_tested else "has no tests"


def test_every_module_has_tests_of_its_name_or_names_them() -> None:
    paths = tracked()
    tests = {path for path in paths if re.fullmatch(r"tests/(unit|integration)/(\w+/)*test_\w+\.py", path)}
    assert tests
    modules = [path for path in paths if path.startswith(PACKAGE) and path.endswith(".py")]
    found = {path: missing_tests(path, (ROOT / path).read_text(), tests) for path in modules}
    assert {path: missing for path, missing in found.items() if missing} == {}


CODE = "def double(x: int) -> int:\n    return 2 * x\n"


@pytest.mark.parametrize(
    ("module", "source", "missing"),
    [
        ("world/job.py", CODE, "has no tests"),
        ("world/fleet.py", CODE, ""),
        ("node/agent/fleet.py", CODE, "has no tests"),
        ("node/agent/ledger.py", CODE, ""),
        ("node/checker/probes/zygote.py", CODE, ""),
        ("node/checker/zygote.py", CODE, "has no tests"),
        ("serve.py", CODE, ""),
        ("world/serve.py", CODE, "has no tests"),
        ("world/job.py", f'"""Jobs.\n\nTests: tests/unit/world/test_fleet.py.\n"""\n{CODE}', ""),
        (
            "world/job.py",
            f'"""Jobs.\n\nTests: tests/unit/world/test_fleet.py, tests/unit/world/test_job.py.\n"""\n{CODE}',
            "names tests/unit/world/test_job.py",
        ),
        ("world/job.py", f'"""Jobs. Tests: somewhere."""\n{CODE}', "has no tests"),
        ("world/job.py", 'LIMIT = 3\n\nclass Row:\n    def cost(self) -> int:\n        """What it costs."""\n', ""),
    ],
)
def test_what_a_module_lacks(module: str, source: str, missing: str) -> None:
    tests = (
        "tests/unit/world/test_fleet.py",
        "tests/integration/nightly/agent/test_ledger.py",
        "tests/unit/preflight_probes/test_zygote.py",
        "tests/unit/test_serve.py",
    )
    assert missing_tests(PACKAGE + module, source, tests) == missing
