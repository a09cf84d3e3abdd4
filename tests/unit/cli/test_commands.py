"""How commands are given and how they end: options, exit codes, one clear line instead of a traceback."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from muster import __version__
from muster.cli import main
from muster.kube.decode import MAX_TEMPLATE_BYTES
from muster.kube.errors import ApiError, Denied, Forbidden, NotFound, ServerError, Unauthorized, Unreachable

JOBS = "/apis/muster.dev/v1alpha1/trainingjobs"
HEALTHS = "/apis/muster.dev/v1alpha1/nodehealths"
EVENTS = "/api/v1/namespaces/team-a/events"
OPERATOR = Path(__file__).resolve().parents[3] / "operator"
Run = Callable[..., Result]
REFUSED = "ValidatingAdmissionPolicy 'muster-training' with binding 'muster-training' denied request:"
NO_PARAMETER = "no params found for policy binding"


def path_of(name: str, namespace: str = "team-a") -> str:
    return f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}"


def a_job(name: str, namespace: str = "team-a", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"},
        "spec": {"nodes": 2, "template": template, **spec},
        "status": {"state": "Running", "reason": "Training"},
    }


def no_such(name: str, kind: str = "trainingjobs") -> NotFound:
    return NotFound(404, "NotFound", f'{kind}.muster.dev "{name}" not found', {"name": name, "kind": kind})


def forbidden(kind: str, group: str, where: str) -> Forbidden:
    message = f'{kind} is forbidden: User "bob" cannot list resource "{kind}" in API group "{group}" {where}'
    return Forbidden(403, "Forbidden", message, {"kind": kind, "group": group})


def unreachable(cause: str) -> Unreachable:
    error = Unreachable(0, "Unreachable", f"no answer to GET /x from the API server at {cause}")
    error.cause = cause
    return error


def with_job(api: Any, name: str = "llama", namespace: str = "team-a") -> None:
    api.put(path_of(name, namespace), a_job(name, namespace))
    api.lists(f"/api/v1/namespaces/{namespace}/events")
    api.lists(f"/api/v1/namespaces/{namespace}/pods")


def with_fleet(api: Any) -> None:
    api.errors["/apis/muster.dev/v1alpha1/fleetpolicies/default"] = no_such("default", "fleetpolicies")
    for path in (
        JOBS,
        "/apis/muster.dev/v1alpha1/gangs",
        "/api/v1/pods",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        HEALTHS,
    ):
        api.lists(path)
    labels = {"topology.muster.dev/block": "b1"}
    conditions = [{"type": "Ready", "status": "True"}]
    api.lists(
        "/api/v1/nodes",
        {"metadata": {"name": "gpu-1", "resourceVersion": "1", "labels": labels}, "status": {"conditions": conditions}},
    )


def failed(result: Result) -> str:
    """The one line that a failure prints."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "team-b", "-o", "json", "--context", "lab", "status", "llama"),
        ("status", "llama", "--namespace", "team-b", "--output=json", "--context", "lab"),
        (
            "-n",
            "other",
            "-o",
            "yaml",
            "--context",
            "prod",
            "status",
            "llama",
            "-n",
            "team-b",
            "-o",
            "json",
            "--context=lab",
        ),
        ("--context", "lab", "-o", "json", "status", "team-b/llama"),
        ("-n", "other", "--context", "lab", "-o", "json", "status", "team-b/llama"),
    ],
    ids=["before", "after", "after wins", "in the name", "the name wins"],
)
def test_options_stand_before_or_after_the_command(api: Any, command: Run, arguments: tuple[str, ...]) -> None:
    with_job(api, namespace="team-b")
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["namespace"] == "team-b"
    assert api.asked[0] == "context lab"
    assert api.closed


def test_the_contexts_namespace_is_the_default(api: Any, command: Run) -> None:
    with_job(api)
    assert command("status", "llama").stdout.startswith("team-a/llama is Running: Training\n")


