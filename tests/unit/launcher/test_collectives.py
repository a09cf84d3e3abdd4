"""Which library of collectives ranks have loaded: read out of a file that a process below has mapped, by a child that
may hang."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node.launcher.children import converse
from muster.node.launcher.collectives import DEADLINE_SECONDS, Collectives
from muster.node.launcher.collectives_child import version_below, version_in

TOLD = b"\0CUDA not found\0NCCL version 2.27.7+cuda12.9\0rank %d\0"


def a_library(path: Path, constants: bytes, *, writable: bytes = b"", count: int = 4) -> Path:
    """An ELF file of 64 bits with constants, data that may be written, and the names of its sections."""
    names = b"\0.rodata.str1.1\0.data\0.shstrtab\0"
    bodies = [(1, 2, constants), (16, 3, writable), (22, 0, names)]
    begin, data, headers = 64, b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, flags, body in bodies:
        kind = 3 if body is names else 1
        headers += struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, begin + len(data), len(body), 0, 0, 1, 0)
        data += body
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, begin + len(data), 0, 64, 0, 0, 64, count, 3)
    path.write_bytes(head + data + headers)
    return path


@pytest.mark.parametrize(
    ("constants", "version"),
    [
        (TOLD, "NCCL 2.27.7+cuda12.9"),
        (b"x" * (4 * 1024 * 1024 - 10) + TOLD, "NCCL 2.27.7+cuda12.9"),
        (b"RCCL version 2.20.5+hip6.2\0", "RCCL 2.20.5+hip6.2"),
        (b"RCCL version : 2.22.3-develop\0", "RCCL 2.22.3-develop"),
        (b"NCCL version %d.%d\0", ""),
        (b"", ""),
    ],
)
def test_the_version_is_among_the_constants(tmp_path: Path, constants: bytes, version: str) -> None:
    assert version_in(str(a_library(tmp_path / "libnccl.so.2", constants))) == version


def test_what_is_no_constant_is_not_looked_at(tmp_path: Path) -> None:
    assert not version_in(str(a_library(tmp_path / "libnccl.so.2", b"", writable=TOLD)))


@pytest.mark.parametrize("length", [0, 5, 63, 64, 70, 200])
def test_a_file_that_is_cut_short_or_none_tells_nothing(tmp_path: Path, length: int) -> None:
    path = a_library(tmp_path / "libnccl.so.2", TOLD)
    path.write_bytes(path.read_bytes()[:length])
    assert not version_in(str(path))
    assert not version_in(str(tmp_path / "none"))
    assert not version_in(str(a_library(tmp_path / "many", TOLD, count=65535)))
    (tmp_path / "text").write_bytes(TOLD * 9)
    assert not version_in(str(tmp_path / "text"))


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Path]:
    """A process two below this one that has mapped what it was given."""
    path = a_library(tmp_path / "libnccl.so.2", TOLD)
    inner = (
        f"import mmap, time\nfile = open({str(path)!r}, 'rb')\nmapped = mmap.mmap(file.fileno(), 0, "
        "prot=mmap.PROT_READ)\nprint(1, flush=True)\ntime.sleep(600)"
    )
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        yield path
        os.killpg(process.pid, 9)


def test_what_a_process_below_the_launcher_has_mapped_is_found(loaded: Path) -> None:
    assert version_below(os.getpid()) == "NCCL 2.27.7+cuda12.9"
    loaded.unlink()
    assert not version_below(os.getpid()), "nobody can read it any more"


def test_what_others_have_mapped_is_not_ours(loaded: Path) -> None:
    """Containers of a pod may share their processes."""
    with subprocess.Popen(["sleep", "600"]) as other:
        assert not version_below(other.pid)
        other.kill()


def test_the_child_answers_and_ends(loaded: Path) -> None:
    found = Collectives(converse, is_there=lambda: True)
    found.poll(1.0, {}, 1)
    (pid,) = found.pids
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    found.poll(2.0, dict([os.waitpid(pid, 0)]), 1)
    assert (found.version, found.attempt, found.pids) == ("NCCL 2.27.7+cuda12.9", 1, frozenset())


class Played:
    """A child that is played."""

    pid = 77

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.killed = list(answers), 0

    def read(self, _: int) -> bytes:
        if not self.answers:
            raise BlockingIOError
        return self.answers.pop(0)

    def kill(self) -> None:
        self.killed += 1

    def hang_up(self) -> None:
        """Nothing is left of it."""


def of(*children: Any) -> Collectives:
    left = list(children)
    return Collectives(lambda *_: left.pop(0), is_there=lambda: True)


def test_it_is_looked_for_once_in_each_attempt_and_never_waited_for() -> None:
    first, second = Played(), Played(b"NCCL 2.2", b"1.5+cuda12.4\n")
    found = of(first, second)
    found.poll(0.0, {}, None)
    assert not found.pids, "no step yet"
    found.poll(0.0, {}, 1)
    found.poll(DEADLINE_SECONDS, {}, 1)
    assert first.killed == 1
    found.poll(DEADLINE_SECONDS + 1, {77: 9}, 1)
    found.poll(DEADLINE_SECONDS + 2, {}, 1)
    assert (found.version, found.pids) == ("", frozenset())
    found.poll(100.0, {}, 2)
    found.poll(101.0, {}, 2)
    found.poll(102.0, {77: 0}, 2)
    assert (found.version, found.attempt) == ("NCCL 2.21.5+cuda12.4", 2)


@pytest.mark.parametrize(
    "answer", [b"\n", b"NCCL \x1b[31m\n", b"NCCL " + b"9" * 100 + b"\n", b"x" * 9000, b"GLOO 1.0\n"]
)
def test_nonsense_is_no_version(answer: bytes) -> None:
    found = of(Played(answer))
    found.poll(0.0, {}, 1)
    found.poll(1.0, {77: 0}, 1)
    assert not found.version


def test_without_an_accelerator_nobody_looks() -> None:
    found = Collectives(lambda *_: pytest.fail("a child was started"), is_there=lambda: False)
    found.poll(0.0, {}, 1)
    assert not found.pids
