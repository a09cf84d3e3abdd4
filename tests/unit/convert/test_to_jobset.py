"""A TrainingJob as a JobSet: the same gang, from the same checkpoint, and a word for each promise that is lost."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import a_job

from muster.api.trainingjob import TrainingJob, TrainingJobStatus
from muster.convert.documents import convert_objects
from muster.convert.fields import Notes, RefusedError
from muster.convert.to_jobset import jobset

SAVED = {"step": 50, "path": "/ckpt/checkpoint-50", "format": "HuggingFaceTrainer", "time": "2026-01-01T00:00:00Z"}


def with_status(job: TrainingJob, **saved: Any) -> TrainingJob:
    status = TrainingJobStatus.model_validate({"state": "Failed", "checkpoint": {**SAVED, **saved}})
    return job.model_copy(update={"status": status})


def made(job: TrainingJob, notes: Notes | None = None) -> dict[str, Any]:
    return jobset(job, job.spec.template, "nvidia.com/gpu", notes or Notes())


def batch_of(made_set: dict[str, Any]) -> dict[str, Any]:
    (group,) = made_set["spec"]["replicatedJobs"]
    found: dict[str, Any] = group["template"]["spec"]
    return found


def trainer_of(made_set: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = batch_of(made_set)["template"]["spec"]["containers"][0]
    return found


def variables(made_set: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "index") for each in trainer_of(made_set)["env"]}


def test_it_is_one_indexed_job_of_which_no_pod_starts_again() -> None:
    found = made(a_job(nodes=3, suspend=True, completion={"ttlSecondsAfterFinished": 60}))
    batch = batch_of(found)
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert found["metadata"] == {"name": "job", "namespace": "default"}
    assert (found["spec"]["suspend"], found["spec"]["ttlSecondsAfterFinished"]) == (True, 60)
    assert "failurePolicy" not in found["spec"]
    assert (batch["parallelism"], batch["completions"], batch["completionMode"], batch["backoffLimit"]) == (
        3,
        3,
        "Indexed",
        0,
    )
    assert batch["template"]["spec"]["restartPolicy"] == "Never"
    assert trainer_of(found)["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert "restartPolicy" not in a_job().spec.template["spec"]


def test_ranks_find_each_other_by_the_names_of_the_jobset() -> None:
    found = variables(made(a_job(nodes=3)))
    assert found["MASTER_ADDR"] == found["PET_MASTER_ADDR"] == "job-workers-0-0.job"
    assert (found["NODE_RANK"], found["RANK"], found["PET_NODE_RANK"], found["JAX_PROCESS_ID"]) == ("index",) * 4
    assert (found["WORLD_SIZE"], found["NNODES"], found["PET_NPROC_PER_NODE"]) == ("3", "3", "8")
    plain = made(a_job(nodes=3, launch={"mode": "Plain"}, checkpoint={}))
    assert set(variables(plain)) == {"NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT"}


def test_what_is_converted_back_is_the_same_gang() -> None:
    job = a_job(nodes=3)
    (back,) = convert_objects([made(job)])
    assert back is not None
    assert back.job is not None, back.refused
    assert (back.job["spec"]["nodes"], back.job["spec"]["gpusPerNode"]) == (3, 8)
    (container,) = back.job["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("trainer:1", ["train"])


def test_it_starts_from_the_newest_checkpoint_that_muster_has_seen() -> None:
    notes = Notes()
    found = made(with_status(a_job(checkpoint={"directory": "/ckpt"})), notes)
    shown = variables(found)
    assert (shown["MUSTER_RESUME_PATH"], shown["MUSTER_RESUME_STEP"]) == ("/ckpt/checkpoint-50", "50")
    assert shown["MUSTER_RESUME_DIRECTORY"] == "/ckpt"
    assert any("look for one that an ejected gang has saved since in /ckpt" in line for line in notes.check)
    assert any(line.startswith("failurePolicy: a restart would begin at this checkpoint again") for line in notes.check)
    assert trainer_of(found)["command"] == ["train"]


def test_without_a_known_checkpoint_a_person_has_to_name_one() -> None:
    notes = Notes()
    assert "MUSTER_RESUME_PATH" not in variables(made(a_job(checkpoint={"directory": "/ckpt"}), notes))
    assert any("name the newest complete one in /ckpt there" in line for line in notes.check)


@pytest.mark.parametrize(
    ("command", "checkpoint", "words"),
    [
        (["train"], {"resumeArgument": ["--load", "$(MUSTER_RESUME_PATH)"]}, ["--load", "$(MUSTER_RESUME_PATH)"]),
        (["train"], {"resumePreset": "HuggingFaceTrainer"}, ["--resume_from_checkpoint", "$(MUSTER_RESUME_PATH)"]),
        (["train"], {}, []),
        (["sh", "-c", "python run_clm.py"], {}, []),
    ],
)
def test_the_command_gets_the_words_that_each_start_got(
    command: list[str], checkpoint: dict[str, Any], words: list[str]
) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "t", "command": command}]}}
    job = a_job(template=template, checkpoint={"directory": "/ckpt", **checkpoint})
    assert trainer_of(made(with_status(job)))["command"] == [*command, *words]


def test_a_variable_of_the_containers_own_stays_and_an_identity_does_not() -> None:
    env = [{"name": "PET_NPROC_PER_NODE", "value": "2"}, {"name": "RANK", "value": "7"}, {"name": "LR", "value": "1"}]
    template = {"spec": {"containers": [{"name": "main", "image": "t", "command": ["train"], "env": env}]}}
    shown = variables(made(a_job(template=template)))
    assert (shown["PET_NPROC_PER_NODE"], shown["RANK"], shown["LR"]) == ("2", "index", "1")


def test_each_field_that_a_jobset_lacks_is_named() -> None:
    notes = Notes()
    made(
        a_job(
            placement={"required": "rack", "avoidNodes": ["n1"]},
            progress={"stepTimeoutSeconds": 60},
            recovery={"hardwareRestartsPerDay": 3},
            acceptedWarnings=["DirectoryShared"],
        ),
        notes,
    )
    left_out = [line.partition(": ")[0] for line in notes.left_out]
    assert left_out == [
        "spec.placement.required",
        "spec.placement.avoidNodes",
        "spec.progress.stepTimeoutSeconds",
        "spec.recovery.hardwareRestartsPerDay",
        "spec.acceptedWarnings",
    ]


def test_nothing_in_a_jobset_starts_several_processes() -> None:
    with pytest.raises(RefusedError, match=r"processesPerNode: 8: .* start them with torchrun"):
        made(a_job(launch={"processesPerNode": 8}))
