"""The examples that are manifests alone: a job of each, how it is launched, how it goes on, and how its steps are
read."""

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.api.trainingjob import TrainingJob, parsed
from muster.node.launcher.environment import RankFiles, rank_environment
from muster.node.launcher.printed import Reader
from muster.pods.launching import command_of, start_text
from muster.pods.worker_pod import worker_container
from muster.protocol import presets, resuming
from muster.protocol.expansion import expanded
from muster.protocol.messages import RUN, Directive
from muster.status.template import problem
from muster.world.fleet import Fleet
from recipes.table import RECIPES

EXAMPLES = Path(__file__).parents[3] / "examples"
TORCHRUN = "torchrun starts 8 processes on each node, one for each GPU (PET_NPROC_PER_NODE)"


@dataclasses.dataclass(frozen=True)
class Expected:
    """Of one example.

    Attributes:
        told: of its launch, without a warning in it.
        saves: words of its command that say where it saves; for NeMo lines of its program.
        format: of its checkpoints; `newest` is how it calls that of step 500.
        ends_with: words that the command of a start ends with which goes on from there.
        elsewhere: the same for a checkpoint of another job.
    """

    told: str
    saves: tuple[str, ...]
    format: str
    newest: str
    ends_with: tuple[str, ...]
    elsewhere: tuple[str, ...]


EXPECTED = {
    "megatron-lm": Expected(
        TORCHRUN,
        ("--save=/shared/megatron-lm",),
        "Megatron",
        "iter_0000500",
        ("--load", "/shared/megatron-lm", "--ckpt-step", "500"),
        ("--load", "/base", "--ckpt-step", "500"),
    ),
    "nemo": Expected(
        TORCHRUN,
        ('dir="/shared/nemo"', 'name="llama3-8b"', "MUSTER_RESUME_PATH"),
        "NeMo",
        "model--val_loss=2.31-step=500-consumed_samples=256000.0-last",
        (),
        (),
    ),
    "maxtext": Expected(
        "",
        ("base_output_directory=/shared/maxtext", "run_name=llama3-8b"),
        "Orbax",
        "500",
        (),
        ("load_full_state_path=/base/500/items",),
    ),
    "torchtitan": Expected(
        TORCHRUN,
        ("--job.dump_folder=/shared/torchtitan", "--checkpoint.folder=checkpoint"),
        "TorchDCP",
        "step-500",
        ("--checkpoint.load_step=500",),
        ("--checkpoint.initial_load_path=/base/step-500", "--checkpoint.no_initial_load_model_only"),
    ),
}
RUNNABLE = ("torch-ddp", *RECIPES)
DIRECTORIES = {
    "megatron-lm": "/shared/megatron-lm",
    "nemo": "/shared/nemo/llama3-8b/checkpoints",
    "maxtext": "/shared/maxtext/llama3-8b/checkpoints",
    "torchtitan": "/shared/torchtitan/checkpoint",
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name / "trainingjob.yaml").read_text()))


def job_of(name: str) -> TrainingJob:
    (found,) = (document for document in documents(name) if document["kind"] == "TrainingJob")
    return parsed(found)


def command(job: TrainingJob) -> list[str]:
    return command_of(worker_container(job) or {})


def resumed(job: TrainingJob, format_: str, path: str) -> list[str]:
    """The words that a start from there adds."""
    named = job.spec.checkpoint.resume_preset
    directory = job.spec.checkpoint.directory or ""
    preset = resuming.chosen(named.value if named else resuming.AUTO, format_, command(job), path, directory)
    assert resuming.problem(preset, format_, path, directory) == ""
    found = resuming.added(preset, command(job), path, directory)
    assert found.against == ()
    values = {
        "MUSTER_RESUME_PATH": path,
        "MUSTER_RESUME_DIRECTORY": path.rpartition("/")[0],
        "MUSTER_RESUME_STEP": "500",
    }
    return expanded(found.words, values)


def test_every_example_is_looked_at() -> None:
    there = {path.parent.name for path in EXAMPLES.glob("*/trainingjob.yaml")}
    assert there == {*EXPECTED, *RUNNABLE}
    index = (EXAMPLES / "README.md").read_text()
    for name in there:
        assert f"]({name}/README.md)" in index
        assert (EXAMPLES / name / "README.md").exists()


