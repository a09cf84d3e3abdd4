"""The folders that a build leaves, and what a failed command says."""

import os
import sys
from pathlib import Path

import pytest

from imagebuild.__main__ import KEPT_BUILDS, link_folder, remove_old_builds
from imagebuild.report import BuildError, run_quietly


def test_downloads_replace_those_of_an_older_lock(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "b.whl").write_text("b")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").write_text("a")
    link_folder(tmp_path / "new", tmp_path / "wheels")
    assert {path.name: path.read_text() for path in (tmp_path / "wheels").iterdir()} == {"b.whl": "b"}


def test_builds_used_last_are_kept_and_the_current_one_always(tmp_path: Path) -> None:
    for age in range(KEPT_BUILDS + 3):
        (tmp_path / f"build{age}").mkdir()
        os.utime(tmp_path / f"build{age}", (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "build0.lock").touch()
    (tmp_path / "other.making-x").mkdir()
    oldest = tmp_path / f"build{KEPT_BUILDS + 2}"
    remove_old_builds(tmp_path, oldest)
    newest = [f"build{age}" for age in range(KEPT_BUILDS - 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*newest, oldest.name, "build0.lock", "other.making-x"]
    )


def test_a_failed_command_shows_its_code_and_its_last_lines() -> None:
    script = "import sys; print('first'); print('\\n' * 50); print('no space left', file=sys.stderr); sys.exit(3)"
    with pytest.raises(BuildError) as caught:
        run_quietly([sys.executable, "-c", script])
    assert "ended with 3" in str(caught.value)
    assert "no space left" in str(caught.value)
    assert "first" not in str(caught.value)


def test_a_missing_command_is_named() -> None:
    with pytest.raises(BuildError, match="no-such-tool is not installed"):
        run_quietly(["no-such-tool"])
