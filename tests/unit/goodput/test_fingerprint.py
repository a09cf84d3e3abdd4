"""What an attempt ran with: noted with its go where it changes, bounded whatever anybody wrote, and without secrets."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.test_fleetreport import a_spec
from tests.unit.goodput.test_history import at
from tests.unit.lifecycle.builders import Scene, a_job, running

from muster.api.gang import GangSpec
from muster.api.goodput import MAX_FINGERPRINTS, Account, Fingerprint
from muster.api.trainingjob import TrainingJob
from muster.goodput.account import with_account
from muster.goodput.fingerprint import (
    REVISION,
    SEVERAL,
    at_attempt,
    environment,
    fingerprint,
    revision,
    with_fingerprint,
    with_library,
)
from muster.goodput.history import MAX_SPEC_BYTES, size, within_record_limit
from muster.goodput.status_goodput import model_of as model_told
from muster.world.views import ContainerView

DIGEST = "sha256:" + "ab" * 32
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/cuda.driver.major": "570",
    "nvidia.com/cuda.driver.minor": "86",
    "nvidia.com/cuda.driver.rev": "15",
}


def a_scene(image_id: str = f"docker.io/trainer@{DIGEST}", **changes: Any) -> Scene:
    scene = Scene(a_job(**changes)).fleet().gang().pods()
    for name, node in list(scene.nodes.items()):
        scene.node(name, labels={**node.labels, **LABELS})
    for name, pod in list(scene.pod_views.items()):
        scene.pod_views[name] = replace(pod, containers=(ContainerView("main", running=True, image_id=image_id),))
    return scene


def with_env(*env: Any, **more: Any) -> TrainingJob:
    return a_job(template={"spec": {"containers": [{"name": "main", "image": "i", "env": list(env), **more}]}})


def test_it_is_what_kubelets_and_labels_tell() -> None:
    found = fingerprint(a_scene().world(), 3)
    assert found == Fingerprint(attempt=3, image=DIGEST, gpu_model="NVIDIA-H200", driver="570.86.15")


def test_workers_that_are_not_alike_are_said_to_be_so() -> None:
    scene = a_scene()
    scene.node("n1", labels={**LABELS, "nvidia.com/cuda.driver.minor": "90"})
    name = next(iter(scene.pod_views))
    other = ContainerView("main", running=True, image_id="x@sha256:" + "cd" * 32)
    scene.pod_views[name] = replace(scene.pod_views[name], containers=(other,))
    found = fingerprint(scene.world(), 1)
    assert (found.image, found.gpu_model, found.driver) == (SEVERAL, "NVIDIA-H200", SEVERAL)


def test_only_a_change_is_noted_and_the_newest_are_kept() -> None:
    world, account = a_scene().world(), Account(creation_time=at(0), counted_until=at(0))
    once = with_fingerprint(world, account, 1)
    assert with_fingerprint(world, once, 2) == once
    other = with_fingerprint(a_scene("y@sha256:" + "cd" * 32).world(), once, 3)
    assert [each.attempt for each in other.fingerprints] == [1, 3]
    for attempt in range(4, 12):
        other = with_fingerprint(a_scene(f"y@sha256:{attempt:064x}").world(), other, attempt)
    assert [each.attempt for each in other.fingerprints] == [8, 9, 10, 11]
    assert len(other.fingerprints) == MAX_FINGERPRINTS


def test_the_go_notes_it_and_nothing_before_does() -> None:
    scene = a_scene()
    record = scene.record
    assert record is not None
    begun = Account(creation_time=at(0), counted_until=at(0))
    scene.record = record.model_copy(update={"start": None, "account": begun})
    kept: GangSpec = with_account(scene.world(), record)
    assert kept.account is not None
    assert [each.image for each in kept.account.fingerprints] == [DIGEST]
    ended = with_account(scene.world(), scene.record.model_copy(update={"attempt": 2}))
    assert ended.account is not None
    assert ended.account.fingerprints == []


def test_an_attempt_ran_with_what_was_noted_last_before_it() -> None:
    listed = [Fingerprint(attempt=2, driver="a"), Fingerprint(attempt=5, driver="b")]
    found = [at_attempt(listed, attempt) for attempt in (1, 2, 4, 5, 9)]
    assert [each.driver if each else None for each in found] == [None, "a", "a", "b", "b"]


def test_the_environment_changes_with_what_counts_and_not_with_a_secret() -> None:
    base = {"name": "LR", "value": "1"}
    assert environment(with_env()) == ""
    assert environment(with_env(base)) != environment(with_env({"name": "LR", "value": "2"}))
    for name in ("WANDB_API_KEY", "HF_TOKEN", "db_password", "AWS_SECRET_ACCESS_KEY"):
        one, two = ({"name": name, "value": value} for value in ("hunter1", "hunter2"))
        assert environment(with_env(base, one)) == environment(with_env(base, two))
        assert environment(with_env(base, one)) != environment(with_env(base)), "that it is there counts"
    other = {"name": "A", "value": "x"}
    assert environment(with_env(base, other)) == environment(with_env(other, base)), "their order does not count"


@pytest.mark.parametrize("env", [["text", 7, None], "text", {"a": 1}, [{"name": 5}], [{"value": "\ud800"}]])
def test_what_is_no_environment_breaks_nothing(env: Any) -> None:
    job = a_job(template={"spec": {"containers": [{"name": "main", "image": "i", "env": env}]}})
    assert len(environment(job)) in (0, 16)
    assert revision(job) == ""


def test_the_revision_is_the_annotations_or_the_variables() -> None:
    assert revision(with_env({"name": "GIT_COMMIT", "value": "4f2c"})) == "4f2c"
    template = {
        "metadata": {"annotations": {REVISION: "main-7"}},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    job = a_job(template=template)
    assert revision(job) == "main-7"
    metadata = job.metadata.model_copy(update={"annotations": {REVISION: "\x1b[31mred\u202e" + "x" * 99}})
    told = revision(job.model_copy(update={"metadata": metadata}))
    assert len(told) == 63
    assert not {"\x1b", "\u202e"} & set(told)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=600), st.text(max_size=300))
def test_whatever_is_told_fits_and_an_account_with_it_too(image: str, text: str) -> None:
    scene = a_scene(image)
    scene.node("n0", labels={"nvidia.com/cuda.driver-version.full": text, "nvidia.com/gpu.product": text})
    scene.job = scene.job.model_copy(
        update={"metadata": scene.job.metadata.model_copy(update={"annotations": {REVISION: text}})}
    )
    found = fingerprint(scene.world(), 1)
    assert Fingerprint.model_validate(found.to_json()) == found
    blamed = [{"node": f"{'<&' * 120}{n}", "incidents": 1, "gpuSeconds": 1} for n in range(8)]
    widest = Fingerprint(
        attempt=2**53 - 1, image="<" * 71, gpu_model="&" * 63, driver=">" * 32, collectives="&" * 63, revision="<" * 63
    )
    full = a_spec(1, blamed_nodes=blamed, message="<" * 200, fingerprints=[found, widest, widest, widest])
    assert size(within_record_limit(full)) <= MAX_SPEC_BYTES


def test_a_job_that_has_had_several_models_never_has_one_again() -> None:
    scene = a_scene()
    assert model_told(scene.world(), "") == model_told(scene.world(), "NVIDIA-H200") == "NVIDIA-H200"
    assert model_told(scene.world(), "NVIDIA-A100") == SEVERAL
    assert model_told(scene.world(), SEVERAL) == SEVERAL
    scene.node("n1", labels={"nvidia.com/gpu.product": ""})
    assert model_told(scene.world(), "") == SEVERAL, "one of its nodes does not say"
    assert model_told(Scene(a_job()).world(), "NVIDIA-H200") == "NVIDIA-H200", "it has no nodes now"
    assert model_told(Scene(a_job()).world(), "") == ""


def test_the_collectives_library_is_recorded_in_training_and_on_change() -> None:
    account = Account(creation_time=at(0), counted_until=at(0), fingerprints=[Fingerprint(attempt=1, image="a")])

    def trains(attempt: int, *told: str) -> Account:
        scene = Scene(a_job(nodes=len(told))).fleet().gang(attempt=attempt).pods()
        for index, each in enumerate(told):
            scene.launcher(index, running(attempt, 5, collectives=each))
        return with_library(scene.world(), account, attempt)

    assert trains(1, "", "") == account
    account = trains(1, "NCCL 2.21.5", "NCCL 2.21.5", "")
    assert account.fingerprints == [Fingerprint(attempt=1, image="a", collectives="NCCL 2.21.5")]
    assert trains(2, "NCCL 2.21.5") == account
    account = trains(3, "NCCL 2.27.7", "NCCL 2.21.5")
    assert [(each.attempt, each.collectives) for each in account.fingerprints] == [(1, "NCCL 2.21.5"), (3, SEVERAL)]


def test_a_start_with_the_same_is_no_change_though_its_library_is_not_known_yet() -> None:
    scene = a_scene()
    first = with_fingerprint(scene.world(), Account(creation_time=at(0), counted_until=at(0)), 1)
    (told,) = first.fingerprints
    known = first.model_copy(update={"fingerprints": [told.model_copy(update={"collectives": "NCCL 2.21.5"})]})
    assert with_fingerprint(scene.world(), known, 2) == known
