"""Where a job saves, and that two of one place are told."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import EPOCH, SETTINGS, Scene, a_job, at, running

from muster.api.trainingjob import CheckpointStatus, JobWarning
from muster.checkpoints.location import place_of, volume_warning
from muster.lifecycle.step import decide
from muster.protocol.messages import CheckpointReport

CLAIM = {"persistentVolumeClaim": {"claimName": "shared"}}
MINIO = {"AWS_ENDPOINT_URL": "https://minio.a:9000"}
NFS = {"nfs": {"server": "10.0.0.9", "path": "/exports"}}


def saving(directory: str, volume: dict[str, Any] | None = None, mounts: list[dict[str, Any]] | None = None) -> Any:
    container: dict[str, Any] = {"name": "main", "image": "trainer:1", "command": ["torchrun", "t.py"]}
    spec: dict[str, Any] = {"containers": [container]}
    if volume is not None:
        container["volumeMounts"] = [{"name": "data", **each} for each in mounts or [{"mountPath": "/ckpt"}]]
        spec["volumes"] = [{"name": "data", **volume}]
    return a_job(template={"spec": spec}, checkpoint={"directory": directory})


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (saving("s3://b/run-7"), saving("s3://b/run-7/"), True),
        (saving("s3://b/run-7"), saving("s3://b/run-8"), False),
        (saving("/ckpt/run", CLAIM), saving("/ckpt/run/", CLAIM), True),
        (saving("/ckpt/run", CLAIM), saving("/ckpt/other", CLAIM), False),
        (saving("/ckpt/run", CLAIM), saving("/data/run", CLAIM, [{"mountPath": "/data/"}]), True),
        (saving("/ckpt/run", CLAIM), saving("/data", CLAIM, [{"mountPath": "/data", "subPath": "run"}]), True),
        (saving("/ckpt/run", CLAIM), saving("/run", CLAIM, [{"mountPath": "/"}]), True),
        (saving("/ckpt/run", CLAIM), saving("/ckpt/run", {"persistentVolumeClaim": {"claimName": "mine"}}), False),
        (saving("/ckpt/run", NFS), saving("/ckpt/run", NFS), True),
        (
            saving("/ckpt/run", CLAIM),
            saving("/ckpt/run", CLAIM, [{"mountPath": "/ckpt"}, {"mountPath": "/ckpt/run"}]),
            False,
        ),
    ],
)
def test_a_place_is_the_same_where_storage_and_directory_are(one: Any, other: Any, is_same: bool) -> None:
    assert place_of(one)
    assert place_of(other)
    assert (place_of(one) == place_of(other)) == is_same


def in_store(url: str, variables: dict[str, str] | None = None, **env: Any) -> Any:
    job = saving(url)
    job.spec.pod["containers"][0]["env"] = [
        *({"name": name, "value": value} for name, value in (variables or {}).items()),
        *({"name": name, "valueFrom": {"secretKeyRef": {"name": secret}}} for name, secret in env.items()),
    ]
    return job


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (in_store("s3://b/run"), in_store("s3://b/run", MINIO), False),
        (in_store("s3://b/run", MINIO), in_store("s3://b/run", {"AWS_ENDPOINT_URL": "https://minio.b:9000"}), False),
        (
            in_store("s3://b/run", MINIO),
            in_store("s3://b/run/", {"AWS_ENDPOINT_URL_S3": "https://minio.a:9000/"}),
            True,
        ),
        (in_store("s3://b/run", MINIO | {"FSSPEC_S3_ENDPOINT_URL": "https://c"}), in_store("s3://b/run", MINIO), False),
        (in_store("s3://b/run", AWS_ENDPOINT_URL="one"), in_store("s3://b/run", AWS_ENDPOINT_URL="two"), True),
        (in_store("gs://b/run", MINIO), in_store("gs://b/run"), True),
        (
            in_store("az://b/run", {"AZURE_STORAGE_ACCOUNT_NAME": "one"}),
            in_store("az://b/run", {"AZURE_STORAGE_ACCOUNT_NAME": "two"}),
            False,
        ),
    ],
)
def test_a_url_is_another_place_in_another_store(one: Any, other: Any, is_same: bool) -> None:
    assert (place_of(one) == place_of(other)) == is_same


@pytest.mark.parametrize(
    "job",
    [
        saving("/ckpt/run", {"emptyDir": {}}),
        saving("/ckpt/run", {"hostPath": {"path": "/mnt"}}),
        saving("/ckpt/run", CLAIM, [{"mountPath": "/ckpt-2"}]),
        saving("/ckpt/run", CLAIM, [{"mountPath": "/ckpt", "subPathExpr": "$(POD)"}]),
        saving("/ckpt/run"),
    ],
    ids=["empty", "the node's", "not mounted", "by a variable", "the image's"],
)
def test_what_may_be_another_storage_for_each_is_no_place(job: Any) -> None:
    assert place_of(job) == ""


def test_who_shares_it_reads_so() -> None:
    here = Scene(saving("s3://b/run-7")).fleet().gang(2).pods()
    here.all(running(2, 10))

    def accepted() -> str:
        told = decide(here.world(), SETTINGS).status
        assert told is not None
        return next(each.message for each in told.conditions if each.type == "TemplateAccepted")

    assert "spec.checkpoint.directory" not in accepted()
    here.changes["sharing"] = ("a", "b", "c", "d")
    assert "spec.checkpoint.directory is that of a, b, c and 1 more, too" in accepted()


@pytest.mark.parametrize(
    ("job", "reason", "told"),
    [
        (saving("/ckpt"), "DirectoryOnNoVolume", "/ckpt lies on no volume: the trainer (container main) mounts none."),
        (
            saving("/ckpt", CLAIM, [{"mountPath": "/data"}]),
            "DirectoryOnNoVolume",
            "mounts /data. What it saves there is lost with its pod, and no other worker sees it. Mount a volume there "
            "that all workers share (a claim with ReadWriteMany, NFS), or name a directory below /data",
        ),
        (saving("/ckpt-2/run", CLAIM), "DirectoryOnNoVolume", "mounts /ckpt"),
        (
            saving("/tmp/x", CLAIM, [{"mountPath": path} for path in ("/d", "/c", "/b", "/a")]),
            "DirectoryOnNoVolume",
            "mounts /a, /b, /c and others.",
        ),
        (
            saving("/ckpt/run", {"emptyDir": {"medium": "Memory"}}),
            "DirectoryOnPodVolume",
            "volume data, of kind emptyDir",
        ),
        (saving("/ckpt/run", {"ephemeral": {}}), "DirectoryOnPodVolume", "which ends with its pod"),
        (saving("/ckpt/run", {"image": {"reference": "data:1"}}), "DirectoryOnPodVolume", "no program can write"),
        (saving("/ckpt/run", {"configMap": {"name": "c"}}), "DirectoryOnPodVolume", "no program can write"),
    ],
)
def test_a_directory_that_is_lost_with_its_pod_is_told_at_once(job: Any, reason: str, told: str) -> None:
    plan = decide(Scene(job).fleet(4).gang(1, go=False).world(), SETTINGS)
    assert plan.status is not None
    assert [warning.reason for warning in plan.status.warnings] == [reason]
    assert told in plan.status.warnings[0].message
    assert [one.reason for one in plan.announcements if one.warning] == [reason]


@pytest.mark.parametrize(
    "job",
    [
        saving("s3://bucket/run"),
        a_job(checkpoint={}),
        saving("/ckpt/run", CLAIM),
        saving("/ckpt", NFS),
        saving("/ckpt/run", CLAIM, [{"mountPath": "/ckpt/"}]),
        saving("/ckpt/run", CLAIM, [{"mountPath": "/ckpt", "subPath": "a/b"}]),
        saving("/ckpt/run", CLAIM, [{"mountPath": "/ckpt", "subPathExpr": "$(POD)"}]),
        saving("/ckpt/run", CLAIM, [{"mountPath": "/"}]),
        saving("/ckpt/run", {"hostPath": {"path": "/mnt/lustre"}}),
        saving("/ckpt/run", {"csi": {"driver": "nfs.csi.k8s.io"}}),
    ],
    ids=[
        "a store",
        "no directory",
        "a claim",
        "NFS",
        "a slash",
        "a part of a volume",
        "parts",
        "root",
        "node",
        "driver",
    ],
)
def test_nothing_is_told_of_a_directory_that_may_be_shared(job: Any) -> None:
    assert volume_warning(Scene(job).world()) is None


@pytest.mark.parametrize(
    ("seconds", "workers", "is_warned"),
    [(99.25, 2, False), (99.25, 1, True), (99.0, 2, True), (-0.5, 2, True)],
    ids=["one checkpoint", "one worker", "whole seconds", "older than the job"],
)
def test_a_directory_where_two_workers_see_one_checkpoint_is_a_volume(
    seconds: float, workers: int, is_warned: bool
) -> None:
    """Whatever the template says: the image may have a link to a mount there."""
    job = saving("/ckpt", CLAIM, [{"mountPath": "/data"}])
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"creation_timestamp": EPOCH})})
    here = Scene(job).fleet().gang(2, time=at(0.0)).pods()
    written = int((EPOCH.timestamp() + seconds) * 10**9)
    for index in range(2):
        other = CheckpointReport(10, "/ckpt/10", written + (0 if index < workers else 1))
        here.launcher(index, running(2, 10, checkpoints=(other,)))
    world = here.world()
    assert (volume_warning(world) is not None) is is_warned


def test_what_workers_have_seen_of_it_outlasts_a_leader_that_has_heard_none() -> None:
    job = saving("/ckpt", CLAIM, [{"mountPath": "/data"}])
    there = CheckpointStatus(step=10, path="/ckpt/10", time=EPOCH)
    known = job.model_copy(update={"status": job.status.model_copy(update={"checkpoint": there})})
    assert volume_warning(Scene(known).world()) is None
    warning = JobWarning(reason="DirectoryOnNoVolume", message="lies on no volume", since=EPOCH)
    warned = known.status.model_copy(update={"warnings": [warning]})
    assert volume_warning(Scene(known.model_copy(update={"status": warned})).world()) is not None
