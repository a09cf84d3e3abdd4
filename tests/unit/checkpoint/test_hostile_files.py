"""Whatever a file in a checkpoint directory holds, the listing goes on and reports the file."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from tests.unit.checkpoint.hostile import DEEP, PLACES, lay, mutate, scan
from tests.unit.checkpoint.test_formats import SAVES

from muster.node.checkpoint.local import held
from muster.node.checkpoint.untrusted_json import MAX_BYTES, parse_json
from muster.node.launcher.marker_child import read_marker


@pytest.mark.parametrize("name", SAVES)
def test_no_content_of_any_file_ends_the_scan(name: str, tmp_path: Path) -> None:
    save = SAVES[name]
    for number, (kind, place) in enumerate(PLACES.items()):
        root = tmp_path / str(number)
        for path in lay(save, root):
            if path.relative_to(root).as_posix() not in save.needed:
                continue
            kept = path.with_name("kept")
            path.rename(kept)
            place(path)
            found = scan(root)
            hit = [one.path for one in found.checkpoints if one.path == str(root / save.found[1])]
            assert not hit or kind in ("zeros", "nothing"), (kind, path)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            kept.rename(path)
        shutil.rmtree(root)


@pytest.mark.parametrize("name", SAVES)
def test_no_mutation_of_any_file_ends_the_scan(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    paths = lay(SAVES[name], tmp_path)
    whole = [path.read_bytes() for path in paths]
    for _ in range(30):
        place = chance.randrange(len(paths))
        paths[place].write_bytes(mutate(whole[place], chance))
        scan(tmp_path)
        paths[place].write_bytes(whole[place])


@pytest.mark.parametrize("kind", PLACES)
def test_a_manifest_that_cannot_be_read_is_reported(kind: str, tmp_path: Path) -> None:
    lay(SAVES[min(SAVES)], tmp_path)
    for name in ("step-900", "best"):
        (tmp_path / name).mkdir()
        PLACES[kind](tmp_path / name / "muster-checkpoint.json")
    found = scan(tmp_path)
    if kind in ("a link to nothing", "a link round"):  # nothing is there
        return
    assert str(tmp_path / "step-900") in [one.path for one in found.torn]
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
    assert held(str(tmp_path), "gang", 2, "0/1")[0] == []


@pytest.mark.parametrize("kind", PLACES)
def test_a_fence_file_may_be_anything(kind: str, tmp_path: Path) -> None:
    PLACES[kind](tmp_path / "fence")
    answer = json.loads(read_marker(str(tmp_path / "fence")))
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
    ids=["nested", "digits", "many digits", "NaN", "infinity", "exponent", "UTF-8", "torn", "nothing", "large"],
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
