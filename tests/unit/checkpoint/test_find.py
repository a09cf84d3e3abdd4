"""Directories of checkpoints: order, limits, names to leave alone, manifests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checkpoint.directories import (
    assert_that_directories_cost_a_few_looks,
    assert_that_shards_are_one_checkpoint,
    write,
)
from tests.unit.checkpoint.recordings import START_NS, InMemory, archive, complete, finder_of, safetensors
from tests.unit.reports.trees import Deep, written

from muster.node.checkpoint import find, listing
from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.checkpoint.formats import manifest as manifest_format
from muster.node.checkpoint.formats.table import formats_by
from muster.node.checkpoint.manifest import ManifestError, parse_manifest
from muster.protocol.checkpoint_names import PUT_AWAY_WORDS, WRITTEN_BEHIND, order_candidates, put_away, step_in_name
from muster.protocol.checkpoints import MAX_LISTED

DATA = Path(__file__).parent / "data"


def steps(directory, **options):
    return [checkpoint.step for checkpoint in Finder(str(directory)).find(**options)]


def test_newest_step_first_whatever_the_names_order(tmp_path):
    for step in (9, 10, 100):
        write(tmp_path, f"step-{step}", step)
    assert steps(tmp_path) == [100, 10, 9]
    assert steps(tmp_path, limit=2) == [100, 10]


def test_the_manifests_step_counts_not_the_names(tmp_path):
    write(tmp_path, "best", 70)
    write(tmp_path, "run-2", 50)
    assert steps(tmp_path) == [70, 50]


@pytest.mark.parametrize("size", [9, 11], ids=["too short", "too long"])
def test_a_file_of_another_size_than_the_manifest_says(tmp_path, size):
    target = write(tmp_path, "step-5", 5)
    (target / "shards" / "model.bin").write_bytes(b"x" * size)
    assert steps(tmp_path) == []


def test_a_file_that_does_not_exist(tmp_path):
    (write(tmp_path, "step-5", 5) / "shards" / "model.bin").unlink()
    assert steps(tmp_path) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "5"}, {"step": True}, {"step": -1}, {"step": None}, {"files": None}, {"files": ["a"]},
        {"files": [{"path": "shards/model.bin"}]}, {"files": [{"path": "shards/model.bin", "bytes": 10.0}]},
        {"files": [{"path": "../step-5/shards/model.bin", "bytes": 10}]},
        {"files": [{"path": "/etc/passwd", "bytes": 1}]},
        {"files": [{"path": "", "bytes": 10}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_does_not_say_what_it_must(tmp_path, changes):
    target = write(tmp_path, "step-5", 5, changes)
    with pytest.raises(ManifestError):
        parse_manifest((target / "muster-checkpoint.json").read_bytes())
    assert steps(tmp_path) == []


def test_a_manifest_that_is_nested_without_an_end_hides_no_other(tmp_path):
    write(tmp_path, "step-5", 5)
    (write(tmp_path, "step-6", 6) / "muster-checkpoint.json").write_text("[" * 200_000)
    assert steps(tmp_path) == [5]


def test_a_torn_manifest(tmp_path):
    target = write(tmp_path, "step-5", 5) / "muster-checkpoint.json"
    target.write_bytes(target.read_bytes()[:-3])
    assert steps(tmp_path) == []


def test_a_checkpoint_that_completes_between_two_scans_is_found(tmp_path):
    finder = Finder(str(tmp_path))
    target = write(tmp_path, "step-5", 5) / "shards" / "model.bin"
    target.write_bytes(b"x")
    assert finder.find() == []
    target.write_bytes(b"x" * 10)
    assert [checkpoint.step for checkpoint in finder.find()] == [5]
    target.unlink()
    assert finder.find() == []


def test_a_manifest_is_parsed_once(tmp_path, monkeypatch):
    write(tmp_path, "step-5", 5)
    finder = Finder(str(tmp_path))
    assert len(finder.find()) == 1
    monkeypatch.setattr(manifest_format, "parse_manifest", None)
    assert len(finder.find()) == 1


@pytest.mark.parametrize("name", [".step-5", "step-5.tmp", "tmp_step-5", "step-5.tmp123", "step-5-unfinished"])
def test_what_is_still_being_assembled_is_left_alone(tmp_path, name):
    write(tmp_path, name, 5)
    assert steps(tmp_path) == []


def test_a_marker_that_is_too_large_to_read_is_told_and_hides_no_other(tmp_path, monkeypatch):
    for step in (5, 6):
        write(tmp_path, f"step-{step}", step)
    target = tmp_path / "step-6" / "muster-checkpoint.json"
    target.write_text(target.read_text() + " " * 100)
    monkeypatch.setattr(listing, "MAX_CONTENT_BYTES", len((tmp_path / "step-5" / target.name).read_bytes()))
    *_, found = Finder(str(tmp_path)).scan(ScanOptions())
    assert [one.step for one in found.checkpoints] == [5]
    assert [one.step for one in found.incomplete] == [6]


def test_files_that_are_no_checkpoints_keep_none_from_being_seen(tmp_path):
    for number in range(2 * find.MAX_EXAMINED):
        (tmp_path / f"shard-{number:05}.pt").touch()
        (tmp_path / f"{'a' * (1 + number)}.pt").touch()
    write(tmp_path, "step-5", 5)
    write(tmp_path, "best", 7)
    assert steps(tmp_path) == [7, 5]


@pytest.mark.parametrize("name", ["muster-checkpoint.json", ".metadata", "trainer_state.json", "meta.pt"])
def test_a_pipe_in_place_of_a_marker_is_not_waited_for(tmp_path, name):
    (tmp_path / "step-5").mkdir()
    os.mkfifo(tmp_path / "step-5" / name)
    assert steps(tmp_path) == []


def test_a_file_that_cannot_be_read_now_leaves_the_others_alone(tmp_path, monkeypatch):
    for step in (1, 2):
        (tmp_path / f"step={step}.ckpt").write_bytes(archive({"optimizer_states": []}))
    finder, real = Finder(str(tmp_path)), listing.Files.part

    def part(self, path, *arguments):
        if path.endswith("step=2.ckpt"):
            raise OSError(116, "Stale file handle", path)
        return real(self, path, *arguments)

    with monkeypatch.context() as stale:
        stale.setattr(listing.Files, "part", part)
        assert [checkpoint.step for checkpoint in finder.find()] == [1]
    assert [checkpoint.step for checkpoint in finder.find()] == [2, 1]


def test_a_link_to_what_is_there_by_its_own_name_is_no_other_checkpoint(tmp_path):
    target = write(tmp_path, "step-5", 5)
    (tmp_path / "latest-5").symlink_to(target)
    (tmp_path / "latest-6").symlink_to("latest-5")
    assert [checkpoint.path for checkpoint in Finder(str(tmp_path)).find()] == [str(target)]


@pytest.mark.parametrize("place", ["elsewhere", "run/.store"])
def test_a_link_to_a_directory_elsewhere_is_followed(tmp_path, place):
    (tmp_path / "run").mkdir()
    target = write(tmp_path / place, "whatever-5", 5)
    (tmp_path / "run" / "step-5").symlink_to(target)
    assert [checkpoint.path for checkpoint in Finder(str(tmp_path / "run")).find()] == [
        str(tmp_path / "run" / "step-5")
    ]
    (target / "shards" / "model.bin").unlink()
    assert steps(tmp_path / "run") == []


def test_a_link_to_a_file_is_followed_unless_that_is_there_by_its_own_name(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    for place in ("elsewhere/7", "run/epoch=0-step=5.ckpt"):
        (tmp_path / place).write_bytes(archive({"optimizer_states": []}))
    (tmp_path / "run" / "epoch=0-step=7.ckpt").symlink_to(tmp_path / "elsewhere" / "7")
    (tmp_path / "run" / "epoch=0-step=6.ckpt").symlink_to("epoch=0-step=5.ckpt")
    assert steps(tmp_path / "run") == [7, 5]


def test_links_that_lead_nowhere_or_round_are_left_alone(tmp_path):
    write(tmp_path / "run", "step-5", 5)
    for name, target in (("step-6", "."), ("step-7", ".."), ("step-8", "step-8"), ("step-9", "gone"), ("step-10", "/")):
        (tmp_path / "run" / name).symlink_to(target)
    assert steps(tmp_path / "run") == [5]


def test_a_link_that_leads_round_hides_nothing_wherever_it_is(tmp_path):
    """Found by an attack: whoever follows such a link gets an error, and that ended the look at all the others."""
    write(tmp_path, "step-5", 5)
    (tmp_path / "step-5" / "shards" / "round").symlink_to("round")
    (tmp_path / "step-6").mkdir()
    for name in ("muster-checkpoint.json", ".metadata", "trainer_state.json"):
        (tmp_path / "step-6" / name).symlink_to(name)
    assert steps(tmp_path) == [5]


def test_a_name_that_leaves_no_room_for_what_is_called_after_it_hides_nothing(tmp_path):
    """NeMo tells the metrics in it, and what says beside it that it is unfinished is called the same and more."""
    name = "m" * 244 + "-step=500"
    shutil.copytree(DATA / "torch-2.6-step-40", tmp_path / name / "weights")
    (tmp_path / name / "weights" / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
    os.utime(tmp_path / name / "weights" / ".metadata")
    write(tmp_path, "step-5", 5)
    assert 5 in steps(tmp_path)


def test_a_link_to_another_file_system_is_told_and_not_followed(tmp_path, monkeypatch):
    """Each worker may see something else there."""
    target, real = write(tmp_path / "elsewhere", "step-6", 6), os.stat
    write(tmp_path / "run", "step-5", 5)
    (tmp_path / "run" / "step-6").symlink_to(target)
    link = str(tmp_path / "run" / "step-6")

    def another(path, *arguments, **named):
        found = list(real(path, *arguments, **named))
        return os.stat_result([*found[:2], 77, *found[3:]]) if path == link else real(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", another)
    *_, found = Finder(str(tmp_path / "run")).scan(ScanOptions())
    assert [one.step for one in found.checkpoints] == [5]
    assert found.note.startswith(f"{link} is a link to another file system and is not followed")
    assert found.stamps is None or found.done


def test_a_missing_directory_holds_nothing(tmp_path):
    assert steps(tmp_path / "missing") == []


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        steps(tmp_path / "file")


def test_thousands_of_directories_cost_a_few_looks(tmp_path):
    assert_that_directories_cost_a_few_looks(tmp_path, 2_000)


@pytest.mark.parametrize("thorough", [True, False])
def test_numbered_directories_beside_the_checkpoints_hide_none(tmp_path, thorough):
    write(tmp_path, "step-1000", 1000)
    for number in range(2 * find.MAX_EXAMINED):
        (tmp_path / f"samples-{1010 + number}").mkdir()
    now = [0.0]
    finder = Finder(str(tmp_path), now=lambda: now[0])
    for _ in range(3):
        (found,) = list(finder.scan(ScanOptions(thorough=thorough)))[-1].checkpoints
        assert found.step == 1000
        now[0] += 10
    (tmp_path / "samples-1100" / "muster-checkpoint.json").write_text("{}")
    write(tmp_path, "samples-1101", 1101)
    assert [one.step for one in list(finder.scan(ScanOptions(thorough=thorough)))[-1].checkpoints][:1] == [1101]


def test_a_thousand_shards_are_one_checkpoint():
    assert_that_shards_are_one_checkpoint(1_000)


def test_a_checkpoint_of_too_many_files_is_not_judged(tmp_path, monkeypatch):
    write(tmp_path, "step-5", 5)
    monkeypatch.setattr(listing, "MAX_ENTRIES", 1)
    assert steps(tmp_path) == []


def test_listing_is_bounded_in_depth_and_survives_loops(tmp_path):
    deep = tmp_path
    for name in "abcde":
        deep = deep / name
        deep.mkdir()
        (deep / "file").touch()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    found = listing.Files().listing(str(tmp_path))
    assert sorted(found.files) == ["a/b/file", "a/file"]
    assert found.deeper == {"a/b/c"}


NAMES = {"step-40": 40, "iter_0000123": 123, "epoch_3_step_7": 7, "checkpoint-5-of-8": 8, "final": None, "9" * 40: None}


@pytest.mark.parametrize(("name", "step"), NAMES.items(), ids=NAMES.keys())
def test_step_in_a_name(name, step):
    assert step_in_name(name) == step


def test_candidates_are_ordered_by_number():
    assert order_candidates(["step-9", "step-10", "best", "step-10.tmp"]) == ["best", "step-10", "step-9"]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=9-step=9000-val_loss=1.25.ckpt", 9000),  # Lightning
        ("epoch=9-step=9000-v1.ckpt", 9000),
        ("epoch=02-val_loss=0.32.ckpt", 2),
        ("last.ckpt", None),
        ("last-v1.ckpt", None),
        ("model--val_loss=1.25-epoch=3-step=500-consumed_samples=64000.0-last", 500),  # NeMo
        ("checkpoint-500", 500),  # Hugging Face Trainer
        ("checkpoint_7", 7),  # Accelerate: counts saves
        ("iter_0000500", 500),  # Megatron
        ("iter-008000-ckpt", 8000),  # LitGPT
        ("global_step500", 500),  # DeepSpeed
        ("step-500", 500),  # TorchTitan
        ("epoch_3", 3),  # torchtune
        ("500", 500),  # Orbax
        ("ep1-ba500-rank0.pt", 500),  # Composer
        ("ep1-ba500", 500),
        ("llama-1.5b-checkpoint-900", 900),
        ("run-2", 2),
        ("batch32_step100", 100),  # of several numbers the one that is called a step
        ("step100-batch32", 100),
        ("step-10k", 10_000),  # a unit of one's own
        ("step_1.5M", 1_500_000),
        ("ckpt-2k-bf16", 2_000),
        ("step-9kb", 9),
        ("ckpt-500-2026-01-31", 500),  # a date is none while there is another number
        ("20260131-123000-ckpt-500", 500),
        ("ckpt_500_20260131T1230", 500),
        ("20260131", 20260131),
        ("run-2026-01-31", 31),
        ("2026-13-500", 500),
        ("ckpt-500-bf16", 500),  # what a letter stands at is called so, and counts nothing
        ("ckpt500-bf16", 500),
        ("500-llama-7b", 500),
        ("epoch=9-resnet50.ckpt", 9),
        ("checkpoint_3_500.pt", 500),  # fairseq: epoch, update
        ("checkpoint-150000-epoch-10", 150_000),  # Parler-TTS: an epoch is no step where there is one
        ("ckpt_500.ep3", 500),
        ("checkpoint_epoch_3", 3),
        ("ckpt-7b-epoch-3", 3),
        ("checkpoint-20261126-epoch-3", 3),
        ("resnet50", 50),
        ("nothing", None),
        ("9" * 16, None),
        ("9" * 15 + "k", None),
    ],
)
def test_the_step_in_the_names_that_frameworks_give(name, step):
    assert step_in_name(name) == step


@pytest.mark.parametrize("pattern", ["500.{}", "{}_500", "checkpoint-500-{}", "my-run-500_{}2", "last.{}", "500.{}.2"])
def test_a_word_that_says_so_puts_a_step_away(pattern):
    names = {pattern.format(word) for word in PUT_AWAY_WORDS}
    names |= {name.upper() for name in names}
    assert put_away(names) == names


@pytest.mark.parametrize(
    "name",
    [
        "_500",
        "~checkpoint-500",
        "500~",
        "500_",
        "500 (1)",
        "500 - Copy (2)",
        "checkpoint-500 (copy)",
        "500.inprogress",
        "500_in_progress",
        "500_backup",
        "epoch=1-step=500 (1).ckpt",
        "epoch=1-step=500-copy.ckpt",
        "epoch=1-step=500.ckpt.bak",
        "old_epoch=1-step=500-val_loss=0.30.ckpt",
        "ep1-ba500-rank0.pt.old",
        "wan-000500-state.bad",
        "iter_0000500.bak.20261126",
        "old_last.ckpt",
    ],
)
def test_what_people_and_clients_add_puts_a_step_away(name):
    assert put_away([name]) == {name}


@pytest.mark.parametrize("pattern", ["step-500-{}", "500_{}", "epoch=1-step=500-{}.ckpt"])
def test_a_word_that_frameworks_write_behind_a_step_counts(pattern):
    assert put_away(["step-400", "400", "epoch=1-step=400.ckpt", *map(pattern.format, WRITTEN_BEHIND)]) == set()


@pytest.mark.parametrize(
    "name",
    [
        "500",
        "checkpoint-500",
        "global_step500",
        "global_step_500",
        "iter_0000500",
        "epoch=1-step=500-v1.ckpt",
        "epoch=02-val_loss=nan.ckpt",
        "last-v1.ckpt",
        "ep1-ba500-rank0.pt",
        "epoch_2_train_step_500_eval_step_40",
        "model_name=0--val_loss=1.71-step=99-consumed_samples=12800.0-last",
        "500-llama-7b",
        "ckpt-500-bf16",
        "2026-11-20_10-00-00-backup-500-10-0",
        "backup-500",
        "CKPT+2026-11-26+22-12-01+00",
        "trash_classifier-epoch=3.ckpt",
        "copy_task-step500",
        "staging-run-500",
        "llama2-partial-step500",
        "run-2-bad-words-500",
        "copyright-500",
        "_actor",
        "\u6a21\u578b-500",
    ],
)
def test_what_programs_call_their_runs_and_steps_counts(name):
    assert put_away(["step_400", "epoch=1-step=400.ckpt", name]) == set()


def test_an_unknown_word_counts_where_no_name_lacks_it():
    assert put_away(["400", "500-spike", "600.x.y"]) == {"500-spike", "600.x.y"}
    assert put_away(["step_400_fsdp", "step_500_fsdp"]) == set()
    assert put_away(["400", "step_500_fsdp"]) == set(), "of another form: the program writes both"


@pytest.mark.parametrize("name", ["epoch=1-" * 30, "a=1-" * 60, "1-state" * 36, "1.ckpt" * 40, "1-" * 127, "old" * 85])
def test_no_name_is_read_for_long(name):
    """One that could be read in 2^30 ways would never end."""
    assert put_away([name[:254] + "x"]) == set()


def test_what_was_put_away_counts_once_it_is_asked_for_by_its_path(tmp_path):
    write(tmp_path, "step-400", 400)
    write(tmp_path, "step-500.bad", 500)
    path = str(tmp_path / "step-500.bad")

    def found(requested: str) -> list[int]:
        (*_, last) = Finder(str(tmp_path)).scan(ScanOptions(requested=requested))
        return [one.step for one in last.checkpoints]

    assert (found(""), found("500"), found(path)) == ([400], [400], [500, 400])


def test_what_was_put_away_is_named_while_it_is_newer_than_what_counts(tmp_path):
    def warning() -> str:
        (*_, last) = Finder(str(tmp_path)).scan(ScanOptions())
        return last.warning

    write(tmp_path, "step-400", 400)
    for step in (500, 600):
        write(tmp_path, f"step-{step}.bad", step)
    assert f"{tmp_path}/step-600.bad (Manifest), as 1 more, does not count" in warning()
    write(tmp_path, "step-700", 700)
    assert warning() == ""


def test_a_metric_in_a_name_is_no_step(tmp_path):
    names = ("epoch=9-step=9000-val_loss=1.25.ckpt", "epoch=8-step=8000-val_loss=0.98.ckpt")
    for name in names:
        shutil.copytree(DATA / "torch-2.6-step-40", tmp_path / name)
        os.utime(tmp_path / name / ".metadata")
    assert steps(tmp_path) == [9000, 8000]


class TestTrainerWithShardedRanks:
    """`checkpoint-40` of Hugging Face's Trainer with FSDP: each part is a DCP, and the Trainer's state is written
    last."""

    @pytest.fixture
    def saved(self, tmp_path):
        target = tmp_path / "checkpoint-40"
        for part in ("pytorch_model_fsdp_0", "optimizer_0"):
            shutil.copytree(DATA / "torch-2.6-step-40", target / part)
            os.utime(target / part / ".metadata")
        for name in ("scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
            (target / name).write_bytes(archive({}))
        (target / "trainer_state.json").write_text('{"epoch": 1.0, "global_step": 40, "max_steps": 100}')
        return target

    def test_is_one_checkpoint(self, saved, tmp_path):
        assert [(c.step, c.path) for c in Finder(str(tmp_path)).find()] == [(40, str(saved))]

    def test_a_lost_shard_of_either_part(self, saved, tmp_path):
        for part in ("pytorch_model_fsdp_0", "optimizer_0"):
            shard = next((saved / part).glob("*.distcp"))
            shard.rename(tmp_path / "shard")
            assert steps(tmp_path) == []
            (tmp_path / "shard").rename(shard)
        assert steps(tmp_path) == [40]

    @pytest.mark.parametrize("name", ["optimizer_0/.metadata", "pytorch_model_fsdp_0/.metadata", "trainer_state.json"])
    def test_before_all_markers_are_there(self, saved, tmp_path, name):
        (saved / name).unlink()
        assert steps(tmp_path) == []

    @pytest.mark.parametrize("state", ['{"global_step": 4', '{"global_step": 30}', "[]"])
    def test_a_state_that_is_torn_or_another_steps(self, saved, tmp_path, state):
        (saved / "trainer_state.json").write_text(state)
        assert steps(tmp_path) == []

    def test_a_state_of_an_earlier_save(self, saved, tmp_path):
        metadata = (saved / "optimizer_0/.metadata").stat().st_mtime_ns
        os.utime(saved / "trainer_state.json", ns=(0, metadata - 3 * 10**9))
        assert steps(tmp_path) == []

    def test_weights_that_are_not_whole_in_place_of_the_sharded(self, saved, tmp_path):
        shutil.rmtree(saved / "pytorch_model_fsdp_0")
        (saved / "model.safetensors").write_bytes(safetensors()[:-1])
        assert steps(tmp_path) == []
        (saved / "model.safetensors").write_bytes(safetensors())
        os.utime(saved / "trainer_state.json")
        assert steps(tmp_path) == [40]


@pytest.mark.parametrize("odd", ["\udcff", "\n", "\x1b[31m", "\u202e", "\x9b"], ids=ascii)
def test_a_checkpoint_whose_name_nobody_can_be_shown_is_left_out_with_a_message(tmp_path, odd):
    write(tmp_path, "step-5", 5)
    named = write(tmp_path, "step-7", 7)
    named.rename(f"{named}{odd}")
    *_, found = Finder(str(tmp_path)).scan(find.ScanOptions())
    assert [checkpoint.step for checkpoint in found.checkpoints] == [5]
    assert f"step-7{ascii(odd)[1:]} is left out: its name has control characters, or is no UTF-8" in found.note
    assert found.note.isprintable()


def test_of_a_checkpoint_that_cannot_be_read_no_control_character_is_shown(tmp_path):
    class Forbidden(listing.Files):
        def status(self, path):
            if "step-7" in path:
                raise PermissionError(13, "Permission denied", path)
            return super().status(path)

    write(tmp_path, "step-7\x1b[31m", 7)
    *_, found = Finder(str(tmp_path), files=Forbidden()).scan(find.ScanOptions())
    assert found.note == f"{tmp_path}/step-7\\x1b[31m cannot be read: Permission denied"


def lightning(step: int) -> bytes:
    return archive(
        {"epoch": step // 100, "global_step": step, "pytorch-lightning_version": "2.6", "optimizer_states": []}
    )


EPOCHS = range(60)


@pytest.mark.parametrize(
    ("name", "is_copied"),
    [
        ("epoch=%d-resnet50.ckpt", False),
        ("epoch=%d-resnet50.ckpt", True),
        ("epoch=%d-ppl={ppl}.ckpt", False),
        ("val_loss=0.{ppl}-%d.ckpt", False),
    ],
)
def test_the_newest_of_lightnings_files_is_found_whatever_else_is_in_their_names(name, is_copied):
    """With `save_top_k=-1` none is ever removed: most have more than one number in the name, and none is the step.

    Who copies them may turn the order of their times around.
    """
    files = InMemory()
    for epoch in EPOCHS:
        at_ns = START_NS + (-epoch if is_copied else epoch) * 10**9
        files.put(name.format(ppl=400 - epoch) % epoch, lightning(100 * (epoch + 1)), at_ns)
    newest = name.format(ppl=400 - EPOCHS[-1]) % EPOCHS[-1]
    assert complete(files)[0] == (100 * len(EPOCHS), newest)
    assert len(complete(files)) == MAX_LISTED


def test_files_without_a_step_in_their_names_hide_none_that_have_one():
    files = InMemory()
    for step in range(100, 1100, 100):
        files.put(f"epoch=0-step={step}.ckpt", lightning(step))
    for number in range(70):
        files.put(f"best-{number}-of-run-7.ckpt", lightning(number))
    assert [step for step, _ in complete(files)] == list(range(1000, 200, -100))


def test_times_of_files_are_asked_for_once_and_again_at_a_thorough_look():
    files = InMemory()
    for epoch in EPOCHS:
        files.put(f"epoch={epoch}-resnet50.ckpt", lightning(100 * (epoch + 1)))
    finder = finder_of(files)
    newest = [list(finder.scan(ScanOptions()))[-1].checkpoints[0].step]
    before = finder.looks
    for thorough in (False, True):
        files.put("epoch=0-resnet50.ckpt", lightning(9000), START_NS + 10**12)
        newest.append(list(finder.scan(ScanOptions(thorough=thorough)))[-1].checkpoints[0].step)
        if not thorough:
            assert finder.looks - before < 4 * find.MAX_UNORDERED
    assert newest[0] == 6000
    assert newest[-1] == 9000


def test_a_checkpoint_that_is_a_file_is_not_hidden_by_directories_without_a_number():
    files = InMemory()
    files.put("last.ckpt", lightning(500))
    for name in [
        "artifacts",
        "assets",
        "backups",
        "cache",
        "code",
        "configs",
        "data",
        "datasets",
        "docs",
        "env",
        "eval",
        "exports",
        "figures",
        "images",
    ]:
        files.put(f"{name}/file", b"")
    for number in range(find.MAX_WITHOUT_STEP):
        files.put(f"extra{chr(97 + number)}/file", b"")
    assert complete(files) == [(500, "last.ckpt")]


def _trainer_save(step: int, *, is_marked: bool = True, is_torn: bool = False) -> dict[str, Any]:
    weights = {"bytes": "c800000000000000", "zeros": 50} if is_torn else 200
    path = f"checkpoint-{step}"
    files = {f"{path}/config.json": "{}", f"{path}/model.safetensors": weights, f"{path}/optimizer.pt": 300}
    marker = {
        f"{path}/scheduler.pt": 100,
        f"{path}/rng_state.pth": 100,
        f"{path}/trainer_state.json": {"json": {"global_step": step}},
    }
    return {**files, **(marker if is_marked else {})}


def test_begun_saves_leave_room_for_those_that_were_judged() -> None:
    """Workers that do not verify list the judged one: without it in the verifiers' lists they would wait for it."""
    tree = _trainer_save(500) | _trainer_save(1000, is_torn=True)
    for step in range(2000, 14000, 1000):
        tree |= _trainer_save(step, is_marked=False)
    found = list(finder_of(Deep(written(tree)), formats_by("")).scan(ScanOptions()))[-1]
    assert [one.step for one in found.checkpoints] == [500]
    assert found.incomplete[0].step == 1000
    assert len(found.incomplete) == ScanOptions().limit
