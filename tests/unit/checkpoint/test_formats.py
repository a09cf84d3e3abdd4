"""What frameworks wrote, as far as they had come, torn at random, and what comes of it."""

from __future__ import annotations

import json
import pickle
import random
import re
from typing import NamedTuple

import pytest
from tests.unit.checkpoint.recordings import (
    ROOT,
    InMemory,
    Written,
    archive,
    complete,
    finder_of,
    prefixes,
    recorded,
    safetensors,
    told,
    torn,
)

from muster.checkpoint import find
from muster.checkpoint.find import Look


class StorageInfo:
    """What DCP says of a piece of a tensor."""

    def __init__(self, path: str, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = path, offset, length


class Save(NamedTuple):
    """One save of a framework.

    Attributes:
        written: its files, the first that was finished first.
        found: step and path of what is complete in the end.
        format: as people are told it.
        dispensable: a pattern of what the framework does without when it loads.
        lasting: of what was there before.
    """

    written: Written
    found: tuple[int, str]
    format: str
    dispensable: str = r"\Z."
    lasting: Written | tuple[()] = ()

    @property
    def needed(self) -> set[str]:
        return {path for path, _ in self.written if not re.search(self.dispensable, path)}


def only(written: Written, folder: str) -> Written:
    return [item for item in written if item[0].startswith(folder)]


def pieces() -> list[StorageInfo]:
    return [StorageInfo(f"__{rank}_0.distcp", 100 * part, 100) for rank in range(2) for part in range(2)]


def dcp(prefix: str, optimizer: str = "optimizer.state.exp_avg") -> Written:
    """Two shards and what names them, with a tensor's name."""
    shards = [(f"{prefix}__{rank}_0.distcp", bytes([rank]) * 200) for rank in range(2)]
    return [*shards, (f"{prefix}.metadata", pickle.dumps([optimizer, pieces()], protocol=4))]


def megatron(prefix: str) -> Written:
    """The order of `save` in megatron/core/dist_checkpointing/serialization.py of megatron-core 0.16."""
    config = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}
    common = (f"{prefix}common.pt", archive({"global_step": 500, "iteration": 500}))
    return [common, *dcp(prefix), (f"{prefix}metadata.json", json.dumps(config).encode())]


ACCELERATE = recorded("accelerate-1.15")
NEMO = "model--val_loss=1.25-epoch=3-step=500-consumed_samples=256000.0-last"
# megatron/training/checkpointing.py, save_checkpoint: each rank its file, then the tracker.
MEGATRON_LEGACY = [
    (f"iter_0000500/mp_rank_{tensor:02}_{pipeline:03}/{name}", archive({"iteration": 500}))
    for tensor in range(2)
    for pipeline in range(2)
    for name in ("model_optim_rng.pt", "distrib_optim.pt")
] + [("latest_checkpointed_iteration.txt", b"500")]
SAVES = {
    "Hugging Face's Trainer, two ranks": Save(
        recorded("hugging-face-5.23"), (1, "checkpoint-1"), "HuggingFaceTrainer", r"training_args|rng_state_1"
    ),
    "Accelerate, two ranks": Save(
        only(ACCELERATE, "checkpoint_1/"),
        (1, "checkpoint_1"),
        "Accelerate",
        "scheduler|random_states_1",
        only(ACCELERATE, "checkpoint_0/"),
    ),
    "DeepSpeed, ZeRO 2, two ranks": Save(recorded("deepspeed-0.19-zero2"), (1, "global_step1"), "DeepSpeed"),
    "DeepSpeed, ZeRO 3, two ranks": Save(recorded("deepspeed-0.19-zero3"), (1, "global_step1"), "DeepSpeed"),
    "DeepSpeed without ZeRO, two ranks": Save(recorded("deepspeed-0.19-zero0"), (1, "global_step1"), "DeepSpeed"),
    "Lightning, one file": Save(only(recorded("lightning-2.6"), "epoch"), (1, "epoch=0-step=1.ckpt"), "Lightning"),
    "Megatron Core": Save(megatron("iter_0000500/"), (500, "iter_0000500"), "Megatron", r"common\.pt"),
    "Megatron-LM of old": Save(MEGATRON_LEGACY, (500, "iter_0000500"), "MegatronLegacy"),
    "NeMo 2": Save(
        megatron(f"{NEMO}/weights/"),
        (500, NEMO),
        "NeMo",
        r"common\.pt",
    ),
    "Composer": Save(
        [("ep1-ba500-rank0.pt", archive({"state": {"model": {}, "optimizers": {}}, "rng": []}))],
        (500, "ep1-ba500-rank0.pt"),
        "Composer",
    ),
    "torchtune": Save(
        [
            ("epoch_3/ft-model-00001-of-00002.safetensors", safetensors()),
            ("epoch_3/ft-model-00002-of-00002.safetensors", safetensors()),
            ("recipe_state/recipe_state.pt", archive({"optimizer": {}, "epochs_run": 4})),
        ],
        (3, "epoch_3"),
        "torchtune",
    ),
}


