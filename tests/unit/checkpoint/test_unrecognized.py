"""What may be a checkpoint of no known format, by names; tests/data/reports/trees has whole directories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.checkpoint.recordings import ROOT, InMemory, finder_of

from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.checkpoint.listing import Children, Status, no_sign
from muster.node.checkpoint.unrecognized import highest_stray, holds_weights, is_called_so, is_stray, is_stray_below


class Counting(InMemory):
    """A file system that counts the directories that are listed."""

    listed = 0

    def children(
        self, directory: str, is_wanted: Callable[[str], bool], _sign: Callable[[], None] = no_sign
    ) -> Children:
        self.listed += 1
        return super().children(directory, is_wanted)


class Store(Counting):
    is_store = True


@pytest.mark.parametrize(
    "name",
    [
        "ckpt_500.pt",
        "checkpoint-12.pth.tar",
        "model_phase10.torch",
        "state-500.npz",
        "ckpt.pt",
        "last.pth",
        "x_epoch_3.th",
    ],
)
def test_a_file_may_be_a_checkpoint_by_its_name(name: str) -> None:
    assert is_stray(name)
    assert is_stray_below(name)


@pytest.mark.parametrize(
    "name",
    [
        "model-00001-of-00004.safetensors",
        "shard-000003.tar",
        "part-00001.npz",
        "fineweb_train_000009.bin",
        "model.safetensors",
        "checkpoint_best.pt",
        "latest",
        "rank_0",
    ],
)
def test_a_file_is_none_by_its_name(name: str) -> None:
    assert not is_stray(name)


def test_a_number_alone_is_that_of_a_model_further_below() -> None:
    assert is_stray("consolidated.00.pth")
    assert not is_stray_below("consolidated.00.pth")


def test_the_highest_step_is_reported_and_the_shortest_name_of_it() -> None:
    assert highest_stray(["last.pt", "model_400.pt", "model_500.rank_0.pt", "model_500.pt"]) == "model_500.pt"
    assert highest_stray(["last.pt"]) == "last.pt"
    assert highest_stray([]) == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step-500", True),
        ("iteration_00000500", True),  # MindSpore Transformers
        ("500", True),
        ("20261126120000", False),
        ("2026-11-26_22-12-01", False),
        ("version_0", False),
    ],
)
def test_a_time_is_no_step(name: str, expected: bool) -> None:
    assert is_called_so(name) is expected


@pytest.mark.parametrize(("kind", "most"), [(Counting, 40), (Store, 16)])
def test_no_more_directories_are_listed_than_it_may_cost(kind: type[Counting], most: int) -> None:
    files = kind([(f"step_500/{a}/{b}/{c}/0.png", b"") for a in range(8) for b in range(8) for c in range(8)])
    assert not holds_weights(files, f"{ROOT}/step_500", no_sign)
    assert files.listed == most


@pytest.mark.parametrize(("kind", "most"), [(Counting, 64), (Store, 24)])
def test_no_more_directories_further_below_are_listed_than_it_may_cost(kind: type[Counting], most: int) -> None:
    files = kind([(f"a{a}/b{b}/c{c}/x.png", b"") for a in "xyzuvwst" for b in "xyzuvwst" for c in "xyzuvwst"])
    assert list(finder_of(files).scan(ScanOptions()))[-1].warning == ""
    assert files.listed == 1 + most


def warnings_after(*saves: list[tuple[str, int]], files: InMemory | None = None) -> list[str]:
    """The warning of a look after each save, a few seconds apart: the files with their sizes."""
    files = files or InMemory()
    now = [0.0]
    finder = Finder(ROOT, now=lambda: now[0], files=files, pause=lambda _: None)
    told = []
    for at, save in enumerate(saves, 1):
        for name, size in save:
            files.put(name, b"x" * size, at_ns=at * 10**9)
        now[0] += 5.0
        (*_, last) = finder.scan(ScanOptions(thorough=False))
        told.append(last.warning)
    return told


@pytest.mark.parametrize(
    ("saves", "expected"),
    [
        pytest.param([[("latest.pt", 9)], [("latest.pt", 9)]], [False, True], id="over itself"),
        pytest.param(
            [[("latest.pt", 9)], [], [("latest.pt", 4)], []], [False, False, True, True], id="cut short first"
        ),
        pytest.param([[("latest.pt", 2)], [("latest.pt", 5)], [("latest.pt", 9)]], [False] * 3, id="one slow save"),
        pytest.param([[("latest.pt", 9)], [], []], [False] * 3, id="one save"),
        pytest.param([[("ckpt_100.pt", 9)], [("ckpt_200.pt", 12)]], [False, True], id="two steps"),
        pytest.param([[("best.pt", 9)], [("best.pt", 9)]], [False, False], id="no checkpoint by its name"),
    ],
)
def test_what_does_not_count_is_said_once_it_was_written_twice(
    saves: list[list[tuple[str, int]]], expected: list[bool]
) -> None:
    told = warnings_after(*saves)
    assert [bool(text) for text in told] == expected
    assert all("does not count" in text and "spec.checkpoint.pattern" in text for text in told if text)


def test_an_object_that_changes_was_written_twice() -> None:
    assert [bool(text) for text in warnings_after([("latest.pt", 2)], [("latest.pt", 9)], files=Store())] == [
        False,
        True,
    ]


def test_a_file_in_the_place_of_another_was_written_by_a_second_save() -> None:
    class Replaced(InMemory):
        def status(self, path: str) -> Status | None:
            found = super().status(path)
            return found._replace(inode=self.times[path]) if found is not None and path in self.times else found

    saves = [[("latest.pt", 2)], [("latest.pt", 9)]]
    assert [bool(text) for text in warnings_after(*saves, files=Replaced())] == [False, True]


def test_one_that_may_not_be_seen_is_left_alone() -> None:
    class Closed(InMemory):
        def status(self, path: str) -> Status | None:
            if path.endswith("latest.pt"):
                raise PermissionError(13, "no", path)
            return super().status(path)

    assert warnings_after([("latest.pt", 9)], [("latest.pt", 9)], files=Closed()) == ["", ""]
