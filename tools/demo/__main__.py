"""Runs the demo: `make demo`. KEEP=1 keeps what it started; CLUSTER=existing uses the cluster in KUBECONFIG."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.faults import FAULTS, Job, Measured, suffer
from demo.story import Story
from demo.trainer_log import TrainerLog, newest_step
from localcluster.cluster import Cluster
from testbed.bed import IMAGES, ROOT, Bed
from testbed.gangwatch import GangWatch
from testbed.kube import wait_until

MANIFEST = ROOT / "examples" / "torch-ddp" / "trainingjob.yaml"
OUTPUT = ROOT / "build" / "demo"
NAMESPACE, NAME, CLAIM, RANKS = "muster-demo", "torch-ddp", "checkpoints", 3
REFERENCE = f"{NAME}-reference"
CHECKPOINT_EVERY = 20
JOB_DEADLINE_SECONDS = 600


def main() -> int:
    """Run everything; 0 only when the job succeeded, three faults were survived and the weights are right."""
    story = Story()
    with cluster(story) as bed:
        report = run(bed, story)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    story.verdict(report, OUTPUT / "report.json")
    kinds = {fault["kind"] for fault in report["faults"]}
    equal = report["final_weights_sha256"] == report["reference_weights_sha256"]
    lost = all(fault["lost_steps"] > 0 for fault in report["faults"])
    return 0 if report["succeeded"] and len(kinds) == len(FAULTS) and equal and lost else 1


@contextmanager
def cluster(story: Story) -> Iterator[Bed]:
    """The cluster with Muster in it; afterwards, unless KEEP is set, what the demo started is taken down."""
    keep, existing = bool(os.environ.get("KEEP")), os.environ.get("CLUSTER") == "existing"
    local = Cluster()
    was_running = existing or local.runs()
    if not was_running:
        story.tell("starting a Kubernetes cluster of four nodes on this machine")
        archives = [Path(entry["archive"]) for entry in json.loads(IMAGES.read_text()).values()]
        local.up(archives=archives, progress=story.detail)
    bed = Bed.open()
    was_installed = bed.kubectl.find("get", "namespace", "muster-system") is not None
    try:
        story.tell("installing Muster: kubectl apply -k manifests/overlays/default")
        bed.install()
        yield bed
    finally:
        if keep:
            story.tell(f"kept, as KEEP asks: KUBECONFIG={bed.kubectl.kubeconfig}")
        elif not was_running:
            local.down(progress=story.detail)
        else:
            bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")
            if not was_installed:
                bed.uninstall()


def run(bed: Bed, story: Story) -> dict[str, object]:
    """The job with its faults, then the same job undisturbed."""
    bed.kubectl("apply", "-f", "-", stdin=manifest(bed))
    folder = bed.cluster.folder_of_claim(NAMESPACE, CLAIM)
    with GangWatch(bed.kubectl, NAMESPACE, NAME) as watch:
        story.tell(f"kubectl apply -f {MANIFEST.relative_to(ROOT)}")
        job = Job(bed, NAMESPACE, NAME, RANKS, TrainerLog(folder / NAME), watch)
        faults = [disturbed(job, story, kind, inject) for kind, inject in FAULTS]
        finish(bed, story, NAME, job.log)
        attempts = watch.latest.attempt if watch.latest else 0
    completion = bed.kubectl.json("get", "trainingjob", "-n", NAMESPACE, NAME)["status"]["completion"]
    story.tell(f"{completion['result']}: {completion['message']}")
    bed.kubectl("delete", "trainingjob", "-n", NAMESPACE, NAME)
    story.tell("the same job once more, undisturbed, for the weights to compare with")
    bed.kubectl("apply", "-f", "-", stdin=manifest(bed, REFERENCE))
    reference = TrainerLog(folder / REFERENCE)
    finish(bed, story, REFERENCE, reference)
    return {
        "succeeded": completion["result"] == "Succeeded",
        "attempts": attempts,
        "faults": [fault.to_json() for fault in faults],
        "final_weights_sha256": TrainerLog(folder / NAME).result()["weights_sha256"],
        "reference_weights_sha256": reference.result()["weights_sha256"],
    }


def manifest(bed: Bed, name: str = NAME) -> str:
    """The example with the image that was built here; for the reference also with a name and folders of its own."""
    text = MANIFEST.read_text()
    text = re.sub(r"image: .*torch-ddp.*", f"image: {bed.images['torch-ddp']}", text)
    if name != NAME:
        text = text.replace(f"name: {NAME}\n", f"name: {name}\n").replace(f"/shared/{NAME}", f"/shared/{name}")
    return text


def disturbed(job: Job, story: Story, kind: str, inject: object) -> Measured:
    """Let it train until some steps after a checkpoint would be lost, then do harm."""
    since = job.watch.latest.attempt if job.watch.latest else 0
    first = newest_step(job.log.lines())

    def ripe() -> bool:
        step = newest_step(job.log.lines())
        story.progress(job.bed, NAMESPACE, NAME, step)
        return step > first and step > CHECKPOINT_EVERY and 5 <= step % CHECKPOINT_EVERY <= 15

    wait_until(f"steps of {NAME}", ripe, JOB_DEADLINE_SECONDS)
    story.harm(kind, newest_step(job.log.lines()))
    measured = suffer(job, kind, inject)  # type: ignore[arg-type]
    story.healed(measured, [state for state in job.watch.seen if state.attempt > since])
    return measured


def finish(bed: Bed, story: Story, name: str, log: TrainerLog) -> None:
    """Wait for the end of a job, showing its progress."""

    def ended() -> bool:
        story.progress(bed, NAMESPACE, name, newest_step(log.lines()))
        job = bed.kubectl.find("get", "trainingjob", "-n", NAMESPACE, name)
        return bool(job and job.get("status", {}).get("completion"))

    wait_until(f"the end of {name}", ended, JOB_DEADLINE_SECONDS, 0.5)


def forget_last_run() -> None:
    """Remove the last report, so that a failing run cannot pass for it."""
    shutil.rmtree(OUTPUT, ignore_errors=True)


if __name__ == "__main__":
    forget_last_run()
    begun = time.monotonic()
    code = main()
    print(f"\n  {time.monotonic() - begun:.0f} s in all")
    sys.exit(code)
