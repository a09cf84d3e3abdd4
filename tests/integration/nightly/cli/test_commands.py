"""What a user sees of objects that a real API server holds, and what it may refuse."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from localcluster.controlplane import ControlPlane, free_port
from localcluster.patience import PATIENCE_SECONDS
from muster.kube.pages import PAGE_SIZE

ROOT = Path(__file__).resolve().parents[4]


def one_line(result: "subprocess.CompletedProcess[str]") -> str:
    """The line that a failure prints."""
    assert (result.returncode, result.stdout) == (1, ""), result
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_job_that_waits_is_explained_from_its_status_and_events(user: Any, hand: Any) -> None:
    waiting = {
        "needs": 16,
        "level": "block",
        "position": 1,
        "queued": 3,
        "fleet": 64,
        "suitable": 62,
        "free": 40,
        "reserved": 0,
        "domains": [{"domain": "b3", "free": 14, "suitable": 16}],
        "blockers": [{"reason": "in use by team-b/big", "nodes": 20}],
        "remedies": ["2 more nodes in block b3"],
        "since": "2026-01-31T12:00:00.000000Z",
    }
    condition = {"type": "Placed", "status": "False", "reason": "TopologyUnsatisfied", "message": "best is b3 with 14"}
    condition["lastTransitionTime"] = "2026-01-31T11:00:00.000000Z"
    status = {"state": "Pending", "reason": "TopologyUnsatisfied", "waiting": waiting, "conditions": [condition]}
    job = hand.job("llama", status, nodes=16)
    hand.event(job, "TopologyUnsatisfied", "best is b3 with 14")
    other = hand.job("other")
    hand.event(other, "Elsewhere", "not of this job")

    found = user.json("status", "llama", "-n", hand.namespace)
    assert (found["state"], found["reason"], found["message"]) == (
        "Pending",
        "TopologyUnsatisfied",
        "best is b3 with 14",
    )
    assert found["waiting"] == waiting
    assert found["since"] == "2026-01-31T12:00:00.000000Z"
    assert [(event["reason"], event["message"]) for event in found["events"]] == [
        ("TopologyUnsatisfied", "best is b3 with 14")
    ]
    text = user("status", f"{hand.namespace}/llama").stdout
    assert "\nb3            14        16        2\n" in text
    assert "\x1b" not in text
    again = yaml.safe_load(user("status", "llama", "-n", hand.namespace, "-o", "yaml").stdout)
    assert {**again, "time": ""} == {**found, "time": ""}


def test_kubectl_finds_the_command(api_server: ControlPlane, user: Any, hand: Any, tmp_path: Path) -> None:
    """As `kubectl muster`, with kubectl itself in front of it."""
    hand.job("llama")
    shim = tmp_path / "kubectl-muster"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m muster.cli "$@"\n')
    shim.chmod(0o755)
    result = subprocess.run(
        [str(api_server.kubectl), "muster", "status", "llama", "-n", hand.namespace],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "KUBECONFIG": str(user.kubeconfig),
            "PYTHONPATH": str(ROOT / "operator"),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{hand.namespace}/llama has not been looked at by an operator yet\n")


def test_the_tree_counts_every_node_once_and_knows_its_holders(user: Any, hand: Any) -> None:
    used, foreign, free = (hand.node(name, "b1", "r1") for name in ("n1", "n2", "n3"))
    cordoned = hand.node("n4", "b1", "r2", unschedulable=True)
    tainted = hand.node("n5", "b1", "r2", taints=[{"key": "example.org/repair", "effect": "NoSchedule"}])
    unready, silent = hand.node("n6", "b1", "r2", ready=False), hand.node("n7", "b1", "r2")
    for name in (used, foreign, free):
        hand.heartbeat(name, 3)
    hand.heartbeat(silent, 300)
    hand.gang(hand.job("llama"), used, cordoned)
    hand.gang(
        hand.job(
            "over", {"completion": {"result": "Failed", "reason": "R", "time": "2026-01-31T12:00:00Z", "attempt": 1}}
        ),
        free,
    )
    hand.pod("notebook", foreign, gpus=1)
    hand.pod("agent", free)

    block = hand.block("b1")
    found = user.json("nodes", "--domain", block)
    told = {node["name"]: (node["state"], node["reason"], node["usedBy"]) for node in found["nodes"]}
    assert told == {
        used: ("Used", "", [f"{hand.namespace}/llama"]),
        foreign: ("Used", "", [f"pod {hand.namespace}/notebook"]),
        free: ("Free", "", []),
        cordoned: ("Excluded", "cordoned", [f"{hand.namespace}/llama"]),
        tainted: ("Excluded", "taint example.org/repair", []),
        unready: ("Excluded", "not ready", []),
        silent: ("Excluded", "without a heartbeat", []),
    }
    counts = [(row["domain"], row["nodes"], row["free"], row["used"], row["excluded"]) for row in found["domains"]]
    assert counts == [(block, 7, 1, 2, 4), (f"{block}/r1", 3, 1, 2, 0), (f"{block}/r2", 4, 0, 0, 4)]
    only_free = user.json("nodes", "--domain", block, "--free")
    assert [node["name"] for node in only_free["nodes"]] == [free]
    lines = user("nodes", "--domain", f"{block}/r1").stdout.splitlines()
    assert [line.split()[:3] for line in lines[4:]] == [
        [used, f"{block}/r1", "Used"],
        [foreign, f"{block}/r1", "Used"],
        [free, f"{block}/r1", "Free"],
    ]


def test_levels_are_those_of_the_fleet_policy(user: Any, hand: Any) -> None:
    level = {"name": "hall", "label": "topology.muster.dev/block"}
    policy = {"apiVersion": "muster.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "default"}}
    hand.node("n1", "h1")
    hand.create({**policy, "spec": {"topology": {"levels": [level]}}})
    try:
        found = user.json("nodes", "--domain", hand.block("h1"))
        assert found["levels"] == ["hall"]
        assert [row["level"] for row in found["domains"]] == ["hall"]
        assert one_line(user("nodes", "--level", "rack")).endswith("its levels are hall (FleetPolicy default)")
    finally:
        hand.kubectl("delete", "fleetpolicy", "default")


def test_more_than_a_page_is_listed(user: Any, hand: Any) -> None:
    block = hand.block("b9")
    names = [f"many-{index}-{hand.namespace}" for index in range(PAGE_SIZE + 20)]
    labels = {"test": hand.namespace, "topology.muster.dev/block": block}
    items = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}} for name in names]
    made = hand.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert made.returncode == 0, made.stderr
    found = user.json("nodes", "--domain", block)
    assert [row["nodes"] for row in found["domains"]] == [len(names)]
    assert {node["name"] for node in found["nodes"]} == set(names)


def test_a_job_that_is_not_there(user: Any, hand: Any) -> None:
    hand.job("llama")
    line = one_line(user("status", "lama", "-n", hand.namespace))
    assert line.endswith(f"no TrainingJob lama in namespace {hand.namespace}: did you mean llama?")
    unique = f"only-{hand.namespace}"
    hand.job(unique)
    assert one_line(user("status", unique, "-n", "default")).endswith(f"but in {hand.namespace}: give it with -n")


def test_rights_are_those_of_the_roles(stranger: Any, hand: Any) -> None:
    job = hand.job("llama")
    hand.event(job, "Placed", "on n1")
    assert "ask for ClusterRole muster-view in this namespace" in one_line(stranger("status", "llama"))
    hand.grant("muster-view")
    found = stranger.json("status", "llama")
    assert "events" not in found
    assert found["notes"] == [
        "its pods may not be read: ask for the cluster's role view in this namespace",
        "its Events may not be read: ask for the cluster's role view in this namespace",
    ]
    assert one_line(stranger("status", "lama")).endswith("did you mean llama?")
    hand.grant("system:aggregate-to-view")  # what the controller, which is not there, would add to the role view
    assert [event["reason"] for event in stranger.json("status", "llama")["events"]] == ["Placed"]

    name = hand.node("n1", "b1", "r1")
    assert "ask for ClusterRole muster-fleet-view" in one_line(stranger("nodes"))
    hand.grant("muster-fleet-view", everywhere=True)
    found = stranger.json("nodes", "--domain", hand.block("b1"))
    assert [node["name"] for node in found["nodes"]] == [name]
    assert found["notes"] == []


def test_a_cluster_that_is_not_there_or_not_muster_s(user: Any, tmp_path: Path) -> None:
    config = yaml.safe_load(user.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    gone = tmp_path / "gone"
    gone.write_text(json.dumps(config))
    for arguments in (("status", "llama"), ("nodes",)):
        line = one_line(user(*arguments, "--kubeconfig", str(gone)))
        assert "no answer from the API server of context " in line
        assert "is the cluster up and reachable from here?" in line
    with ControlPlane(tmp_path / "bare") as bare:
        for arguments in (("status", "llama"), ("nodes",)):
            line = one_line(user(*arguments, "--kubeconfig", str(bare.kubeconfig)))
            unknown = (
                "does not know Muster's objects (muster.dev/v1alpha1): install Muster, beginning with kubectl apply -k"
            )
            assert unknown in line
