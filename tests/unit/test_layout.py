"""Rules of the house that no linter knows."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-qq", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout[-4000:]