@pytest.fixture(params=SAVES.values(), ids=SAVES.keys())
def save(request: pytest.FixtureRequest) -> Save:
    return request.param


def among(files: InMemory, save: Save) -> bool:
    """Whether the save is found complete."""
    for path, content in save.lasting:
        files.put(path, content, at_ns=1)
    return save.found in complete(files)


class TestEverySave:
    def test_is_found_in_the_end(self, save: Save) -> None:
        found = finder_of(InMemory(save.written)).find()
        assert [(one.step, one.path, one.format) for one in found] == [
            (save.found[0], f"{ROOT}/{save.found[1]}", save.format)
        ]

    def test_is_complete_only_once_all_that_it_needs_is_whole(self, save: Save) -> None:
        for whole, files in prefixes(save.written):
            assert not among(files, save) or save.needed <= whole, files.contents.keys()

    def test_is_never_complete_where_any_of_it_is_torn(self, save: Save) -> None:
        for whole, files in torn(save.written, seed=1, times=300):
            assert not among(files, save) or save.needed <= whole, files.contents.keys()

    def test_needs_each_of_these_files_and_its_last_byte(self, save: Save) -> None:
        for path in save.needed:
            for cut in (lambda content: None, lambda content: content[:-1], lambda content: b""):
                changed = [(name, content if name != path else cut(content)) for name, content in save.written]
                files = InMemory([(name, content) for name, content in changed if content is not None])
                assert not among(files, save), path

    def test_of_any_bytes_and_names_is_judged_without_an_error(self, save: Save) -> None:
        chance = random.Random(7)
        for _ in range(100):
            files = InMemory(save.written)
            for _ in range(chance.choice((1, 1, 3))):
                spoil(files, chance)
            complete(files)


