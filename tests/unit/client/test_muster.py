"""The connection of a program: where it leads, what it creates and lists, and what it says where it cannot."""

import asyncio
import gc
from typing import Any

import pytest
from tests.unit.cli.test_status import JOBS, a_job
from tests.unit.client.conftest import WatchedApi

from muster.client import (
    InvalidJobError,
    JobNotFoundError,
    JobRefusedError,
    Muster,
    MusterError,
    NotAuthenticatedError,
    NotConnectedError,
    NotPermittedError,
    training_job,
)
from muster.kube import errors

MINE = training_job("mine", image="i:1", command=["torchrun", "train.py"], nodes=2)
NOT_ENABLED = (
    "trainingjobs.muster.dev \"mine\" is forbidden: ValidatingAdmissionPolicy 'muster-training' with binding "
    "'muster-training' denied request: namespace team-a is not enabled for training: an administrator enables it: "
    "kubectl label namespace team-a muster.dev/training=enabled"
)


def test_it_connects_as_kubectl_does(api: WatchedApi) -> None:
    with Muster() as muster:
        assert (muster.namespace, api.asked) == ("team-a", ["context prod"])
    assert api.closed
    with Muster("team-b", context="lab") as muster:
        assert (muster.namespace, api.asked[-1]) == ("team-b", "context lab")


@pytest.mark.usefixtures("api")
def test_without_a_kubeconfig_it_says_what_to_give() -> None:
    with pytest.raises(NotConnectedError, match="there is no kubeconfig at /none: set KUBECONFIG or give kubeconfig="):
        Muster(kubeconfig="/none")
    with pytest.raises(NotConnectedError, match=r"has no context 'prot': give context=NAME \(lab, prod\)"):
        Muster(context="prot")


async def test_it_works_where_an_event_loop_runs(api: WatchedApi) -> None:
    asyncio.get_running_loop()
    with Muster() as muster:
        assert muster.job("llama").uid == "u"


def test_a_job_keeps_the_connection_and_the_last_use_closes_it(api: WatchedApi) -> None:
    job = Muster().job("llama")
    gc.collect()
    assert job.status().state == "Running"
    del job
    gc.collect()
    assert api.closed


def test_a_closed_connection_says_so(muster: Muster) -> None:
    muster.close()
    muster.close()
    with pytest.raises(NotConnectedError, match=r"make another one with Muster\(\)"):
        muster.jobs()


def test_it_submits_into_the_namespace_of_the_connection(api: WatchedApi, muster: Muster) -> None:
    job = muster.submit(MINE)
    assert (job.name, job.namespace, repr(job)) == ("mine", "team-a", "Job(team-a/mine)")
    assert api.written == [("POST", JOBS, MINE)]


def test_a_namespace_of_the_manifest_counts_unless_another_one_was_given(api: WatchedApi, muster: Muster) -> None:
    there = {**MINE, "metadata": {"name": "mine", "namespace": "team-b"}}
    assert muster.submit(there, name="other").namespace == "team-b"
    assert api.written[-1][1] == JOBS.replace("team-a", "team-b")
    assert api.written[-1][2]["metadata"] == {"name": "other", "namespace": "team-b"}
    with (
        Muster("team-c") as given,
        pytest.raises(InvalidJobError, match=r"^metadata\.namespace: team-b is not the team-c"),
    ):
        given.submit(there)


def test_a_wrong_field_is_not_sent(api: WatchedApi, muster: Muster) -> None:
    with pytest.raises(InvalidJobError, match=r"^spec\.node: there is no such field: did you mean nodes\?$"):
        muster.submit({**MINE, "spec": {**MINE["spec"], "node": 2}})
    assert api.written == []


