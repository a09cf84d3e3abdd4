"""What frameworks wrote, as far as they had come, incomplete at random, and what comes of it."""

from __future__ import annotations

import argparse
import json
import pickle
import re
import struct
from pathlib import Path

import pytest
from tests.unit.checkpoint.recordings import (
    ROOT,
    START_NS,
    InMemory,
    Written,
    archive,
    complete,
    finder_of,
    prefixes,
    recorded,
    safetensors,
    told,
)
from tests.unit.checkpoint.saves import (
    ACCELERATE,
    FLASH,
    MEGATRON_LEGACY,
    NEMO,
    SAVES,
    Save,
    dcp,
    deepspeed,
    experts,
    lightning_deepspeed,
    megatron,
    pieces,
    universal,
)
from tests.unit.checkpoint.sweeps import among, assert_that_torn_it_is_never_complete, judge_any_bytes_and_names

from muster.node.checkpoint import find
from muster.node.checkpoint.find import ScanOptions


@pytest.fixture(params=SAVES.values(), ids=SAVES.keys())
def save(request: pytest.FixtureRequest) -> Save:
    return request.param


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
        assert_that_torn_it_is_never_complete(save, times=25)

    def test_needs_each_of_these_files_and_its_last_byte(self, save: Save) -> None:
        for path in save.needed:
            for cut in (lambda content: None, lambda content: content[:-1], lambda content: b""):
                changed = [(name, content if name != path else cut(content)) for name, content in save.written]
                files = InMemory([(name, content) for name, content in changed if content is not None])
                assert not among(files, save), path

    def test_of_any_bytes_and_names_is_judged_without_an_error(self, save: Save) -> None:
        judge_any_bytes_and_names(save, times=10)


def test_what_has_no_atomic_marker_counts_once_it_was_the_same_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SETTLE_SECONDS", 5.0)
    finder = finder_of(InMemory(SAVES["Hugging Face's Trainer, two ranks"].written))
    looks = [[one.judged for one in found.checkpoints] for found in finder.scan(ScanOptions())]
    assert looks[0] == [False]
    assert looks[-1] == [True]
    assert len(looks) > 5.0 / find._PAUSE_SECONDS, "somebody who waits can be asked for something else meanwhile"


def test_what_changes_meanwhile_has_to_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SETTLE_SECONDS", 5.0)
    files = InMemory(SAVES["Hugging Face's Trainer, two ranks"].written)
    finder = finder_of(files)
    for number, answer in enumerate(finder.scan(ScanOptions())):
        found = answer
        if number == 5:
            files.put("checkpoint-1/rng_state_2.pth", archive({}))
    assert [(one.step, one.judged) for one in found.checkpoints] == []
    assert [one.step for one in found.incomplete] == [1]
    assert [one.step for one in finder.find()] == [1]


def test_a_light_look_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "SETTLE_SECONDS", 5.0)
    files = InMemory(SAVES["Hugging Face's Trainer, two ranks"].written)
    clock = [0.0]
    finder = find.Finder(ROOT, now=lambda: clock[0], files=files, pause=pytest.fail)
    seen = []
    for moment in range(9):
        clock[0] = float(moment)
        seen.append([one.step for one in list(finder.scan(ScanOptions(thorough=False)))[-1].checkpoints])
    assert seen == [[]] * 6 + [[1]] * 3


class TestARemoval:
    """Of formats in which nothing names all files: what was seen of them before tells."""

    SAVES = (
        ("Orbax", recorded("orbax-0.12"), r"/d/"),
        (
            "Accelerate",
            [item for item in ACCELERATE if item[0].startswith("checkpoint_1/")],
            r"custom|sampler|scheduler",
        ),
        ("DLRover", FLASH, r"rank_1"),
        ("DeepSpeedUniversal", universal("global_step1_universal"), r"layers\.0"),
    )

    @pytest.mark.parametrize(("kind", "written", "first"), SAVES, ids=[kind for kind, *_ in SAVES])
    def test_is_seen_while_it_goes_on_and_when_it_was_cut_short(self, kind: str, written: Written, first: str) -> None:
        files, verdicts = InMemory(written), {}
        finder = find.Finder(ROOT, files=files, judged=lambda verdict: verdicts.update({verdict.path: verdict}))
        assert [one.format for one in finder.find()] == [kind]
        for path in sorted((path for path in files.contents if re.search(first, path)), key=files.times.get):
            del files.contents[path]
            assert finder.find() == []
        heir = find.Finder(ROOT, files=files)
        heir.remember(verdicts.values())
        assert heir.find() == [], "who looks after the first one was killed has heard of it"
        for path, content in written:
            files.put(path, content, START_NS + 10**15)
        assert [one.format for one in finder.find()] == [kind], "it is saved anew"

    def test_a_later_save_may_be_smaller(self) -> None:
        files = InMemory(FLASH)
        finder = finder_of(files)
        assert [one.step for one in finder.find()] == [500]
        del files.contents[f"{ROOT}/500/rank_1.pt"]
        assert finder.find() == []
        files.put("500/rank_0.pt", FLASH[0][1])
        files.put("dlrover_latest.txt", b"500")
        assert [one.step for one in finder.find()] == [500]


