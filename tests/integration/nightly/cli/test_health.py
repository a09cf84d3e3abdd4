"""People's word about nodes, and verdicts, as a real API server keeps and refuses them."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from tests.integration.nightly.cli.conftest import User
from tests.integration.nightly.cli.test_commands import one_line

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[4]


def stored(hand: Any, name: str) -> Any:
    result = hand.kubectl("get", "nodehealth", name, "-o", "json", "--show-managed-fields")
    return json.loads(result.stdout) if result.returncode == 0 else None


def test_a_cordon_is_kept_beside_what_operator_and_agent_have_written(user: Any, hand: Any) -> None:
    known, new = hand.node("n1", "b1", "r1"), hand.node("n2", "b1", "r1")
    hand.health(known, "Suspect", "EccCorrected")
    hand.gang(hand.job("llama"), known)
    began = datetime.now(UTC).replace(microsecond=0)
    found = user.json("cordon", known, f"node/{new}", "--reason", "liquid under rack 7")
    assert began <= datetime.fromisoformat(found["time"]) <= datetime.now(UTC)
    assert found["user"] == "admin"
    assert [node["usedBy"] for node in found["nodes"]] == [[f"{hand.namespace}/llama"], []]
    assert f"{hand.namespace}/llama is evacuated after the next checkpoint" in found["nodes"][0]["consequences"]
    for name in (known, new):
        body = stored(hand, name)
        human = body["spec"]["override"]
        assert human == {
            "decision": "Cordon",
            "reason": "liquid under rack 7",
            "user": found["user"],
            "time": found["time"],
        }
        (ours,) = [entry for entry in body["metadata"]["managedFields"] if entry["manager"] == "muster-human"]
        assert (ours["operation"], list(ours["fieldsV1"]), list(ours["fieldsV1"]["f:spec"])) == (
            "Apply",
            ["f:spec"],
            ["f:override"],
        )
    assert stored(hand, known)["status"]["reason"] == "EccCorrected"

    rows = {node["name"]: node for node in user.json("nodes", "--domain", hand.block("b1"))["nodes"]}
    assert {name: (row["state"], row["reason"]) for name, row in rows.items()} == {
        known: ("Excluded", "quarantined: Cordoned"),
        new: ("Excluded", "quarantined: Cordoned"),
    }
    assert (rows[known]["health"]["state"], rows[known]["usedBy"]) == ("Suspect", [f"{hand.namespace}/llama"])

    told = user("release", known, "--reason", "dry").stdout
    assert f"the cordon by {found['user']} ends: liquid under rack 7" in told
    body = stored(hand, known)
    assert (body["spec"]["override"]["decision"], body["spec"]["override"]["reason"]) == ("Release", "dry")
    again = {node["name"]: node["state"] for node in user.json("nodes", "--domain", hand.block("b1"))["nodes"]}
    assert again == {known: "Used", new: "Excluded"}


def test_a_decision_wins_over_what_another_tool_has_written(user: Any, hand: Any) -> None:
    name = hand.node("n1", "b1")
    human = {"decision": "Cordon", "reason": "by hand", "time": "2026-01-31T12:00:00Z"}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": name}}
    hand.create({**body, "spec": {"override": human}})
    assert user("release", name, "--reason", "dry").returncode == 0
    assert stored(hand, name)["spec"]["override"]["reason"] == "dry"


def test_verdicts_exclude_and_jobs_there_are_named(user: Any, hand: Any) -> None:
    sick, suspect, well = (hand.node(name, "b1", "r1") for name in ("n1", "n2", "n3"))
    tainted = hand.node("n4", "b1", "r1", taints=[{"key": "muster.dev/unhealthy", "effect": "NoSchedule"}])
    hand.health(sick, "Unhealthy", "Xid79", 3600)
    hand.health(tainted, "Degraded", "IbPortFlap", 86400)
    hand.health(suspect, "Suspect", "EccCorrected", 7200)
    hand.health(well, "Healthy", "")
    hand.gang(hand.job("llama"), sick, suspect)
    found = user.json("nodes", "--domain", hand.block("b1"))
    told = {node["name"]: (node["state"], node["reason"], node["usedBy"]) for node in found["nodes"]}
    assert told == {
        sick: ("Excluded", "unhealthy: Xid79", [f"{hand.namespace}/llama"]),
        suspect: ("Used", "", [f"{hand.namespace}/llama"]),
        well: ("Free", "", []),
        tainted: ("Excluded", "degraded: IbPortFlap", []),
    }
    row = found["domains"][0]
    assert (row["nodes"], row["free"], row["used"], row["excluded"], row["notHealthy"]) == (4, 1, 1, 2, 3)
    lines = user("nodes", "--domain", f"{hand.block('b1')}/r1", "--unhealthy").stdout.splitlines()
    cells = [line.split() for line in lines if line.startswith((sick, suspect, well, tainted))]
    assert [(row[0], *row[2:5]) for row in cells] == [
        (sick, "Excluded", "Unhealthy", "1h"),
        (suspect, "Used", "Suspect", "2h"),
        (tainted, "Excluded", "Degraded", "1d"),
    ]


def test_an_unknown_node_is_refused_with_those_that_are_near(user: Any, hand: Any) -> None:
    name = hand.node("n1", "b1")
    line = one_line(user("cordon", name, f"{name}0", "--reason", "liquid"))
    assert f"there is no node {name}0: did you mean {name}" in line
    assert stored(hand, name) is None


def test_rights_to_decide_are_those_of_the_role(stranger: Any, hand: Any) -> None:
    name = hand.node("n1", "b1")
    hand.gang(hand.job("llama"), name)
    ask = "ask for ClusterRole muster-fleet-edit (a ClusterRoleBinding)"
    assert ask in one_line(stranger("cordon", name, "--reason", "liquid"))
    hand.grant("muster-fleet-view", everywhere=True)
    assert ask in one_line(stranger("cordon", name, "--reason", "liquid"))
    assert stored(hand, name) is None
    hand.kubectl("delete", "clusterrolebinding", f"muster-fleet-view-{hand.namespace}")

    hand.grant("muster-fleet-edit", everywhere=True)
    found = stranger.json("cordon", name, "--reason", "liquid")
    assert found["user"] == f"system:serviceaccount:{hand.namespace}:stranger"
    assert "usedBy" not in found["nodes"][0]
    assert stored(hand, name)["spec"]["override"]["user"] == found["user"]
    as_stranger = f"--as=system:serviceaccount:{hand.namespace}:stranger"
    for verb, what in (("patch", "nodehealths/status"), ("delete", "nodehealths"), ("patch", "nodes")):
        allowed = hand.kubectl("auth", "can-i", verb, what.split("/")[0], *_subresource(what), as_stranger)
        assert allowed.stdout.strip() == "no", (verb, what)
    hand.grant("muster-fleet-view", everywhere=True)
    found = stranger.json("release", name, "--reason", "dry")
    assert (found["nodes"][0]["usedBy"], found["notes"]) == ([f"{hand.namespace}/llama"], [])


def _subresource(what: str) -> list[str]:
    _, slash, name = what.partition("/")
    return [f"--subresource={name}"] if slash else []


def test_an_installation_without_node_health(tmp_path: Path) -> None:
    """What an older one has: every definition but that of NodeHealth."""
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    kept = [crd for crd in definitions if crd["spec"]["names"]["kind"] != "NodeHealth"]
    assert len(kept) == len(definitions) - 1
    objects = [*kept, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}]
    with ControlPlane(tmp_path / "old") as old:
        for arguments, stdin in (
            (("apply", "-f", "-"), yaml.safe_dump_all(objects)),
            (("wait", "--for=condition=Established", "crd", "--all"), ""),
        ):
            command = [str(old.kubectl), f"--kubeconfig={old.kubeconfig}", f"--cache-dir={tmp_path}/cache", *arguments]
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
            )
            assert done.returncode == 0, done.stderr
        user = User(old.kubeconfig)
        line = one_line(user("cordon", "n1", "--reason", "liquid"))
        assert "keeps no NodeHealth: install Muster, or a newer one" in line
        found = user.json("nodes")
        assert [node["name"] for node in found["nodes"]] == ["n1"]
        assert "health" not in found["nodes"][0]
        assert [note for note in found["notes"] if note.startswith("the health of nodes is not known")]
