"""An installation's life by Helm on a real API server, and what its removal leaves on nodes: nothing.

There is no kubelet. So the hook's program is run here, with the token of the hook's service account, as its pod would.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.install.conftest import ROOT, Installation, bare_cluster
from tests.integration.nightly.install.charts import IMAGES, VERSION, Helm, archive, helm_of, release

from chart.charts import charts
from localcluster.patience import PATIENCE_SECONDS
from muster.answers.markednodes import REMOVING_COMMANDS

HOOK = "muster-uninstall"
SYSTEM = "--namespace=muster-system"
PODS_OF_HOOK = f"--selector=batch.kubernetes.io/job-name={HOOK}"
EVERYTHING = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,namespaces"
MARKED = "node-a"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Installation]:
    with bare_cluster("*,-node-lifecycle-controller,-taint-eviction-controller") as made:
        yield made


@pytest.fixture(scope="module")
def helm(cluster: Installation, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return helm_of(tmp_path_factory.mktemp("helm"), cluster.control_plane.kubeconfig)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return release(tmp_path_factory.mktemp("charts"))


def done(result: "subprocess.CompletedProcess[str]") -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_a_life_by_helm(
    cluster: Installation, helm: Helm, packages: dict[str, Path], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    chart, own = str(_with_time_for_the_hook(tmp_path)), str(packages["muster-definitions"])
    refused = helm("install", "muster", chart, SYSTEM, "--create-namespace")
    assert "the definitions of Muster are missing: install the chart muster-definitions first" in refused.stderr

    definitions = ("muster-definitions", own, SYSTEM)
    done(helm("install", *definitions, "--create-namespace", "--take-ownership", "--set=profile=observe"))
    refused = helm("install", "muster", chart, SYSTEM)
    assert "install the chart muster-definitions first, with profile jobs" in refused.stderr
    done(helm("upgrade", *definitions, "--set=profile=jobs"))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    labels = cluster.get("namespace", "muster-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"

    notes = done(helm("install", "muster", chart, SYSTEM))
    policy = notes.partition("<<'END'\n")[2].partition("\nEND")[0]
    cluster.kubectl("create", "-f", "-", stdin=policy)
    cluster.await_operator_pods()
    patch = '{"spec":{"queueing":{"defaultLimit":7}}}'
    cluster.kubectl("patch", "fleetpolicy", "default", "--type=merge", "-p", patch)

    _upgrade_the_definitions(cluster, helm, tmp_path)
    done(helm("upgrade", "muster", chart, SYSTEM, "--set=operator.replicas=3"))
    wait_until(lambda: len(cluster.operator_pods()) == 3, "a third replica")
    done(helm("rollback", "muster", "1", SYSTEM))
    wait_until(lambda: len(cluster.operator_pods()) == 2, "two replicas again")
    assert cluster.get("fleetpolicy", "default")["spec"]["queueing"]["defaultLimit"] == 7

    later = str(archive(tmp_path, "later", charts("0.2.1", IMAGES)["muster"]))
    refused = helm("upgrade", "muster", later, SYSTEM, "--reuse-values")
    assert "upgrade with --reset-then-reuse-values, not --reuse-values" in refused.stderr
    done(helm("upgrade", "muster", later, SYSTEM, "--reset-then-reuse-values", "--dry-run=server"))

    # As docs/helm.md has it.
    cluster.kubectl("set", "env", "deployment/muster", "MUSTER_PROFILE=observe", SYSTEM)
    change = ("upgrade", "muster", chart, SYSTEM, "--reset-then-reuse-values", "--force-conflicts")
    done(helm(*change, "--set=profile=observe"))
    assert _profiles_of_roles(cluster) == {"observe"}
    done(helm(*change, "--set=profile=jobs"))
    assert _profiles_of_roles(cluster) == {"observe", "health", "burn-in", "jobs"}

    _mark(cluster)
    with kubelet(cluster, tmp_path, wait_until):
        said = done(helm("uninstall", "muster", SYSTEM, f"--timeout={PATIENCE_SECONDS:.0f}s"))
    assert "uninstalled" in said
    assert _marks(cluster) == []
    assert _others(cluster) == ["nvidia.com/gpu"]
    wait_until(lambda: _of_muster(cluster) == ["muster-system"], "all but the definitions is gone")
    for kind in ("deployments", "jobs", "serviceaccounts", "roles", "rolebindings"):
        items = cluster.get(kind, SYSTEM)["items"]
        assert [each["metadata"]["name"] for each in items if "muster" in each["metadata"]["name"]] == []
    assert cluster.get("fleetpolicy", "default")["spec"]["queueing"]["defaultLimit"] == 7

    done(helm("uninstall", "muster-definitions", SYSTEM))
    assert len(cluster.get("crds")["items"]) == 6
    assert _of_muster(cluster) == ["muster-system"]


def test_a_hook_that_cannot_run_keeps_nothing_of_the_release(
    cluster: Installation, helm: Helm, packages: dict[str, Path], wait_until: Callable[..., Any]
) -> None:
    own = str(packages["muster-definitions"])
    done(helm("upgrade", "--install", "muster-definitions", own, SYSTEM, "--take-ownership", "--create-namespace"))
    done(helm("install", "muster", str(packages["muster"]), SYSTEM))
    failed = helm("uninstall", "muster", SYSTEM, f"--timeout={PATIENCE_SECONDS:.0f}s")
    assert failed.returncode != 0
    assert "Job Failed" in failed.stderr
    assert done(helm("list", SYSTEM, "--short")).split() == ["muster-definitions"]
    wait_until(lambda: _of_muster(cluster) == ["muster-system"], "all but the definitions is gone")
    assert cluster.get("jobs", SYSTEM)["items"] == []
    done(helm("uninstall", "muster-definitions", SYSTEM))


def test_the_api_server_takes_the_hook_as_it_stands(
    cluster: Installation, helm: Helm, packages: dict[str, Path]
) -> None:
    cluster.kubectl("apply", "-k", str(ROOT / "manifests" / "definitions"))
    only = "--show-only=templates/job-muster-uninstall.yaml"
    rendered = helm("template", "muster", str(packages["muster"]), SYSTEM, only)
    (job,) = filter(None, yaml.safe_load_all(rendered.stdout))
    said = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(job))
    assert said.strip() == "job.batch/muster-uninstall created (server dry run)"


def test_what_kubectl_has_applied_is_taken_over(
    cluster: Installation, helm: Helm, packages: dict[str, Path], tmp_path: Path
) -> None:
    cluster.install()
    own = charts(VERSION, IMAGES)["muster-definitions"]
    path = next(name for name in own if "trainingjobs" in name)
    own[path] = own[path].replace(b"categories:", b"categories:\n    - later", 1)
    deployment = cluster.get("deployment", "muster", SYSTEM)["metadata"]["uid"]

    flags = (SYSTEM, "--take-ownership", "--force-conflicts")
    done(helm("install", "muster-definitions", str(archive(tmp_path, "muster-definitions", own)), *flags))
    done(helm("install", "muster", str(packages["muster"]), *flags))
    assert "later" in cluster.get("crd", "trainingjobs.muster.dev")["spec"]["names"]["categories"]
    taken = cluster.get("deployment", "muster", SYSTEM)
    assert taken["metadata"]["uid"] == deployment
    assert taken["spec"]["template"]["spec"]["containers"][0]["image"].endswith(IMAGES["operator"].partition("@")[2])
    for name in ("muster", "muster-definitions"):
        done(helm("uninstall", name, SYSTEM, "--no-hooks"))


def test_the_program_ends_although_the_api_server_never_answers(cluster: Installation, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = _kubeconfig(cluster, tmp_path, "token", f"https://127.0.0.1:{silent.getsockname()[1]}")
        said = _run_program(config)
    assert "is not known" in said
    assert all(command in said for command in REMOVING_COMMANDS)


def test_the_commands_for_what_is_left_remove_it(cluster: Installation) -> None:
    _mark(cluster)
    for command in REMOVING_COMMANDS:
        environment = {"KUBECONFIG": str(cluster.control_plane.kubeconfig), "PATH": os.environ["PATH"]}
        environment["PATH"] = f"{cluster.control_plane.kubectl.parent}:{environment['PATH']}"
        environment["HOME"] = str(cluster.control_plane.kubeconfig.parent)  # kubectl's cache
        subprocess.run(
            ["sh", "-c", command], env=environment, capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert (_marks(cluster), _others(cluster)) == ([], ["nvidia.com/gpu"])


def _with_time_for_the_hook(folder: Path) -> Path:
    """The chart as it is, but for the minute of the Job: a busy machine may take longer to start a process."""
    files = charts(VERSION, IMAGES)["muster"]
    path = "templates/job-muster-uninstall.yaml"
    limit = f"activeDeadlineSeconds: {PATIENCE_SECONDS:.0f}".encode()
    assert b"activeDeadlineSeconds: 60" in files[path]
    return archive(folder, "muster", files | {path: files[path].replace(b"activeDeadlineSeconds: 60", limit)})


def _upgrade_the_definitions(cluster: Installation, helm: Helm, folder: Path) -> None:
    """A later release has another definition: what Helm would never do with a folder crds/."""
    files = charts(VERSION, IMAGES)["muster-definitions"]
    path = next(name for name in files if "trainingjobs" in name)
    files[path] = files[path].replace(b"categories:", b"categories:\n    - later", 1)
    assert b"- later" in files[path]
    done(helm("upgrade", "muster-definitions", str(archive(folder, "muster-definitions", files)), SYSTEM))
    assert "later" in cluster.get("crd", "trainingjobs.muster.dev")["spec"]["names"]["categories"]


def _profiles_of_roles(cluster: Installation) -> set[str]:
    roles = cluster.get("clusterroles")["items"]
    return {
        it["metadata"]["labels"]["muster.dev/profile"] for it in roles if "muster.dev/profile" in str(it["metadata"])
    }


def _mark(cluster: Installation) -> None:
    for key in ("muster.dev/unhealthy=Xid79", "nvidia.com/gpu=present"):
        cluster.kubectl("taint", "node", MARKED, f"{key}:NoSchedule", "--overwrite")
    condition = {"type": "MusterHealthy", "status": "False", "reason": "Xid79"}
    patch = json.dumps({"status": {"conditions": [condition]}})
    cluster.kubectl("patch", "node", MARKED, "--subresource=status", "--type=strategic", f"--patch={patch}")
    assert len(_marks(cluster)) == 2


def _marks(cluster: Installation) -> list[str]:
    node = cluster.get("node", MARKED)
    names = [it["key"] for it in node["spec"].get("taints", ())] + [it["type"] for it in node["status"]["conditions"]]
    return [name for name in names if "muster" in name.lower()]


def _others(cluster: Installation) -> list[str]:
    return [it["key"] for it in cluster.get("node", MARKED)["spec"].get("taints", ()) if "muster" not in it["key"]]


def _of_muster(cluster: Installation) -> list[str]:
    names = [each["metadata"]["name"] for each in cluster.get(EVERYTHING)["items"]]
    return sorted(name for name in names if name.startswith("muster"))


class kubelet:  # noqa: N801 - a context manager
    """Runs the hook's program once its pod is there, and says that the pod has succeeded."""

    def __init__(self, cluster: Installation, folder: Path, wait_until: Callable[..., Any]) -> None:
        self._cluster, self._folder, self._wait_until = cluster, folder, wait_until
        self._thread = threading.Thread(target=self._run)
        self._problem: BaseException | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            self._play()
        except BaseException as error:  # noqa: BLE001 - raised where the test waits
            self._problem = error

    def _play(self) -> None:
        cluster = self._cluster
        pods = lambda: cluster.get("pods", SYSTEM, PODS_OF_HOOK)["items"]  # noqa: E731
        [pod] = self._wait_until(pods, "the pod of the hook")
        assert pod["spec"]["serviceAccountName"] == HOOK
        command = pod["spec"]["containers"][0]["command"]
        assert command == ["python3", "-m", "muster.controller.unmark"]
        token = cluster.token(HOOK, "muster-system")
        said = _run_program(_kubeconfig(cluster, self._folder, token, cluster.control_plane.server))
        assert said == "Muster's marks were removed from 1 node. No node has one.\n"
        status = {"status": {"phase": "Succeeded"}}
        name = pod["metadata"]["name"]
        cluster.kubectl("patch", "pod", name, SYSTEM, "--subresource=status", f"--patch={json.dumps(status)}")


def _run_program(kubeconfig: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(kubeconfig)}
    result = subprocess.run(
        [sys.executable, "-m", "muster.controller.unmark"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def _kubeconfig(cluster: Installation, folder: Path, token: str, server: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "it", "cluster": {"server": server, "certificate-authority": str(cluster.control_plane.pki.ca)}}
        ],
        "users": [{"name": HOOK, "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": HOOK}}],
        "current-context": "it",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
