"""What someone does who has the folder of a release, and sees of a gang meanwhile."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localcluster.patience import PATIENCE_SECONDS
from testbed.bed import ROOT, Bed
from testbed.harm import Fault, Victim
from testbed.kube import wait_until

EXAMPLE = ROOT / "examples" / "torch-ddp" / "trainingjob.yaml"
NAMESPACE = "muster-demo"
PARTS = (
    ("deployment/muster", "muster-system"),
    ("daemonset/muster-agent", "muster-agent"),
    ("daemonset/muster-check", "muster-check"),
)
KINDS = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,namespaces"
LIMIT = [{"op": "add", "path": "/spec/queueing/limits/-", "value": {"namespace": NAMESPACE, "nodes": 3}}]
ENDLESS = 1_000_000


@dataclass(frozen=True)
class Stranger:
    """Someone with the folder of a release, kubectl, Helm and cosign, and nothing else."""

    folder: Path
    programs: Path
    bed: Bed

    def at(self, folder: Path) -> Stranger:
        """The same one with another release."""
        return replace(self, folder=folder)

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command in the folder of the release."""
        environment = {
            "PATH": f"{self.programs}:{self.bed.cluster.kubectl.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.programs.parent),
            "KUBECONFIG": str(self.bed.kubectl.kubeconfig),
        }
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str) -> str:
        return self.run("kubectl", *arguments)

    def items(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind, of all namespaces."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-A", "-o", "json"))["items"]
        return found

    def installed(self) -> set[str]:
        """What the cluster has of the kinds that an installation adds to."""
        return set(self.kubectl("get", KINDS, "-o", "name").split())

    def take(self) -> None:
        """Check the folder, take its command, and have its images on the nodes."""
        bundle = ("--bundle=SHA256SUMS.sigstore.json", "SHA256SUMS")
        self.run("unshare", "--net", "cosign", "verify-blob", "--insecure-ignore-tlog", "--key=cosign.pub", *bundle)
        self.run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
        self.take_command()
        self.bed.cluster.load(sorted((self.folder / "images").glob("*.tar")))

    def take_command(self) -> None:
        self.run("tar", "-xzf", "kubectl-muster-linux-amd64.tar.gz", "-C", str(self.programs), "kubectl-muster")

    def doctor(self, *options: str) -> list[dict[str, Any]]:
        """What the release's command finds about what is installed."""
        told = self.run("kubectl", "muster", "doctor", *options, "-o", "json", check=False)
        rows: list[dict[str, Any]] = json.loads(told)["rows"]
        return rows

    def rolled_out(self, *without: str) -> None:
        """Wait until what is installed runs, all with this release's images."""
        for workload, namespace in PARTS:
            if namespace not in without:
                self.kubectl("rollout", "status", workload, "-n", namespace, f"--timeout={PATIENCE_SECONDS}s")
        digests = {line.rpartition("@")[2] for line in (self.folder / "images.txt").read_text().splitlines()}
        namespaces = {namespace for _, namespace in PARTS}
        running = [it for it in self.items("pods") if it["metadata"]["namespace"] in namespaces]
        images = {it["spec"]["containers"][0]["image"] for it in running if "deletionTimestamp" not in it["metadata"]}
        assert {image.rpartition("@")[2] for image in images} <= digests

    def submit(self, name: str, steps: int = ENDLESS) -> Gang:
        """The example of three nodes, under this name."""
        text = re.sub(r"image: .*torch-ddp.*", f"image: {self.bed.images['torch-ddp']}", EXAMPLE.read_text())
        text = text.replace("/shared/torch-ddp", f"/shared/{name}").replace("name: torch-ddp", f"name: {name}")
        job = self.programs.parent / f"{name}.yaml"
        job.write_text(text.replace("--steps=240", f"--steps={steps}"))
        apply = ("kubectl", "apply", "-f", str(job))  # the API server refuses the job until it knows label and limit
        wait_until("the job", lambda: f"trainingjob.muster.dev/{name}" in self.run(*apply, check=False))
        gang = Gang(self, name)
        wait_until("a step", lambda: gang.trains_beyond(0, restarts=0))
        return gang

    def remove_jobs(self) -> None:
        self.kubectl("delete", "trainingjobs", "--all", "--all-namespaces", "--cascade=foreground")


@dataclass(frozen=True)
class Gang:
    """A job of the stranger's, as `kubectl muster status` and kubectl have it."""

    stranger: Stranger
    name: str

    @property
    def victim(self) -> Victim:
        return Victim(self.stranger.bed, NAMESPACE, self.name)

    def status(self) -> dict[str, Any]:
        told = self.stranger.kubectl("muster", "status", f"{NAMESPACE}/{self.name}", "-o", "json")
        found: dict[str, Any] = json.loads(told)
        return found

    def trains_beyond(self, step: int, restarts: int) -> dict[str, Any] | None:
        """The status once it has made steps after so many restarts."""
        it = self.status()
        return it if it["restarts"] >= restarts and (it.get("step") or 0) > step else None

    def survives(self, fault: Fault) -> None:
        """It trains again after the fault, beyond where it was."""
        before = self.status()
        fault(self.victim)
        step, restarts = before["step"], before["restarts"] + 1
        wait_until(f"training after {fault.__name__}", lambda: self.trains_beyond(step, restarts))

    def pods(self) -> dict[int, tuple[str, int]]:
        """UID of each worker's pod, and how often its trainer was started again."""
        return {
            index: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
            for index, pod in self.victim.member_pods().items()
        }

    @contextlib.contextmanager
    def keeps_on(self) -> Iterator[None]:
        """Whatever happens meanwhile, every rank goes on in its pod and makes steps, and no record is lost."""
        before, pods, records = self.status(), self.pods(), self.records()
        assert len(pods) == before["nodesWanted"]
        yield
        now = wait_until("a step meanwhile", lambda: self.trains_beyond(before["step"], restarts=0))
        wait_until("a step afterwards", lambda: self.trains_beyond(now["step"], restarts=0))
        assert (self.status()["attempt"], self.pods()) == (before["attempt"], pods)
        assert records <= self.records()

    def records(self) -> set[tuple[str, str]]:
        """What is kept: incidents of this gang, nodes that are known, and jobs that have ended."""
        job = self.stranger.kubectl("get", "trainingjob", "-n", NAMESPACE, self.name, "-o", "jsonpath={.metadata.uid}")
        get = self.stranger.items
        gangs = [it["spec"] for it in get("gangs") if it["spec"]["jobUid"] == job]
        return {
            *((it["time"], it["reason"]) for gang in gangs for it in gang.get("incidents", ())),
            *((kind, it["metadata"]["name"]) for kind in ("nodehealths", "endedjobs") for it in get(kind)),
        }