CAUSES = {"causes": [{"field": "spec.placement.segmentSize", "message": "segmentSize does not divide spec.nodes"}]}


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (errors.Denied(403, "Forbidden", NOT_ENABLED), JobRefusedError, "enables it: kubectl label namespace team-a"),
        (errors.Denied(403, "Forbidden", "no params found for policy binding"), JobRefusedError, "kubectl create -f"),
        (
            errors.AlreadyExists(409, "AlreadyExists", 'trainingjobs.muster.dev "mine" already exists'),
            JobRefusedError,
            "choose another name, or continue with that job by job(name)",
        ),
        (
            errors.Forbidden(403, "Forbidden", 'trainingjobs "mine" is forbidden: exceeded quota: q'),
            JobRefusedError,
            "exceeded quota: q",
        ),
        (
            errors.Forbidden(403, "Forbidden", "cannot create resource"),
            NotPermittedError,
            "ask for the cluster's role edit in this namespace, or give another one with namespace=",
        ),
        (
            errors.NotFound(404, "NotFound", 'namespaces "team-a" not found', {"kind": "namespaces", "name": "team-a"}),
            MusterError,
            "there is no namespace team-a: give another one with namespace=",
        ),
        (
            errors.Invalid(422, "Invalid", "is invalid", CAUSES),
            InvalidJobError,
            "spec.placement.segmentSize: segmentSize does not divide spec.nodes",
        ),
        (errors.Invalid(400, "BadRequest", 'unknown field "spec.x"'), JobRefusedError, 'unknown field "spec.x"'),
        (errors.Unauthorized(401, "Unauthorized", "no"), NotAuthenticatedError, "log in again, or check kubeconfig="),
        (errors.Unreachable(0, "", "no answer"), NotConnectedError, "whether the change was made is not known"),
        (
            errors.NotFound(404, "NotFound", "the server could not find the requested resource"),
            MusterError,
            "does not know Muster's objects (muster.dev/v1alpha1): install Muster",
        ),
    ],
)
def test_a_refusal_is_typed_and_has_the_servers_message(
    api: WatchedApi, muster: Muster, answer: errors.ApiError, error: type[MusterError], says: str
) -> None:
    api.refuses[JOBS] = answer
    with pytest.raises(error) as refused:
        muster.submit(MINE)
    assert type(refused.value) is error
    assert says in str(refused.value)
    assert "--" not in str(refused.value)


def test_the_policy_that_refused_is_named(api: WatchedApi, muster: Muster) -> None:
    api.refuses[JOBS] = errors.Denied(403, "Forbidden", NOT_ENABLED)
    with pytest.raises(JobRefusedError) as refused:
        muster.submit(MINE)
    assert (refused.value.policy, str(refused.value)) == ("muster-training", NOT_ENABLED)


def test_an_unknown_job_is_asked_for_by_its_nearest_name(api: WatchedApi, muster: Muster) -> None:
    api.errors[f"{JOBS}/lama"] = errors.NotFound(404, "NotFound", "not found", {"name": "lama"})
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs", a_job())
    with pytest.raises(JobNotFoundError, match=r"no TrainingJob lama in namespace team-a: did you mean llama\?"):
        muster.job("lama")
    api.lists("/apis/muster.dev/v1alpha1/trainingjobs", a_named("lama", "team-b"))
    with pytest.raises(JobNotFoundError, match=r"but in team-b: give it with namespace=$"):
        muster.job("lama")


def a_named(name: str, namespace: str) -> dict[str, Any]:
    return {**a_job(), "metadata": {**a_job()["metadata"], "name": name, "namespace": namespace}}


def test_it_lists_the_jobs_of_the_namespace(api: WatchedApi, muster: Muster) -> None:
    api.lists(JOBS, a_job(), {**a_named("done", "team-a"), "status": {"state": "Succeeded"}})
    assert [(row.name, row.state) for row in muster.jobs()] == [("llama", "Running")]
    assert [row.name for row in muster.jobs(ended=True)] == ["llama", "done"]
    api.errors[JOBS] = errors.Forbidden(403, "Forbidden", "no", {"group": "muster.dev", "kind": "trainingjobs"})
    api.put("/apis/muster.dev/v1alpha1", {"resources": [{"name": "nodehealths"}, {"name": "trainingjobs"}]})
    with pytest.raises(NotPermittedError, match="ask for ClusterRole muster-view in this namespace"):
        muster.jobs()
