"""Where a job saves, and that two of one place are told."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, running

from muster.lifecycle.place import place_of
from muster.lifecycle.step import decide

CLAIM = {"persistentVolumeClaim": {"claimName": "shared"}}
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
