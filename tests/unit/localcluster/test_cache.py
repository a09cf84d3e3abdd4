"""The cache holds whole entries or none, however many want them and whoever is killed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from localcluster.cache import cache_root, digest_of, digest_of_file, keep_newest, lock_of, locked, make_once


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        pytest.param({"MUSTER_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a", id="explicit"),
        pytest.param({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/muster", id="xdg"),
        pytest.param({"HOME": "/c"}, "/c/.cache/muster", id="home"),
    ],
)
def test_the_root_follows_the_environment(
    environment: dict[str, str], want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MUSTER_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert cache_root() == Path(want)


def test_digests_tell_where_one_part_ends() -> None:
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    assert digest_of(["ab", b"c"]) == digest_of([b"ab", "c"])


def test_a_files_digest_is_of_its_content(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file, content in zip(files, (b"same", b"same", b"other"), strict=True):
        file.write_bytes(content)

    digests = [digest_of_file(file) for file in files]

    assert digests[0] == digests[1] != digests[2]


def test_an_entry_appears_whole_and_is_made_once(tmp_path: Path) -> None:
    target = tmp_path / "entry"
    made: list[bool] = []

    def make(folder: Path) -> None:
        made.append(target.exists())
        (folder / "file").write_text("content")

    for _ in range(2):
        assert make_once(target, make) == target

    assert made == [False]
    assert (target / "file").read_text() == "content"


def test_many_makers_make_one_entry(tmp_path: Path) -> None:
    target = tmp_path / "entry"
    made: list[int] = []
    together = threading.Barrier(4)

    def want(number: int) -> None:
        together.wait()
        make_once(target, lambda folder: made.append(number))

    threads = [threading.Thread(target=want, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


def test_a_failed_maker_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    target = tmp_path / "entry"

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        make_once(target, fail)

    assert not target.exists()
    assert not list(tmp_path.glob("entry.making-*"))
    assert make_once(target, lambda folder: (folder / "whole").touch()).joinpath("whole").exists()


def test_what_a_killed_maker_left_is_cleared_away(tmp_path: Path) -> None:
    leftover = tmp_path / "entry.making-abc"
    leftover.mkdir()

    make_once(tmp_path / "entry", lambda folder: None)

    assert not leftover.exists()


@pytest.fixture
def entries(tmp_path: Path) -> list[Path]:
    """Four entries of a cache, the one used last first."""
    made = [tmp_path / f"entry{age}" for age in range(4)]
    for age, entry in enumerate(made):
        (entry / "content").mkdir(parents=True)
        os.utime(entry, (1_000_000 - age, 1_000_000 - age))
    return made


def folders(cache: Path) -> set[Path]:
    return {path for path in cache.iterdir() if path.is_dir()}


def test_entries_used_last_are_kept_and_the_current_one_always(tmp_path: Path, entries: list[Path]) -> None:
    (tmp_path / "other.making-x").mkdir()
    keep_newest(tmp_path, 2, entries[3])
    assert folders(tmp_path) == {entries[0], entries[3], tmp_path / "other.making-x"}


def test_an_old_entry_in_use_is_kept(tmp_path: Path, entries: list[Path]) -> None:
    with locked(lock_of(entries[2])):
        keep_newest(tmp_path, 1, entries[0])
    assert folders(tmp_path) == {entries[0], entries[2]}


def test_what_a_killed_process_was_removing_goes_with_the_next(tmp_path: Path, entries: list[Path]) -> None:
    entries[2].rename(tmp_path / "entry2.making-dying")
    keep_newest(tmp_path, 4, entries[0])
    assert folders(tmp_path) == {entries[0], entries[1], entries[3]}
