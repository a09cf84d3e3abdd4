"""Waiting, explaining and binding on real nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.bed import Bed
from testbed.jobs import Job

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]

Submit = Callable[..., Job]


@pytest.fixture
def direct(bed: Bed) -> Iterator[None]:
    """Muster binds the pods of every node itself."""
    bed.apply_policy({"pools": [{"name": "all", "binding": "Direct"}]}, "direct")
    yield
    bed.open_fleet()


def test_muster_binds_a_gang_itself_and_replaces_a_pod_of_it(bed: Bed, submit: Submit, direct: None) -> None:
    job = submit("direct", nodes=3, trainer=LONG)
    job.wait_step(15)
    pods: dict[Any, Any] = job.pods()
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"muster"}
    lost = next(iter(pods.values()))["metadata"]["name"]
    bed.kubectl("delete", "pod", "-n", job.namespace, lost, "--wait=false")
    again = job.wait_training_again(1)
    assert again.resumed_step is not None
    events = bed.kubectl.json("get", "events.events.k8s.io", "-n", job.namespace)["items"]
    scheduled = [e for e in events if e["reason"] == "Scheduled" and e["regarding"]["name"].startswith(job.name)]
    assert scheduled == [], "nobody else has bound them"


def test_the_command_says_what_is_wrong(bed: Bed, submit: Submit) -> None:
    nobody = bed.muster("status", "nobody", "-n", "default")
    assert nobody.returncode == 1
    assert "nobody" in nobody.stderr
    assert bed.muster("status").returncode == 2
