"""Limits of time and marks of preemption of other systems, as spec.queueing."""

from typing import Any

import pytest
from tests.unit.convert.builders import a_job_set, a_pytorch_job, job_of, only

from muster.api.trainingjob import MAX_DURATION_SECONDS
from muster.convert.documents import Result
from muster.convert.fields import short

MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
PREEMPTABLE = "volcano.sh/preemptable"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
COMMAND = ["torchrun", "train.py"]


def queueing_of(found: Result) -> Any:
    return job_of(found)["spec"].get("queueing")


def a_limited_job(of_the_job: int | None = None, of_a_pod: Any = None, **metadata: Any) -> dict[str, Any]:
    source = a_pytorch_job(COMMAND)
    source["metadata"] |= metadata
    source["spec"]["runPolicy"] = {"activeDeadlineSeconds": of_the_job}
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["activeDeadlineSeconds"] = of_a_pod
    return source


def a_job_of_two_kinds(master: dict[str, Any], worker: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A PyTorchJob whose pods have these metadata."""
    source = a_pytorch_job(COMMAND)
    source["metadata"] |= metadata
    kinds = source["spec"]["pytorchReplicaSpecs"]
    template = kinds["Worker"]["template"]
    kinds["Master"] = {"template": {**template, "metadata": master}}
    kinds["Worker"]["template"] = {**template, "metadata": worker}
    return source


def marked(value: str) -> dict[str, Any]:
    return {"annotations": {PREEMPTABLE: value}}


def kai_labels(value: str) -> dict[str, Any]:
    return {"labels": {PREEMPTIBILITY: value}}


def a_limited_job_set() -> dict[str, Any]:
    source = a_job_set(COMMAND)
    source["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] = 600
    return source


def a_limited_indexed_job() -> dict[str, Any]:
    template = a_job_set(COMMAND)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": template}
    spec["activeDeadlineSeconds"] = 600
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}


def a_limited_train_job() -> dict[str, Any]:
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"image": "i", "command": COMMAND}}
    spec["activeDeadlineSeconds"] = 600
    metadata = {"name": "a"}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (a_limited_job(of_the_job=600), "spec.runPolicy.activeDeadlineSeconds"),
        (a_limited_job(of_a_pod=600), "template.spec.activeDeadlineSeconds"),
        (a_limited_job_set(), "spec.replicatedJobs[0].template.spec.activeDeadlineSeconds"),
        (a_limited_indexed_job(), "spec.activeDeadlineSeconds"),
        (a_limited_train_job(), "spec.activeDeadlineSeconds"),
        (a_limited_job(labels={MAX_EXECUTION: "600"}), MAX_EXECUTION),
        (a_limited_job(annotations={MAX_EXECUTION: "600"}), MAX_EXECUTION),
    ],
)
def test_a_limit_of_time_is_an_estimate(source: dict[str, Any], where: str) -> None:
    found = only(source)
    assert queueing_of(found) == {"expectedDurationSeconds": 600}
    assert f"{where} -> spec.queueing.expectedDurationSeconds: 600: it is no limit" in found.notes.became
    assert not [note for note in found.notes.left_out if where in note]


def test_the_shortest_limit_counts_and_the_others_are_named() -> None:
    found = only(a_limited_job(of_the_job=7200, of_a_pod=600, labels={MAX_EXECUTION: "3600"}))
    assert queueing_of(found) == {"expectedDurationSeconds": 600}
    why = "another limit has set spec.queueing.expectedDurationSeconds"
    assert [note for note in found.notes.left_out if why in note] == [
        f"{MAX_EXECUTION}: 3600: {why}",
        f"spec.runPolicy.activeDeadlineSeconds: 7200: {why}",
    ]


def test_a_limit_that_all_pods_share_is_named_once() -> None:
    source = a_job_of_two_kinds({}, {})
    for kind in ("Master", "Worker"):
        template = source["spec"]["pytorchReplicaSpecs"][kind]["template"]
        template["spec"] = {**template["spec"], "activeDeadlineSeconds": 600}
    found = only(source)
    assert len([note for note in found.notes.became if "activeDeadlineSeconds" in note]) == 1
    assert not [note for note in found.notes.left_out if "activeDeadlineSeconds" in note]


@pytest.mark.parametrize(
    "label", ["2h", "", "-1", "0", str(MAX_DURATION_SECONDS + 1), pytest.param("9" * 9999, id="long")]
)
def test_a_limit_that_is_no_estimate_is_left_out(label: str) -> None:
    found = only(a_limited_job(labels={MAX_EXECUTION: label}))
    assert queueing_of(found) is None
    (told,) = [note for note in found.notes.left_out if note.startswith(f"{MAX_EXECUTION}: {short(label)}: ")]
    assert "spec.queueing.expectedDurationSeconds is a number from 1 to 31536000 (a year)" in told


def test_a_bad_limit_beside_a_good_one_does_not_count() -> None:
    found = only(a_limited_job(of_the_job=0, labels={MAX_EXECUTION: "600"}))
    assert queueing_of(found) == {"expectedDurationSeconds": 600}
    assert any(note.startswith("spec.runPolicy.activeDeadlineSeconds: 0: ") for note in found.notes.left_out)


def test_a_limit_that_is_no_number_is_refused() -> None:
    found = only(a_limited_job(of_a_pod="$SECONDS"))
    assert found.refused.startswith("template.spec.activeDeadlineSeconds: $SECONDS is no int: fill the template in")


@pytest.mark.parametrize(
    "source",
    [
        a_job_of_two_kinds({}, {}, **marked("true")),
        a_job_of_two_kinds({}, {}, labels={PREEMPTABLE: "True"}),
        a_job_of_two_kinds(marked("true"), marked("1")),
        a_job_of_two_kinds({}, marked("true"), **marked("true")),
        a_job_of_two_kinds({}, {}, labels={PREEMPTABLE: "false"}, **marked("true")),
    ],
    ids=["job", "label", "pods", "both", "annotation before label"],
)
def test_a_gang_that_may_be_preempted_is_preemptible(source: dict[str, Any]) -> None:
    found = only(source)
    assert queueing_of(found) == {"preemptible": True}
    assert f"{PREEMPTABLE}: true -> spec.queueing.preemptible: true" in found.notes.became
    (check,) = [note for note in found.notes.check if "preemptible" in note]
    assert "is asked to save, and leaves within spec.checkpoint.saveTimeoutSeconds" in check


@pytest.mark.parametrize(
    "source",
    [a_job_of_two_kinds(marked("false"), marked("true")), a_job_of_two_kinds({}, marked("true"))],
    ids=["not the master", "nothing of the master"],
)
def test_a_gang_of_which_only_some_pods_may_be_preempted_is_not(source: dict[str, Any]) -> None:
    found = only(source)
    assert queueing_of(found) is None
    assert any(note.startswith(f"{PREEMPTABLE}: true: not all pods have it") for note in found.notes.left_out)


@pytest.mark.parametrize(
    "source",
    [
        a_job_of_two_kinds({}, {}, labels={PREEMPTIBILITY: "non-preemptible", PREEMPTABLE: "true"}),
        a_job_of_two_kinds({}, {}, labels={PREEMPTIBILITY: "preemptible", PREEMPTABLE: "false"}),
        a_job_of_two_kinds(kai_labels("preemptible"), kai_labels("preemptible"), **kai_labels("non-preemptible")),
        a_job_of_two_kinds({}, kai_labels("non-preemptible"), **kai_labels("preemptible")),
    ],
    ids=["KAI denies", "Volcano denies", "the job denies", "a replica denies"],
)
def test_a_gang_of_which_one_mark_denies_it_is_not_preemptible(source: dict[str, Any]) -> None:
    found = only(source)
    assert queueing_of(found) is None
    (why,) = [note for note in found.notes.left_out if "not all pods have it, or another mark says otherwise" in note]
    assert why.startswith((f"{PREEMPTIBILITY}: preemptible: ", f"{PREEMPTABLE}: true: "))


def test_a_preemptible_gang_of_kai_is_preemptible() -> None:
    found = only(a_job_of_two_kinds({}, {}, **kai_labels("Preemptible")))
    assert queueing_of(found) == {"preemptible": True}
    assert f"{PREEMPTIBILITY}: preemptible -> spec.queueing.preemptible: true" in found.notes.became


def test_a_gang_that_two_systems_may_preempt_is_checked_once() -> None:
    found = only(a_job_of_two_kinds({}, {}, **kai_labels("preemptible"), **marked("true")))
    assert queueing_of(found) == {"preemptible": True}
    assert len([note for note in found.notes.check if "preemptible" in note]) == 1


@pytest.mark.parametrize("value", ["non-preemptible", "semi-preemptible"])
def test_another_preemptibility_is_left_out(value: str) -> None:
    found = only(a_job_of_two_kinds({}, {}, **kai_labels(value)))
    assert queueing_of(found) is None
    assert f"{PREEMPTIBILITY}: {value}: only preemptible becomes spec.queueing.preemptible" in found.notes.left_out


@pytest.mark.parametrize("value", ["false", "yes"])
def test_another_mark_of_preemption_is_left_out(value: str) -> None:
    found = only(a_job_of_two_kinds({}, {}, **marked(value)))
    assert queueing_of(found) is None
    assert f"{PREEMPTABLE}: {value}: only true becomes spec.queueing.preemptible" in found.notes.left_out
