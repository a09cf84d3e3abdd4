"""A gang leaves Muster: before the commit it is looked after as ever, and after it nothing is decided about it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_unfenced_worker, at, failed, running, succeeded
from tests.unit.lifecycle.testbed import JOB, PLAIN, OneJob, steps

from muster.api.gang import Evacuation
from muster.api.trainingjob import TrainingJobStatus
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.step import decide
from muster.status.ejection import obstacle
from simulate.apiserver import Where
from simulate.surroundings import NAMESPACE

Jobs = Callable[..., OneJob]

LEAVE = Evacuation(since=at(90), deadline=at(120), reason="NodeCordoned", nodes=["n1"], after_step=3)
KNOWS = running(1, 7, ejected=False)
GOES = running(1, 7, ejected=True)


def a_gang(**spec: Any) -> Scene:
    """Three workers that train, and whose job is asked to leave."""
    return Scene(a_job(**{"eject": True, **spec})).fleet().gang().pods().all(KNOWS)


def is_ejected(scene: Scene) -> bool:
    """Whether the next decision commits that the gang leaves."""
    commits = [
        action.spec.ejected for action in decide(scene.world(), SETTINGS).actions if isinstance(action, CommitGang)
    ]
    return commits == [True]


def status(scene: Scene) -> TrainingJobStatus:
    plan = decide(scene.world(), SETTINGS)
    assert plan.actions == ()
    assert plan.status is not None
    return plan.status


def test_it_leaves_as_soon_as_all_its_ranks_run() -> None:
    assert is_ejected(a_gang())
    assert is_ejected(a_gang().launcher(1, replace(succeeded(1), ejected=False))), "one that has ended well already"
    assert not is_ejected(a_gang(eject=False))


def test_in_mode_plain_there_is_no_launcher_to_ask() -> None:
    scene = Scene(a_job(eject=True, launch={"mode": "Plain"}, checkpoint={})).fleet().gang().pods()
    assert is_ejected(scene)
    assert not is_ejected(scene.pod(1, deleting=True))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param(
            lambda s: s.launcher(1, replace(KNOWS, heard_age_seconds=60.0)),
            "worker 1 on n1 does not report",
            id="silent",
        ),
        pytest.param(lambda s: s.launcher(1, replace(KNOWS, ejected=None)), "of an earlier release", id="old launcher"),
        pytest.param(
            lambda s: s.launcher(1, replace(KNOWS, attempt=0)), "the ranks of worker 1 on n1 do not run", id="behind"
        ),
        pytest.param(lambda s: s.launcher(1, replace(KNOWS, fenced=True)), "do not run", id="fenced"),
        pytest.param(
            lambda s: s.launcher(1, replace(KNOWS, ranks=())), "not all ranks of worker 1 on n1 are up", id="starting"
        ),
        pytest.param(lambda s: s.pod(1, deleting=True), "the pod of worker 1 on n1 is gone, or going", id="evicted"),
        pytest.param(
            lambda s: replace(s, job=a_job(eject=True, queueing={"preemptible": True})),
            "it is preemptible, and may hold nodes that are reserved for other jobs",
            id="preemptible",
        ),
        pytest.param(lambda s: s.gang(backfilled=True).pods(), "it backfills", id="backfilled"),
        pytest.param(lambda s: s.gang(evacuation=LEAVE).pods(), "about to leave nodes", id="evacuation"),
        pytest.param(
            lambda s: s.gang(unfenced_workers=[an_unfenced_worker("pod-old", 10.0)]).pods(),
            "pod job-old of an earlier attempt may still be alive",
            id="unfenced",
        ),
    ],
)
def test_it_waits_for_what_is_in_its_way(changed: Callable[[Scene], Scene], says: str) -> None:
    scene = changed(a_gang())
    assert scene.record is not None
    assert says in obstacle(scene.world(), scene.record)
    assert not is_ejected(scene)


def test_a_gang_that_waits_to_leave_says_why() -> None:
    scene = a_gang().launcher(1, replace(KNOWS, ejected=None))
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == ("Running", "EjectionWaits")


def test_a_failure_before_restarts_it_as_ever() -> None:
    assert not is_ejected(a_gang().launcher(1, replace(failed(1), ejected=False)))


def test_it_is_ejected_once_every_worker_that_may_live_knows_of_it() -> None:
    scene = a_gang().gang(ejected=True).pods().all(GOES).launcher(2, KNOWS)
    found = status(scene)
    assert (found.state, found.reason) == ("Running", "Ejecting")
    (condition,) = [each for each in found.conditions if each.type == "Ejected"]
    assert condition.status == "False"
    assert "Not heard to know of it: worker 2 on n2." in condition.message
    for known in (scene.launcher(2, GOES), scene.launcher(2, KNOWS).ended(2)):
        found = status(known)
        assert (found.reason, [c.status for c in found.conditions if c.type == "Ejected"]) == ("Ejected", ["True"])


def test_an_ejected_gang_whose_pods_have_ended_needs_a_person() -> None:
    scene = a_gang().gang(ejected=True).pods().all(GOES).ended(0).ended(1)
    assert status(scene).state == "Running"
    found = status(scene.ended(2))
    assert (found.state, found.reason) == ("Stalled", "Ejected")
    assert {c.type: c.status for c in found.conditions if c.reason == "Ejected"} == {
        "Ejected": "True",
        "Running": "False",
        "Stalled": "True",
    }
    assert all("has ended or is gone" in c.message for c in found.conditions if c.reason == "Ejected")


def test_a_suspension_that_comes_after_the_ejection_is_said_to_have_no_effect() -> None:
    scene = a_gang().gang(ejected=True).pods().all(GOES)
    messages = [
        next(c.message for c in status(each).conditions if c.type == "Ejected")
        for each in (scene, replace(scene, job=a_job(eject=True, suspend=True)))
    ]
    assert ["spec.suspend is true, and has no effect any more" in text for text in messages] == [False, True]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda s: s.launcher(1, replace(failed(1), ejected=True)), id="a rank has failed"),
        pytest.param(lambda s: s.all(replace(succeeded(1), ejected=True)), id="all have ended"),
        pytest.param(lambda s: s.node("n1", unschedulable=True), id="a node is cordoned"),
        pytest.param(lambda s: s.nodes.pop("n1") and s, id="a node is gone"),
        pytest.param(lambda s: s.pod(1, deleting=True), id="a pod is evicted"),
        pytest.param(lambda s: s.pod(1, incarnation=2), id="a pod that is no member's"),
        pytest.param(lambda s: (s.but(leader_age_seconds=0.1) and s.launchers.clear()) or s, id="a new leader"),
    ],
)
def test_nothing_is_done_to_a_gang_that_has_left(broken: Callable[[Scene], Scene]) -> None:
    scene = broken(a_gang().gang(ejected=True).pods().all(GOES))
    assert decide(scene.world(), SETTINGS).actions == ()


def test_a_job_that_is_deleted_is_left_to_kubernetes() -> None:
    scene = a_gang().gang(ejected=True).pods().all(GOES)
    meta = scene.job.metadata.model_copy(update={"deletion_timestamp": at(100)})
    scene.job = scene.job.model_copy(update={"metadata": meta})
    assert decide(scene.world(), SETTINGS).actions == ()


def ejecting(submitted: Jobs, **spec: Any) -> OneJob:
    job = submitted(script=steps(400), **spec)
    job.until(lambda: job.status.state == "Running" and job.record.start is not None)
    job.edit(JOB, {"eject": True})
    return job


def condition(job: OneJob) -> str:
    return next((str(each.status) for each in job.status.conditions if each.type == "Ejected"), "")


def orphan(job: OneJob) -> None:
    """What Kubernetes' garbage collector does with what a job owns that is deleted with its dependents orphaned."""
    for resource in ("pods", "gangs", "services", "configmaps", "poddisruptionbudgets"):
        for each in job.server.all(resource):
            meta = each["metadata"]
            if any(owner["uid"] == job.uid for owner in meta.get("ownerReferences") or ()):
                job.server.change(resource, meta["namespace"], meta["name"], {"metadata": {"ownerReferences": None}})


