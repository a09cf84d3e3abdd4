"""`muster.client` on a real API server: what a researcher does, and what is said where that cannot be done."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from localcluster.api import wait_for
from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.client import (
    InvalidJobError,
    JobGoneError,
    JobProgress,
    JobRefusedError,
    Muster,
    MusterError,
    NotAuthenticatedError,
    WaitTimeoutError,
    training_job,
)

ENABLED = {"muster.dev/training": "enabled"}
MANIFEST = training_job("llama", image="example.org/llama:7", command=["torchrun", "train.py"], nodes=2)


@pytest.fixture
def muster(api_server: ControlPlane, namespace: str) -> Iterator[Muster]:
    """A connection in a namespace of the test's own."""
    with Muster(namespace, kubeconfig=str(api_server.kubeconfig)) as made:
        yield made


@pytest.fixture
def gets(api_server: ControlPlane, namespace: str) -> Callable[..., None]:
    """`gets(state, **status)`: the job `llama` gets this status, as by an operator."""
    path = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs/llama/status"

    def write(state: str, **status: Any) -> None:
        api_server.api.merge(path, {"status": {"state": state, "reason": state, "observedGeneration": 1, **status}})

    return write


def test_a_job_is_submitted_waited_for_and_cancelled(muster: Muster, gets: Callable[..., None]) -> None:
    job = muster.submit(MANIFEST)
    with pytest.raises(WaitTimeoutError, match="it is New: no operator has looked at the job yet"):
        job.wait(timeout=0.5)
    seen: list[JobProgress] = []

    def next_state(now: JobProgress) -> None:
        seen.append(now)
        if now.state != "Running":
            states = {"": "Pending", "Pending": "Running"}
            threading.Thread(target=gets, args=(states[now.state],)).start()

    assert job.wait("Running", timeout=PATIENCE_SECONDS, progress=next_state).state == "Running"
    assert [now.state for now in seen] == ["", "Pending", "Running"]
    assert [row.name for row in muster.jobs()] == ["llama"]
    with pytest.raises(JobRefusedError, match="already exists: choose another name"):
        muster.submit(MANIFEST)
    job.suspend()
    assert muster.job("llama").status().state == "Running"
    threading.Timer(0.5, job.cancel).start()
    with pytest.raises(JobGoneError, match="was deleted; its checkpoints stay"):
        job.wait("Suspended", timeout=PATIENCE_SECONDS)
    again = muster.submit(MANIFEST)
    for change in (job.cancel, job.suspend):  # they are for the job of before
        with pytest.raises(JobGoneError, match="was deleted before"):
            change()
    again.cancel()


def test_a_watch_that_the_restart_of_the_api_server_cuts_goes_on(
    api_server: ControlPlane, muster: Muster, gets: Callable[..., None]
) -> None:
    job = muster.submit(MANIFEST)
    seen = job.watch()
    assert next(seen).state == ""
    api_server.restart_apiserver()
    gets("Running")
    assert next(seen).state == "Running"
    job.cancel()


def test_a_wrong_field_is_named_whoever_finds_it(muster: Muster) -> None:
    with pytest.raises(InvalidJobError, match=r"^spec\.node: there is no such field: did you mean nodes\?$"):
        muster.submit({**MANIFEST, "spec": {**MANIFEST["spec"], "node": 1}})
    spec = {**MANIFEST["spec"], "placement": {"segmentSize": 3}}
    with pytest.raises(InvalidJobError, match=r"segmentSize does not divide spec\.nodes") as found:
        muster.submit({**MANIFEST, "spec": spec})
    assert [problem.field for problem in found.value.problems] == ["spec.placement.segmentSize"]
    with pytest.raises(InvalidJobError, match=r"spec\.template\.spec\.containers"):
        muster.submit({**MANIFEST, "spec": {**MANIFEST["spec"], "template": {"spec": {}}}})


def test_an_unknown_namespace_and_an_unknown_token_say_what_to_do(api_server: ControlPlane, tmp_path: Any) -> None:
    with (
        Muster("no-such", kubeconfig=str(api_server.kubeconfig)) as muster,
        pytest.raises(MusterError, match=r"^there is no namespace no-such: give another one with namespace=$"),
    ):
        muster.submit(MANIFEST)
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "expired"}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with Muster(kubeconfig=str(file)) as muster, pytest.raises(NotAuthenticatedError, match="log in again"):
        muster.jobs()


# The last one: the policy is in force to the end of the module.
@pytest.mark.usefixtures("admission")
def test_where_training_is_not_enabled_it_says_so_until_it_is(
    api_server: ControlPlane, fleet_policy: Callable[..., None], muster: Muster
) -> None:
    fleet_policy({"queueing": {"namespaceSelector": {"matchLabels": ENABLED}}})

    def refused() -> str:
        try:
            muster.submit(MANIFEST).cancel()
        except JobRefusedError as error:
            return error.policy and str(error)
        return ""

    here = f"kubectl label namespace {muster.namespace} muster.dev/training=enabled"
    wait_for(lambda: here in refused(), "the policy to refuse", PATIENCE_SECONDS)
    api_server.api.merge(f"/api/v1/namespaces/{muster.namespace}", {"metadata": {"labels": ENABLED}})
    wait_for(lambda: not refused(), "the job to be created", PATIENCE_SECONDS)
