"""Whose /dev/shm a trainer has: what lies there is removed after an attempt only where nobody else may have made it."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, a_job

from muster.api.gang import Member
from muster.pods.worker_pod import worker_manifest

EMPTY = {"name": "shm", "emptyDir": {"medium": "Memory"}}
OF_THE_NODE = {"name": "shm", "hostPath": {"path": "/dev/shm"}}


def mounted(at: str = "/dev/shm") -> dict[str, Any]:
    return {"volumeMounts": [{"name": "shm", "mountPath": at}]}


def a_sidecar(**more: Any) -> dict[str, Any]:
    return {"name": "beside", "image": "i", **more}


@pytest.mark.parametrize(
    ("spec", "trainer", "is_own"),
    [
        ({}, {}, True),
        ({"volumes": [EMPTY]}, mounted(), True),
        ({"volumes": [EMPTY]}, mounted("/dev/shm/"), True),
        ({"volumes": [EMPTY], "hostIPC": True}, mounted(), True),
        ({"volumes": [EMPTY], "containers": [a_sidecar()]}, mounted(), True),
        ({"initContainers": [a_sidecar()]}, {}, True),
        ({"hostIPC": True}, {}, False),
        ({"hostPID": True}, {}, False),
        ({"hostPID": True, "volumes": [EMPTY]}, mounted(), False),
        ({"shareProcessNamespace": True, "volumes": [EMPTY], "containers": [a_sidecar()]}, mounted(), True),
        ({"volumes": [OF_THE_NODE]}, mounted(), False),
        ({"volumes": [OF_THE_NODE]}, mounted("/dev"), False),
        ({"containers": [a_sidecar()]}, {}, False),
        ({"initContainers": [a_sidecar(restartPolicy="Always")]}, {}, False),
        ({"volumes": [EMPTY], "containers": [a_sidecar(**mounted("/shared"))]}, mounted(), False),
        ({"volumes": [EMPTY], "initContainers": [a_sidecar(restartPolicy="Always", **mounted())]}, mounted(), False),
    ],
)
def test_shared_memory_is_the_trainers_where_no_neighbour_sees_it(
    spec: dict[str, Any], trainer: dict[str, Any], is_own: bool
) -> None:
    container = {"name": "main", "image": "i", "command": ["x"], **trainer}
    job = a_job(template={"spec": {**spec, "containers": [container, *spec.get("containers", [])]}})
    made = worker_manifest(job, Member(index=0, node="n1"), SETTINGS)["spec"]["containers"][0]
    told = {each["name"]: each.get("value") for each in made["env"]}
    assert (told.get("MUSTER_OWN_SHARED_MEMORY") == "1") is is_own
