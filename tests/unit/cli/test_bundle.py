"""`bundle`: what is in the archive, what must never be, and what is said to be left out."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.leading import LEASE, Leader
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, a_health, a_job, a_pod
from tests.unit.health.builders import evidence, facts, healthy, sick
from tests.unit.health.builders import world as node_world
from tests.unit.lifecycle import builders
from tests.unit.lifecycle.builders import SETTINGS, Scene
from typer.testing import Result

from muster import replay
from muster.api.fleetpolicy import FleetPolicySpec
from muster.cli.bundle import MAX_OBJECTS
from muster.decision import decided
from muster.decision.decided import Decided
from muster.health import node_decision
from muster.health.assess import assess
from muster.health.node_decision import NodeDecision
from muster.kube import portforward
from muster.kube.errors import Forbidden, Unreachable
from muster.lifecycle.step import decide
from muster.world.redact import GONE

Run = Callable[..., Result]
SECRETS = (
    "hunter2hunter2",
    "0123456789abcdef0123456789abcdef01234567",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "ghp_abcdefghijklmnop1234",
    "s3cr3t-in-url",
    "AKIAIOSFODNN7EXAMPLE",
    "very-private-value",
    "MIIEowIBAAKCAQEA",
)
LOG = """step 1: tokens per second: 51234, num_tokens=4096
WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl
git clone https://bob:s3cr3t-in-url@host/x with ghp_abcdefghijklmnop1234
run --aws-access-key AKIAIOSFODNN7EXAMPLE --password hunter2hunter2
printed: very-private-value
-----BEGIN RSA PRIVATE KEY-----
MIIEowIBAAKCAQEA
-----END RSA PRIVATE KEY-----
\x1b[31mred\x07
"""


def secretive_job() -> dict[str, Any]:
    job = a_job()
    job["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "hunter2hunter2",
        "x": "very-private-value",
    }
    job["metadata"]["managedFields"] = [{"manager": "hunter2hunter2"}]
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = [
        "train",
        "--api-key",
        "hunter2hunter2",
        "--lr",
        "0.1",
        "--resume=https://u:s3cr3t-in-url@h/x",
    ]
    container["env"] = [
        {"name": "PLAIN", "value": "very-private-value"},
        {"name": "SHORT", "value": "1"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    ]
    job["spec"]["template"]["spec"]["volumes"] = [
        {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"k": "hunter2hunter2"}}},
        {"name": "s", "secret": {"secretName": "hf"}},
    ]
    return job


@pytest.fixture
def cluster(api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    api.put(f"{JOBS}/llama", secretive_job())
    api.put(GANG, a_gang())
    namespaced = "/api/v1/namespaces/{}/{}"
    api.lists("/apis/muster.dev/v1alpha1/namespaces/team-a/gangs", a_gang(), a_gang(jobUid="another"))
    api.lists(PODS, a_pod(0))
    api.lists(namespaced.format("team-a", "events"), {"message": "token=hunter2hunter2"})
    api.put("/apis/muster.dev/v1alpha1/fleetpolicies/default", {"metadata": {"name": "default"}, "spec": {}})
    api.lists("/apis/muster.dev/v1alpha1/nodehealths")
    api.lists("/apis/muster.dev/v1alpha1/repairrequests")
    api.lists("/api/v1/nodes")
    for kind in ("pods", "events"):
        api.lists(namespaced.format("muster-system", kind))
    for kind in ("system/deployments", "agent/daemonsets", "check/daemonsets", "page/deployments"):
        api.lists(f"/apis/apps/v1/namespaces/muster-{kind}")
    api.lists("/apis/coordination.k8s.io/v1/namespaces/muster-system/leases")
    api.put("/version", {"gitVersion": "v1", "gitCommit": "a" * 40})
    plain = api.get

    async def get(path: str, query: Any = None, **more: Any) -> bytes:
        if path.endswith("/log"):
            return LOG.encode()
        answer: bytes = await plain(path, query, **more)
        return answer

    monkeypatch.setattr(api, "get", get)
    return api


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {}
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None
            files[entry.name.partition("/")[2]] = stream.read().decode()
        return files


def test_a_bundle_has_what_a_report_needs_and_no_secret(cluster: Any, command: Run, tmp_path: Path) -> None:
    result = command("bundle", "llama", "--file", "b.tar.gz", "-o", "json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    path = tmp_path / "b.tar.gz"
    assert (told["kind"], told["bytes"]) == ("Bundle", path.stat().st_size)
    assert path.stat().st_mode & 0o777 == 0o600
    files = contents(path)
    assert set(files) == set(told["files"])
    assert {"job/trainingjob.json", "job/gangs.json", "job/pods.json", "job/logs/llama-x-0-1.log", "README.md"} <= set(
        files
    )
    for secret in SECRETS:
        assert not [name for name, text in files.items() if secret in text], secret
    job = json.loads(files["job/trainingjob.json"])
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][:5] == ["train", "--api-key", GONE, "--lr", "0.1"]
    assert [variable.get("value", "-") for variable in container["env"]] == [GONE, GONE, "-"]
    assert container["env"][2]["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "token"}
    assert job["spec"]["template"]["spec"]["volumes"][1]["secret"] == {"secretName": "hf"}
    assert job["status"]["step"] == 1200
    manifest = yaml.safe_load(files["reports/manifests/job.yaml"])
    (case,) = manifest["cases"]
    assert (yaml.safe_load(case["input"])["kind"], case["right"]) == ("TrainingJob", "")
    assert "as files of tests/data/reports" in files["README.md"]
    log = files["job/logs/llama-x-0-1.log"]
    assert "tokens per second: 51234, num_tokens=4096\n" in log
    assert "\x1b" not in log
    assert len(json.loads(files["job/gangs.json"])) == 1, "not the record of another job"
    assert not any("secrets" in path or "configmaps" in path for path in cluster.asked)
    assert told["missing"][0]["name"] == "Secrets and ConfigMaps"
    assert "Secrets and ConfigMaps: never asked for" in files["README.md"]


def test_what_may_not_be_read_is_left_out_and_said(cluster: Any, command: Run, tmp_path: Path) -> None:
    for path in ("/api/v1/nodes", "/apis/muster.dev/v1alpha1/nodehealths", PODS):
        cluster.errors[path] = Forbidden(403, "Forbidden", f'User "bob" cannot list {path}')
    cluster.errors["/version"] = Forbidden(403, "Forbidden", "no")
    told = json.loads(command("bundle", "llama", "--file", "b.tar.gz", "-o", "json").stdout)
    left = {each["name"]: each["reason"] for each in told["missing"]}
    assert {"fleet/nodes.json", "fleet/nodehealths.json", "job/pods.json", "cluster/version.json"} <= set(left)
    assert 'User "bob" cannot list' in left["fleet/nodes.json"]
    assert "fleet/nodes.json: User" in contents(tmp_path / "b.tar.gz")["README.md"]


def test_logs_of_the_agents_are_in_it_those_that_tell_most_first(
    cluster: Any, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def an_agent(node: str, **state: Any) -> dict[str, Any]:
        metadata = {"name": f"agent-{node}", "namespace": "muster-agent"}
        labels = {"app.kubernetes.io/name": "muster-agent"}
        status = {"containerStatuses": [{"ready": True, "restartCount": 0, **state}]}
        return {"metadata": {**metadata, "labels": labels}, "spec": {"nodeName": node}, "status": status}

    agents = (an_agent("far"), an_agent("gpu-0"), an_agent("ill", ready=False), an_agent("fell", restartCount=3))
    cluster.lists("/apis/apps/v1/namespaces/muster-agent/daemonsets", {"metadata": {"name": "muster-agent"}})
    cluster.lists("/api/v1/namespaces/muster-agent/pods", *agents)
    cluster.lists("/api/v1/namespaces/muster-agent/events")
    monkeypatch.setattr("muster.cli.bundle.MAX_LOGS", 3)
    told = json.loads(command("bundle", "llama", "--file", "b.tar.gz", "-o", "json").stdout)
    files = contents(tmp_path / "b.tar.gz")
    logs = {name for name in files if name.startswith("agents/logs/")}
    assert logs == {f"agents/logs/agent-{node}.log" for node in ("ill", "fell", "gpu-0")}
    assert {"name": "agents/logs", "reason": "logs of 3 pods are in it: there are 4"} in told["missing"]
    assert not [name for name in files if name.startswith(("page/", "checkers/"))], "they are not installed"
    assert json.loads(files["cluster/version.json"])["gitCommit"] == "a" * 40
    assert "a key or a password: redacted in every file" in files["README.md"]


def test_a_cluster_that_goes_away_in_between_is_no_reason_to_lose_the_rest(cluster: Any, command: Run) -> None:
    cluster.errors["/api/v1/nodes"] = Unreachable(0, "Unreachable", "no answer")
    assert command("bundle", "llama", "--file", "b.tar.gz").exit_code == 0
    cluster.errors[f"{JOBS}/llama"] = Unreachable(0, "Unreachable", "no answer")
    assert command("bundle", "llama", "--file", "c.tar.gz").exit_code == 1
    assert not Path("c.tar.gz").exists()


def test_a_job_that_does_not_fit_its_definition_is_what_reports_are_about(cluster: Any, command: Run) -> None:
    job = secretive_job()
    job["spec"]["nodes"] = "many"
    cluster.put(f"{JOBS}/llama", job)
    told = json.loads(command("bundle", "llama", "--file", "b.tar.gz", "-o", "json").stdout)
    assert "job/trainingjob.json" in told["files"]


def test_nothing_is_overwritten_and_nothing_is_left_behind(cluster: Any, command: Run, tmp_path: Path) -> None:
    there = tmp_path / "b.tar.gz"
    there.write_text("mine")
    assert command("bundle", "--file", str(there)).exit_code == 2
    assert there.read_text() == "mine"
    assert command("bundle", "--file", "no/such/folder/b.tar.gz").exit_code == 2
    result = command("bundle")
    assert result.exit_code == 0
    assert len(list(tmp_path.glob("muster-*.tar.gz"))) == 1
    assert not list(tmp_path.glob(".muster-*"))


def test_the_number_of_objects_is_bounded(cluster: Any, command: Run) -> None:
    cluster.lists("/api/v1/nodes", *({"metadata": {"name": f"n{index}"}} for index in range(MAX_OBJECTS + 1)))
    told = json.loads(command("bundle", "--file", "b.tar.gz", "-o", "json").stdout)
    assert {"name": "fleet/nodes.json", "reason": f"the first {MAX_OBJECTS} objects are in it: there are more"} in told[
        "missing"
    ]


def decisions_about_the_job() -> bytes:
    """It waits, then gets its pods: their template has secrets, and Muster's own variables."""
    template = secretive_job()["spec"]["template"]
    template["metadata"] = {"annotations": {"x": "very-private-value"}}
    template["spec"]["containers"][0]["env"].append({"name": "SAVE_TO", "value": "/checkpoints"})
    job = builders.a_job("llama", "u", template=template)
    lines = []
    for scene in (Scene(job).fleet(1), Scene(job).fleet().gang(go=False)):
        world = scene.world()
        lines.append(decided.write(Decided(world, SETTINGS, decide(world, SETTINGS))))
    assert '"MUSTER_CHECKPOINT_DIRECTORY"' in lines[1]
    return "\n".join(lines).encode()


def decision_about(name: str) -> bytes:
    """Another system marks the node for a reboot, and it has lost a GPU."""
    marks = {"flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress": "true"}
    health = sick(evidence("Xid", 79), health=healthy(name))
    world = node_world(health, facts=facts(name, annotations=marks))
    return node_decision.write(NodeDecision(FleetPolicySpec(), world, assess(world))).encode()


@pytest.fixture
def leader(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Leader:
    """The leader has decided about the job, and about the one of its nodes that lost a GPU."""
    made = Leader()
    monkeypatch.setattr(portforward, "forwarded_port", made.forwarded_port)
    cluster.lists("/apis/coordination.k8s.io/v1/namespaces/muster-system/leases", LEASE)
    fleet = (a_health("gpu-0", "Healthy"), a_health("gpu-1", "Unhealthy"), a_health("gpu-9", "Healthy"))
    cluster.lists("/apis/muster.dev/v1alpha1/nodehealths", *fleet)
    job = secretive_job()
    job["spec"]["checkpoint"] = {"directory": "/checkpoints"}
    cluster.put(f"{JOBS}/llama", job)
    made.answers = {"/worlds/team-a/llama": decisions_about_the_job(), "/nodes/gpu-1": decision_about("gpu-1")}
    return made


def test_decisions_are_in_it_without_secrets_and_are_made_again_the_same(
    leader: Leader, command: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(command("bundle", "llama", "--file", "b.tar.gz", "-o", "json").stdout)
    files = contents(tmp_path / "b.tar.gz")
    found = {name: text for name, text in files.items() if name.startswith("decisions/")}
    assert set(found) == {"decisions/job.jsonl", "decisions/nodes/gpu-1.jsonl"} <= set(told["files"])
    assert not [each for each in told["missing"] if each["name"].startswith("decisions")]
    for name, text in found.items():
        assert not [secret for secret in SECRETS if secret in text]
        file = tmp_path / "decisions.jsonl"
        file.write_text(text)
        assert replay.main([str(file)]) == replay.SAME, capsys.readouterr().out
        assert "decided, then and now:" in capsys.readouterr().out, name
    assert found["decisions/job.jsonl"].count("\n") == 2
    assert '"directory":"/checkpoints"' in found["decisions/job.jsonl"], "a variable repeats it: it is no secret"
    assert '"directory": "/checkpoints"' in files["job/trainingjob.json"]
    assert 'reboot-in-progress":"true"' in found["decisions/nodes/gpu-1.jsonl"]
    assert "python3 -m muster.replay FILE decides again" in files["README.md"]


def test_without_the_right_to_forward_ports_the_rest_is_there(leader: Leader, command: Run, tmp_path: Path) -> None:
    leader.refuses = Forbidden(403, "Forbidden", 'User "bob" cannot create resource "pods/portforward"')
    told = json.loads(command("bundle", "llama", "--file", "b.tar.gz", "-o", "json").stdout)
    files = contents(tmp_path / "b.tar.gz")
    assert {"job/trainingjob.json", "fleet/nodehealths.json"} <= set(files)
    assert not [name for name in files if name.startswith("decisions/")]
    (why,) = [each["reason"] for each in told["missing"] if each["name"] == "decisions"]
    assert "Ask for get and create of pods/portforward in namespace muster-system" in why
    assert f"decisions: {why}" in files["README.md"]


def test_without_a_job_no_port_is_forwarded(leader: Leader, command: Run, tmp_path: Path) -> None:
    assert command("bundle", "--file", "b.tar.gz").exit_code == 0
    assert leader.opened == []
    assert not [name for name in contents(tmp_path / "b.tar.gz") if name.startswith("decisions/")]


def test_names_of_other_tenants_jobs_are_in_it_and_it_says_so(
    cluster: Any, leader: Leader, command: Run, tmp_path: Path
) -> None:
    finding = {"source": "jobs", "reason": "JobFailures", "message": "failures of team-b/bert"}
    health = a_health("gpu-1", "Suspect")
    health["status"]["findings"] = [finding]
    cluster.lists("/apis/muster.dev/v1alpha1/nodehealths", health)
    assert command("bundle", "llama", "--file", "b.tar.gz").exit_code == 0
    files = contents(tmp_path / "b.tar.gz")
    assert "team-b/bert" in files["fleet/nodehealths.json"]
    assert "Of other tenants it names jobs and namespaces" in files["README.md"]
