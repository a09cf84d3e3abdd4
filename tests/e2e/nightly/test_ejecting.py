"""A gang that leaves Muster: its real ranks train to their end, with the operator there, and with it gone."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.faults import reference_weights

from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

STEPS = 600
TRAINER = [f"--steps={STEPS}", "--step-seconds=0.1", "--checkpoint-every=10", "--keep=20"]

Submit = Callable[..., Job]


def test_ejected_ranks_train_to_their_end_while_the_next_job_waits(bed: Bed, submit: Submit) -> None:
    job = submit("leaves", nodes=2, trainer=TRAINER)
    job.wait_step(25)
    directory = {"checkpoint": {"directory": f"/shared/{job.name}/checkpoints"}}
    result = bed.muster("eject", "-n", job.namespace, job.name, "--yes", "--save", f"{job.folder}/job.yaml")
    assert result.returncode == 0, result.stderr
    try:
        assert f"{job.namespace}/{job.name} is ejected: 2 pods may train on" in result.stdout
        assert job.status() == {}, "its TrainingJob is gone"
        after = submit("waits", nodes=2, trainer=TRAINER, **directory)
        wait_until("the next job to wait", lambda: after.status().get("reason") == "DirectoryInUse")
        bed.kubectl("-n", SYSTEM_NAMESPACE, "scale", "deployment/muster", "--replicas=0")
        wait_until("the ejected pods to end", lambda: phases(job) == {"Succeeded"})
        assert {line["attempt"] for line in job.events("start")} == {1}
        assert job.weights() == {reference_weights(STEPS, 2)}
        bed.kubectl("-n", SYSTEM_NAMESPACE, "scale", "deployment/muster", "--replicas=2")
        wait_until("the next job to run", lambda: after.status().get("state") in ("Running", "Succeeded"))
    finally:
        bed.kubectl("-n", SYSTEM_NAMESPACE, "scale", "deployment/muster", "--replicas=2")
        bed.kubectl("-n", job.namespace, "delete", "pods,services,configmaps,pdb", "-l", f"muster.dev/job={job.name}")


def phases(job: Job) -> set[str]:
    return {pod["status"]["phase"] for pod in job.pods().values()}
