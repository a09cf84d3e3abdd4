"""What users do to jobs, and what they get wrong, on real nodes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from testbed.bed import Bed
from testbed.jobs import Job, manifest
from testbed.kube import KubectlError, wait_until

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]

Submit = Callable[..., Job]


def state(job: Job) -> tuple[str, str]:
    status = job.status()
    return status.get("state", ""), status.get("reason", "")


def condition(job: Job, kind: str) -> dict[str, Any]:
    return next((c for c in job.status().get("conditions", []) if c["type"] == kind), {})


def test_an_application_that_always_fails_gets_three_restarts(submit: Submit) -> None:
    job = submit("always-fails", nodes=2, trainer=["--steps=50", "--fail-at=5", "--exit-code=7", "--always"])
    completion = job.completion()
    assert completion["result"] == "Failed"
    assert completion["reason"] == "ApplicationRestartsExhausted"
    assert "rank 1" in completion["message"]
    assert "code 7" in completion["message"]
    assert "told to fail at step 5" in completion["message"]
    assert len({line["attempt"] for line in job.events("start")}) == 4
    assert condition(job, "Succeeded")["status"] == "False"
    wait_until("its pods to end", lambda: all(p["status"]["phase"] == "Failed" for p in job.pods().values()))


def test_suspend_saves_first_and_resume_goes_on(submit: Submit) -> None:
    job = submit("suspended", nodes=2, trainer=LONG)
    job.wait_step(15)
    saved = job.newest_checkpoint()
    job.bed.kubectl("patch", "tj", "-n", job.namespace, job.name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_until("the suspension", lambda: state(job)[0] == "Suspended")
    wait_until("the pods to go", lambda: not job.pods())
    job.bed.kubectl("patch", "tj", "-n", job.namespace, job.name, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    again = job.wait_training_again(1)
    assert again.resumed_step is not None
    # What was saved shortly before may be heard of only then, and is new to the operator.
    assert again.resumed_step >= saved


def test_deleting_a_running_job_frees_all_and_a_namesake_adopts_nothing(bed: Bed, submit: Submit) -> None:
    job = submit("deleted", nodes=3, trainer=LONG)
    job.wait_step(15)
    first = bed.kubectl.json("get", "tj", "-n", job.namespace, job.name)
    old = {pod["metadata"]["name"] for pod in job.pods().values()}
    bed.kubectl("delete", "tj", "-n", job.namespace, job.name, "--wait=false")
    again = {**first, "metadata": {"name": job.name, "namespace": job.namespace}}
    again.pop("status", None)
    bed.kubectl("create", "-f", "-", stdin=json.dumps(again))
    wait_until("the namesake's pods", lambda: len({p["metadata"]["name"] for p in job.pods().values()} - old) == 3)
    wait_until("the old pods to go", lambda: not old & {p["metadata"]["name"] for p in job.pods().values()})
    assert job.current().attempt == 1
    wait_until("one gang", lambda: len(gangs_of(job)) == 1)


def gangs_of(job: Job) -> list[dict[str, Any]]:
    gangs = job.bed.kubectl.json("get", "gangs", "-n", job.namespace)["items"]
    return [g for g in gangs if any(o["name"] == job.name for o in g["metadata"].get("ownerReferences", ()))]


def test_a_finished_job_is_deleted_after_its_time_to_live(bed: Bed, submit: Submit) -> None:
    job = submit("ttl", nodes=1, trainer=SHORT, completion={"ttlSecondsAfterFinished": 3})
    wait_until("the job to go", lambda: bed.kubectl.find("get", "tj", "-n", job.namespace, job.name) is None)
    assert job.events("done")


def test_a_sidecar_hides_neither_a_death_nor_the_end(bed: Bed, submit: Submit) -> None:
    forever = ["python3", "-c", "import time; time.sleep(1000000)"]
    trainer = ["--steps=60", "--step-seconds=0.1", "--checkpoint-every=10", "--hold-at=40"]
    job = submit("sidecar", nodes=2, trainer=trainer, sidecar=forever)
    job.wait_step(15)
    pod = job.pods()[1]
    container = bed.cluster.pids_of(pod["spec"]["nodeName"], job.namespace, pod["metadata"]["name"], "trainer")
    os.kill(container[0].pid, signal.SIGKILL)  # the launcher itself, and with it the container
    again = job.wait_training_again(1)
    assert (again.level, again.reason) == ("R0b", "PodEnded")
    assert job.completion()["result"] == "Succeeded"
    wait_until("the sidecars to end", lambda: not any(map(_runs, job.pods().values())))


def _runs(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] == "Running"


def test_a_directory_that_not_all_workers_share_stalls_the_job(bed: Bed, submit: Submit) -> None:
    """It stays stalled until somebody decides from where to resume."""
    own = "/tmp/checkpoints"  # an emptyDir: what rank 0 saves there the others do not see
    job = submit("not-shared", nodes=2, trainer=[*LONG, f"--checkpoint-dir={own}"], checkpoint={"directory": own})
    job.wait_step(25)
    wish = ("patch", "tj", "-n", job.namespace, job.name, "--type=merge", "-p")
    asked = '{"spec":{"checkpoint":{"resumeFrom":"Scratch"}}}'
    with pytest.raises(KubectlError, match=r"only while the job is stalled or suspended"):
        bed.kubectl(*wish, asked)
    job.signal_rank(1)
    wait_until("the job to stall", lambda: state(job) == ("Stalled", "CheckpointNotVisible"))
    message = condition(job, "Stalled")["message"]
    assert "worker 1 on" in message
    assert "does not see checkpoint" in message
    assert "set spec.checkpoint.resumeFrom to Scratch" in message
    assert {line["attempt"] for line in job.events("step")} == {1}, "nothing starts from scratch unasked"
    bed.kubectl(*wish, asked)
    again = job.wait_training_again(1)
    assert again.resumed_step is None
    assert min(line["step"] for line in job.events("step", again.attempt)) == 1


def test_a_job_may_say_itself_what_its_checkpoints_are_called(submit: Submit) -> None:
    trainer = ["--steps=150", "--step-seconds=0.1", "--checkpoint-every=10", "--fail-at=15"]
    job = submit("named", nodes=2, trainer=trainer, pattern="step-{step}/state.json")
    assert job.completion()["result"] == "Succeeded"
    assert [line["step"] for line in job.events("resumed") if line["rank"] == 0] == [10]
    found = job.status()["checkpoint"]
    assert found["format"] == "Pattern"
    assert found["step"] >= 20, "of the second attempt; the last save of all may not be told of before the end is"


def test_a_trainer_that_does_not_load_its_checkpoint_is_stopped_once(submit: Submit) -> None:
    job = submit("forgets", nodes=2, trainer=[*LONG, "--forget"], recovery={"applicationRestartsPerDay": 9})
    job.wait_step(25)
    job.signal_rank(1)
    wait_until("the second stop", lambda: "ResumedBehind" in incidents(job))
    job.wait_step(5, attempt=3)
    wait_until("the status to tell", lambda: state(job) == ("Running", "ResumedBehind"))
    assert "MUSTER_RESUME_PATH" in condition(job, "Running")["message"]
    step = job.step(3)
    job.wait_step(step + 20, attempt=3)
    assert job.current().attempt == 3, "the second time it is left alone"


def incidents(job: Job) -> list[str]:
    return [incident["reason"] for incident in job.status().get("incidents", ())]


def test_several_ranks_on_each_node(submit: Submit) -> None:
    job = submit("two-each", nodes=2, trainer=SHORT, launch={"processesPerNode": 2})
    assert job.completion()["result"] == "Succeeded"
    assert {line["rank"] for line in job.events("done")} == {0, 1, 2, 3}
    assert len(job.weights()) == 1


def test_an_image_that_cannot_be_pulled_is_named(submit: Submit) -> None:
    job = submit("no-image", nodes=1, image="registry.invalid/nothing:1")
    wait_until("the reason", lambda: state(job)[1] in ("ErrImagePull", "ImagePullBackOff"))
    assert "registry.invalid/nothing:1" in condition(job, "Running")["message"]


def test_a_command_is_needed_in_managed_mode(submit: Submit) -> None:
    job = submit("no-command", nodes=1, command=[])
    wait_until("the verdict", lambda: state(job) == ("Stalled", "CommandMissing"))
    assert "spec.launch.mode" in condition(job, "Stalled")["message"]


def test_training_survives_a_restart_of_the_api_server(bed: Bed, submit: Submit) -> None:
    job = submit("api-restart", nodes=2, trainer=LONG)
    job.wait_step(15)
    bed.cluster.restart_apiserver()
    wait_until("the API server", lambda: bed.kubectl("get", "--raw", "/readyz", check=False) == "ok")
    step = job.step()
    job.wait_step(step + 20)
    job.signal_rank(0)
    wait_until("a step of the next attempt", lambda: len({e["rank"] for e in job.events("step", 2)}) == 2)


def test_the_manifest_of_these_tests_is_what_users_write(bed: Bed, namespace: str) -> None:
    """Strict validation accepts it: no field that does not exist, no default that has to be spelled."""
    body = manifest(bed, namespace, "strict", 1, SHORT)
    assert "created (server dry run)" in bed.kubectl(
        "create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(body)
    )
