"""Muster installed with the default overlay, and replicas run by hand with exactly the rights that it gives.

A control plane of its own, with the controllers that make an installation real: the Deployment's pods are created (and
judged by Pod Security), Services find their endpoints, what has an owner goes with it. No kubelet: pods stay Pending,
nodes never change. Every request of the operator's service account is in the audit log.
"""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.install.manifests import a_job
from tests.integration.install.scraping import READER
from tests.integration.kubectl import kubectl_of

from localcluster.api import Api, ApiError
from localcluster.controlplane import ControlPlane, free_port
from localcluster.patience import PATIENCE_SECONDS
from monitoring.scrape import scrape_now
from muster.protocol.messages import REPORT_PATH

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "manifests"
OVERLAY = MANIFESTS / "overlays" / "default"
DEFINITIONS = MANIFESTS / "definitions"
NAMESPACE = "muster-system"
USER = f"system:serviceaccount:{NAMESPACE}:muster"
NODES = ("node-a", "node-b")
HEARTBEAT_SECONDS = 3.0
# What tests ask for again and again. A request for it costs a hundredth of a process of kubectl.
PATHS = {
    **dict.fromkeys(
        ("configmap", "event", "namespace", "node", "pod", "secret", "service", "serviceaccount"), "/api/v1"
    ),
    "deployment": "/apis/apps/v1",
    "events.events.k8s.io": "/apis/events.k8s.io/v1",
    "lease": "/apis/coordination.k8s.io/v1",
    **dict.fromkeys(("endedjob", "gang", "nodehealth", "repairrequest", "trainingjob"), "/apis/muster.dev/v1alpha1"),
}
SELECTORS = {"selector": "labelSelector", "field-selector": "fieldSelector"}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., Any]:
    """`wait_until(condition, what)`: the first true value of the condition."""
    return _wait_until


