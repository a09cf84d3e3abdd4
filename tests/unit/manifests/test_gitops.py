"""What Argo CD and Flux show of the objects that the operator writes, in each state that there is."""

import re
from collections.abc import Iterable
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lifecycle.testbed import OneJob, steps
from tests.unit.manifests import recorded
from tests.unit.manifests.gitops_tools import argo_checks, argo_health, flux_status, kstatus
from tests.unit.manifests.recorded import JOBS, NODES, RecordedJob, edited_job, node_health, repair_request, unseen_job

from apidocs.render import RESOURCES, object_schema
from muster.api.base import API_VERSION
from muster.api.nodehealth import VerdictState
from muster.api.repairrequest import RepairPhase
from muster.api.trainingjob import Condition, TrainingJobStatus
from muster.status.report import State

# By status.state: Argo CD's health, kstatus (Flux without our expressions), Flux with them.
SHOWN = {
    "Pending": ("Suspended", "InProgress", "Current"),
    "Starting": ("Progressing", "InProgress", "InProgress"),
    "Recovering": ("Progressing", "InProgress", "InProgress"),
    "Running": ("Healthy", "Current", "Current"),
    "Saving": ("Healthy", "Current", "Current"),
    "Held": ("Progressing", "InProgress", "InProgress"),
    "Suspended": ("Suspended", "Current", "Current"),
    "Stalled": ("Degraded", "Failed", "Failed"),
    "Succeeded": ("Healthy", "Current", "Current"),
    "Failed": ("Degraded", "Failed", "Failed"),
}
UNSEEN = ("Progressing", "InProgress", "InProgress")
VERDICTS = {
    VerdictState.HEALTHY: "Healthy",
    VerdictState.SUSPECT: "Healthy",
    VerdictState.VALIDATING: "Progressing",
    VerdictState.DEGRADED: "Degraded",
    VerdictState.UNHEALTHY: "Degraded",
    VerdictState.QUARANTINED: "Degraded",
}
PHASES = {
    None: "Progressing",
    RepairPhase.IN_PROGRESS: "Progressing",
    RepairPhase.DONE: "Healthy",
    RepairPhase.FAILED: "Degraded",
}


@pytest.fixture(scope="module")
def jobs() -> dict[str, RecordedJob]:
    return {name: recorded.record(scene()) for name, scene in JOBS.items()}


def shown(manifest: dict[str, Any]) -> tuple[str, str, str]:
    return argo_health(manifest)[0], kstatus(manifest)[0], flux_status(manifest)


def listed(description: str | None) -> set[str]:
    """The words of the list in a field's description."""
    (words,) = re.findall(r": ((?:\w+, )+\w+ or \w+)\.", description or "")
    return set(re.split(", | or ", words))


def test_each_state_of_a_job_is_recorded(jobs: dict[str, RecordedJob]) -> None:
    assert {job.state for job in jobs.values()} == set(State)
    assert {job.word for job in jobs.values()} == set(SHOWN)
    assert listed(TrainingJobStatus.model_fields["state"].description) == set(SHOWN)
    seen = {condition["type"] for job in jobs.values() for condition in job.manifest["status"]["conditions"]}
    assert seen == listed(Condition.model_fields["type"].description)


@pytest.mark.parametrize("name", JOBS)
def test_a_job(name: str, jobs: dict[str, RecordedJob]) -> None:
    job = jobs[name]
    assert shown(job.manifest) == SHOWN[job.word]
    assert shown(edited_job(job.manifest)) == UNSEEN
    assert shown(unseen_job(job.manifest)) == UNSEEN


@pytest.mark.parametrize("name", JOBS)
def test_a_message_says_the_state_and_what_the_operator_says(name: str, jobs: dict[str, RecordedJob]) -> None:
    job = jobs[name]
    word, _, said = argo_health(job.manifest)[1].partition(": ")
    assert word == job.word
    assert said in {condition["message"] for condition in job.manifest["status"]["conditions"]} - {""}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_whose_state_is_missing_is_shown_by_its_conditions(name: str, jobs: dict[str, RecordedJob]) -> None:
    manifest = deepcopy(jobs[name].manifest)
    told = argo_health(manifest)[1].partition(": ")[2]
    del manifest["status"]["state"]
    assert argo_health(manifest)[1] == f": {told}"


