"""What a user is told of one job, one node and all jobs, by a real API server that refuses what it refuses; logs come
from a kubelet that the test plays."""

import json
import os
import pty
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.integration.nightly.cli.conftest import ROOT, ago
from tests.integration.nightly.cli.test_commands import one_line

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS

EVIL = "a\x1b]0;title\x07\u202er\x9b31m"
RAW = {"\x1b", "\x07", "\u202e", "\x9b"}
LOG = (
    f"muster: attempt 1: rank 1 of 2 starting, without a checkpoint from Muster\nstep 1\n"
    f"password=hunter2hunter2\n{EVIL}\nmuster: attempt 1: rank 1 exited with code 1\n"
    "muster: attempt 2: rank 1 of 2 starting, without a checkpoint from Muster\nstep 2\n"
)


class _Kubelet(BaseHTTPRequestHandler):
    logs: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        body = self.logs.get(self.path.partition("?")[0], "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[int]:
    """The port of a kubelet that answers for logs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubelet")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
    )
    pem = tmp_path / "kubelet.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Kubelet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()
    _Kubelet.logs.clear()


@pytest.fixture
def story(hand: Any, kubelet: int) -> dict[str, Any]:
    """A job on two nodes of which one is sick; rank 1 has failed once, and its pod is there."""
    nodes = [hand.node(name, "b1", "r1") for name in ("n1", "n2")]
    for node in nodes:
        endpoint = {"kubeletEndpoint": {"Port": kubelet}}
        hand.patch_status(
            "node", node, {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoint}
        )
    hand.health(nodes[0], "Healthy", "")
    hand.health(nodes[1], "Degraded", "Xid79")
    incident = {
        "attempt": 1,
        "time": ago(50),
        "level": "R0",
        "faultClass": "Application",
        "reason": "RankFailed",
        "node": nodes[1],
        "message": f"rank 1 exited with code 1; its last lines: Traceback | {EVIL}",
    }
    job = hand.job(
        "llama",
        {
            "state": "Recovering",
            "reason": "RankFailed",
            "attempt": 2,
            "step": 10,
            "nodes": nodes,
            "nodesReady": "1/2",
            "incidents": [incident],
        },
    )
    hand.gang(job, *nodes)
    hand.event(job, "RankFailed", f"attempt 1: {EVIL}", "Warning")
    meta = job["metadata"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": "llama",
        "uid": meta["uid"],
        "controller": True,
    }
    hand.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "llama-1-1",
                "namespace": hand.namespace,
                "labels": {"muster.dev/job-uid": meta["uid"], "muster.dev/index": "1", "muster.dev/incarnation": "1"},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": nodes[1],
                "containers": [{"name": "main", "image": "t:1", "env": [{"name": "KEY", "value": "hunter2hunter2"}]}],
            },
        }
    )
    _Kubelet.logs[f"/containerLogs/{hand.namespace}/llama-1-1/main"] = LOG
    return {"nodes": nodes, "job": f"{hand.namespace}/llama"}


def grant_view(hand: Any) -> None:
    """What the cluster's role view has of pods and Events; it is put together by a controller that is not there."""
    here = ("-n", hand.namespace)
    for arguments in (
        ("role", "viewer", "--verb=get,list", "--resource=pods,pods/log,events"),
        ("rolebinding", "viewer", "--role=viewer", f"--serviceaccount={hand.namespace}:stranger"),
    ):
        result = hand.kubectl("create", *arguments, *here)
        assert result.returncode == 0, result.stderr


def test_a_job_is_told_in_full_to_who_may_see_all(user: Any, hand: Any, story: dict[str, Any]) -> None:
    job, nodes = story["job"], story["nodes"]
    status = user.json("status", job)
    assert [(row["node"], row["podState"], row["health"]["state"]) for row in status["workers"]] == [
        (nodes[0], "gone", "Healthy"),
        (nodes[1], "Pending", "Degraded"),
    ]
    assert status["openIncident"]["number"] == 1
    assert status["notes"] == []
    incident = user.json("report", job, "--incident")
    assert ("muster.dev/operator", "RankFailed") in [
        (each["source"], each["event"].partition(":")[0]) for each in incident["timeline"]
    ]
    assert incident["lastLines"][0] == "Traceback"
    first, second = user.json("logs", job)["logs"]
    assert first["problem"] == "its pod is gone, and its log with it"
    assert (second["pod"], second["lines"][-1]) == ("llama-1-1", "step 2")
    failed = user.json("logs", job, "--failed")["logs"][0]
    assert failed["lines"] == LOG.split("\n")[:5]
    life = user.json("nodes", nodes[1])
    assert (life["exists"], life["ready"], life["health"]["reason"]) == (True, True, "Xid79")
    assert [(entry["name"], entry["workers"]) for entry in life["jobs"]] == [(job, [1])]
    top = user.json("top", "-n", hand.namespace)
    assert [(row["name"], row["openIncident"]) for row in top["jobs"]] == [("llama", 1)]
    for arguments in (
        ("status", job),
        ("report", job, "--incident"),
        ("logs", job),
        ("logs", job, "--failed"),
        ("nodes", nodes[1]),
        ("top",),
    ):
        for form in ("table", "json", "yaml"):
            result = user(*arguments, "-o", form)
            assert result.returncode == 0, result.stderr
            assert not RAW & set(result.stdout), (arguments, form)


def test_a_tenant_gets_what_he_may_and_is_told_the_rest(
    stranger: Any, hand: Any, story: dict[str, Any], tmp_path: Path
) -> None:
    assert "ask for ClusterRole muster-view in this namespace" in one_line(stranger("status", "llama"))
    hand.grant("muster-view")
    status = stranger.json("status", "llama")
    assert (status["state"], len(status["workers"]), status["openIncident"]["number"]) == ("Recovering", 2, 1)
    assert [note.split(" may not")[0] for note in status["notes"]] == [
        "its pods",
        "the health of its nodes",
        "its Events",
    ]
    incident = stranger.json("report", "llama", "--incident", "1")
    assert incident["lastLines"][0] == "Traceback"
    logs = stranger.json("logs", "llama", "--failed")
    assert logs["logs"][0]["incidents"][0]["lastLines"][0] == "Traceback"
    assert stranger.json("top")["namespace"] == hand.namespace
    life = stranger.json("nodes", story["nodes"][1])
    assert [entry["name"] for entry in life["jobs"]] == [story["job"]]
    assert "exists" not in life
    grant_view(hand)
    assert stranger.json("logs", "llama", "--failed")["logs"][0]["lines"][1] == "step 1"
    assert stranger.json("status", "llama")["workers"][1]["pod"] == "llama-1-1"
    hand.grant("muster-fleet-view", everywhere=True)
    assert stranger.json("status", "llama")["notes"] == []
    life = stranger.json("nodes", story["nodes"][1])
    assert (life["exists"], life["health"]["reason"], life["notes"]) == (True, "Xid79", [])
    assert stranger.json("top")["namespace"] == ""
    told = stranger.json("bundle", "llama", "--file", str(tmp_path / "fleet.tar.gz"))
    assert [each["name"] for each in told["missing"] if each["name"].startswith(("fleet/", "job/", "cluster/"))] == [
        "fleet/fleetpolicy.json"  # there is none
    ]


def test_a_bundle_of_a_tenant_has_no_secret_and_says_what_it_lacks(
    stranger: Any, hand: Any, story: dict[str, Any], tmp_path: Path
) -> None:
    hand.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hf", "namespace": hand.namespace},
            "stringData": {"token": "from-a-secret"},
        }
    )
    hand.grant("muster-view")
    grant_view(hand)
    path = tmp_path / "b.tar.gz"
    told = stranger.json("bundle", "llama", "--file", str(path))
    left = {each["name"] for each in told["missing"]}
    assert {"fleet/nodes.json", "fleet/nodehealths.json", "operator/pods.json"} <= left
    with tarfile.open(path) as archive:
        texts = {entry.name.partition("/")[2]: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    assert {"job/trainingjob.json", "job/pods.json", "job/events.json", "job/logs/llama-1-1.log"} <= set(texts)
    for secret in ("hunter2hunter2", "from-a-secret"):
        assert not [name for name, text in texts.items() if secret in text]
    assert json.loads(texts["job/pods.json"])[0]["metadata"]["name"] == "llama-1-1"
    assert "step 2" in texts["job/logs/llama-1-1.log"]


def test_top_on_a_terminal_shows_jobs_until_a_key_is_pressed(user: Any, story: dict[str, Any]) -> None:
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "KUBECONFIG": str(user.kubeconfig),
        "PYTHONPATH": str(ROOT / "operator"),
        "TERM": "xterm",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "muster.cli", "top", "--interval", "0.5"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "COLUMNS": "150", "LINES": "30"},
    )
    os.close(theirs)
    seen, until = b"", time.monotonic() + PATIENCE_SECONDS
    os.set_blocking(ours, False)
    while story["job"].encode() not in seen and time.monotonic() < until:
        try:
            seen += os.read(ours, 65536)
        except BlockingIOError:
            time.sleep(0.05)
    os.write(ours, b"q")
    assert process.wait(PATIENCE_SECONDS) == 0
    rest = b""
    try:
        while chunk := os.read(ours, 65536):
            rest += chunk
    except OSError:  # nobody holds the other end any more
        pass
    os.close(ours)
    assert story["job"].encode() in seen
    assert rest.endswith(b"\x1b[?1049l"), "the screen is as it was"


def test_names_are_completed_from_the_cluster(
    api_server: ControlPlane, user: Any, stranger: Any, hand: Any, story: dict[str, Any], tmp_path: Path
) -> None:
    shims = {"kubectl-muster": "", "kubectl_complete-muster": "__complete"}
    for name, word in shims.items():
        shim = tmp_path / name
        shim.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT / "operator"} exec "{sys.executable}" -m muster.cli {word} "$@"\n'
        )
        shim.chmod(0o755)
    asked = subprocess.run(
        [str(api_server.kubectl), "__complete", "muster", "status", "-n", hand.namespace, "ll"],
        env={**os.environ, "KUBECONFIG": str(user.kubeconfig), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert asked.stdout == "llama\tRecovering\n:4\n", asked.stderr
    assert user("__complete", "status", "-n", hand.namespace, "ll").stdout == "llama\tRecovering\n:4\n"
    assert story["nodes"][1] in user("__complete", "nodes", "n2").stdout
    refused = stranger("__complete", "status", "ll")
    assert (refused.returncode, refused.stdout, refused.stderr) == (0, ":4\n", "")