def _wait_until(condition: Callable[[], Any], what: str, pause_seconds: float = 0.3) -> Any:
    """The first true value of the condition."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(pause_seconds)


@dataclass
class Replica:
    """One `python -m muster`."""

    process: subprocess.Popen[bytes]
    pod: str
    folder: Path
    environment: dict[str, str]
    log: Path
    metrics_token: str  # of a user that may read metrics

    @property
    def coordinator_port(self) -> int:
        return int(self.environment["MUSTER_COORDINATOR_PORT"])

    @property
    def coordinator_address(self) -> str:
        return f"{self.environment['POD_IP']}:{self.coordinator_port}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of an answer of the probe port; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.environment['MUSTER_PROBE_PORT']}{path}", timeout=PATIENCE_SECONDS
            ) as answer:
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}"
        return self.get("/readyz")[0] == 200

    @property
    def metrics_port(self) -> int:
        return int(self.environment["MUSTER_METRICS_PORT"])

    def samples(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The values of one metric by their sorted labels."""
        families = text_string_to_metric_families(scrape_now(self.metrics_port, self.metrics_token)[1])
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        }

    def leads(self) -> bool:
        return self.samples("muster_is_leader") == {(): 1.0}

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log with this message."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def answers(self) -> tuple[int, str]:
        """What a launcher without a token is told: the status, and the leader's address if it says that; 0 for
        nobody."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        url = f"https://{self.coordinator_address}{REPORT_PATH}"
        try:
            with urllib.request.urlopen(url, data=b"{}", timeout=PATIENCE_SECONDS, context=trust) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()).get("leader", "")
        except OSError:
            return 0, ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM, the way a kubelet stops it; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)


@dataclass
class Installation:
    """The cluster, and the replicas that run."""

    control_plane: ControlPlane
    replicas: list[Replica] = field(default_factory=list)
    namespace: str = NAMESPACE
    user: str = USER

    @property
    def audit_log(self) -> Path:
        return self.control_plane.directory / "audit.log"

    @property
    def api(self) -> Api:
        """The API server as the administrator sees it."""
        return self.control_plane.api

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """The output; a refusal fails the test."""
        result = kubectl_of(self.control_plane)(*arguments, stdin=stdin)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    def _namespaces(self) -> str:
        return self.kubectl("get", "namespaces", "-o", "jsonpath={.items[*].status.phase}")

    def install(self) -> None:
        """Apply definitions and overlay, once what was taken away before is gone."""
        _wait_until(lambda: "Terminating" not in self._namespaces(), "the namespace of before to be gone")
        self.kubectl("apply", "-k", str(DEFINITIONS))
        self.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"))
        self.open_fleet()
        self.install_operator()

    def install_operator(self) -> None:
        """Apply the overlay alone, beside definitions and FleetPolicy that are there."""
        self.kubectl("apply", "-k", str(OVERLAY))
        _wait_until(self._takes_jobs, "the API server knows the FleetPolicy by which it admits jobs")
        _wait_until(self._has_policies, "the API server obeys the policies")
        self.await_operator_pods()

    def await_operator_pods(self) -> None:
        _wait_until(lambda: len(self.operator_pods()) == 2, "the Deployment's pods are admitted")

    def get(self, kind: str, *arguments: str) -> Any:
        """What `kubectl get` finds: an object, or a list that has `items`."""
        prefix = PATHS.get(kind, PATHS.get(kind.removesuffix("s")))
        if prefix is None:
            return json.loads(self.kubectl("get", kind, *arguments, "--output=json"))
        names = [argument for argument in arguments if not argument.startswith("--")]
        options = dict(argument[2:].split("=", 1) for argument in arguments if "=" in argument)
        place = f"/namespaces/{options.pop('namespace')}" if "namespace" in options else ""
        query = urllib.parse.urlencode({SELECTORS[option]: value for option, value in options.items()})
        plural = f"{kind.partition('.')[0].removesuffix('s')}s"
        return self.api.get("/".join([f"{prefix}{place}/{plural}", *names]) + (f"?{query}" if query else ""))

    def token(self, account: str, namespace: str, **spec: Any) -> str:
        """A token of a service account, for two hours; `spec` is of the TokenRequest."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.api.create(path, {"spec": {"expirationSeconds": 7200, **spec}})
        token: str = answer["status"]["token"]
        return token

    def _takes_jobs(self) -> bool:
        path = f"{PATHS['trainingjob']}/namespaces/default/trainingjobs"
        return self.api.would_create(path, a_job("asked", "default"))

    def _has_policies(self) -> bool:
        """Whether what each of two policies forbids the operator is refused by it; roles may be younger than they."""
        operator = Api(self.control_plane.server, self.token("muster", NAMESPACE), self.control_plane.pki.ca)
        metadata = {"name": "asked"}
        questions = {
            "muster-operator": (f"/api/v1/namespaces/{NAMESPACE}/configmaps", {"metadata": metadata}),
            "muster-records": (
                f"{PATHS['nodehealth']}/nodehealths",
                {
                    "apiVersion": "muster.dev/v1alpha1",
                    "kind": "NodeHealth",
                    "metadata": metadata,
                    "spec": {"override": {"decision": "Cordon", "reason": "asked", "time": "2026-01-31T12:00:00Z"}},
                },
            ),
        }
        return all(policy in _refusal(operator, *question) for policy, question in questions.items())

    def open_fleet(self) -> None:
        """Have a FleetPolicy by which every namespace trains, and which says nothing else."""
        self.apply_policy({})

    def apply_policy(self, spec: dict[str, Any]) -> None:
        """Have this FleetPolicy in place of the one that was applied before."""
        policy = {"apiVersion": "muster.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "default"}}
        self.apply({**policy, "spec": spec})

    def apply(self, manifest: dict[str, Any]) -> None:
        self.kubectl("apply", "--validate=strict", "-f", "-", stdin=json.dumps(manifest))

    def operator_pods(self) -> list[str]:
        """The names of the pods that the Deployment has."""
        pods = self.get("pods", f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/name=muster")["items"]
        return sorted(pod["metadata"]["name"] for pod in pods)

    def coordinator_pods(self) -> list[str]:
        """The names of those that the coordinator's Service selects."""
        selector = self.get("service", "muster-coordinator", f"--namespace={NAMESPACE}")["spec"]["selector"]
        text = ",".join(f"{key}={value}" for key, value in selector.items())
        pods = self.get("pods", f"--namespace={NAMESPACE}", f"--selector={text}")["items"]
        return sorted(pod["metadata"]["name"] for pod in pods)

    def start(self, pod: str, **more: str) -> Replica:
        """Run the operator as this pod would: its environment (and `more`), its service account's token."""
        folder = Path(tempfile.mkdtemp(prefix="replica-", dir=self.control_plane.directory))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT / "operator"),
            "KUBECONFIG": str(self._kubeconfig(folder)),
            **self._environment_of(pod),
            "MUSTER_PROBE_PORT": str(free_port()),
            "MUSTER_METRICS_PORT": str(free_port()),
            "MUSTER_WORLDS_PORT": str(free_port()),
            "MUSTER_COORDINATOR_PORT": str(free_port()),
            **more,
        }
        return self._run(pod, folder, environment)

    def start_again(self, ended: Replica) -> Replica:
        """Run it once more in the same place, as a kubelet restarts a container; needs no API server."""
        return self._run(ended.pod, ended.folder, ended.environment)

    def _run(self, pod: str, folder: Path, environment: dict[str, str]) -> Replica:
        log = folder / f"log-{len(self.replicas)}"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "muster"], env=environment, stdout=sink, stderr=subprocess.STDOUT, cwd=folder
            )
        replica = Replica(process, pod, folder, environment, log, self.control_plane.api.token)
        self.replicas.append(replica)
        return replica

    def start_leader(self, **more: str) -> Replica:
        """One replica, leading and ready; `more` is of its environment."""
        pods = _wait_until(self.operator_pods, "the Deployment has pods")
        replica = self.start(pods[0], **more)
        _wait_until(replica.ready, "the replica is ready")
        _wait_until(replica.leads, "the replica leads")
        return replica

    def stop_all(self) -> None:
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.kill()
            print(f"{replica.pod} said:\n{replica.log.read_text()[-8000:]}")  # shown where the test failed
        self.replicas.clear()
        # No kubelet would ever end those that a test has bound to a node.
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self.api.delete(f"{pods}?fieldSelector=spec.nodeName!%3D&gracePeriodSeconds=0")
        # Nobody has to wait until the lease of a killed one is over.
        try:
            self.api.delete(f"{PATHS['lease']}/namespaces/{NAMESPACE}/leases/muster-leader")
        except ApiError as error:
            if error.code != 404:
                raise

    def _environment_of(self, pod: str) -> dict[str, str]:
        manifest = self.get("pod", pod, f"--namespace={NAMESPACE}")
        result = {}
        for entry in manifest["spec"]["containers"][0]["env"]:
            if "value" in entry:
                result[entry["name"]] = entry["value"]
                continue
            place: Any = manifest
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            if path.startswith("status."):  # no kubelet runs the pod; the replica is reached here
                place = {"status": {"podIP": "127.0.0.1", "hostIPs": "127.0.0.1"}}
            for part in path.split("."):
                place = place[part]
            result[entry["name"]] = place
        return result

    def kubeconfig(self) -> Path:
        """Of the operator's service account."""
        return self._kubeconfig(Path(tempfile.mkdtemp(prefix="replica-", dir=self.control_plane.directory)))

    @staticmethod
    def free_port() -> int:
        return free_port()

    def _kubeconfig(self, folder: Path) -> Path:
        token = self.token("muster", NAMESPACE)
        cluster = {"server": self.control_plane.server, "certificate-authority": str(self.control_plane.pki.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "muster", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "muster"}}],
            "current-context": "it",
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path