def spoil(files: InMemory, chance: random.Random) -> None:
    """One file changed, replaced, renamed, or written twice over."""
    path = chance.choice(list(files.contents))
    content = files.contents[path]
    what = chance.randrange(4)
    if what == 0 and content:
        data = bytearray(content)
        for _ in range(chance.choice((1, 5, 100))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        files.contents[path] = bytes(data)
    elif what == 1:
        files.contents[path] = chance.randbytes(chance.randrange(300))
    elif what == 2:
        name = path + chance.choice(("\udcff", "x", ".tmp", "/y"))
        files.contents[name], files.times[name] = files.contents.pop(path), files.times.pop(path)
    else:
        files.contents[path] = content * 2


def test_what_has_no_atomic_marker_counts_once_it_was_the_same_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SETTLE_SECONDS", 5.0)
    finder = finder_of(InMemory(SAVES["Hugging Face's Trainer, two ranks"].written))
    looks = [[one.judged for one in found.checkpoints] for found in finder.look(Look())]
    assert looks[0] == [False]
    assert looks[-1] == [True]
    assert len(looks) > 5.0 / find._PAUSE_SECONDS, "somebody who waits can be asked for something else meanwhile"


def test_what_changes_meanwhile_has_to_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SETTLE_SECONDS", 5.0)
    files = InMemory(SAVES["Hugging Face's Trainer, two ranks"].written)
    finder = finder_of(files)
    for number, answer in enumerate(finder.look(Look())):
        found = answer
        if number == 5:
            files.put("checkpoint-1/rng_state_2.pth", archive({}))
    assert [(one.step, one.judged) for one in found.checkpoints] == []
    assert [one.step for one in found.torn] == [1]
    assert [one.step for one in finder.find()] == [1]


def test_a_light_look_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SETTLE_SECONDS", 5.0)
    files = InMemory(SAVES["Hugging Face's Trainer, two ranks"].written)
    clock = [0.0]
    finder = find.Finder(ROOT, now=lambda: clock[0], files=files, pause=pytest.fail)
    seen = []
    for moment in range(9):
        clock[0] = float(moment)
        seen.append([one.step for one in list(finder.look(Look(thorough=False)))[-1].checkpoints])
    assert seen == [[]] * 6 + [[1]] * 3


class TestDoubt:
    """What is told of once it has been so for a minute: no save takes place meanwhile."""

    def doubts(self, files: InMemory) -> list[str]:
        clock = [0.0]
        finder = find.Finder(ROOT, now=lambda: clock[0], files=files)
        told = []
        for moment in (0.0, find.DOUBT_SECONDS - 1, find.DOUBT_SECONDS):
            clock[0] = moment
            told.append(list(finder.look(Look(thorough=False)))[-1].doubt)
        return told

    def test_is_none_while_all_is_well(self, save: Save) -> None:
        files = InMemory(save.written)
        if save.format == "DeepSpeed":
            files.put("latest", b"global_step1")
        elif save.format.startswith("Megatron"):
            files.put("latest_checkpointed_iteration.txt", b"500")
        assert self.doubts(files) == ["", "", ""]

    def test_that_newer_ones_stay_incomplete(self) -> None:
        files = InMemory(dcp("step-400/"))
        for path, content in dcp("step-500/")[1:]:
            files.put(path, content)
        assert self.doubts(files) == ["", "", ""], "a fault may have cut it short"
        for path, content in dcp("step-600/")[1:]:
            files.put(path, content)
        *early, late = self.doubts(files)
        assert early == ["", ""]
        assert (
            late
            == f"checkpoint 600 ({ROOT}/step-600) is not complete: .metadata names __0_0.distcp, which does not exist"
        )

    def test_that_none_ever_is_complete(self) -> None:
        written = [item for item in SAVES["Hugging Face's Trainer, two ranks"].written if "optimizer" not in item[0]]
        assert "there are weights only" in self.doubts(InMemory(written))[-1]

    def test_that_a_pointer_leads_elsewhere(self) -> None:
        files = InMemory(SAVES["DeepSpeed, ZeRO 2, two ranks"].written)
        assert "there is no latest" in self.doubts(files)[-1]
        files.put("latest", b"global_step9")
        assert "latest names global_step9, which is none of the newest complete ones" in self.doubts(files)[-1]

    def test_that_a_link_leads_elsewhere(self) -> None:
        files = InMemory(SAVES["Composer"].written)
        files.links[f"{ROOT}/latest-rank0.pt"] = "ep1-ba600-rank0.pt"
        assert "Let it lead to ep1-ba500-rank0.pt" in self.doubts(files)[-1]


class TestHuggingFace:
    WRITTEN = SAVES["Hugging Face's Trainer, two ranks"].written

    def without(self, *names: str) -> InMemory:
        return InMemory([item for item in self.WRITTEN if item[0].partition("/")[2] not in names])

    def test_weights_alone_are_nothing_to_go_on_from(self) -> None:
        assert "weights only" in told(
            self.without("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth")
        )

    def test_weights_in_several_files(self) -> None:
        files = self.without("model.safetensors")
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        for name in index["weight_map"].values():
            files.put(f"checkpoint-1/{name}", safetensors(), at_ns=1)
        files.put("checkpoint-1/model.safetensors.index.json", json.dumps(index).encode(), at_ns=1)
        assert complete(files) == [(1, "checkpoint-1")]
        del files.contents[f"{ROOT}/checkpoint-1/model-00002-of-00002.safetensors"]
        assert "which does not exist" in told(files)

    def test_what_a_program_keeps_beside_is_its_own(self) -> None:
        files = InMemory(self.WRITTEN)
        for name in ("metrics.pkl", "mine.bin", "ema.pt"):
            files.put(f"checkpoint-1/{name}", b"anything")
        assert complete(files) == [(1, "checkpoint-1")]

    def test_a_later_save_over_it(self) -> None:
        files = InMemory(self.WRITTEN)
        path = "checkpoint-1/model.safetensors"
        files.put(
            path, files.contents[f"{ROOT}/{path}"], files.times[f"{ROOT}/checkpoint-1/trainer_state.json"] + 3 * 10**9
        )
        assert "model.safetensors is newer" in told(files)

    def test_that_says_it_is_being_saved(self) -> None:
        files = InMemory(self.WRITTEN)
        files.put("checkpoint-1/checkpoint-is-incomplete.txt", b"Checkpoint started at step 1 and in progress...")
        assert "says that it is being saved" in told(files)

    def test_with_deepspeed_inside(self) -> None:
        files = self.without("model.safetensors", "optimizer.pt", "scheduler.pt")
        for path, content in SAVES["DeepSpeed, ZeRO 2, two ranks"].written:
            files.put(f"checkpoint-1/{path}", content, at_ns=1)
        assert "latest does not exist" in told(files)
        files.put("checkpoint-1/latest", b"global_step1", at_ns=1)
        assert complete(files) == [(1, "checkpoint-1")]
        del files.contents[f"{ROOT}/checkpoint-1/global_step1/zero_pp_rank_1_mp_rank_00_optim_states.pt"]
        assert "optimizer states of 1 ranks are there, 2 are needed" in told(files)


class TestDeepSpeed:
    WRITTEN = SAVES["DeepSpeed, ZeRO 2, two ranks"].written

    @pytest.mark.parametrize(("tag", "step"), [("global_step1", 1), ("epoch3", 1), ("best", 1)])
    def test_the_step_is_what_the_tag_calls_so_else_what_is_inside(self, tag: str, step: int) -> None:
        files = InMemory([(path.replace("global_step1", tag), content) for path, content in self.WRITTEN])
        assert complete(files) == [(step, tag)]

    def test_a_rank_less_than_there_were(self) -> None:
        written = SAVES["DeepSpeed, ZeRO 3, two ranks"].written
        assert "of 1 ranks are there, 2 are needed" in told(InMemory([i for i in written if "rank_1_" not in i[0]]))

    def test_model_states_alone(self) -> None:
        files = InMemory([item for item in self.WRITTEN if "model_states" in item[0]])
        assert told(files) == "there are no optimizer states"


class TestMegatron:
    def test_without_its_last_file_it_is_no_checkpoint_of_dcp_either(self) -> None:
        assert complete(InMemory(megatron("iter_0000500/")[:-1])) == []

    def test_weights_alone_are_nothing_to_go_on_from(self) -> None:
        files = InMemory([*megatron("iter_0000500/")[:1], *dcp("iter_0000500/", "decoder.weight")])
        files.put(*megatron("iter_0000500/")[-1])
        assert "weights only" in told(files)

    def test_a_later_save_over_it(self) -> None:
        files = InMemory(megatron("iter_0000500/"))
        files.put(*megatron("iter_0000500/")[3], at_ns=files.times[f"{ROOT}/iter_0000500/metadata.json"] + 3 * 10**9)
        assert ".metadata is newer than metadata.json" in told(files)

    @pytest.mark.parametrize(
        ("tracker", "why"),
        [(b"400", "names 400"), (b"", "names None"), (b"release", "names None"), (None, "does not exist")],
    )
    def test_of_old_counts_once_the_tracker_says_so(self, tracker: bytes | None, why: str) -> None:
        files = InMemory(MEGATRON_LEGACY[:-1])
        if tracker is not None:
            files.put("latest_checkpointed_iteration.txt", tracker)
        finder = finder_of(files)
        assert finder.find() == []
        assert why in told(files)
        files.put("latest_checkpointed_iteration.txt", b"600")
        assert [one.step for one in finder.find()] == [500]

    def test_of_old_with_a_rank_less(self) -> None:
        assert "model_optim_rng.pt of rank 1_0" in told(
            InMemory([item for item in MEGATRON_LEGACY if not item[0].endswith("mp_rank_01_000/model_optim_rng.pt")])
        )


def test_what_torchtitan_keeps_of_its_last_step_is_nothing_to_go_on_from() -> None:
    last = InMemory(dcp("step-500/", "tok_embeddings.weight"))
    assert "weights only" in told(last)
    shards = dcp("step-500/")[:2]
    both = pickle.dumps(
        ["tok_embeddings.weight", "optimizer.state.tok_embeddings.weight.exp_avg", pieces()], protocol=4
    )
    assert complete(InMemory([*shards, ("step-500/.metadata", both)])) == [(500, "step-500")]


class TestNeMo:
    def test_counts_once_nothing_beside_it_says_that_it_is_unfinished(self) -> None:
        files = InMemory(megatron(f"{NEMO}/weights/"))
        files.put(f"{NEMO}-unfinished", b"")
        finder = finder_of(files)
        assert finder.find() == []
        del files.contents[f"{ROOT}/{NEMO}-unfinished"]
        assert [one.step for one in finder.find()] == [500]
        files.put(f"{NEMO}-unfinished", b"")
        assert list(finder.look(Look(thorough=False)))[-1].checkpoints == (), "it is being removed"

    @pytest.mark.parametrize("name", ["model--val_loss=1.25-epoch=3-consumed_samples=256000.0-last", "last"])
    def test_samples_and_epochs_are_no_steps(self, name: str) -> None:
        assert complete(InMemory(megatron(f"{name}/weights/"))) == [(500, name)]


class TestLightning:
    @pytest.mark.parametrize("name", ["last.ckpt", "epoch=02-val_loss=0.32.ckpt", "on_exception.ckpt"])
    def test_the_step_is_inside_where_the_name_tells_none(self, name: str) -> None:
        content = SAVES["Lightning, one file"].written[0][1]
        assert complete(InMemory([(name, content)])) == [(1, name)]

    @pytest.mark.parametrize("step", [-1, 2**53, 10**20])
    def test_a_step_that_no_report_can_tell_is_none(self, step: int) -> None:
        assert complete(InMemory([("last.ckpt", archive({"global_step": step, "optimizer_states": []}))])) == []

    def test_weights_alone_are_nothing_to_go_on_from(self) -> None:
        assert "weights only" in told(
            InMemory([("epoch=0-step=7.ckpt", archive({"global_step": 7, "state_dict": {}}))])
        )

    def test_sharded(self) -> None:
        shards = dcp("epoch=0-step=7.ckpt/", "optimizer_0.state.net.0.weight.exp_avg")
        written = [*shards, ("epoch=0-step=7.ckpt/meta.pt", archive({"global_step": 7}))]
        assert complete(InMemory(written)) == [(7, "epoch=0-step=7.ckpt")]
        assert complete(InMemory(written[:-1])) == []

    @pytest.mark.parametrize(("inside", "words"), [("pytorch-lightning_version", "weights only"), ("mine", "")])
    def test_sharded_weights_alone_are_nothing_to_go_on_from(self, inside: str, words: str) -> None:
        meta = ("epoch=0-step=7.ckpt/meta.pt", archive({"global_step": 7, inside: "2.6"}))
        assert words in told(InMemory([*dcp("epoch=0-step=7.ckpt/", "net.0.weight"), meta]))


def test_composers_weights_alone_are_nothing_to_go_on_from() -> None:
    assert "weights only" in told(InMemory([("ep1-ba500-rank0.pt", archive({"state": {"model": {}}}))]))


def test_only_the_newest_epoch_of_torchtune_has_a_recipe_state() -> None:
    files = InMemory(SAVES["torchtune"].written)
    for number in (1, 2):
        files.put(f"epoch_4/ft-model-0000{number}-of-00002.safetensors", safetensors())
    finder = finder_of(files)
    assert [one.step for one in finder.find()] == [3]
    files.put("recipe_state/recipe_state.pt", archive({"optimizer": {}, "epochs_run": 5}))
    assert [one.step for one in finder.find()] == [4]


class TestOrbax:
    """Orbax 0.12.8 wrote these; in which order is in atomicity.py, `finalize`."""

    ITEMS = recorded("orbax-0.12")
    SINGLE = recorded("orbax-0.12-single")
    PLAIN = recorded("orbax-0.12-plain")  # of StandardCheckpointer, without items
    METADATA = "ckpt_3/_CHECKPOINT_METADATA"

    @pytest.mark.parametrize(
        ("written", "found"),
        [(ITEMS, (1, "1")), (SINGLE, (3, "ckpt_3")), (PLAIN, (7, "7"))],
        ids=["items", "single", "plain"],
    )
    def test_is_found(self, written: Written, found: tuple[int, str]) -> None:
        assert complete(InMemory(written)) == [found]
        assert finder_of(InMemory(written)).find()[0].format == "Orbax"

    @pytest.mark.parametrize("name", ["1.orbax-checkpoint-tmp", "1.orbax-checkpoint-tmp-1795359602"])
    def test_is_none_before_it_is_renamed(self, name: str) -> None:
        for _, files in prefixes([(f"{name}/{path[2:]}", content) for path, content in self.ITEMS]):
            assert complete(files) == []

    def test_that_ends_with_a_file_is_none_before(self) -> None:
        said = json.loads(dict(self.SINGLE)[self.METADATA])
        begun = (self.METADATA, json.dumps({**said, "commit_timestamp_nsecs": None}).encode())
        for _, files in prefixes([begun, *(item for item in self.SINGLE[:-1] if item[0] != self.METADATA)]):
            assert complete(files) == []

    def test_needs_its_items_and_what_its_arrays_are_read_by(self) -> None:
        for lost in ("1/state/manifest.ocdbt", "1/state/_METADATA", "1/extra/"):
            assert complete(InMemory([item for item in self.ITEMS if not item[0].startswith(lost)])) == []
        for cut in ("1/state/manifest.ocdbt", "1/_CHECKPOINT_METADATA"):
            assert complete(InMemory([(p, c[:-1] if p == cut else c) for p, c in self.ITEMS])) == []