def test_the_same_is_said_in_each_format(api: Any, command: Run) -> None:
    with_job(api)
    found = json.loads(command("status", "llama", "-o", "json").stdout)
    again = yaml.safe_load(command("status", "llama", "-o", "yaml").stdout)
    assert {**again, "time": ""} == {**found, "time": ""}
    with_fleet(api)
    tree = json.loads(command("nodes", "-o", "json").stdout)
    assert yaml.safe_load(command("-o", "yaml", "nodes").stdout) == tree
    assert [row["domain"] for row in tree["domains"]] == ["", "b1"]
    assert command("nodes").stdout.splitlines()[1].split()[:5] == ["(fleet)", "1", "1", "0", "0"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("status",),
        ("status", "a", "b"),
        ("status", "llama", "--output", "xml"),
        ("status", "team-b/llama", "-n", "team-a"),
        ("report", "llama", "2"),
        ("report", "llama", "--incident", "two"),
        ("report", "llama", "--incident", "--incidents"),
        ("report", "llama", "--incidents", "--price", "2"),
        ("report", "llama", "--incidents", "-o", "html"),
        ("report", "--fleet", "--incidents"),
        ("nodes", "gpu-1", "extra"),
        ("nodes", "gpu-1", "--unhealthy"),
        ("nodes", "gpu-1", "--tolerate", "key"),
        ("nodes", ""),
        ("nodes", "--nope"),
        ("cordn", "n1"),
        ("cordon", "n1"),
        ("cordon", "--reason", "why"),
        ("release", "n1", "--reason", " "),
        ("status", "a/b/c"),
        ("release", "n1", "--reason", "x" * 513),
    ],
)
def test_wrong_usage_ends_with_2_and_says_how(api: Any, command: Run, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: kubectl muster" in result.stderr
    assert api.asked == []


@pytest.mark.parametrize(
    "arguments", [("--help",), *((name, "--help") for name in ("status", "nodes", "cordon", "release", "lost"))]
)
def test_help_is_given_without_a_cluster(api: Any, command: Run, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: kubectl muster {'' if len(arguments) == 1 else arguments[0]}".rstrip())
    assert api.asked == []


def test_the_version_is_told_without_a_cluster(api: Any, command: Run) -> None:
    assert command("--version").stdout == f"{__version__}\n"
    assert api.asked == []


def test_the_list_of_commands_has_a_whole_sentence_of_each(command: Run) -> None:
    listed = command("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(listed) == len(main.Commands())
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


Found = Mapping[str, Any]


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([a_job("llama")], "there is no TrainingJob lama in namespace team-a: did you mean llama?"),
        (
            [a_job("lama", "team-b"), a_job("lama", "team-c"), a_job("llama")],
            "there is no TrainingJob lama in namespace team-a, but in team-b, team-c: give it with -n",
        ),
        ([a_job("x"), a_job("z"), a_job("y")], "there is no TrainingJob lama in namespace team-a: there are x, y, z"),
        (
            [a_job(f"x{i}") for i in range(7)],
            "there is no TrainingJob lama in namespace team-a: there are x0, x1, x2, x3, x4 and 2 more",
        ),
        (
            [a_job("llama", "team-b")],
            "there is no TrainingJob lama in namespace team-a, nor any other one: give another namespace with -n "
            "(kubectl get tj -A lists all)",
        ),
    ],
    ids=["near", "elsewhere", "others", "many others", "none"],
)
def test_a_job_that_is_not_there_is_answered_with_those_that_are(
    api: Any, command: Run, jobs: list[Found], says: str
) -> None:
    api.errors[path_of("lama")] = no_such("lama")
    api.lists(JOBS, *jobs)
    assert failed(command("status", "lama")) == says


def test_names_are_looked_for_where_they_may_be_listed(api: Any, command: Run) -> None:
    api.errors[path_of("lama")] = no_such("lama")
    api.errors[JOBS] = forbidden("trainingjobs", "muster.dev", "at the cluster scope")
    api.lists(path_of("").rstrip("/"), a_job("llama"))
    assert failed(command("status", "lama")).endswith("did you mean llama?")
    api.errors[path_of("").rstrip("/")] = forbidden("trainingjobs", "muster.dev", 'in the namespace "team-a"')
    assert failed(command("status", "lama")).endswith(": kubectl get tj -A lists those that there are")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            unreachable("https://h:1: refused"),
            "no answer from the API server of context prod (https://h:1: refused): is the cluster up and reachable "
            "from here? kubectl config get-contexts lists others for --context",
        ),
        (
            Unauthorized(401, "Unauthorized", "Unauthorized"),
            "the API server of context prod does not accept your credentials: log in again, or check --kubeconfig",
        ),
        (
            NotFound(404, "NotFound", "the server could not find the requested resource"),
            "the cluster of context prod does not know Muster's objects (muster.dev/v1alpha1): install Muster, "
            "beginning with kubectl apply -k manifests/definitions (in a release: -f definitions.yaml), or choose "
            "another "
            "cluster with --context",
        ),
        (
            forbidden("trainingjobs", "muster.dev", 'in the namespace "team-a"'),
            'trainingjobs is forbidden: User "bob" cannot list resource "trainingjobs" in API group "muster.dev" in '
            'the namespace "team-a": ask for ClusterRole muster-view in this namespace (the cluster\'s roles view, '
            "edit and "
            "admin have it), or give another one with -n",
        ),
        (
            Denied(422, "Invalid", f"{REFUSED} namespace team-a is not enabled for training: an administrator ..."),
            f"{REFUSED} namespace team-a is not enabled for training: an administrator ...",
        ),
        (
            Denied(422, "Invalid", f"{REFUSED} failed to configure binding: {NO_PARAMETER} with `Deny`"),
            f"{REFUSED} failed to configure binding: {NO_PARAMETER} with `Deny`: there is no FleetPolicy default, so "
            "no job starts; an administrator creates it from a copy that was kept; for a new installation: kubectl "
            "create -f manifests/fleetpolicy.yaml (in a release: -f fleetpolicy.yaml)",
        ),
        (
            ServerError(500, "InternalError", "etcd is\nfull"),
            "the API server of context prod refused: etcd is full (HTTP 500 InternalError)",
        ),
    ],
    ids=[
        "unreachable",
        "unauthorized",
        "no definitions",
        "forbidden",
        "a namespace that is not enabled",
        "no FleetPolicy",
        "server error",
    ],
)
def test_what_the_api_server_refuses_is_one_line_with_a_remedy(
    api: Any, command: Run, error: ApiError, says: str
) -> None:
    api.errors[path_of("llama")] = error
    assert failed(command("status", "llama")) == says
    assert api.closed


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/api/v1/nodes", forbidden("nodes", "", "at the cluster scope")),
        ("/apis/muster.dev/v1alpha1/gangs", forbidden("gangs", "muster.dev", "at the cluster scope")),
        (
            "/apis/muster.dev/v1alpha1/fleetpolicies/default",
            forbidden("fleetpolicies", "muster.dev", "at the cluster scope"),
        ),
    ],
)
def test_who_may_not_see_the_fleet_is_told_which_role_may(api: Any, command: Run, path: str, error: ApiError) -> None:
    with_fleet(api)
    api.errors[path] = error
    assert failed(command("nodes")).endswith(
        ": ask for ClusterRole muster-fleet-view (a ClusterRoleBinding), which has every right that this command needs"
    )


