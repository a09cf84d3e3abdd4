"""Whatever a file in a checkpoint directory holds, the listing goes on and reports the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.checkpoint.hostile import (
    DEEP,
    IN_THE_GATE,
    PLACES,
    assert_that_no_content_ends_the_scan,
    assert_that_no_message_repeats_what_is_outside,
    lay,
    mutate_one_file_and_scan,
    scan,
)
from tests.unit.checkpoint.saves import SAVES

from muster.node.checkpoint import listing
from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.checkpoint.listing import THIS_MACHINE
from muster.node.checkpoint.local import list_local_shares
from muster.node.checkpoint.untrusted_json import MAX_BYTES, parse_json
from muster.node.launcher.fence_file_child import read_fence_file


@pytest.mark.parametrize(("number", "name"), list(enumerate(SAVES)), ids=SAVES)
def test_no_content_of_any_file_ends_the_scan(number: int, name: str, tmp_path: Path) -> None:
    """Each format with two or three of the contents, and each content with a format."""
    assert_that_no_content_ends_the_scan(SAVES[name], tmp_path, list(PLACES)[number % 11 :: 11])


@pytest.mark.parametrize("name", SAVES)
def test_no_mutation_of_any_file_ends_the_scan(name: str, tmp_path: Path) -> None:
    mutate_one_file_and_scan(name, tmp_path, times=5)


@pytest.mark.parametrize("kind", PLACES)
def test_a_manifest_that_cannot_be_read_is_reported(kind: str, tmp_path: Path) -> None:
    lay(SAVES[min(SAVES)], tmp_path)
    for name in ("step-900", "best"):
        (tmp_path / name).mkdir()
        PLACES[kind](tmp_path / name / "muster-checkpoint.json")
    found = scan(tmp_path)
    if kind in ("a link to nothing", "a link round"):  # nothing is there
        return
    assert str(tmp_path / "step-900") in [one.path for one in found.incomplete]
    if kind == "half a surrogate":  # it names a file that does not exist, and a step
        return
    assert found.note.startswith(f"{tmp_path}/best is left out: ")
    assert "muster-checkpoint.json" in found.note


@pytest.mark.parametrize("kind", PLACES)
def test_pointers_of_frameworks_may_hold_anything(kind: str, tmp_path: Path) -> None:
    for name in ("megatron", "deepspeed", "flash"):
        for pointer in ("latest", "latest_checkpointed_iteration.txt", "dlrover_latest.txt", "latest-rank0.pt"):
            root = tmp_path / name / pointer
            save = next((save for title, save in SAVES.items() if name in title.lower()), SAVES[min(SAVES)])
            lay(save, root)
            (root / pointer).unlink(missing_ok=True)
            PLACES[kind](root / pointer)
            scan(root)


@pytest.mark.parametrize("kind", PLACES)
def test_what_a_node_has_noted_of_its_own_disk_may_be_anything(kind: str, tmp_path: Path) -> None:
    PLACES[kind](tmp_path / ".muster-gang")
    assert list_local_shares(str(tmp_path), "gang", 2, "0/1")[0] == []


@pytest.mark.parametrize("kind", PLACES)
def test_a_fence_file_may_be_anything(kind: str, tmp_path: Path) -> None:
    PLACES[kind](tmp_path / "fence")
    answer = json.loads(read_fence_file(str(tmp_path / "fence")))
    assert answer["error"] or kind == "a link to nothing"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[" * DEEP, "nested too deep"),
        (b"9" * 33, "a number of 33 digits"),
        (b"-" + b"9" * 5000, "a number of 5001 digits"),
        (b"NaN", "NaN is no number"),
        (b"-Infinity", "is no number"),
        (b"1e999", "not finite"),
        (b"\xff", "can't decode"),
        (b"{", "Expecting"),
        (b"", "Expecting"),
        (b" " * (MAX_BYTES + 1), "larger than"),
    ],
    ids=["nested", "digits", "many digits", "NaN", "infinity", "exponent", "UTF-8", "incomplete", "nothing", "large"],
)
def test_what_is_no_plain_data_is_a_value_error(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_json(data)


def test_a_directory_below_that_becomes_a_file_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(SAVES[min(SAVES)], tmp_path)
    scandir = os.scandir

    def changed(path: str):
        if str(path).rstrip("/").endswith("step-900"):
            raise NotADirectoryError(20, "Not a directory", path)
        return scandir(path)

    (tmp_path / "step-900").mkdir()
    (tmp_path / "step-900" / "muster-checkpoint.json").write_text('{"step": 900, "files": []}')
    monkeypatch.setattr(os, "scandir", changed)
    scan(tmp_path)


@pytest.mark.parametrize("name", IN_THE_GATE)
def test_no_message_repeats_a_file_to_which_a_link_leads_out_of_the_directory(name: str, tmp_path: Path) -> None:
    assert_that_no_message_repeats_what_is_outside(SAVES[name], tmp_path)


def test_a_link_in_place_of_a_pointer_is_followed_and_its_content_reported(tmp_path: Path) -> None:
    lay(SAVES["DeepSpeed, ZeRO 3, two ranks"], tmp_path)
    (tmp_path / "latest").unlink(missing_ok=True)
    (tmp_path / "named").write_text("global_step7")
    (tmp_path / "latest").symlink_to("named")
    *_, found = Finder(str(tmp_path), settle_seconds=0).scan(ScanOptions())
    assert "latest names global_step7, which is none of the newest" in found.trap


def test_directories_in_a_checkpoint_are_counted_and_each_is_a_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / f"part-{number}").mkdir()
    signs: list[int] = []
    assert not THIS_MACHINE.listing(str(tmp_path), lambda: signs.append(1)).truncated
    assert len(signs) == 20
    monkeypatch.setattr(listing, "MAX_ENTRIES", 10)
    assert THIS_MACHINE.listing(str(tmp_path)).truncated


def test_what_a_node_notes_of_its_disk_is_not_written_through_a_link(tmp_path: Path) -> None:
    disk, outside = tmp_path / "disk", tmp_path / "outside"
    disk.mkdir()
    outside.write_text("as it was")
    for name in (".muster-gang", f".muster-gang.{os.getpid()}"):
        (disk / name).symlink_to(outside)
    assert list_local_shares(str(disk), "gang", 1, "0/1") == ([], "")
    assert outside.read_text() == "as it was"
    assert json.loads((disk / ".muster-gang").read_text())["eras"][0][:2] == [1, "0/1"]