class TestDoubt:
    """What is told of once it has been so for a minute: no save takes place meanwhile."""

    def warnings(self, files: InMemory) -> list[str]:
        clock = [0.0]
        finder = find.Finder(ROOT, now=lambda: clock[0], files=files)
        told = []
        for moment in (0.0, find.GRACE_SECONDS - 1, find.GRACE_SECONDS):
            clock[0] = moment
            told.append(list(finder.scan(ScanOptions(thorough=False)))[-1].warning)
        return told

    def test_is_none_while_all_is_well(self, save: Save) -> None:
        files = InMemory(save.written)
        if save.format == "DeepSpeed":
            files.put("latest", save.found[1].encode())
        elif save.format.startswith("Megatron"):
            files.put("latest_checkpointed_iteration.txt", b"500")
        assert self.warnings(files) == ["", "", ""]

    def test_that_newer_ones_stay_incomplete(self) -> None:
        files = InMemory(dcp("step-400/"))
        for path, content in dcp("step-500/")[1:]:
            files.put(path, content)
        assert self.warnings(files) == ["", "", ""], "a fault may have cut it short"
        for path, content in dcp("step-600/")[1:]:
            files.put(path, content)
        *early, late = self.warnings(files)
        assert early == ["", ""]
        assert (
            late
            == f"checkpoint 600 ({ROOT}/step-600) is not complete: .metadata names __0_0.distcp, which does not exist"
        )

    def test_that_none_ever_is_complete(self) -> None:
        written = [item for item in SAVES["Hugging Face's Trainer, two ranks"].written if "optimizer" not in item[0]]
        assert "there are weights only" in self.warnings(InMemory(written))[-1]

    @pytest.mark.parametrize("place", ["rank_0", "checkpoints", "run-7"])
    def test_that_all_lie_in_a_directory_of_this_one(self, place: str) -> None:
        files = InMemory([*dcp(f"{place}/step-400/"), *dcp(f"{place}/step-500/"), ("logs/file", b"")])
        *early, late = self.warnings(files)
        assert early == ["", ""]
        assert late.startswith(f"no checkpoint lies in {ROOT} itself, and {ROOT}/{place}/step-500 (TorchDCP) is deeper")
        assert list(finder_of(files).scan(ScanOptions()))[-1].warning == late, "a start is told at once"
        for path, content in dcp("step-600/"):
            files.put(path, content)
        assert self.warnings(files) == ["", "", ""]

    @pytest.mark.parametrize("name", ["checkpoint-500", "global_step500", "ep1-ba500", "500"])
    def test_is_none_of_the_parts_of_a_first_save_that_takes_long(self, name: str) -> None:
        files = InMemory([*dcp(f"{name}/pytorch_model_fsdp_0/"), *dcp(f"{name}/global_step500/")])
        assert self.warnings(files) == ["", "", ""]

    def test_that_one_is_of_no_format_is_told_once_no_first_save_takes_so_long(self) -> None:
        clock = [0.0]
        files = InMemory([("run_500/weights.pt", b"x")])
        finder = find.Finder(ROOT, now=lambda: clock[0], files=files)
        told = []
        for moment in (0.0, find.GRACE_SECONDS, find._UNRECOGNIZED_SECONDS):
            clock[0] = moment
            files.put(f"run_{600 + moment:.0f}/weights.pt", b"x")
            told.append(list(finder.scan(ScanOptions(thorough=False)))[-1].warning)
        assert told[:2] == ["", ""]
        assert told[2].startswith(
            f"{ROOT}/run_1200 is of no format that Muster knows, or was not finished: it does not count."
        )
        assert "spec.checkpoint.pattern" in told[2]
        assert "muster-checkpoint.json" in told[2]

    def test_that_one_is_of_no_format_is_told_to_a_start_at_once_and_afterwards(self) -> None:
        finder = finder_of(InMemory([("run_500/weights.pt", b"x")]))
        for how in (ScanOptions(), ScanOptions(thorough=False)):
            assert f"{ROOT}/run_500 is of no format" in list(finder.scan(how))[-1].warning

    def test_that_several_of_no_format_are_newer_than_what_is_complete(self) -> None:
        files = InMemory([*dcp("step-400/"), ("run_500/weights.pt", b"x")])
        assert list(finder_of(files).scan(ScanOptions()))[-1].warning == "", "a fault may have cut it short"
        files.put("run_600/weights.pt", b"x")
        warning = list(finder_of(files).scan(ScanOptions()))[-1].warning
        assert warning.startswith(f"{ROOT}/run_600 is of no format")
        assert f"and the newest that does is {ROOT}/step-400" in warning

    def test_that_a_pointer_leads_elsewhere(self) -> None:
        files = InMemory(SAVES["DeepSpeed, ZeRO 2, two ranks"].written)
        assert "there is no latest" in self.warnings(files)[-1]
        files.put("latest", b"global_step9")
        assert "latest names global_step9, which is none of the newest complete ones" in self.warnings(files)[-1]

    def test_a_trap_is_told_at_once_and_an_older_checkpoint_is_none(self) -> None:
        """Only a start asks for it, and it may not wait for a minute."""
        files = InMemory(SAVES["DeepSpeed, ZeRO 2, two ranks"].written)
        incomplete = [item for item in files.contents if "optim" in item][:1]
        for name, content in list(files.contents.items()):
            if name not in incomplete:
                files.put(name.removeprefix(f"{ROOT}/").replace("global_step1", "global_step2"), content)

        def trap() -> str:
            return list(finder_of(files).scan(ScanOptions()))[-1].trap

        assert "there is no latest" in trap()
        for name, is_one in (("global_step2", True), ("global_step3", True), ("", True), ("global_step1", False)):
            files.put("latest", name.encode())
            assert bool(trap()) == is_one, name
        files.put("global_step0/other", b"")
        files.put("latest", b"global_step0")
        assert trap() == "", "what is there and not known to be incomplete may be a user's choice"

    def test_a_first_save_that_was_cut_short_and_is_named_is_a_trap(self) -> None:
        """DeepSpeed's rank 0 writes `latest` when its own files are there, and each start would fail to load what it
        names."""
        written = SAVES["DeepSpeed, ZeRO 2, two ranks"].written
        files = InMemory([item for item in written if "zero_pp_rank_1" not in item[0]])

        def trap() -> str:
            found = list(finder_of(files).scan(ScanOptions()))[-1]
            assert found.checkpoints == ()
            return found.trap

        assert trap() == "", "it begins from scratch"
        files.put("latest", b"global_step1")
        assert trap() == (
            "latest names global_step1, which is not complete: DeepSpeed would fail to load it. Remove latest, and "
            "it begins from scratch"
        )
        files = InMemory([item for item in written if "optim_states" not in item[0]])
        files.put("latest", b"global_step1")
        assert trap() == "", "weights alone are somebody's choice"

    def test_that_a_link_leads_elsewhere(self) -> None:
        files = InMemory(SAVES["Composer"].written)
        files.links[f"{ROOT}/latest-rank0.pt"] = "ep1-ba600-rank0.pt"
        assert "Let it lead to ep1-ba500-rank0.pt" in self.warnings(files)[-1]


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

    def test_a_name_that_an_index_makes_up_is_told_in_short(self) -> None:
        files = self.without("model.safetensors")
        index = {"weight_map": {"a": "x" * 1_000_000}}
        files.put("checkpoint-1/model.safetensors.index.json", json.dumps(index).encode(), at_ns=1)
        assert told(files).startswith("model.safetensors.index.json names xxx")
        assert len(told(files)) < 2000

    def test_adapters_in_directories_of_their_own(self) -> None:
        """PEFT gives each adapter that is not called `default` one."""
        files = self.without("model.safetensors")
        for adapter in ("policy", "reference"):
            files.put(f"checkpoint-1/{adapter}/adapter_model.safetensors", safetensors(), at_ns=1)
            files.put(f"checkpoint-1/{adapter}/adapter_config.json", b"{}", at_ns=1)
        assert complete(files) == [(1, "checkpoint-1")]
        path = f"{ROOT}/checkpoint-1/reference/adapter_model.safetensors"
        content = files.contents[path]
        files.contents[path] = content[:-1]
        assert "reference/adapter_model.safetensors has" in told(files)
        del files.contents[path]
        assert "no reference/adapter_model.safetensors" in told(files)

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

    def test_that_dlrovers_agents_write_after_the_state(self) -> None:
        """`FlashCkptTrainer` writes the tensors to memory and `trainer_state.json` at once; agents write the rest
        minutes later."""
        files = InMemory(self.WRITTEN)
        state = files.times[f"{ROOT}/checkpoint-1/trainer_state.json"]
        for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
            files.times[f"{ROOT}/checkpoint-1/{name}"] = state + 60 * 10**9
        for tracked, why in ((None, "trainer_state.json"), (b"0", "trainer_state.json"), (b"1", "dlrover_latest.txt")):
            if tracked is not None:
                files.put("dlrover_latest.txt", tracked, at_ns=state + 10 * 10**9)
            assert told(files) == f"model.safetensors is newer than {why}"
        files.put("dlrover_latest.txt", b"1", at_ns=state + 61 * 10**9)
        assert complete(files) == [(1, "checkpoint-1")]
        files = InMemory(self.WRITTEN)
        files.put("dlrover_latest.txt", b"900", at_ns=1)
        assert complete(files) == [(1, "checkpoint-1")], "what another job left there long ago tells nothing"

    def test_that_says_it_is_being_saved(self) -> None:
        files = InMemory(self.WRITTEN)
        files.put("checkpoint-1/checkpoint-is-incomplete.txt", b"Checkpoint started at step 1 and in progress...")
        assert "says that it is being saved" in told(files)

    def test_weights_whose_header_tells_no_number_hide_no_other(self) -> None:
        header = b'{"weight": {"data_offsets": [0, 1e999]}}'
        files = self.without("model.safetensors")
        files.put("checkpoint-1/model.safetensors", struct.pack("<Q", len(header)) + header, at_ns=1)
        assert told(files) == "model.safetensors has a header that is cut short"

    def test_a_name_that_is_no_text_is_told_readably(self) -> None:
        files = InMemory(self.WRITTEN)
        files.put("checkpoint-1/\udcff/adapter_config.json", b"{}", at_ns=1)
        assert told(files).startswith("\\udcff/adapter_config.json is there")

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

    def test_of_so_many_ranks_as_no_memory_holds(self) -> None:
        """What a file says may be any number."""
        states = deepspeed(optimizer={"state": 1}, dp_world_size=2**40, mp_world_size=1)
        written = [("global_step1/mp_rank_00_model_states.pt", states)]
        written += [("global_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt", archive({"optimizer_state_dict": 1}))]
        assert told(InMemory(written)) == f"optimizer states of 1 ranks are there, {2**40} are needed"

    @pytest.mark.parametrize("latest", [bytes(12), b"x" * 400], ids=["zeros", "long"])
    def test_what_a_power_cut_left_of_latest_hides_no_checkpoint(self, tmp_path: Path, latest: bytes) -> None:
        """Found by an attack: a file system may have given it its length, and nothing in it."""
        for path, content in self.WRITTEN:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(content)
        (tmp_path / "latest").write_bytes(latest)
        *_, found = find.Finder(str(tmp_path)).scan(ScanOptions())
        assert [one.step for one in found.checkpoints] == [1]
        assert "Write global_step1 into it" in found.trap
        assert found.trap.isprintable()

    def test_model_states_alone(self) -> None:
        files = InMemory([item for item in self.WRITTEN if "model_states" in item[0]])
        assert told(files) == "there are no optimizer states"

    def test_layers_of_a_pipeline_that_nothing_names_have_files_of_all_ranks(self) -> None:
        """Without ZeRO no parameter is named."""
        states = deepspeed(optimizer={"state": 1}, dp_world_size=2, mp_world_size=2)
        written = [(f"global_step1/mp_rank_{rank:02}_model_states.pt", states) for rank in range(2)]
        names = [
            f"global_step1/layer_{layer:02}-model_{rank:02}-model_states.pt" for layer in (0, 2) for rank in range(2)
        ]
        files = InMemory([*((name, archive({"weight": 1})) for name in names), *written])
        assert complete(files) == [(1, "global_step1")]
        del files.contents[f"{ROOT}/{names[1]}"]
        assert told(files) == "layer_00-model_01-model_states.pt does not exist"

    def test_experts_with_zero_need_no_optimizers_of_their_own(self) -> None:
        written = [item for item in experts("global_step1") if "expp" not in item[0]]
        assert told(InMemory(written)) == "expp_rank_0_mp_rank_00_optim_states.pt does not exist"
        zero = [
            (f"global_step1/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", archive({"optimizer_state_dict": 1}))
            for rank in range(2)
        ]
        assert complete(InMemory([*written, *zero])) == [(1, "global_step1")]

    def test_a_universal_one_has_the_same_of_each_parameter(self) -> None:
        files = InMemory(universal("global_step1_universal"))
        path = f"{ROOT}/global_step1_universal/zero/embed.weight/exp_avg.pt"
        content = files.contents.pop(path)
        assert told(files) == "zero/embed.weight/exp_avg.pt does not exist"
        files.contents[path] = content[:-1]
        assert "zero/embed.weight/exp_avg.pt is cut short" in told(files)

    def test_a_universal_one_without_an_optimizer_is_nothing_to_go_on_from(self) -> None:
        written = [item for item in universal("global_step1_universal") if "exp_avg" not in item[0]]
        assert "weights only" in told(InMemory(written))

    def test_a_universal_one_does_not_count_beside_what_it_was_made_of(self) -> None:
        """DeepSpeed loads it only where it is told so, and what it was made of anyway."""
        files = InMemory([*self.WRITTEN, *universal("global_step1_universal")])
        assert complete(files) == [(1, "global_step1")]
        requested = f"{ROOT}/global_step1_universal"
        found = list(finder_of(files).scan(ScanOptions(requested=requested)))[-1].checkpoints
        assert requested in [one.path for one in found if one.judged]

    @pytest.mark.parametrize(
        ("latest", "why"), [(None, "does not exist"), (b"global_step1", "does not name checkpoint")]
    )
    def test_lightning_loads_what_latest_names(self, latest: bytes | None, why: str) -> None:
        files = InMemory(lightning_deepspeed("epoch=0-step=500.ckpt")[:-1])
        if latest is not None:
            files.put("epoch=0-step=500.ckpt/latest", latest)
        assert f"latest {why}" in told(files)


