"""The launcher's archive: the same bytes from the same sources, and only the launcher's rooms."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from imagebuild.runpyz import write_archive

REPOSITORY = Path(__file__).parents[3]


def package(root: Path, greeting: str = "hello") -> Path:
    folder = root / "muster"
    for room in ("node", "node/agent", "node/launcher", "node/checkpoint", "protocol", "controller"):
        (folder / room).mkdir(parents=True)
        (folder / room / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "protocol" / "messages.py").write_text(f"GREETING = {greeting!r}\n")
    (folder / "node" / "launcher" / "__main__.py").write_text(
        "from muster.protocol.messages import GREETING\n\n\ndef main():\n    print(GREETING)\n    return 7\n"
    )
    return folder


def test_runs_main_of_the_launcher_and_returns_its_code(tmp_path: Path) -> None:
    write_archive(package(tmp_path), tmp_path / "run.pyz")
    result = subprocess.run(
        [sys.executable, "-I", tmp_path / "run.pyz"], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert (result.returncode, result.stdout) == (7, "hello\n")


def test_equal_sources_give_equal_bytes_whatever_their_times_and_modes(tmp_path: Path) -> None:
    first, second = package(tmp_path / "a"), package(tmp_path / "b")
    changed = second / "protocol" / "messages.py"
    changed.chmod(0o600)
    os.utime(changed, (1, 1))
    (second / "protocol" / "__pycache__").mkdir()
    (second / "protocol" / "__pycache__" / "messages.cpython-311.pyc").write_bytes(b"stale")
    write_archive(first, tmp_path / "first.pyz")
    write_archive(second, tmp_path / "second.pyz")
    assert (tmp_path / "first.pyz").read_bytes() == (tmp_path / "second.pyz").read_bytes()


def test_changed_source_gives_other_bytes(tmp_path: Path) -> None:
    write_archive(package(tmp_path / "a"), tmp_path / "first.pyz")
    write_archive(package(tmp_path / "b", "good bye"), tmp_path / "second.pyz")
    assert (tmp_path / "first.pyz").read_bytes() != (tmp_path / "second.pyz").read_bytes()


def test_other_rooms_stay_outside(tmp_path: Path) -> None:
    write_archive(package(tmp_path), tmp_path / "run.pyz")
    with zipfile.ZipFile(tmp_path / "run.pyz") as archive:
        folders = {name.rpartition("/")[0] for name in archive.namelist()}
    assert folders == {"", "muster", "muster/node", "muster/node/checkpoint", "muster/node/launcher", "muster/protocol"}


def test_archive_of_this_repository_starts(tmp_path: Path) -> None:
    write_archive(REPOSITORY / "operator" / "muster", tmp_path / "run.pyz")
    result = subprocess.run(
        [sys.executable, "-I", tmp_path / "run.pyz"], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 2
    assert result.stderr.startswith("usage: run.pyz")