@pytest.mark.parametrize("name", [*EXPECTED, *RUNNABLE])
def test_nothing_is_known_against_it(name: str) -> None:
    job = job_of(name)
    # Checked by the schema at the door, here by the model: what it does not know it would leave out.
    (document,) = (each for each in documents(name) if each["kind"] == "TrainingJob")
    known = job.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert {key: value for key, value in known.items() if value is not None} == document["spec"]
    assert problem(job, Fleet()) is None
    volumes = {volume["name"] for volume in job.spec.pod["volumes"]}
    mounts = {mount["name"] for mount in (worker_container(job) or {})["volumeMounts"]}
    assert mounts == volumes


@pytest.mark.parametrize("name", EXPECTED)
def test_its_launch_is_understood_without_a_warning(name: str) -> None:
    assert start_text(job_of(name)) == EXPECTED[name].told


@pytest.mark.parametrize("name", EXPECTED)
def test_it_saves_where_muster_looks(name: str) -> None:
    job = job_of(name)
    assert job.spec.checkpoint.directory == DIRECTORIES[name]
    said = "\n".join([*command(job), *(str(each.get("data", "")) for each in documents(name))])
    for words_ in EXPECTED[name].saves:
        assert words_ in said


@pytest.mark.parametrize("name", EXPECTED)
def test_a_start_goes_on_from_exactly_that_checkpoint(name: str) -> None:
    job, expected = job_of(name), EXPECTED[name]
    own = f"{job.spec.checkpoint.directory}/{expected.newest}"
    assert resumed(job, expected.format, own) == list(expected.ends_with)
    assert resumed(job, expected.format, f"/base/{expected.newest}") == list(expected.elsewhere)


@pytest.mark.parametrize("name", EXPECTED)
def test_its_steps_are_read(name: str) -> None:
    progress = job_of(name).spec.progress
    assert progress.preset is not None
    line = presets.BY_NAME[progress.preset.value].lines[0]
    found = Reader(progress.preset.value).read(0, line.sample.encode())
    assert found is not None
    assert found.step == 300


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_launched_without_a_warning_and_saves_where_muster_looks(name: str) -> None:
    job = job_of(name)
    assert "each node would train alone" not in start_text(job)
    assert job.spec.checkpoint.directory == f"/shared/{name}"
    assert f"=/shared/{name}" in " ".join(command(job))


def test_a_program_in_a_manifest_is_python() -> None:
    (program,) = (each["data"] for each in documents("nemo") if each["kind"] == "ConfigMap")
    assert list(program) == ["pretrain.py"]
    ast.parse(program["pretrain.py"])
    assert command(job_of("nemo"))[-1].endswith("/pretrain.py")


def test_the_nodes_of_maxtext_meet_at_one_address() -> None:
    job = job_of("maxtext")
    found = []
    for rank in range(job.spec.nodes):
        directive = Directive(
            RUN,
            1,
            node_rank=rank,
            node_count=job.spec.nodes,
            processes_per_node=job.spec.launch.processes_per_node,
            master_address="10.0.0.1",
            master_port=29401,
        )
        names = rank_environment({}, directive, 0, RankFiles.within("/muster", 0), command(job))
        found.append([names[name] for name in ("JAX_COORDINATOR_IP", "JAX_COORDINATOR_PORT", "NNODES", "NODE_RANK")])
    assert found == [["10.0.0.1", "29401", "4", str(rank)] for rank in range(4)]
    assert "hardware=gpu" in command(job)


def test_a_preset_is_told_to_have_been_run_where_a_recipe_names_it():
    named = {}
    for recipe in RECIPES:
        manifest = yaml.safe_load((EXAMPLES / recipe / "trainingjob.yaml").read_text())
        preset = manifest["spec"]["checkpoint"].get("resumePreset")
        named.update({preset: recipe} if preset else {})

    assert {preset.name: preset.recipe for preset in resuming.PRESETS if preset.recipe} == named