@pytest.fixture(scope="session")
def overlay() -> Path:
    """What a user applies."""
    return OVERLAY


@pytest.fixture(scope="session")
def definitions() -> Path:
    """What a user applies before, and what outlives it."""
    return DEFINITIONS


def _refusal(user: Api, path: str, body: dict[str, Any]) -> str:
    """What the API server answers a user whose object it does not take in a dry run; "": it takes it."""
    try:
        user.create(f"{path}?dryRun=All", body)
    except ApiError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def bare_cluster(controllers: str) -> Iterator[Installation]:
    """A cluster with two idle nodes, and nothing of Muster."""
    with tempfile.TemporaryDirectory(prefix="muster-install-") as folder:
        policy = Path(folder) / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        control_plane = ControlPlane(
            folder,
            controller_manager=True,
            controllers=controllers,
            api_server_arguments=(
                f"--audit-policy-file={policy}",
                f"--audit-log-path={folder}/audit.log",
                # As on OpenShift: who names an owner must be allowed to block its deletion.
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            ),
        )
        with control_plane:
            installation = Installation(control_plane)
            for name in NODES:
                add_node(installation, name)
            heartbeats = Heartbeats(control_plane, NODES)
            yield installation
            installation.stop_all()
            heartbeats.stop()


@pytest.fixture(scope="package")
def installed() -> Iterator[Installation]:
    """A cluster with two idle nodes and the default overlay."""
    # Nodes without a kubelet would be declared dead.
    with bare_cluster("*,-node-lifecycle-controller,-taint-eviction-controller") as installation:
        installation.install()
        yield installation


