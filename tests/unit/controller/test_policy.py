"""What the FleetPolicy holds jobs to, and what holds while it cannot be read."""

from typing import Any

import pytest
from tests.unit.controller.conftest import naming

from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.controller.cluster import CLASS_AWAY_SECONDS
from muster.kube.decode import PriorityClass, Undecodable
from muster.world.job import TemplateVerdict, VerdictKind
from muster.world.views import NodeView

UNREADABLE = Undecodable("", "default", "p", 60, 2, "spec.topology: bad")


def policy(version: int = 50, **spec: Any) -> FleetPolicy:
    meta = {"name": "default", "uid": "p", "resourceVersion": str(version)}
    return FleetPolicy.model_validate({"metadata": meta, "spec": spec})


def test_what_the_policy_said_holds_while_it_cannot_be_read(scene: Any) -> None:
    cluster = scene.cluster
    cluster.policies.store.assume(policy(acceleratorResource="amd.com/gpu"))
    cluster.policies.store.assume(UNREADABLE)
    assert cluster.policy().accelerator_resource == "amd.com/gpu"
    assert cluster.fleet.policy.accelerator_resource == "amd.com/gpu"
    assert (cluster.policy_problem, cluster.policy_unknown) == ("spec.topology: bad", False)
    cluster.policies.store.assume(policy(70))
    assert cluster.policy() == FleetPolicySpec()
    assert cluster.policy_problem == ""


def test_a_policy_that_was_never_read_is_unknown(scene: Any) -> None:
    cluster = scene.cluster
    cluster.policies.store.assume_deleted(("", "default"), "policy")
    assert not cluster.policy_unknown
    cluster.policies.store.assume(UNREADABLE)
    assert cluster.policy_unknown
    cluster.policies.store.assume_deleted(("", "default"), "p")
    assert not cluster.policy_unknown


def test_a_policy_that_was_never_read_puts_all_nodes_outside(scene: Any) -> None:
    cluster = scene.cluster
    cluster.nodes.store.assume(NodeView("n0", "n0", 1, {}, ready=True))
    cluster.policies.store.assume_deleted(("", "default"), "policy")
    assert not cluster.fleet.outside
    cluster.policies.store.assume(UNREADABLE)
    assert (set(cluster.fleet.outside), cluster.scope_unknown) == ({"n0"}, True)
    cluster.policies.store.assume_deleted(("", "default"), "p")
    assert (set(cluster.fleet.outside), cluster.scope_unknown) == ({"n0"}, True)
    scene.apply_policy({}, version=70, uid="another")
    assert (set(cluster.fleet.outside), cluster.scope_unknown) == (set(), False)


@pytest.mark.parametrize(
    ("listed", "named", "want"),
    [
        ([], "urgent", 1000),
        ([], "system-node-critical", 7),
        ([], "system-cluster-critical", 7),
        ([], "unknown", 0),
        ([], "", 7),
        (["urgent"], "urgent", 1000),
        (["other"], "urgent", 7),
        (["system-node-critical"], "system-node-critical", 2_000_001_000),
    ],
)
def test_only_classes_that_the_policy_lets_count_put_a_job_first(
    scene: Any, make: Any, listed: list[str], named: str, want: int
) -> None:
    values = {
        "urgent": 1000,
        "system-node-critical": 2_000_001_000,
        "system-cluster-critical": 2_000_000_000,
        "usual": 7,
        "second-default": 9,  # the API server gives pods the smallest
    }
    for name, value in values.items():
        is_default = name in ("usual", "second-default")
        scene.cluster.priorities.store.assume(PriorityClass(name, value, is_default, 1))
    scene.cluster.policies.store.assume(policy(queueing={"priorityClasses": listed}))
    job = naming(make.job(), named)
    assert scene.cluster.priority_of(job) == want


@pytest.mark.parametrize(
    ("listed", "counts", "preempts", "namespaces", "want"),
    [
        (["urgent"], [], True, ["ns"], "urgent"),
        (["urgent"], ["urgent"], True, ["other", "ns"], "urgent"),
        (["urgent"], [], True, ["other"], ""),
        (["urgent"], [], False, ["ns"], ""),
        (["urgent"], ["usual"], True, ["ns"], ""),
        (["other"], [], True, ["ns"], ""),
        ([], [], True, [], ""),
    ],
)
def test_which_class_preempts(
    scene: Any, make: Any, listed: list[str], counts: list[str], preempts: bool, namespaces: list[str], want: str
) -> None:
    classes = [{"name": name, "namespaces": namespaces} for name in listed]
    queueing = {"priorityClasses": counts, "preemption": {"priorityClasses": classes}}
    scene.cluster.policies.store.assume(policy(queueing=queueing))
    job = naming(make.job(), "urgent")
    assert scene.cluster.preempts_by(job) == "", "a class that is gone preempts none"
    scene.cluster.priorities.store.assume(PriorityClass("urgent", 1000, False, 1, preempts))
    assert scene.cluster.preempts_by(job) == want


@pytest.mark.parametrize(
    ("kind", "event_type", "at_once", "later"),
    [
        (VerdictKind.REFUSED, "ADDED", True, True),
        (VerdictKind.ACCEPTED, "ADDED", False, False),
        (VerdictKind.ACCEPTED, "MODIFIED", False, False),
        (VerdictKind.ACCEPTED, "DELETED", False, True),
    ],
)
@pytest.mark.parametrize("named", ["top", "other"])
def test_templates_that_name_a_class_are_tried_again(
    scene: Any, make: Any, clock: Any, kind: VerdictKind, event_type: str, at_once: bool, later: bool, named: str
) -> None:
    cluster, job = scene.cluster, naming(make.job("a"), named)
    if event_type != "ADDED":
        cluster.priorities.store.apply("ADDED", PriorityClass("top", 9, False, 1))
    cluster.jobs.store.assume(job)
    cluster.memory(job.metadata.uid).template_verdict = TemplateVerdict(kind, 1)
    cluster.priorities.store.apply(event_type, PriorityClass("top", 9, False, 2))
    for expected in (at_once, later):
        assert (cluster.world(job).template_verdict.generation == 0) == (expected and named == "top")
        clock.advance(CLASS_AWAY_SECONDS)


def test_a_namespace_that_is_not_listed_has_the_default_limit() -> None:
    listed = {"limits": [{"namespace": "a", "nodes": 64}, {"namespace": "none", "nodes": 0}]}
    limits = policy(queueing={**listed, "defaultLimit": 8}).spec.queueing.limits_of(["a", "none", "other"])
    assert limits == {"a": 64, "none": 0, "other": 8}
    assert policy(queueing=listed).spec.queueing.limits_of(["a", "other"]) == {"a": 64}