class TestMegatron:
    def test_without_its_last_file_it_is_no_checkpoint_of_dcp_either(self) -> None:
        assert complete(InMemory(megatron("iter_0000500/")[:-1])) == []

    def test_what_its_other_formats_write_counts_once_the_tracker_names_it(self) -> None:
        """`--ckpt-format torch_dcp` and `fsdp_dtensor` end with nothing else."""
        files = InMemory(dcp("iter_0000500/"))
        finder = finder_of(files)
        for tracker in (None, b"400", b"", b"release"):
            if tracker is not None:
                files.put("latest_checkpointed_iteration.txt", tracker)
            assert finder.find() == []
            assert "was not said to be written yet" in told(files)
        files.put("latest_checkpointed_iteration.txt", b"500")
        assert [(one.step, one.format) for one in finder.find()] == [(500, "Megatron")]

    def test_torch_dist_without_its_last_file_is_none_of_the_others(self) -> None:
        """The tracker may have passed it, and the first file of what all ranks have in common is there, or a part of
        `.metadata`."""
        for written in (megatron("iter_0000500/")[:-1], dcp("iter_0000500/", "exp_avg common_state/shard_0_1")):
            files = InMemory([*written, ("latest_checkpointed_iteration.txt", b"600")])
            assert complete(files) == []
            assert "metadata.json does not exist: it was cut short" in told(files)

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

    @pytest.mark.parametrize("gone", ["mp_rank_01_", "mp_rank_00_001|mp_rank_01_001", "mp_rank_(01|00_001)"])
    def test_of_old_without_all_of_its_last_ranks(self, gone: str) -> None:
        """As a removal that was cut short, or a copy, leaves it: no name tells that there were more."""
        files = InMemory([item for item in MEGATRON_LEGACY if not re.search(gone, item[0])])
        assert complete(files) == []
        assert "of rank" in told(files)

    def test_of_old_whose_arguments_are_no_counts(self) -> None:
        arguments = argparse.Namespace(tensor_model_parallel_size=2**46, pipeline_model_parallel_size=2)
        written = [
            (path, archive({"args": arguments}) if path.endswith(".pt") else told) for path, told in MEGATRON_LEGACY
        ]
        assert complete(InMemory(written)) == []

    def test_of_old_with_experts_on_two_ranks_and_no_pipeline(self) -> None:
        arguments = argparse.Namespace(
            tensor_model_parallel_size=1, pipeline_model_parallel_size=1, expert_model_parallel_size=2
        )
        written = [
            (f"iter_0000500/mp_rank_00_{rank:03}/model_optim_rng.pt", archive({"args": arguments})) for rank in range(2)
        ]
        tracker = ("latest_checkpointed_iteration.txt", b"500")
        assert complete(InMemory([*written, tracker])) == [(500, "iter_0000500")]
        assert complete(InMemory([written[0], tracker])) == []

    def test_of_old_with_a_file_for_the_optimizer_that_is_gone(self) -> None:
        """As a removal that was cut short leaves it where one rank has written all: its arguments tell of the file."""

        def written(**more: object) -> Written:
            arguments = argparse.Namespace(
                tensor_model_parallel_size=1, pipeline_model_parallel_size=1, no_save_optim=None, **more
            )
            state = archive({"args": arguments, "optimizer": {}, "opt_param_scheduler": {}})
            return [
                ("iter_0000500/mp_rank_00/model_optim_rng.pt", state),
                ("latest_checkpointed_iteration.txt", b"500"),
            ]

        assert complete(InMemory(written(use_distributed_optimizer=False))) == [(500, "iter_0000500")]
        assert told(InMemory(written(use_distributed_optimizer=True))) == "distrib_optim.pt of rank 0 does not exist"

    def test_of_old_without_an_optimizer_it_is_nothing_to_go_on_from(self) -> None:
        """`--no-save-optim`: Megatron-LM ends with an error where it would load it."""
        arguments = argparse.Namespace(
            no_save_optim=True,
            use_distributed_optimizer=True,
            tensor_model_parallel_size=1,
            pipeline_model_parallel_size=1,
        )
        state = archive({"args": arguments, "iteration": 500, "model": {}})
        written = [("iter_0000500/mp_rank_00/model_optim_rng.pt", state), ("latest_checkpointed_iteration.txt", b"500")]
        assert "weights only" in told(InMemory(written))