def test_heartbeats_that_may_not_be_read_are_a_note(api: Any, command: Run) -> None:
    with_fleet(api)
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    api.errors[leases] = forbidden("leases", "coordination.k8s.io", 'in the namespace "kube-node-lease"')
    result = command("nodes")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("note: heartbeats may not be read")


def a_health(name: str, state: str = "Healthy", reason: str = "", **spec: Any) -> dict[str, Any]:
    status = {"state": state, "reason": reason, "since": "2026-01-31T12:00:00.000000Z"}
    return {"metadata": {"name": name, "resourceVersion": "4"}, "spec": spec, "status": status}


def test_health_that_is_not_kept_or_may_not_be_read_is_a_note(api: Any, command: Run) -> None:
    with_fleet(api)
    del api.bodies[HEALTHS]
    notes = json.loads(command("nodes", "-o", "json").stdout)["notes"]
    assert notes == ["the health of nodes is not known: this cluster's Muster is too old to keep NodeHealth"]
    api.errors[HEALTHS] = forbidden("nodehealths", "muster.dev", "at the cluster scope")
    result = command("nodes")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("note: the health of nodes may not be read")
    assert "HEALTH" not in result.stdout


def test_a_health_that_does_not_fit_is_a_note(api: Any, command: Run) -> None:
    with_fleet(api)
    api.lists(HEALTHS, a_health("gpu-1", "Peaky"))
    found = json.loads(command("nodes", "-o", "json").stdout)
    assert found["notes"] == ["1 NodeHealth(s) cannot be read by this version: the health of these nodes is not shown"]
    assert "health" not in found["nodes"][0]


def test_how_long_ago_things_were_goes_by_the_clusters_clock(api: Any, command: Run) -> None:
    now = datetime(2040, 1, 2, 12, tzinfo=UTC)  # this machine's is years behind
    api.is_at(now)
    with_job(api)
    event = {"metadata": {"name": "e"}, "involvedObject": {"uid": "uid-llama"}, "reason": "Placed", "type": "Normal"}
    api.lists(EVENTS, {**event, "message": "on gpu-1", "lastTimestamp": "2040-01-02T11:50:00Z"})
    assert re.search(r"^10m +Placed", command("status", "llama").stdout, re.MULTILINE)
    with_fleet(api)
    sick = a_health("gpu-1", "Unhealthy", "Xid79")
    api.lists(HEALTHS, {**sick, "status": {**sick["status"], "since": "2040-01-02T11:45:00Z"}})
    assert re.search(r"^gpu-1 .* Unhealthy +15m ", command("nodes", "--unhealthy").stdout, re.MULTILINE)


