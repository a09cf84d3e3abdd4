"""What is added to a command so that it goes on from one certain checkpoint; what it says itself is respected, or
told."""

import re

import pytest
from tests.unit.protocol.long_commands import a_command_of_many_words_takes_a_few_steps_for_each

from muster.api.trainingjob import ResumePreset
from muster.node.checkpoint.formats.table import FORMATS
from muster.protocol import resuming
from muster.protocol.contract import IDENTITY
from muster.protocol.resuming import (
    AUTO,
    BY_NAME,
    MANIFEST,
    OFF,
    PRESETS,
    added,
    chosen,
    likely,
    link,
    never,
    pointer,
    problem,
    tracker,
)

MEGATRON = ["torchrun", "pretrain_gpt.py", "--save", "/c"]
CLM = ["torchrun", "/app/run_clm.py", "--output_dir", "/c"]
TITAN = ["torchrun", "-m", "torchtitan.train", "--job.config_file", "x.toml"]


def test_the_table_fits_what_there_is() -> None:
    assert [preset.value for preset in ResumePreset] == [AUTO, OFF, *BY_NAME]
    formats = {kind.name for kind in FORMATS}
    assert MANIFEST in formats
    for preset in PRESETS:
        assert set(preset.formats) <= formats, preset.name
        assert set(preset.files_only) <= set(preset.formats), preset.name
        assert preset.own or preset.elsewhere or preset.pointer, preset.name
        words = [word for option in (*preset.own, *(preset.elsewhere or ())) for word in option]
        assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= IDENTITY


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("HuggingFaceTrainer", "/c/checkpoint-5", ("--resume_from_checkpoint", "$(MUSTER_RESUME_PATH)")),
        ("Megatron", "/other/iter_0000005",
            ("--load", "$(MUSTER_RESUME_DIRECTORY)", "--ckpt-step", "$(MUSTER_RESUME_STEP)")),
        ("TorchTitan", "/c/step-5", ("--checkpoint.load_step=$(MUSTER_RESUME_STEP)",)),
        (
            "TorchTitan",
            "/c-of-another/step-5",
            ("--checkpoint.initial_load_path=$(MUSTER_RESUME_PATH)", "--checkpoint.no_initial_load_model_only"),
        ),
        ("MaxText", "/c/5", ()),
        ("MaxText", "/other/5", ("load_full_state_path=$(MUSTER_RESUME_PATH)/items",)),
        ("Lightning", "", ()),
        ("SomethingNewer", "/c/5", ()),
    ],
)  # fmt: skip
def test_words_by_where_the_checkpoint_lies(name: str, path: str, words: tuple[str, ...]) -> None:
    assert added(name, ["python", "train.py"], path, "/c").words == words


@pytest.mark.parametrize("load", ["/c", "/c/", "$(MUSTER_RESUME_DIRECTORY)"])
def test_what_the_command_says_already_is_not_said_again(load: str) -> None:
    found = added("Megatron", [*MEGATRON, "--load", load], "/c/iter_0000005", "/c")
    assert found == (("--ckpt-step", "$(MUSTER_RESUME_STEP)"), ("--load",), ())


@pytest.mark.parametrize("option", [["--ckpt_step", "300"], ["--ckpt-step=300"]])
def test_what_the_command_says_against_it_is_told_by_name(option: list[str]) -> None:
    found = added("Megatron", [*MEGATRON, *option], "/c/iter_0000005", "/c")
    assert found.words[-2:] == ("--ckpt-step", "$(MUSTER_RESUME_STEP)")
    assert found.against == ("--ckpt-step 300",)


def test_a_switch_is_not_repeated() -> None:
    command = [*TITAN, "--checkpoint.no-initial-load-model-only", "x"]
    assert added("TorchTitan", command, "/other/step-5", "/c").words == (
        "--checkpoint.initial_load_path=$(MUSTER_RESUME_PATH)",
    )


