"""Runs the demo: `make demo`. KEEP=1 keeps what it started; CLUSTER=existing uses the cluster in KUBECONFIG.

For clusters that differ: IMAGE_PREFIX and IMAGE_TAG (where the images are), STORAGE_CLASS (a ReadWriteMany one),
DEMO_STEPS (a shorter or longer training).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from typing import Any

from demo import burnin
from demo.account import account
from demo.faults import Job, Measured, rounded, suffer
from demo.stage import cluster
from demo.story import Story
from demo.trainer_log import HostFiles, PodFiles, TrainerLog, newest_checkpoint, newest_step
from testbed.bed import ROOT, Bed
from testbed.gangwatch import GangWatch
from testbed.harm import FAULTS, Fault
from testbed.kube import wait_until

MANIFEST = ROOT / "examples" / "torch-ddp" / "trainingjob.yaml"
OUTPUT = ROOT / "build" / "demo"
NAMESPACE, NAME, CLAIM, RANKS = "muster-demo", "torch-ddp", "checkpoints", 3
REFERENCE = f"{NAME}-reference"
READER = "log-reader"
CHECKPOINT_EVERY = 20
JOB_DEADLINE_SECONDS = 600


def main() -> int:
    """Run everything; 0 only when the job succeeded, every fault was survived and accounted for, and the weights are
    right."""
    shutil.rmtree(OUTPUT, ignore_errors=True)  # a run that fails must not leave the report of one that did not
    story = Story()
    with cluster(story, NAMESPACE) as bed:
        faults = FAULTS if bed.local else {kind: fault for kind, fault in FAULTS.items() if kind != "NodePowerCut"}
        report = run(bed, story, faults)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    good = (
        report["succeeded"]
        and (report["burn_in"] or {}).get("victim", "") == report["bad_node"]
        and {fault["kind"] for fault in report["faults"]} == set(faults)
        and all(fault["lost_steps"] >= 0 for fault in report["faults"])
        and report["account"]["agrees"]
        and report["final_weights_sha256"] == report["reference_weights_sha256"]
    )
    story.verdict(report, OUTPUT / "report.json")
    return 0 if good else 1


def run(bed: Bed, story: Story, faults: dict[str, Fault]) -> dict[str, Any]:
    """The job with its faults, then the same job undisturbed."""
    bad = burnin.spoil(bed, story)
    story.tell(f"kubectl apply -f {MANIFEST.relative_to(ROOT)}")
    bed.kubectl("apply", "-f", "-", stdin=manifest(bed))
    log = trainer_log(bed, NAME)
    with GangWatch(bed.kubectl, NAMESPACE, NAME) as watch:
        found = burnin.found(bed, story, watch, bad) if bad else None
        if found:
            burnin.repair(bed, story, bad)
        job = Job(bed, NAMESPACE, NAME, RANKS, log, watch)
        suffered = [disturbed(job, story, kind, inject) for kind, inject in faults.items()]
        finish(bed, story, NAME, log)
        attempts = watch.latest.attempt if watch.latest else 0
    completion = bed.kubectl.json("get", "trainingjob", "-n", NAMESPACE, NAME)["status"]["completion"]
    story.tell(f"{completion['result']}: {completion['message']}")
    told = account(bed, f"{NAMESPACE}/{NAME}", suffered)
    for fault in suffered:
        if fault.kind == "NodePowerCut":
            story.tell(f"{fault.victim} is switched on again")
            bed.cluster.power_on(fault.victim)
    story.tell("the same job once more, undisturbed, for the weights to compare with")
    bed.kubectl("apply", "-f", "-", stdin=manifest(bed, REFERENCE))
    reference = trainer_log(bed, REFERENCE)
    finish(bed, story, REFERENCE, reference)
    story.report(f"{NAMESPACE}/{NAME}", told)
    return {
        "succeeded": completion["result"] == "Succeeded",
        "attempts": attempts,
        "bad_node": bad,
        "burn_in": rounded(found) if found else None,
        "faults": [rounded(fault) for fault in suffered],
        "account": {**told.to_json(), "agrees": told.agrees},
        "final_weights_sha256": log.result()["weights_sha256"],
        "reference_weights_sha256": reference.result()["weights_sha256"],
    }


def manifest(bed: Bed, name: str = NAME) -> str:
    """The example with the image that was built here; for the reference also with a name and folders of its own."""
    text = re.sub(r"image: .*torch-ddp.*", f"image: {bed.images['torch-ddp']}", MANIFEST.read_text())
    if "STORAGE_CLASS" in os.environ:
        text = re.sub(r"storageClassName: .*", f"storageClassName: {os.environ['STORAGE_CLASS']}", text)
    if "DEMO_STEPS" in os.environ:
        text = re.sub(r"--steps=\d+", f"--steps={int(os.environ['DEMO_STEPS'])}", text)
    if name != NAME:
        text = text.replace(f"name: {NAME}\n", f"name: {name}\n").replace(f"/shared/{NAME}", f"/shared/{name}")
    return text


def trainer_log(bed: Bed, name: str) -> TrainerLog:
    """The trainer's own log of a job: on this host, or through a pod where the cluster is somebody else's."""
    if bed.local:
        return TrainerLog(HostFiles(bed.local.folder_of_claim(NAMESPACE, CLAIM) / name))
    if not bed.kubectl.find("get", "pod", "-n", NAMESPACE, READER):
        bed.kubectl("apply", "-f", "-", stdin=json.dumps(reader(bed)))
        bed.kubectl(
            "wait", "pod", "-n", NAMESPACE, READER, "--for=condition=Ready", "--timeout=300s", timeout_seconds=310
        )

    def execute(program: str) -> str:
        return bed.kubectl("exec", "-n", NAMESPACE, READER, "--", "python3", "-c", program)

    return TrainerLog(PodFiles(execute, f"/shared/{name}"))


def reader(bed: Bed) -> dict[str, Any]:
    """A pod that sees the shared volume and does nothing."""
    container = {
        "name": "reader",
        "image": bed.images["torch-ddp"],
        "command": ["python3", "-c", "import time; time.sleep(86400)"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared", "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": READER, "namespace": NAMESPACE}, "spec": spec}


def disturbed(job: Job, story: Story, kind: str, inject: Fault) -> Measured:
    """Let it train until some steps after a checkpoint would be lost, then do harm."""
    since = job.watch.latest.attempt if job.watch.latest else 1
    first = newest_step(job.log.lines())

    def ripe() -> bool:
        lines = job.log.lines()
        step = newest_step(lines)
        story.progress(job.bed, NAMESPACE, NAME, step, newest_checkpoint(lines))
        return step > first and step > CHECKPOINT_EVERY and 5 <= step % CHECKPOINT_EVERY <= 15

    wait_until(f"steps of {NAME}", ripe, JOB_DEADLINE_SECONDS, job.log.pause_seconds)
    story.harm(kind, newest_step(job.log.lines()))
    measured = suffer(job, kind, inject)
    story.healed(measured, [state for state in job.watch.seen if state.attempt > since])
    return measured


def finish(bed: Bed, story: Story, name: str, log: TrainerLog) -> None:
    """Wait for the end of a job, showing its progress."""

    def ended() -> bool:
        lines = log.lines()
        story.progress(bed, NAMESPACE, name, newest_step(lines), newest_checkpoint(lines))
        job = bed.kubectl.find("get", "trainingjob", "-n", NAMESPACE, name)
        return bool(job and job.get("status", {}).get("completion"))

    wait_until(f"the end of {name}", ended, JOB_DEADLINE_SECONDS, max(0.5, log.pause_seconds))


if __name__ == "__main__":
    sys.exit(main())
