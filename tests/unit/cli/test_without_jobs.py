"""A cluster with Muster in a profile without TrainingJobs, and without their definitions: commands about jobs say so,
and others work."""

from collections.abc import Callable

import pytest
from tests.unit.cli.conftest import Api
from tests.unit.cli.installing import a_job
from tests.unit.cli.test_status import EVENTS, PODS
from typer.testing import Result

from muster.answers.without_jobs import WITHOUT_JOBS
from muster.kube.errors import Forbidden

OPERATOR = "/apis/apps/v1/namespaces/muster-system/deployments/muster"
RUNS_NONE = "note: Muster is installed with profile health, which runs no jobs: ask an administrator for profile jobs"
Command = Callable[..., Result]
GROUP = "/apis/muster.dev/v1alpha1"


@pytest.fixture
def observing(api: Api) -> Api:
    """An API server with the definitions of profile observe."""
    api.put(GROUP, {"resources": [{"name": name} for name in ("fleetpolicies", "nodehealths", "nodehealths/status")]})
    api.put(f"{GROUP}/fleetpolicies/default", {"metadata": {"name": "default", "resourceVersion": "1"}, "spec": {}})
    for path in (f"{GROUP}/nodehealths", "/api/v1/nodes", "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases"):
        api.lists(path)
    api.lists("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    return api


@pytest.mark.parametrize(
    "words",
    [
        "top",
        "top -n team-a",
        "status llama",
        "status llama --burn-in",
        "report llama",
        "report llama --incidents",
        "logs llama",
        "logs llama --follow",
        "bundle llama",
        "fork llama",
        "requeue llama --yes",
        "eject llama --yes",
    ],
)
def test_what_is_about_jobs_says_that_there_are_none_and_what_there_is(
    observing: Api, command: Command, words: str
) -> None:
    result = command(*words.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: in the cluster of context prod {WITHOUT_JOBS}\n"


def test_a_user_without_rights_to_a_kind_that_is_not_there_is_not_sent_for_a_role(
    observing: Api, command: Command
) -> None:
    about = {"group": "muster.dev", "kind": "trainingjobs"}
    observing.errors[f"{GROUP}/namespaces/team-a/trainingjobs/llama"] = Forbidden(403, "Forbidden", "no right", about)
    assert WITHOUT_JOBS in command("status", "llama").stderr
    observing.put(GROUP, {"resources": [{"name": "nodehealths"}, {"name": "trainingjobs"}]})
    assert "ask for ClusterRole muster-view" in command("status", "llama").stderr


def test_what_the_fleet_did_is_reported_with_a_note(observing: Api, command: Command) -> None:
    result = command("report", "--fleet")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"note: {WITHOUT_JOBS}" in result.stdout


def test_an_experiment_is_not_found_and_the_error_says_why(observing: Api, command: Command) -> None:
    result = command("report", "--experiment", "x")
    assert result.exit_code == 1
    assert WITHOUT_JOBS in result.stderr


def test_nodes_are_shown_as_ever(observing: Api, command: Command) -> None:
    result = command("nodes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "TrainingJob" not in result.stdout


@pytest.mark.parametrize("state", ["", "Pending", "Suspended"])
@pytest.mark.parametrize("profile", ["health", "jobs", None])
def test_where_the_profile_runs_no_jobs_a_job_that_waits_says_so(
    api: Api, command: Command, state: str, profile: str | None
) -> None:
    api.put(f"{GROUP}/namespaces/team-a/trainingjobs/llama", a_job("llama", state, ""))
    for path in (PODS, EVENTS):
        api.lists(path)
    container = {"name": "operator", "env": [{"name": "MUSTER_PROFILE", "value": profile or "health"}]}
    api.put(OPERATOR, {"spec": {"template": {"spec": {"containers": [container]}}}})
    if profile is None:
        api.errors[OPERATOR] = Forbidden(403, "Forbidden", "no right")
    result = command("status", "llama")
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.stderr
    assert (RUNS_NONE in text) == (profile == "health" and state != "Suspended")
    assert ("installed with a profile that runs no jobs" in text) == (state == "")


def test_where_the_kinds_cannot_be_read_the_first_error_is_shown(observing: Api, command: Command) -> None:
    observing.put(GROUP, {"kind": "Status"})
    result = command("top")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not know Muster's objects" in result.stderr


def test_without_muster_the_advice_is_to_install_it(api: Api, command: Command) -> None:
    assert api.bodies == {}
    assert "does not know Muster's objects" in command("top").stderr
