"""Labels and annotations by which other systems queue, place and restart pods."""

from typing import Any

import pytest
from tests.unit.convert.builders import a_pytorch_job, job_of, only

from muster.convert.documents import Result

FIELD = "spec.template.spec.priorityClassName"


def a_job(in_its_pods: str | None = None, **metadata: Any) -> dict[str, Any]:
    source = a_pytorch_job(["torchrun", "train.py"])
    source["metadata"] |= metadata
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = in_its_pods
    return source


def class_of(found: Result) -> Any:
    return job_of(found)["spec"]["template"]["spec"].get("priorityClassName")


@pytest.mark.parametrize(
    "key",
    [
        "kai.scheduler/queue",
        "runai/queue",
        "runai/node-pool",
        "pod-group-name",
        "yunikorn.apache.org/app-id",
        "yunikorn.apache.org/task-groups",
        "yunikorn.apache.org/schedulingPolicyParameters",
        "volcano.sh/queue-name",
    ],
)
@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_marks_of_another_queue_are_left_out_and_named(part: str, key: str) -> None:
    found = only(a_job(**{part: {key: "a", "team": "b"}}))
    assert job_of(found)["metadata"][part] == {"team": "b"}
    assert f"{key}: a: Muster queues and places jobs itself, see docs/queueing.md" in found.notes.left_out


def test_how_long_a_job_keeps_its_nodes_is_the_policys() -> None:
    found = only(a_job(labels={"volcano.sh/cooldown-time": "600s"}))
    (why,) = [note for note in found.notes.left_out if note.startswith("volcano.sh/cooldown-time: 600s: ")]
    assert "the FleetPolicy has queueing.preemption.minRunSeconds" in why


def test_the_workload_priority_class_of_kueue_is_checked() -> None:
    found = only(a_job(labels={"kueue.x-k8s.io/priority-class": "high"}))
    (check,) = [note for note in found.notes.check if "priority-class" in note]
    assert check.startswith(f"kueue.x-k8s.io/priority-class: high: {FIELD} orders Muster's queue: write a Priority")
    assert class_of(found) is None


@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-fraction-num-devices", "gpu-memory", "runai-gpu"])
def test_a_part_of_an_accelerator_is_checked(key: str) -> None:
    found = only(a_job(annotations={key: "0.5"}))
    (check,) = [note for note in found.notes.check if key in note]
    assert check.endswith("write how many in spec.gpusPerNode")


@pytest.mark.parametrize("in_its_pods", [None, "build"])
def test_the_priority_of_kai_is_that_of_the_pods(in_its_pods: str | None) -> None:
    found = only(a_job(in_its_pods, labels={"priorityClassName": "build"}))
    assert class_of(found) == "build"
    assert f"label priorityClassName: build -> {FIELD}: it orders Muster's queue" in found.notes.became


def test_an_annotation_of_that_name_is_the_users_own() -> None:
    found = only(a_job(annotations={"priorityClassName": "build"}))
    assert class_of(found) is None
    assert job_of(found)["metadata"]["annotations"] == {"priorityClassName": "build"}


def test_another_priority_of_kai_than_that_of_the_pods_is_checked() -> None:
    found = only(a_job("train", labels={"priorityClassName": "build"}))
    assert class_of(found) == "train"
    (check,) = [note for note in found.notes.check if FIELD in note]
    assert check.startswith(f"label priorityClassName: build: {FIELD} orders Muster's queue, and is train: write")


def test_the_priority_on_a_whole_job_of_kai_comes_before_that_on_its_pods() -> None:
    source = a_job(labels={"priorityClassName": "train"})
    template = source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"priorityClassName": "build"}}
    found = only(source)
    assert class_of(found) == "train"
    assert any(note.startswith("label priorityClassName: build: ") for note in found.notes.check)