def test_what_torchtitan_keeps_of_its_last_step_is_nothing_to_go_on_from() -> None:
    last = InMemory(dcp("step-500/", "tok_embeddings.weight"))
    assert "weights only" in told(last)
    shards = dcp("step-500/")[:2]
    both = pickle.dumps(
        ["tok_embeddings.weight", "optimizer.state.tok_embeddings.weight.exp_avg", pieces()], protocol=4
    )
    assert complete(InMemory([*shards, ("step-500/.metadata", both)])) == [(500, "step-500")]


def test_an_optimizer_is_known_by_its_parts_whatever_it_is_kept_under() -> None:
    for key in ("opt.exp_avg.tok_embeddings.weight", "opt.param_groups"):
        meta = pickle.dumps(["model.tok_embeddings.weight", key, pieces()], protocol=4)
        assert complete(InMemory([*dcp("step-500/")[:2], ("step-500/.metadata", meta)])) == [(500, "step-500")]


@pytest.mark.parametrize("weights", ["unet/diffusion_pytorch_model.safetensors", "pytorch_lora_weights.safetensors"])
def test_weights_that_a_hook_saves_in_place_of_accelerate_are_weights(weights: str) -> None:
    """As the training scripts of diffusers leave it (`save_model_hook` in train_text_to_image.py and its like)."""
    rest = [(f"checkpoint-500/{name}", archive({"state": {}})) for name in ("optimizer.bin", "scheduler.bin")]
    saved = [(f"checkpoint-500/{weights}", safetensors()), *rest, ("checkpoint-500/random_states_0.pkl", archive({}))]
    assert complete(InMemory(saved)) == [(500, "checkpoint-500")]
    assert complete(InMemory(saved[1:])) == []
    incomplete = (saved[0][0], saved[0][1][:-1])
    assert complete(InMemory([incomplete, *saved[1:]])) == []


