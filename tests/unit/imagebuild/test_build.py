"""The folders that a build leaves, and what a failed command says."""

import sys
from pathlib import Path

import pytest

from imagebuild.__main__ import link_folder
from imagebuild.report import BuildError, run_quietly


def test_downloads_replace_those_of_an_older_lock(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "b.whl").write_text("b")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").write_text("a")
    link_folder(tmp_path / "new", tmp_path / "wheels")
    assert {path.name: path.read_text() for path in (tmp_path / "wheels").iterdir()} == {"b.whl": "b"}


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