@pytest.fixture
def observed() -> Iterator[Installation]:
    """A cluster of the test's own with what observing needs and no more, and no other definition ever before."""
    with bare_cluster("deployment-controller,replicaset-controller") as installation:
        installation.kubectl("apply", "-k", str(MANIFESTS / "definitions-observe"))
        installation.kubectl("wait", "--for=condition=Established", "crd", "--all")
        installation.open_fleet()
        installation.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "observe"))
        installation.await_operator_pods()
        yield installation


@pytest.fixture
def installation(installed: Installation) -> Iterator[Installation]:
    """The installation with no replica running, before and after."""
    yield installed
    installed.stop_all()


@pytest.fixture
def namespace(installation: Installation) -> str:
    """A namespace of the test's own, its service account made by the controllers."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    installation.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    _wait_until(lambda: installation.api.get(accounts)["items"], "the default service account", pause_seconds=0.05)
    return name


class Heartbeats:
    """Renews the leases of nodes that have no kubelet, from construction to `stop`."""

    def __init__(self, control_plane: ControlPlane, nodes: Sequence[str]) -> None:
        self._control_plane = control_plane
        self._nodes = nodes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            for node in self._nodes:
                with contextlib.suppress(ApiError):  # tests stop the API server
                    self._renew(node)

    def _renew(self, node: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now},
        }
        self._control_plane.api.apply(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}", lease)


def add_node(installation: Installation, name: str) -> None:
    """A Node object that claims to be ready."""
    installation.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    status = {"status": {"capacity": capacity, "allocatable": capacity, "conditions": conditions}}
    installation.kubectl("patch", "node", name, "--subresource=status", "--type=merge", f"--patch={json.dumps(status)}")
    # What the node controller would do.
    installation.kubectl("taint", "node", name, "node.kubernetes.io/not-ready-")


@pytest.fixture
def scraper(installation: Any, namespace: str) -> Iterator[Callable[..., str]]:
    """`scraper(name, may_read=...)`: a token of a service account of its own."""
    bindings = []

    def made(name: str, *, may_read: bool) -> str:
        here = f"--namespace={namespace}"
        installation.kubectl("create", "serviceaccount", name, here)
        if may_read:
            bindings.append(f"{namespace}-{name}")
            account = f"--serviceaccount={namespace}:{name}"
            installation.kubectl("create", "clusterrolebinding", bindings[-1], f"--clusterrole={READER}", account)
        return str(installation.kubectl("create", "token", name, here)).strip()

    yield made
    for binding in bindings:
        installation.kubectl("delete", "clusterrolebinding", binding)