def test_a_degraded_job_has_the_message_of_kstatus(jobs: dict[str, RecordedJob]) -> None:
    """Both tools name the same cause of the same jobs."""
    causes = [(argo_health(job.manifest), kstatus(job.manifest)) for job in jobs.values()]
    degraded = [(argo, flux) for argo, flux in causes if "Degraded" in argo or "Failed" in flux]
    assert len(degraded) == 3
    assert all(argo[1].endswith(f": {flux[1]}") for argo, flux in degraded)


def healths(versions: Iterable[dict[str, Any]]) -> list[str]:
    """Argo CD's health of the versions of a job, without what comes again."""
    found = [argo_health({"apiVersion": API_VERSION, "kind": "TrainingJob", **version})[0] for version in versions]
    return [health for index, health in enumerate(found) if index == 0 or found[index - 1] != health]


def test_the_life_of_a_job_as_the_api_server_stores_it() -> None:
    """Two jobs of two workers, three nodes: the second waits; it is suspended by hand, and one of its ranks fails."""
    versions: list[dict[str, Any]] = []

    def keep(resource: str, _: Any, after: dict[str, Any] | None) -> None:
        if resource == "trainingjobs" and after is not None and after["metadata"]["name"] == "second":
            versions.append(after)

    with closing(OneJob(script=steps(8))) as life:
        life.server.listen(keep)
        life.submit("second", 2, steps(30))

        def state() -> str:
            return str((life.job("second").get("status") or {}).get("state"))

        life.until(lambda: state() == "Pending")
        life.succeeds()
        life.until(lambda: state() == "Running")
        life.edit("second", {"suspend": True})
        life.until(lambda: state() == "Suspended")
        life.edit("second", {"suspend": False})
        life.until(lambda: state() == "Running")
        life.until(lambda: life.has_ended("second"))
    assert healths(versions) == [
        "Progressing",  # created
        "Suspended",  # queued
        "Progressing",  # nodes are free
        "Healthy",  # trains
        "Progressing",  # spec.suspend is not seen yet
        "Healthy",  # saves
        "Suspended",  # by hand
        "Progressing",
        "Healthy",  # trains, and has succeeded
    ]


def test_each_verdict_on_a_node_is_recorded() -> None:
    states = {node_health(name)["status"]["state"] for name in NODES}
    assert states == {state.value for state in VerdictState} == {state.value for state in VERDICTS}


@pytest.mark.parametrize("name", NODES)
def test_a_node(name: str) -> None:
    manifest = node_health(name)
    status = manifest["status"]
    wanted = "Suspended" if name == "cordoned" else VERDICTS[status["state"]]
    assert argo_health(manifest) == (wanted, status["message"])
    assert kstatus(manifest)[0] == "Current"


def test_a_node_without_a_verdict() -> None:
    manifest = recorded.unjudged_node()
    assert (argo_health(manifest)[0], kstatus(manifest)[0]) == ("Progressing", "Current")
    del manifest["status"]
    assert argo_health(manifest)[0] == "Progressing"


def test_a_state_that_the_check_does_not_know_is_unknown() -> None:
    manifest = node_health("healthy")
    manifest["status"]["state"] = "Enchanted"
    assert argo_health(manifest)[0] == "Unknown"


def test_each_phase_of_a_repair() -> None:
    assert set(PHASES) == {None, *RepairPhase}
    for phase, wanted in PHASES.items():
        health, message = argo_health(repair_request(phase, "reset 8 GPUs"))
        assert health == wanted
        assert message.startswith(phase.value if phase else "No repair system has begun")
        assert message.endswith("reset 8 GPUs")
        assert kstatus(repair_request(phase))[0] == "Current"


def test_every_kind_with_a_status_has_a_check() -> None:
    with_status = {each.kind for each in RESOURCES if "status" in object_schema(each)["properties"]}
    assert with_status == set(argo_checks())


def test_the_page_names_each_field_that_cannot_change(root: Path) -> None:
    rules = (root / "docs" / "reference" / "api.md").read_text()
    page = (root / "docs" / "gitops.md").read_text()
    fixed, suspended = (
        set(re.findall(rf"- `(spec[\w.]+)`: this field {when}", rules))
        for when in ("cannot change while the job exists", "changes only while the job is suspended")
    )
    table = dict(re.findall(r"^\| (never|while the job is suspended) \| (.*) \|$", page, re.MULTILINE))
    assert set(re.findall(r"`(spec[\w.]+)`", table["never"])) == fixed
    assert set(re.findall(r"`(spec[\w.]+)`", table["while the job is suspended"])) == suspended
