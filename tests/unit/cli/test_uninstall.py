"""`uninstall --dry-run`: what each step of a removal takes, what stays, and what may not be read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from muster.api.namespaces import CHECKERS
from muster.cli.leftovers import KINDS, MOST_JOBS, OWN_NAMESPACES, STEPS
from muster.kube import paths
from muster.kube.errors import Forbidden
from muster.node.checkpoint.move_incomplete import NAME
from muster.node.launcher.fence_file import path_of
from muster.world.names import gang_name

Run = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[3]
SHIPPED = {"app.kubernetes.io/part-of": "muster"}


OF_JOB = [{"kind": "TrainingJob", "name": "llama", "uid": "uid-llama", "controller": True}]


def an_object(name: str, namespace: str = "", labels: Any = None, owners: Any = (), **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
    if owners:
        metadata["ownerReferences"] = owners
    return {"metadata": {**metadata, **({"labels": labels} if labels else {})}, **parts}


@pytest.fixture
def cluster(api: Any) -> Any:
    """An API server that serves every kind, and has none of them."""
    for path, _ in KINDS.values():
        api.lists(path)
    return api


@pytest.fixture
def plan(command: Run) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        done = command("uninstall", "--dry-run", "-o", "json")
        assert done.exit_code == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return read


def names(rows: list[dict[str, Any]], kind: str, mark: str = "") -> list[str]:
    """The objects of a kind; notes stand after them in brackets."""
    return [
        f"{each['name']} ({each['note']})" if each.get("note") else each["name"]
        for row in rows
        if (row["kind"], row.get("mark", "")) == (kind, mark)
        for each in row["objects"]
    ]


def step(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = next(each["rows"] for each in found["steps"] if each["command"] == STEPS[name])
    return rows


def test_without_the_flag_it_says_where_the_steps_are(api: Any, command: Run) -> None:
    done = command("uninstall")
    assert done.exit_code == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert "--dry-run" in said
    assert "Muster removes nothing itself; the steps are in docs/install.md, Removing everything" in said
    assert api.asked == []


def test_the_steps_are_those_of_the_page_in_their_order() -> None:
    section = (ROOT / "docs/install.md").read_text().partition("\n### Removing everything\n")[2].partition("\n#")[0]
    commands = [line.partition("  #")[0].strip() for line in section.splitlines() if line.startswith("    kubectl ")]
    assert [each for each in commands if " get pods " not in each] == list(STEPS.values())


def test_every_namespace_of_the_manifests_is_known() -> None:
    files = [path for path in (ROOT / "manifests").rglob("*.yaml") if path.name != "kustomization.yaml"]
    documents = [each for path in files for each in yaml.safe_load_all(path.read_text()) if each and "kind" in each]
    assert {each["metadata"]["name"] for each in documents if each["kind"] == "Namespace"} == OWN_NAMESPACES.keys()
    wide = {each["kind"] for each in documents if not each["metadata"].get("namespace")}
    assert wide - KINDS.keys() == {"FleetPolicy"}, "it goes with its definition"


def test_nothing_there_is_nothing_listed(cluster: Any, plan: Any, command: Run) -> None:
    found = plan()
    assert [each["command"] for each in found["steps"]] == list(STEPS.values())
    assert [row for each in found["steps"] for row in each["rows"]] == found["stays"] == []
    assert command("uninstall", "--dry-run").stdout.count("\nnothing\n") == len(STEPS) + 1


def test_a_cluster_that_never_had_muster_is_no_error(api: Any, plan: Any) -> None:
    assert plan()["stays"] == []


def test_jobs_are_listed_with_what_they_hold_and_what_is_theirs(cluster: Any, plan: Any) -> None:
    running = {"state": "Running", "nodes": ["a", "b", ""]}
    cluster.lists(
        paths.muster("trainingjobs"),
        an_object("llama", "team-a", status=running),
        an_object("new", "team-b"),
        an_object("odd", "team-b", status={"nodes": 7}),
    )
    for kind in ("Gang", "Pod", "Service", "ConfigMap", "PodDisruptionBudget"):
        cluster.lists(KINDS[kind][0], an_object(f"the-{kind.lower()}", "team-a", owners=OF_JOB))
    rows = step(plan(), "jobs")
    assert names(rows, "TrainingJob") == [
        "team-a/llama (Running, holds 2 nodes)",
        "team-b/new (holds no nodes)",
        "team-b/odd (holds no nodes)",
    ]
    for kind in ("Gang", "Pod", "Service", "ConfigMap", "PodDisruptionBudget"):
        assert names(rows, kind) == [f"team-a/the-{kind.lower()}"]


def test_what_an_ejected_job_has_left_stays_but_for_its_gang(cluster: Any, plan: Any) -> None:
    kinds = ("Pod", "Service", "ConfigMap", "PodDisruptionBudget")
    for kind in ("Gang", *kinds):
        cluster.lists(
            KINDS[kind][0],
            an_object("of-a-job", "team-a", {"muster.dev/job-uid": "u1"}, OF_JOB),
            an_object("left", "team-b", {"muster.dev/job-uid": "u2"}),
            an_object("of-another", "team-b", {"muster.dev/job-uid": "u2"}, [{**OF_JOB[0], "kind": "Workflow"}]),
        )
    found = plan()
    left = ["team-b/left (no TrainingJob owns it)", "team-b/of-another (no TrainingJob owns it)"]
    for kind in ("Gang", *kinds):
        assert names(step(found, "jobs"), kind) == ["team-a/of-a-job"]
    assert names(step(found, "definitions"), "Gang") == left
    assert {row["kind"]: names([row], row["kind"]) for row in found["stays"]} == dict.fromkeys(kinds, left)
    assert {row["command"] for row in found["stays"]} == {
        "kubectl -n team-b delete pods,services,configmaps,poddisruptionbudgets -l muster.dev/job-uid=u2"
    }


def test_leftovers_of_many_jobs_of_a_namespace_are_one_row(cluster: Any, plan: Any, command: Run) -> None:
    cluster.lists(
        KINDS["ConfigMap"][0],
        *(an_object(f"c{number}", "team-a", {"muster.dev/job-uid": f"u{number}"}) for number in range(MOST_JOBS + 1)),
        *(an_object(f"c{number}", "team-b", {"muster.dev/job-uid": f"u{number}"}) for number in range(2)),
    )
    rows = {row["command"]: len(row["objects"]) for row in plan()["stays"]}
    delete = "delete pods,services,configmaps,poddisruptionbudgets -l muster.dev/job-uid"
    assert rows == {
        f"kubectl -n team-a {delete}, once the namespace has no TrainingJob": MOST_JOBS + 1,
        f"kubectl -n team-b {delete}=u0": 1,
        f"kubectl -n team-b {delete}=u1": 1,
    }


@pytest.mark.parametrize(
    ("directory", "shown"),
    [
        ("/ckpt", "/ckpt/FENCE (of team-a/j)"),
        ("/ckpt / ", "'/ckpt / /FENCE' (of team-a/j)"),
        ("/$(reboot)", "'/$(reboot)/FENCE' (of team-a/j)"),
        ("/a'b; c", "'/a'\"'\"'b; c/FENCE' (of team-a/j)"),
        ("/ckpt\n\nWhat stays\nnothing", "a path with control characters, which -o json escapes (of team-a/j)"),
        ("/ckpt\x1b[2J", "a path with control characters, which -o json escapes (of team-a/j)"),
        ("/ckpt\t", "a path with control characters, which -o json escapes (of team-a/j)"),
    ],
)
def test_a_path_is_shown_as_a_shell_takes_it_or_not_at_all(
    cluster: Any, plan: Any, command: Run, directory: str, shown: str
) -> None:
    cluster.lists(paths.muster("trainingjobs"), an_object("j", "team-a", spec={"checkpoint": {"directory": directory}}))
    fence = f".muster-{gang_name('j', 'uid-j')}"
    said = command("uninstall", "--dry-run").stdout.partition("\nWhat stays\n")[2]
    assert re.search(
        rf"^Directories +File +1 +{re.escape(shown.replace('FENCE', fence))} +rm -r PATH ", said, re.MULTILINE
    )
    assert len(said.splitlines()) == 2 + len(plan()["notes"])
    assert names(plan()["stays"], "File") == [f"{directory.rstrip('/')}/{fence} (of team-a/j)"]


def test_another_overlay_is_deleted_in_place_of_the_default_one(cluster: Any, plan: Any) -> None:
    overlay = STEPS["overlay"].split()[3]
    assert (ROOT / overlay / "kustomization.yaml").is_file()
    assert any("another folder of manifests/overlays" in note and overlay in note for note in plan()["notes"])


def test_marks_are_listed_each_with_the_command_that_removes_it(cluster: Any, plan: Any) -> None:
    labels = {"topology.muster.dev/rack": "r1", "example.org/rack": "r1", "notmuster.dev/x": "y"}
    cluster.lists(
        paths.core("nodes"),
        an_object(
            "gpu-1",
            labels=labels,
            spec={"taints": [{"key": "muster.dev/unhealthy"}, {"key": "other"}]},
            status={"conditions": [{"type": "Ready"}, {"type": "MusterHealthy"}]},
        ),
        an_object("gpu-2", spec={}, status={}),
    )
    cluster.lists(
        paths.core("namespaces"),
        an_object("team-a", labels={"muster.dev/training": "enabled"}),
        an_object("muster-system"),
        an_object("muster-check"),
    )
    found = plan()
    assert names(step(found, "taints"), "Node", "taint muster.dev/unhealthy") == ["gpu-1"]
    assert names(step(found, "overlay"), "Namespace") == ["muster-check (with all that is in it)"]
    assert names(step(found, "definitions"), "Namespace") == ["muster-system (with all that is in it)"]
    left = {(row["kind"], row["mark"]): row for row in found["stays"]}
    assert left.keys() == {
        ("Node", "condition MusterHealthy"),
        ("Node", "label topology.muster.dev/rack"),
        ("Namespace", "label muster.dev/training"),
    }
    assert '"nodeCondition":false' in left["Node", "condition MusterHealthy"]["command"]
    assert (
        left["Node", "label topology.muster.dev/rack"]["command"]
        == "kubectl label nodes --all topology.muster.dev/rack-"
    )
    assert (
        left["Namespace", "label muster.dev/training"]["command"]
        == "kubectl label namespaces --all muster.dev/training-"
    )


def test_what_the_manifests_have_goes_and_what_users_bound_stays(cluster: Any, plan: Any) -> None:
    cluster.lists(
        KINDS["ClusterRole"][0],
        *(an_object(each, labels=SHIPPED) for each in ("muster-operator", "muster-page-user")),
        an_object("edit"),
    )
    cluster.lists(
        KINDS["ClusterRoleBinding"][0],
        an_object("muster-operator", labels=SHIPPED, roleRef={"name": "muster-operator"}),
        an_object("auditors", roleRef={"name": "muster-fleet-view"}),
        an_object("others", roleRef={"name": "musterless"}),
    )
    cluster.lists(
        KINDS["RoleBinding"][0],
        an_object("muster-operator", "kube-node-lease", SHIPPED, roleRef={"name": "muster-operator"}),
        an_object("muster-operator", "muster-system", SHIPPED, roleRef={"name": "muster-operator"}),
        an_object("readers", "team-a", roleRef={"name": "muster-view"}),
    )
    found = plan()
    assert names(step(found, "page"), "ClusterRole") == ["muster-page-user"]
    assert names(step(found, "overlay"), "ClusterRole") == ["muster-operator"]
    assert names(step(found, "overlay"), "ClusterRoleBinding") == ["muster-operator"]
    assert names(step(found, "overlay"), "RoleBinding") == ["kube-node-lease/muster-operator"]
    assert names(found["stays"], "ClusterRoleBinding") == ["auditors"]
    assert names(found["stays"], "RoleBinding") == ["team-a/readers"]
    commands = {row["kind"]: row["command"] for row in found["stays"]}
    assert commands["RoleBinding"] == "kubectl delete rolebinding NAME -n NAMESPACE"


def test_definitions_are_listed_with_the_number_of_their_objects(cluster: Any, plan: Any) -> None:
    definitions = [an_object(f"{each}.muster.dev") for each in ("nodehealths", "gangs", "endedjobs", "fleetpolicies")]
    cluster.lists(KINDS["CustomResourceDefinition"][0], *definitions, an_object("jobs.example.org"))
    cluster.put(paths.muster("nodehealths"), {"metadata": {"remainingItemCount": 4095}, "items": [an_object("a")]})
    cluster.errors[paths.muster("endedjobs")] = Forbidden(403, "Forbidden", "no")
    assert names(step(plan(), "definitions"), "CustomResourceDefinition") == [
        "endedjobs.muster.dev (with objects that you may not list)",
        "fleetpolicies.muster.dev (with objects of another version alone)",
        "gangs.muster.dev (with 0 objects)",
        "nodehealths.muster.dev (with 4,096 objects)",
    ]


def test_directories_are_those_that_launchers_and_checkers_write(cluster: Any, plan: Any) -> None:
    def job(name: str, **checkpoint: Any) -> dict[str, Any]:
        return an_object(name, "team-a", spec={"checkpoint": checkpoint})

    cluster.lists(
        paths.muster("trainingjobs"),
        job("shared", directory="/ckpt/", moveIncomplete=True),
        job("local", directory="s3://bucket/ckpt", localDirectory="/nvme"),
        job("none"),
        an_object("odd", "team-a", spec={"checkpoint": 7}),
    )
    cluster.lists(KINDS[f"{CHECKERS}/Pod"][0], an_object("muster-check-x", CHECKERS, spec={"nodeName": "gpu-1"}))
    rows = plan()["stays"]
    fence = path_of("/ckpt/", gang_name("shared", "uid-shared"))
    local = f"/nvme/.muster-{gang_name('local', 'uid-local')}"
    assert names(rows, "File") == [
        f"{fence} (of team-a/shared)",
        f"{local} (of team-a/local, on each node that it has trained on)",
    ]
    assert names(rows, "Directory") == [f"/ckpt/{NAME} (of team-a/shared)"]
    for path in ("/var/lib/muster-check", "/run/muster-check"):
        assert names(rows, "Directory", path) == [f"gpu-1:{path}"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_not_be_read_is_said_and_is_not_none(cluster: Any, plan: Any, command: Run, kind: str) -> None:
    cluster.errors[KINDS[kind][0]] = Forbidden(403, "Forbidden", "no")
    found = plan()
    rows = [*found["stays"], *(row for each in found["steps"] for row in each["rows"])]
    unread = {row["kind"] for row in rows if row.get("unread")}
    expected = {"TrainingJob": {"TrainingJob", "File"}, f"{CHECKERS}/Pod": {"Directory"}}
    assert unread == expected.get(kind, {kind.rpartition("/")[2]})
    assert not any(row["objects"] for row in rows)
    assert "unknown  " in command("uninstall", "--dry-run").stdout


def test_names_of_secrets_are_listed_and_nothing_in_them(cluster: Any, plan: Any, command: Run) -> None:
    cluster.lists(
        KINDS["muster-system/Secret"][0], an_object("muster-coordinator-ca", "muster-system", data={"k": "c2VjcmV0"})
    )
    assert names(step(plan(), "definitions"), "Secret") == ["muster-system/muster-coordinator-ca"]
    for output in ("table", "json", "yaml"):
        assert "c2VjcmV0" not in command("uninstall", "--dry-run", "-o", output).stdout


def test_people_read_a_few_names_and_how_many_more(cluster: Any, command: Run) -> None:
    cluster.lists(paths.muster("gangs"), *(an_object(f"g{number}", "x", owners=OF_JOB) for number in range(5)))
    said = command("uninstall", "--dry-run").stdout
    assert re.search(r"^Namespaces +Gang +5 +x/g0, x/g1, x/g2 and 2 more \(-o json\)$", said, re.MULTILINE)
    assert (
        said.index("\n1. kubectl get endedjobs") < said.index("\n2. kubectl delete trainingjobs") < said.index("x/g0")
    )