class TestOwnNamesOfWeights:
    """A hook, or a model with a `save_pretrained` of its own, calls its files as it likes."""

    REST = ("optimizer.bin", "random_states_0.pkl")

    def save(self, **own: bytes) -> InMemory:
        files = [(f"checkpoint-500/{name.replace('__', '.')}", content) for name, content in own.items()]
        return InMemory(files + [(f"checkpoint-500/{name}", archive({})) for name in self.REST])

    @pytest.mark.parametrize("name", ["net__bin", "heads__pt", "ema__pth", "model_v2__ckpt"])
    def test_an_archive_of_torch_is_whole_with_its_end(self, name: str) -> None:
        assert complete(self.save(**{name: archive({})})) == [(500, "checkpoint-500")]
        assert "is cut short" in told(self.save(**{name: archive({})[:-1]}))
        assert "is empty" in told(self.save(**{name: b""}))

    def test_each_has_to_be_whole(self) -> None:
        assert "b.safetensors has" in told(self.save(a__safetensors=safetensors(), b__safetensors=safetensors()[:-1]))

    def test_a_later_one_in_place_of_accelerate_s_own_is_of_another_save(self) -> None:
        files = self.save(net__safetensors=safetensors())
        later = files.times[f"{ROOT}/checkpoint-500/random_states_0.pkl"] + 3 * 10**9
        files.put("checkpoint-500/net.safetensors", safetensors(), at_ns=later)
        assert told(files) == "net.safetensors is newer than random_states_0.pkl"
        files.put("checkpoint-500/model.safetensors", safetensors(), at_ns=START_NS)
        assert complete(files) == [(500, "checkpoint-500")], "a program may add to the save"

    def test_a_rank_s_own_file_is_missed_where_its_random_states_are_there(self) -> None:
        ranks = [f"{part}_0_rank{rank}.bin" for part in ("pytorch_model_fsdp", "optimizer") for rank in range(2)]
        written = [(f"step_500/{name}", archive({})) for name in (*ranks, "random_states_0.pkl", "random_states_1.pkl")]
        assert complete(InMemory(written)) == [(500, "step_500")]
        for lost, name in enumerate(ranks):
            assert told(InMemory([*written[:lost], *written[lost + 1 :]])) == f"{name} does not exist"
        with_another = [*written, ("step_500/random_states_2.pkl", archive({}))]
        assert told(InMemory(with_another)) == "optimizer_0_rank2.bin does not exist"