def leave(job: OneJob) -> None:
    """The end of the command: the job is deleted, and its pods are nobody's."""
    orphan(job)
    job.server.delete(Where("trainingjobs", NAMESPACE, JOB, ""), {"propagationPolicy": "Orphan"})


def ranks(job: OneJob) -> list[Any]:
    return [rank for machine in job.machines.values() for worker in machine.workers.values() for rank in worker.ranks]


def test_ranks_train_to_their_end_after_the_job_is_gone(submitted: Jobs) -> None:
    job = ejecting(submitted)
    job.until(lambda: condition(job) == "True")
    pods = job.pods
    leave(job)
    job.run(60)
    assert len([rank for rank in ranks(job) if rank.alive]) == 2
    job.operator_dies(away=10_000.0)
    job.until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in job.server.all("pods")), 2000.0)
    assert job.pods == pods
    assert job.trainers[job.uid].attempts[1].step == 400


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_an_operator_that_dies_on_the_way_leaves_a_gang_that_can_be_ejected(submitted: Jobs, writes: int) -> None:
    job = submitted(script=steps(400))
    job.until(lambda: job.status.state == "Running" and job.record.start is not None)
    job.operator_dies_after(writes)
    job.edit(JOB, {"eject": True})
    job.until(lambda: condition(job) == "True")
    leave(job)
    job.run(60)
    assert len([rank for rank in ranks(job) if rank.alive]) == 2


def test_a_node_that_dies_before_restarts_the_gang_and_then_it_leaves(submitted: Jobs) -> None:
    job = submitted(script=steps(400))
    job.until(lambda: job.status.state == "Running" and job.record.start is not None)
    job.machines["n1"].cut_power()
    job.run(2.0)
    job.edit(JOB, {"eject": True})
    job.until(lambda: job.attempt == 2 and condition(job) == "True")
    assert job.nodes == ["n0", "n2"]


def test_pods_of_mode_plain_train_on_too(submitted: Jobs) -> None:
    job = ejecting(submitted, **PLAIN)
    job.until(lambda: condition(job) == "True")
    leave(job)
    job.run(60)
    assert len([rank for rank in ranks(job) if rank.alive]) == 2


def test_the_same_job_again_waits_until_the_pods_have_ended(submitted: Jobs) -> None:
    job = ejecting(submitted)
    job.until(lambda: condition(job) == "True")
    orphan(job)
    job.replace(JOB)
    job.until(lambda: job.status.reason == "DirectoryInUse")
    job.operator_dies()
    job.run(120)
    assert job.status.reason == "DirectoryInUse"
    message = next(each.message for each in job.status.conditions if each.type == "Placed")
    assert f"job (ejected; {', '.join(job.pods)} may train on; kubectl -n {NAMESPACE} delete pods -l " in message
    for pod in job.pods:
        job.server.delete(Where("pods", NAMESPACE, pod, ""), {"gracePeriodSeconds": 0})
    job.until(lambda: job.status.state == "Running")
