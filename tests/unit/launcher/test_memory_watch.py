"""The container's own limit, as its cgroup tells of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from muster.node.launcher import ranks
from muster.node.launcher.memory_watch import MemoryWatch

GIB = 2**30


def events(directory: Path, reached: int, killed: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = f"low 0\nhigh 0\nmax 70\noom {reached}\noom_kill {killed}\noom_group_kill 0\n"
    (directory / "memory.events").write_text(text)
    (directory / "memory.max").write_text(f"{8 * GIB}\n")


def watch(root: Path, memberships: str) -> MemoryWatch:
    (root / "memberships").write_text(memberships)
    return MemoryWatch(str(root), str(root / "memberships"))


PLACES = [
    pytest.param(".", "0::/\n", id="version 2"),
    pytest.param("kubepods/a", "0::/kubepods/a\n", id="version 2 without a namespace"),
    pytest.param(".", "0::/../other\n", id="version 2, a path of another namespace"),
]


@pytest.mark.parametrize(("where", "memberships"), PLACES)
def test_a_kill_at_the_limit_is_seen(tmp_path: Path, where: str, memberships: str) -> None:
    events(tmp_path / where, 2, 1)
    watched = watch(tmp_path, memberships)
    assert watched.limit_if_killed() is None, "what was before"
    events(tmp_path / where, 3, 1)
    assert watched.limit_if_killed() is None, "nothing was killed"
    events(tmp_path / where, 2, 2)
    assert watched.limit_if_killed() is None, "the limit was not reached: the node has no memory"
    events(tmp_path / where, 3, 2)
    assert watched.limit_if_killed() == 8 * GIB


def test_a_counter_of_version_1_that_caches_raise_shows_nothing(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    watched = None
    for reached, killed in ((2, 1), (70, 2)):
        (memory / "memory.failcnt").write_text(f"{reached}\n")
        (memory / "memory.oom_control").write_text(f"oom_kill {killed}\n")
        (memory / "memory.limit_in_bytes").write_text(f"{8 * GIB}\n")
        watched = watched or watch(tmp_path, "4:memory:/\n")
    assert watched is not None
    assert watched.limit_if_killed() is None


def test_without_a_limit_or_without_its_files_nothing_is_said(tmp_path: Path) -> None:
    assert watch(tmp_path, "0::/\n").limit_if_killed() is None
    assert watch(tmp_path, "nonsense").limit_if_killed() is None
    events(tmp_path, 0, 0)
    watched = watch(tmp_path, "0::/\n")
    events(tmp_path, 1, 1)
    (tmp_path / "memory.max").write_text("max\n")
    assert watched.limit_if_killed() is None


@pytest.mark.parametrize(("status", "told"), [(9, 8 * GIB), (256, 8 * GIB), (0, None)])
def test_a_rank_tells_of_it_once_it_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, told: int | None
) -> None:
    events(tmp_path, 0, 0)
    monkeypatch.setattr(ranks, "MemoryWatch", lambda: watch(tmp_path, "0::/\n"))
    rank = ranks.Rank(["true"], {"RANK": "0"}, 0, str(tmp_path / "progress"), False, time.monotonic)
    os.waitpid(rank.pid, 0)
    events(tmp_path, 1, 1)
    rank.note_exit(status, by_launcher=False, asked=())
    assert rank.last_view().memory_limit_bytes == told