def test_a_sick_node_is_excluded_if_its_record_says_so(api: Any, command: Run) -> None:
    with_fleet(api)
    sick = a_health("gpu-1", "Unhealthy", "Xid79")
    api.lists(HEALTHS, {**sick, "status": {**sick["status"], "exclusion": {"reason": "Xid79"}}})
    (node,) = json.loads(command("nodes", "--unhealthy", "-o", "json").stdout)["nodes"]
    assert (node["state"], node["reason"], node["health"]["reason"]) == ("Excluded", "unhealthy: Xid79", "Xid79")
    api.lists(HEALTHS, sick)  # the policy only observes
    (node,) = json.loads(command("nodes", "--unhealthy", "-o", "json").stdout)["nodes"]
    assert (node["state"], node["reason"], node["health"]["state"]) == ("Free", "", "Unhealthy")


def test_definitions_without_a_fleet_policy_are_too_old_for_the_tree(api: Any, command: Run) -> None:
    with_fleet(api)
    del api.errors["/apis/muster.dev/v1alpha1/fleetpolicies/default"]
    assert "does not know Muster's objects" in failed(command("nodes"))


def test_objects_that_do_not_fit_are_told(api: Any, command: Run) -> None:
    api.put(path_of("llama"), a_job("llama", nodes="many"))
    assert failed(command("status", "llama")).startswith("job team-a/llama does not fit its definition (spec.nodes: ")
    large = a_job("llama")
    large["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "SCRIPT", "value": "x" * MAX_TEMPLATE_BYTES}]
    api.put(path_of("llama"), large)
    assert failed(command("status", "llama")) == (
        "job team-a/llama is never started: spec.template is larger than 128 KiB: put scripts and data into the image, "
        "a ConfigMap or a volume, and create the job again"
    )
    with_fleet(api)
    del api.errors["/apis/muster.dev/v1alpha1/fleetpolicies/default"]
    api.put(
        "/apis/muster.dev/v1alpha1/fleetpolicies/default",
        {"metadata": {"name": "default"}, "spec": {"topology": {"levels": "none"}}},
    )
    api.lists("/apis/muster.dev/v1alpha1/gangs", {"metadata": {"name": "g", "resourceVersion": "1"}, "spec": {}})
    notes = json.loads(command("nodes", "-o", "json").stdout)["notes"]
    assert [note.split(" ")[:2] for note in notes] == [["FleetPolicy", "default"], ["1", "Gang(s)"]]


def test_events_that_may_not_be_read_are_a_note(api: Any, command: Run) -> None:
    with_job(api)
    api.errors[EVENTS] = forbidden("events", "", 'in the namespace "team-a"')
    result = command("status", "llama")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("note: its Events may not be read")


@pytest.mark.parametrize(
    ("domain", "says"),
    [
        ("b11", "the fleet has no domain b11: did you mean b1?"),
        ("somewhere/else", "the fleet has no domain somewhere/else: kubectl muster nodes lists them, e.g. b1"),
    ],
)
def test_a_domain_or_level_that_is_not_there(api: Any, command: Run, domain: str, says: str) -> None:
    with_fleet(api)
    assert failed(command("nodes", "--domain", domain)) == says
    levels = "the fleet has no level row: its levels are block, rack (FleetPolicy default)"
    assert failed(command("nodes", "--level", "row")) == levels


def test_a_kubeconfig_that_the_client_refuses_is_told(command: Run) -> None:
    assert failed(command("status", "llama")).startswith("the kubeconfig ")  # it has no cluster and no user


def test_a_defect_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**_: Any) -> None:
        raise ValueError("a\nb\x1b[2J\u202e")

    monkeypatch.setattr(main, "app", broken)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    line = "error: a defect of kubectl muster (ValueError: a b): please report it\n"
    assert capsys.readouterr().err == line


def test_help_needs_no_client() -> None:
    code = (
        "import sys; from muster.cli.main import app\n"
        "try: app(['--help'], prog_name='kubectl muster')\n"
        "finally: print('kubernetes' in sys.modules, 'aiohttp' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(OPERATOR)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize("job", ["", "llama/", "/llama"])
@pytest.mark.parametrize("name", ["status", "report", "logs"])
def test_a_name_that_is_empty_is_a_mistake_in_the_command(
    api: Any, command: Callable[..., Result], name: str, job: str
) -> None:
    """As a variable of a shell that is not set leaves it."""
    result = command(name, job)
    assert result.exit_code == 2
    assert "names no job" in result.output
    assert api.asked == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("scancel", "kubectl muster cancel JOB ends a job"),
        ("squeue", "kubectl muster queue shows who waits"),
        ("hold", """kubectl patch tj JOB --type=merge -p '{"spec":{"suspend":true}}' saves and stops a job"""),
        ("statsu", "Did you mean 'status'?"),
    ],
)
def test_what_is_no_command_gets_a_hint(command: Run, name: str, hint: str) -> None:
    result = command(name, "llama")
    assert result.exit_code == 2
    assert f"No such command '{name}'. {hint}" in result.stderr


def test_no_command_is_taken_for_one_of_another_system() -> None:
    assert [name for name in main.Commands() if name in main.INSTEAD] == []