@pytest.mark.parametrize(
    ("format", "command", "name"),
    [
        ("Megatron", MEGATRON, "Megatron"),
        ("Megatron", [*MEGATRON, "--load", "/c"], "Megatron"),
        ("Megatron", [*MEGATRON, "--load", "/pretrained"], ""),
        ("Megatron", ["python", "train.py"], ""),
        ("TorchDCP", MEGATRON, ""),
        ("", MEGATRON, ""),
        ("HuggingFaceTrainer", CLM, "HuggingFaceTrainer"),
        ("HuggingFaceTrainer", [*CLM, "--resume_from_checkpoint", "/c/checkpoint-1"], ""),
        ("HuggingFaceTrainer", ["trl", "sft"], ""),
        ("HuggingFaceTrainer", ["torchrun", "/app/run_clm.py", "config.json"], ""),  # takes no option beside that file
        ("HuggingFaceTrainer", ["torchrun", "/app/run_clm.py", "--model", "m.json"], "HuggingFaceTrainer"),
        ("Accelerate", ["accelerate", "launch", "run_clm_no_trainer.py"], "Accelerate"),
        ("TorchDCP", TITAN, ""),
        ("TorchDCP", [*TITAN, "--checkpoint.enable"], "TorchTitan"),
        ("Orbax", ["python", "-m", "MaxText.train", "base.yml"], ""),
        ("Lightning", ["python", "train.py", "fit"], ""),
    ],
)
def test_auto_adds_only_where_checkpoint_and_command_are_of_one_framework(
    format: str,  # noqa: A002
    command: list[str],
    name: str,
) -> None:
    assert chosen(AUTO, format, command, "/c/iter_0000005", "/c") == name
    assert chosen(OFF, format, command, "/c/iter_0000005", "/c") == ""
    assert chosen("Lightning", format, command, "/c/iter_0000005", "/c") == "Lightning"


def test_a_format_of_several_frameworks_hints_at_none() -> None:
    assert (likely("Megatron"), likely("TorchDCP"), likely("")) == ("Megatron", "", "")


def test_a_file_is_written_only_in_the_jobs_own_directory() -> None:
    assert pointer("DeepSpeed", "/c/global_step5", "/c/") == ("/c/latest", "global_step5")
    assert pointer("DLRover", "/c/500", "/c") == ("/c/dlrover_latest.txt", "500")
    assert pointer("DeepSpeed", "/other/global_step5", "/c") == ("", "")
    assert pointer("DeepSpeed", "s3://b/c/global_step5", "s3://b/c") == ("", "")
    assert pointer("Megatron", "/c/iter_0000005", "/c") == ("", "")


def test_a_link_that_leads_elsewhere_is_led_to_the_checkpoint() -> None:
    path = "/c/ep1-ba500-rank0.pt"
    for leads_to in ("ep1-ba600-rank0.pt", "/other/ep1-ba500-rank0.pt", ""):
        assert link("Composer", path, "/c", leads_to) == "/c/latest-rank0.pt"
    for leads_to in (None, "ep1-ba500-rank0.pt", "./ep1-ba500-rank0.pt", path):
        assert link("Composer", path, "/c", leads_to) == ""
    assert link("Composer", path, "/other", "x") == ""
    assert link("Composer", "/c", "/c", "x") == ""
    assert link("Composer", "s3://b/c/ep1-ba500-rank0.pt", "s3://b/c", "x") == ""
    assert link("DeepSpeed", path, "/c", "x") == ""


@pytest.mark.parametrize("said", ["", "50x", "٣", "-1", "1" * 16])
def test_a_tracker_that_holds_no_number_is_mended(said: str) -> None:
    assert tracker("Megatron", "/c/iter_0000500", "/c", said) == ("/c/latest_checkpointed_iteration.txt", "500")


@pytest.mark.parametrize(
    ("name", "path", "directory", "said"),
    [
        ("Megatron", "/c/iter_0000500", "/c", "400\n"),
        ("Megatron", "/c/iter_0000500", "/c", "release"),
        ("Megatron", "/c/iter_0000500", "/c", None),
        ("Megatron", "/other/iter_0000500", "/c", ""),
        ("Megatron", "s3://b/c/iter_0000500", "s3://b/c", ""),
        ("Megatron", "/c/last", "/c", ""),
        ("DeepSpeed", "/c/global_step5", "/c", ""),
        ("Unknown", "/c/iter_0000500", "/c", ""),
    ],
)
def test_one_that_is_whole_or_somebody_elses_is_left(name: str, path: str, directory: str, said: str | None) -> None:
    assert tracker(name, path, directory, said) == ("", "")


