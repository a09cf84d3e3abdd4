"""`bundle`: what is in the archive, what must never be, and what is said to be left out."""

import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_status import GANG, JOBS, PODS, a_gang, a_job, a_pod
from typer.testing import Result

from muster.cli.bundle import MAX_OBJECTS
from muster.cli.redact import GONE, Redactor, values_of
from muster.kube.errors import Forbidden, Unreachable

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
    log = files["job/logs/llama-x-0-1.log"]
    assert "tokens per second: 51234, num_tokens=4096\n" in log
    assert "\x1b" not in log
    assert len(json.loads(files["job/gangs.json"])) == 1, "not the record of another job"
    assert not any("secrets" in path or "configmaps" in path for path in cluster.asked)
    assert told["leftOut"][0]["what"] == "Secrets and ConfigMaps"
    assert "Secrets and ConfigMaps: never asked for" in files["README.md"]


def test_what_may_not_be_read_is_left_out_and_said(cluster: Any, command: Run, tmp_path: Path) -> None:
    for path in ("/api/v1/nodes", "/apis/muster.dev/v1alpha1/nodehealths", PODS):
        cluster.errors[path] = Forbidden(403, "Forbidden", f'User "bob" cannot list {path}')
    cluster.errors["/version"] = Forbidden(403, "Forbidden", "no")
    told = json.loads(command("bundle", "llama", "--file", "b.tar.gz", "-o", "json").stdout)
    left = {each["what"]: each["why"] for each in told["leftOut"]}
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
    assert {"what": "agents/logs", "why": "logs of 3 pods are in it: there are 4"} in told["leftOut"]
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
    assert {"what": "fleet/nodes.json", "why": f"the first {MAX_OBJECTS} objects are in it: there are more"} in told[
        "leftOut"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("environ({'HF_TOKEN': 'abc', 'STEP': '3'})", "environ({'HF_TOKEN': <>, 'STEP': '3'})"),
        (r'{"log":"{\"api_key\": \"abc\", \"step\": 3}"}', None),
        ("Authorization: Token abc def", "Authorization: <>"),
        ('headers = {"Cookie": "sid=abc; other=def"}', None),
        ("password=ab,cd;ef next", "password=<> next"),
        ("export AWS_SECRET_ACCESS_KEY=abc", "export AWS_SECRET_ACCESS_KEY=<>"),
        ("max_token_len=4096 tokens=12 tokenizer: bpe", "max_token_len=4096 tokens=12 tokenizer: bpe"),
        ("postgres://u:p@ss@host/db?sslmode=on", "postgres://<>@host/db?sslmode=on"),
        ("s3://bucket/key?X-Amz-Signature=abcdef&x=1", "s3://bucket/key?X-Amz-Signature=<>&x=1"),
        ("image@sha256:" + "a" * 64, "image@sha256:" + "a" * 64),
        ("saved step 1200 to /shared/llama/step-1200", "saved step 1200 to /shared/llama/step-1200"),
        ("sh -c 'DB_PASS=abc MYSQL_PWD=abc NGC_AUTH=abc MY_KEY=abc train'", None),
        ("PWD=/workspace pwd: /workspace KEY=5 X_KEY = 3", "PWD=/workspace pwd: /workspace KEY=5 X_KEY = 3"),
        ("pwd=abc", "pwd=<>"),
        ("https://user:p/abc@host/b", "https://<>@host/b"),
        ("http://127.0.0.1:8080/metrics git+https://host/a@v1", "http://127.0.0.1:8080/metrics git+https://host/a@v1"),
        ("AccountName=x;AccountKey=abc== next", "AccountName=x;AccountKey=<> next"),
        ("machine h login u password abc", "machine h login u password <>"),
        ('{"auths": {"r": {"auth": "abcdefabcdef"}}}', '{"auths": {"r": {"auth": "<>"}}}'),
        ("nvapi-abcdefabcdef wandb_v1_abcdefabcdef", "<> <>"),
        ("https://hooks.slack.com/services/T000/B000/abc", "https://hooks.slack.com/<>"),
        ("[('hf_token', 'abc'), ('step', '3')]", "[('hf_token', <>), ('step', '3')]"),
        ("+ curl -u me:abc https://x; --user=me:abc --proxy-user 'me:abc'", None),
        ("docker run -u 1000:1000 -u train.py", "docker run -u 1000:1000 -u train.py"),
        ("--wandb-key=abc --encryption-key abc --key -n", "--wandb-key=<> --encryption-key <> --key -n"),
        ("db_pass=abc bypass=3 forward_pass=3", "db_pass=<> bypass=3 forward_pass=3"),
        ("mongodb://u:ab/c@def/x@host/db", "mongodb://<>@host/db"),
        ("a: 5 b\nabcd+/==\n0 abcd\n-----END PRIVATE KEY-----\nb", "a: 5 b\n<>\nb"),
        ("- x:\n  abcd+\n  -----END KEY-----", None),
    ],
)
def test_what_has_the_name_or_the_shape_of_a_secret_goes_and_the_rest_stays(text: str, says: str | None) -> None:
    told = Redactor().text(text)
    assert says is None or told == says.replace("<>", GONE)
    assert "abc" not in told
    assert "def" not in told


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=12345678",
        "MYSQL_PWD=1234",
        "login failed, password: 20251124",
        "{'password': 1234}",
        "--password 12",
    ],
)
def test_a_password_of_digits_is_one(text: str) -> None:
    told = Redactor().text(text)
    assert GONE in told
    assert not re.search(r"\d", told)


def test_the_value_of_every_variable_goes_however_many_there_are() -> None:
    redactor = Redactor([f"ordinary-value-{index:05}" for index in range(20_000)] + ["hunter2hunter2"])
    assert redactor.text("x hunter2hunter2 ordinary-value-19999 ordinary") == f"x {GONE} {GONE} ordinary"


def test_a_login_among_arguments_goes_and_a_script_after_the_same_letter_stays() -> None:
    redactor = Redactor()
    assert redactor.object({"command": ["curl", "-u", "me:abc", "x"]})["command"] == ["curl", "-u", GONE, "x"]
    assert redactor.object(["python", "-u", "train.py"]) == ["python", "-u", "train.py"]
    assert "abc" not in str(redactor.object({"flexVolume": {"driver": "d", "options": {"x": "abc"}}}))


def test_what_all_pods_have_goes_however_much_each_has_of_its_own() -> None:
    own = [f"name-of-pod-{index}" for index in range(4096)]
    redactor = Redactor([each for pod in own for each in (pod, "hunter2hunter2")])
    assert redactor.text("x hunter2hunter2") == f"x {GONE}"


def test_a_value_that_contains_another_goes_whole() -> None:
    redactor = Redactor(
        values_of({"env": [{"value": "password1"}, {"value": "password1-and-more"}, {"value": "a\nlonger-line"}]})
    )
    assert redactor.text("x password1-and-more y password1 longer-line") == f"x {GONE} y {GONE} {GONE}"
    assert redactor.count == 3
