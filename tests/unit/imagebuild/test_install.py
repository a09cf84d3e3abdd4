"""The program of the launcher's image, compiled with this machine's C compiler: copies whole or not at all."""

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "images" / "launcher" / "install.c"
CONTENT = bytes(range(256)) * 1000  # several reads
Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.pyz"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def install(tmp_path: Path, source: Path) -> Install:
    """Runs the program with these arguments; what it copies is `source`."""
    program = tmp_path / "install"
    compiler = [os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", f'-DSOURCE="{source}"']
    subprocess.run([*compiler, "-o", program, PROGRAM], check=True)

    def run(*arguments: str | Path, largest_file: int = resource.RLIM_INFINITY) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            umask=0o077,
            restore_signals=False,  # SIGXFSZ stays ignored, so that a file that grows too large is an error of write()
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file)),
        )

    return run


def test_the_copy_is_whole_and_every_user_may_run_it(install: Install, tmp_path: Path) -> None:
    target = tmp_path / "volume" / "run.pyz"
    target.parent.mkdir()
    done = install("--install", target)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert target.read_bytes() == CONTENT
    assert target.stat().st_mode & 0o7777 == 0o755
    assert list(target.parent.iterdir()) == [target]


def test_a_reader_of_the_file_before_keeps_it(install: Install, tmp_path: Path) -> None:
    target = tmp_path / "run.pyz"
    target.write_text("before")
    (tmp_path / "run.pyz.new").write_text("left by a copier that was killed")
    with target.open() as reader:
        assert install("--install", target).returncode == 0
        assert reader.read() == "before"
    assert target.read_bytes() == CONTENT
    assert not (tmp_path / "run.pyz.new").exists()


@pytest.mark.parametrize("arguments", [(), ("--install",), ("--copy", "/x"), ("--install", "/x", "/y")])
def test_a_wrong_command_line_shows_the_right_one(install: Install, arguments: tuple[str, ...]) -> None:
    done = install(*arguments)
    assert (done.returncode, done.stderr) == (2, "usage: --install DESTINATION\n")


def test_a_folder_that_is_missing_is_named(install: Install, tmp_path: Path) -> None:
    done = install("--install", tmp_path / "missing" / "run.pyz")
    assert done.returncode == 1
    assert done.stderr == f"muster: cannot write {tmp_path}/missing/run.pyz.new: No such file or directory\n"


def test_a_copy_that_does_not_fit_is_removed_and_changes_nothing(install: Install, tmp_path: Path) -> None:
    target = tmp_path / "run.pyz"
    target.write_text("before")
    done = install("--install", target, largest_file=100_000)
    assert (done.returncode, done.stderr) == (1, f"muster: cannot write {target}.new: File too large\n")
    assert target.read_text() == "before"
    assert not (tmp_path / "run.pyz.new").exists()


def test_a_destination_that_cannot_be_replaced_is_named(install: Install, tmp_path: Path) -> None:
    target = tmp_path / "run.pyz"
    target.mkdir()
    done = install("--install", target)
    assert (done.returncode, done.stderr) == (1, f"muster: cannot write {target}: Is a directory\n")
    assert not (tmp_path / "run.pyz.new").exists()


def test_a_launcher_that_is_missing_is_named(install: Install, source: Path, tmp_path: Path) -> None:
    source.unlink()
    done = install("--install", tmp_path / "run.pyz")
    assert (done.returncode, done.stderr) == (1, f"muster: cannot read {source}: No such file or directory\n")


def test_a_path_that_is_too_long_is_refused(install: Install) -> None:
    done = install("--install", "/" + "x" * 5000)
    assert done.returncode == 1
    assert done.stderr.endswith(": File name too long\n") or done.stderr.endswith(": Filename too long\n")