@pytest.mark.parametrize(
    ("name", "format", "path", "says"),
    [
        ("Megatron", "Lightning", "/c/x.ckpt",
            "resumePreset is Megatron, which does not load /c/x.ckpt: it is written as Lightning. Set it to Lightning, or to Off"),  # noqa: E501
        ("Megatron", "TorchDCP", "/c/5", "Set it to Off"),
        ("DeepSpeed", "DeepSpeed", "/other/global_step5", "DeepSpeed goes on only from what lies in its own directory"),
        ("Torchtune", "", "/other/epoch_5", "Torchtune goes on only"),
        ("Megatron", "Manifest", "/c/5", ""),
        ("Megatron", "", "/other/5", ""),
        ("", "Lightning", "/other/5", ""),
        ("HuggingFaceTrainer", "HuggingFaceTrainer", "s3://b/x/checkpoint-5",
            "HuggingFaceTrainer loads only from a file system, and this is "
            "s3://b/x/checkpoint-5. Set it to Off, and let the program fetch what MUSTER_RESUME_PATH names"),
        ("Megatron", "Megatron", "s3://b/x/iter_0000005",
         "Megatron loads only from a file system or msc://, and this is s3://"),
        ("Megatron", "Megatron", "msc://b/x/iter_0000005", ""),
        ("DeepSpeed", "DeepSpeed", "s3://b/x/global_step5",
         "DeepSpeed goes by the file `latest`, which no launcher writes into a store"),
        ("Lightning", "Lightning", "az://b/x.ckpt", ""),
        ("Lightning", "LightningSharded", "s3://b/x.ckpt",
         "Lightning loads what is written as LightningSharded only from a file system"),
        ("Composer", "Composer", "s3://b/ep1-ba5-rank0.pt", ""),
        ("Composer", "Composer", "az://b/ep1-ba5-rank0.pt",
         "Composer loads only from a file system or s3:// or gs:// or oci://, and"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_says_why(name: str, format: str, path: str, says: str) -> None:  # noqa: A002
    found = problem(name, format, path, "/c")
    assert says in found
    assert bool(says) == bool(found)


@pytest.mark.parametrize(
    ("path", "own"), [("/c/5", True), ("/c", True), ("/c-2/5", False), ("/c/runs/5", False), ("/", False)]
)
def test_what_lies_in_a_directory(path: str, own: bool) -> None:
    assert resuming.is_own(path, "/c/") is own
    assert resuming.is_own(f"s3://b{path}", "s3://b/c/") is own
    assert not resuming.is_own(path, "s3://b/c")
    assert not resuming.is_own(f"s3://b{path}", "/c")


def test_a_whole_bucket_is_a_directory() -> None:
    assert resuming.is_own("s3://b/5", "s3://b")
    assert not resuming.is_own("s3://b", "s3://c")


def test_of_a_checkpoint_in_a_store_auto_tells_only_who_loads_from_there() -> None:
    for url, name in (("msc://b/c", "Megatron"), ("s3://b/c", "")):
        assert chosen(AUTO, "Megatron", MEGATRON, f"{url}/iter_0000005", url) == name
    found = added("Megatron", [*MEGATRON, "--load", "msc://b/c/"], "msc://b/c/iter_0000005", "msc://b/c")
    assert found == (("--ckpt-step", "$(MUSTER_RESUME_STEP)"), ("--load",), ())


def test_presets_that_can_never_resume_from_the_directory_are_known() -> None:
    """They are known before the job has saved."""
    cannot = {name for name in BY_NAME if never(name, "s3://b/c")}
    assert cannot == {
        "HuggingFaceTrainer",
        "Accelerate",
        "Megatron",
        "TorchTitan",
        "Torchtune",
        "NeMo",
        "DeepSpeed",
        "DLRover",
    }
    assert not any(never(name, "/c") for name in (*BY_NAME, AUTO, OFF))


def test_a_command_of_many_words_takes_a_few_steps_for_each() -> None:
    a_command_of_many_words_takes_a_few_steps_for_each(15_000)