def test_weights_of_a_hook_in_several_files_are_those_that_their_index_names() -> None:
    names = [f"diffusion_pytorch_model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = json.dumps({"weight_map": dict(enumerate(names))}).encode()
    rest = [(f"checkpoint-500/{name}", archive({"state": {}})) for name in ("optimizer.bin", "random_states_0.pkl")]
    place = "checkpoint-500/transformer"
    saved = [
        *((f"{place}/{name}", safetensors()) for name in names),
        (f"{place}/diffusion_pytorch_model.safetensors.index.json", index),
        *rest,
    ]
    assert complete(InMemory(saved)) == [(500, "checkpoint-500")]
    for lost in range(3):
        assert complete(InMemory([*saved[:lost], *saved[lost + 1 :]])) == []
    assert f"names transformer/{names[1]}, which does not exist" in told(InMemory([saved[0], *saved[2:]]))


class TestAccelerate:
    NAMES = (
        "optimizer.bin",
        "optimizer_1.bin",
        "scheduler.bin",
        "scheduler_1.bin",
        "sampler.bin",
        "sampler_1.bin",
        "dl_state_dict.bin",
        "scaler.pt",
        "random_states_0.pkl",
        "random_states_1.pkl",
        "custom_checkpoint_0.pkl",
        "custom_checkpoint_1.pkl",
    )

    @classmethod
    def save(cls, number: int, without: str = "") -> Written:
        files = [(f"checkpoint_{number}/model.safetensors", safetensors())]
        return files + [(f"checkpoint_{number}/{name}", archive({})) for name in cls.NAMES if name != without]

    @pytest.mark.parametrize("name", [name for name in NAMES if name != "optimizer.bin" and "random" not in name])
    def test_what_the_save_before_has_may_not_be_missing(self, name: str) -> None:
        """Found by an attack: a save that was cut short while the other ranks' files were under way."""
        files = InMemory(self.save(6) + self.save(7, without=name))
        assert complete(files) == [(6, "checkpoint_6")]
        assert f"{name} does not exist" in told(files)
        assert complete(InMemory(self.save(6) + self.save(7))) == [(7, "checkpoint_7"), (6, "checkpoint_6")]

    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer_1.bin", "scheduler.bin", "random_states_1.pkl"])
    def test_a_later_save_over_it(self, name: str) -> None:
        """Into a directory of the program's own naming, which may be saved to again after a fault."""
        files = InMemory([(path.replace("checkpoint_7", "step_500"), content) for path, content in self.save(7)])
        states, path = files.times[f"{ROOT}/step_500/random_states_0.pkl"], f"step_500/{name}"
        files.put(path, files.contents[f"{ROOT}/{path}"], at_ns=states + 3 * 10**9)
        if name.startswith("random"):  # another rank's, which may take longer
            assert complete(files) == [(500, "step_500")]
        else:
            assert told(files) == f"{name} is newer than random_states_0.pkl"

    def test_random_states_of_other_ranks_are_not_missed(self) -> None:
        """Such a rank goes on with a warning; and there may be less of them than before."""
        files = InMemory(self.save(6) + self.save(7, without="random_states_1.pkl"))
        for content in (None, b"", archive({})[:-1]):
            if content is not None:
                files.put("checkpoint_7/random_states_1.pkl", content)
            assert complete(files) == [(7, "checkpoint_7"), (6, "checkpoint_6")]
        files.put("checkpoint_7/random_states_0.pkl", archive({})[:-1])
        assert complete(files) == [(6, "checkpoint_6")]

    def test_nothing_is_missed_that_the_save_before_has_not_either(self) -> None:
        both = self.save(6, without="scheduler_1.bin") + self.save(7, without="scheduler_1.bin")
        assert complete(InMemory(both)) == [(7, "checkpoint_7"), (6, "checkpoint_6")]
        assert complete(InMemory(self.save(7, without="scheduler.bin"))) == [(7, "checkpoint_7")], "nobody can tell"


class TestNeMo:
    def test_counts_once_nothing_beside_it_says_that_it_is_unfinished(self) -> None:
        files = InMemory(megatron(f"{NEMO}/weights/"))
        files.put(f"{NEMO}-unfinished", b"")
        finder = finder_of(files)
        assert finder.find() == []
        del files.contents[f"{ROOT}/{NEMO}-unfinished"]
        assert [one.step for one in finder.find()] == [500]
        files.put(f"{NEMO}-unfinished", b"")
        assert list(finder.scan(ScanOptions(thorough=False)))[-1].checkpoints == (), "it is being removed"

    @pytest.mark.parametrize("name", ["model--val_loss=1.25-epoch=3-consumed_samples=256000.0-last", "last"])
    def test_samples_and_epochs_are_no_steps(self, name: str) -> None:
        assert complete(InMemory(megatron(f"{name}/weights/"))) == [(500, name)]


class TestDLRover:
    WRITTEN = FLASH

    @pytest.mark.parametrize(("said", "why"), [(b"400", "names 400"), (b"", "names None"), (None, "does not exist")])
    def test_counts_once_its_file_says_so(self, said: bytes | None, why: str) -> None:
        files = InMemory(self.WRITTEN[:-1])
        if said is not None:
            files.put("dlrover_latest.txt", said)
        finder = finder_of(files)
        assert finder.find() == []
        assert why in told(files)
        files.put("dlrover_latest.txt", b"500")
        assert [one.step for one in finder.find()] == [500]

    def test_a_save_that_was_given_up_stays_torn_when_a_later_one_is_over(self) -> None:
        later = [(path.replace("500/", "600/"), content) for path, content in self.WRITTEN[:-1]]
        files = InMemory([self.WRITTEN[0], *later, ("dlrover_latest.txt", b"600")])
        assert complete(files) == [(600, "600")]
        files.put(*self.WRITTEN[1], at_ns=1)
        assert complete(files) == [(600, "600"), (500, "500")]

    def test_a_later_save_over_it(self) -> None:
        files = InMemory(self.WRITTEN)
        files.put(*self.WRITTEN[1], at_ns=files.times[f"{ROOT}/dlrover_latest.txt"] + 3 * 10**9)
        assert told(files) == "rank_1.pt is newer than dlrover_latest.txt"

    def test_what_it_saves_for_fsdp_is_complete_once_its_file_is_as_new(self) -> None:
        """Its first agent writes `.metadata` with its own shard, long before the others are done."""
        files = InMemory(dcp("500/"))
        files.put("dlrover_latest.txt", b"500")
        files.put(*dcp("500/")[1], at_ns=files.times[f"{ROOT}/500/.metadata"] + 30 * 10**9)
        finder = finder_of(files)
        assert finder.find() == []
        assert told(files) == "__1_0.distcp is newer than dlrover_latest.txt"
        files.put("dlrover_latest.txt", b"500", at_ns=files.times[f"{ROOT}/500/__1_0.distcp"] + 10**9)
        assert [(one.step, one.format) for one in finder.find()] == [(500, "TorchDCP")]


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

    @pytest.mark.parametrize("key", ["optimizer", "my_optim"])
    def test_of_fabric_a_program_names_what_is_in_it(self, key: str) -> None:
        whole = archive({"model": {}, key: {"state": {}}, "global_step": 500})
        assert complete(InMemory([("epoch-0004.ckpt", whole)])) == [(500, "epoch-0004.ckpt")]
        assert complete(InMemory([("epoch-0004.ckpt", whole[:-1])])) == []
        trainers = archive({"global_step": 500, "pytorch-lightning_version": "2.6", "hyper_parameters": {key: "adam"}})
        assert "weights only" in told(InMemory([("epoch=0-step=500.ckpt", trainers)]))

    def test_sharded(self) -> None:
        shards = dcp("epoch=0-step=7.ckpt/", "optimizer_0.state.net.0.weight.exp_avg")
        written = [*shards, ("epoch=0-step=7.ckpt/meta.pt", archive({"global_step": 7}))]
        assert complete(InMemory(written)) == [(7, "epoch=0-step=7.ckpt")]
        assert complete(InMemory(written[:-1])) == []

    @pytest.mark.parametrize(("inside", "words"), [("pytorch-lightning_version", "weights only"), ("mine", "")])
    def test_sharded_weights_alone_are_nothing_to_go_on_from(self, inside: str, words: str) -> None:
        meta = ("epoch=0-step=7.ckpt/meta.pt", archive({"global_step": 7, inside: "2.6"}))
        assert words in told(InMemory([*dcp("epoch=0-step=7.ckpt/", "net.0.weight"), meta]))


@pytest.mark.parametrize("name", ["ep1-ba500-rank0.pt", "my.run-ep1-ba500-rank0.pt"])
def test_composers_files_whatever_stands_before(name: str) -> None:
    assert complete(InMemory([(name, archive({"state": {"optimizers": {}}}))])) == [(500, name)]


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


class TestTorchtuneWithItsStateInside:
    """torchtune/training/checkpointing/_checkpointer.py since July 2025; `step_N` with `save_every_n_steps`."""

    STATE = ("recipe_state.pt", archive({"optimizer": {}, "epochs_run": 1, "steps_run": 500}))
    WEIGHTS = (
        (("model-00001-of-00002.safetensors", safetensors()), ("model-00002-of-00002.safetensors", safetensors())),
        (("model.safetensors", safetensors()),),
        (
            ("adapter_model.pt", archive({})),
            ("adapter_model.safetensors", safetensors()),
            ("adapter_config.json", b"{}"),
        ),
        tuple(dcp("adapter_model/", "lora_a.weight")),
    )

    @pytest.mark.parametrize("weights", WEIGHTS, ids=["files", "file", "adapter", "adapter, asynchronously"])
    @pytest.mark.parametrize(("name", "step"), [("step_500", 500), ("epoch_3", 3)])
    def test_is_complete_once_all_of_it_is_whole(self, weights: Written, name: str, step: int) -> None:
        written = [(f"{name}/{path}", content) for path, content in (*weights, self.STATE)]
        (found,) = finder_of(InMemory(written)).find()
        assert (found.step, found.path, found.format) == (step, f"{ROOT}/{name}", "torchtune")
        for whole, files in prefixes(written):
            assert complete(files) == [] or len(whole) == len(written)
        for number, (path, content) in enumerate(written):
            if not path.endswith(".json"):
                cut = [*written[:number], (path, content[:-1]), *written[number + 1 :]]
                assert complete(InMemory(cut)) == []

    def test_a_later_save_over_it(self) -> None:
        files = InMemory([(f"step_500/{path}", content) for path, content in (*self.WEIGHTS[1], self.STATE)])
        state = files.times[f"{ROOT}/step_500/recipe_state.pt"]
        files.put("step_500/model.safetensors", safetensors(), at_ns=state + 3 * 10**9)
        assert told(files) == "model.safetensors is newer than recipe_state.pt"

    def test_what_is_saved_asynchronously_is_complete_with_its_last_file(self) -> None:
        """`recipe_state.pt` is there before the shards then."""
        written = [("epoch_3/recipe_state.pt", self.STATE[1]), *dcp("epoch_3/")]
        for whole, files in prefixes(written):
            assert complete(files) == [] or len(whole) == len(written)
        assert complete(InMemory(written)) == [(3, "epoch_3")]


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

    def test_without_any_file_of_its_arrays(self) -> None:
        """As a removal leaves it that was cut short: what leads to them may be there for longer."""
        for written, prefix in ((self.ITEMS, "state/"), (self.SINGLE, "default/"), (self.PLAIN, "")):
            assert told(InMemory([item for item in written if "/d/" not in item[0]])) == (
                f"the files that {prefix}manifest.ocdbt leads to are gone"
            )

    def test_needs_its_items_and_what_its_arrays_are_read_by(self) -> None:
        for lost in ("1/state/manifest.ocdbt", "1/state/_METADATA", "1/extra/"):
            assert complete(InMemory([item for item in self.ITEMS if not item[0].startswith(lost)])) == []
        for cut in ("1/state/manifest.ocdbt", "1/_CHECKPOINT_METADATA"):
            assert complete(InMemory([(p, c[:-1] if p == cut else c) for p, c in self.ITEMS])) == []


VERL = [
    *(
        (f"global_step_500/{model}/{part}_world_size_2_rank_{rank}.pt", archive({}))
        for model in ("actor", "critic")
        for part in ("model", "optim", "extra_state")
        for rank in range(2)
    ),
    ("global_step_500/data.pt", archive({})),
    ("latest_checkpointed_iteration.txt", b"500"),
]


class TestVerl:
    def test_counts_once_the_tracker_names_it(self) -> None:
        files = InMemory(VERL[:-1])
        finder = finder_of(files)
        for tracker in (None, b"400", b"", b"x"):
            if tracker is not None:
                files.put("latest_checkpointed_iteration.txt", tracker)
            assert finder.find() == []
        files.put("latest_checkpointed_iteration.txt", b"600")
        assert [(one.step, one.format) for one in finder.find()] == [(500, "verl")]

    def test_a_file_that_is_newer_than_the_tracker_is_of_another_save(self) -> None:
        files = InMemory(VERL)
        later = files.times[f"{ROOT}/latest_checkpointed_iteration.txt"] + 3 * 10**9
        files.put("global_step_500/actor/model_world_size_2_rank_0.pt", archive({}), at_ns=later)
        assert "actor/model_world_size_2_rank_0.pt is newer than latest_checkpointed_iteration.txt" in told(files)

    def test_a_number_of_ranks_as_a_name_says_it_costs_nothing(self) -> None:
        written = [(path.replace("size_2_", "size_999999_"), content) for path, content in VERL]
        assert "actor/model_world_size_999999_rank_2.pt does not exist" in told(InMemory(written))

    def test_a_tracker_that_names_what_is_torn_is_a_trap(self) -> None:
        files = InMemory(VERL)
        for path, content in VERL[:3]:
            files.put(path.replace("500", "600"), content)
        files.put("global_step_600/data.pt", archive({}))
        files.put("latest_checkpointed_iteration.txt", b"600")
        trap = list(finder_of(files).scan(ScanOptions()))[-1].trap
        assert (
            "names global_step_600, which is none of the newest complete ones: verl would go on from it. Write 500"
            in trap
        )


def test_files_of_nemo_rl_lie_a_level_deeper_than_others(tmp_path: Path) -> None:
    """Only its listing goes so deep."""
    place = "step_500/policy/weights/iter_0000000/"
    config = (f"{place}metadata.json", json.dumps({"sharded_backend": "torch_dist"}).encode())
    written = [
        *dcp(place),
        config,
        ("step_500/training_info.json", b"{}"),
        ("step_500/train_dataloader.pt", archive({})),
    ]
    for path, content in written:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert [(one.step, one.format) for one in find.Finder(str(tmp_path)).find()] == [(500, "NeMoRL")]
    (tmp_path / place / "__1_0.distcp").unlink()
    assert find.Finder(str(tmp_path)).find() == []
