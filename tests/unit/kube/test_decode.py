"""Decoding of what the API server sends: the fields that decisions stand on, and what must not break a stream."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.api.nodehealth import HealthIncident, NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.kube import decode, informer
from muster.kube.decode import Undecodable
from muster.kube.errors import Unreachable
from muster.world.fleet import claim_of
from muster.world.names import place_digest
from muster.world.quotas import QuotaView, Scope
from muster.world.views import ContainerView, Taint

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job-abc-2-1",
        "namespace": "team",
        "uid": "pod-uid",
        "resourceVersion": "812",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "deletionTimestamp": "2026-01-31T12:10:00Z",
        "deletionGracePeriodSeconds": 30,
        "labels": {"muster.dev/job-uid": "job-uid", "muster.dev/index": "2", "muster.dev/incarnation": "1"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "other"},
            {"apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "name": "job", "uid": "gang-uid", "controller": True},
        ],
    },
    "spec": {
        "nodeName": "node-1",
        "containers": [
            {
                "name": "worker",
                "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "1500m", "hugepages-2Mi": "1Gi"}},
            },
            {"name": "side", "resources": {"requests": {"rdma/hca": "1k"}}},
        ],
        "initContainers": [{"name": "copy"}],
    },
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "the node was low on memory",
        "podIP": "10.1.2.3",
        "hostIP": "192.168.0.1",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}],
        "containerStatuses": [
            {"name": "worker", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            {"name": "side", "state": {"running": {"startedAt": "2026-01-31T12:00:01Z"}}},
        ],
        "initContainerStatuses": [
            {"name": "copy", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        ],
    },
}


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_pod_with_everything() -> None:
    pod = decode.pod(raw(POD))
    assert decode.flat_meta(pod) == decode.Meta(("team", "job-abc-2-1"), "pod-uid", 812)
    assert (pod.owner_uid, pod.job_uid, pod.index, pod.incarnation) == ("gang-uid", "job-uid", 2, 1)
    assert (pod.node, pod.phase, pod.reason) == ("node-1", "Failed", "Evicted")
    assert (pod.pod_ip, pod.host_ip) == ("10.1.2.3", "192.168.0.1")
    assert pod.deleting
    assert pod.created == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert pod.requests == {
        "pods": 1,
        "cpu": 1500,
        "nvidia.com/gpu": 8,
        "rdma/hca": 1000,
        "hugepages-2Mi": 1 << 30,
    }
    assert pod.unschedulable_message == "0/4 nodes"
    assert pod.containers == (
        ContainerView("copy", init=True, waiting_reason="ImagePullBackOff", waiting_message="no such image"),
        ContainerView("worker", terminated=True, exit_code=137, terminated_reason="OOMKilled"),
        ContainerView("side", running=True),
    )
    assert not pod.containers_dead


@pytest.mark.parametrize(
    ("phase", "message"), [("Running", ""), ("Pending", ""), ("Failed", "the node was low on memory")]
)
def test_only_a_pod_that_has_ended_has_something_to_say(phase: str, message: str) -> None:
    """Else each word of a kubelet would have the whole gang looked at."""
    pod = decode.pod(raw({**POD, "status": {**POD["status"], "phase": phase}}))
    assert pod.message == message


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0f" * 16, "0f" * 16),
        ("", ""),
        ("claim team/data:/run", place_digest("claim team/data:/run")),
        ("\N{GRINNING FACE}" * 32, place_digest("\N{GRINNING FACE}" * 32)),
        ("claim team/checkpoint-llama:/run", place_digest("claim team/checkpoint-llama:/run")),
        ("x" * 200_000, place_digest("x" * 200_000)),
    ],
    ids=["digest", "none", "of an older pod", "as many letters", "as many of an older pod", "very long"],
)
def test_a_pod_says_where_its_job_saves_in_no_more_than_a_place_takes(text: str, read: str) -> None:
    annotations = {"muster.dev/saves-to": text, "of.another": "system"}
    body = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    assert decode.pod(json.dumps(body).encode()).saves_to == read
    assert decode.pod(json.dumps(POD).encode()).saves_to == ""


@pytest.mark.parametrize("read", [decode.pod, decode.bare_pod])
def test_a_pod_that_a_kubelet_made_for_its_own_file_is_of_no_job(read: Any) -> None:
    """Root on a node gives it any label and annotation, in any namespace."""
    annotations = {"kubernetes.io/config.mirror": "", "muster.dev/saves-to": "0f" * 16}
    pod = read(raw({**POD, "metadata": {**POD["metadata"], "annotations": annotations}}))
    assert (pod.job_uid, pod.saves_to, pod.node) == ("", "", "node-1")


def test_bare_pod() -> None:
    pod = decode.pod(raw({"metadata": {"name": "x", "namespace": "y", "uid": "u", "resourceVersion": "1"}, "spec": {}}))
    assert (pod.index, pod.incarnation, pod.job_uid, pod.node) == (-1, 0, "", "")
    assert pod.requests == {"pods": 1}
    assert pod.containers == ()


def container(gpus: int, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, **more}


@pytest.mark.parametrize(
    ("containers", "init_containers", "want"),
    [
        pytest.param([container(2), container(3)], [], 5, id="containers add up"),
        pytest.param([container(2)], [container(4), container(3)], 4, id="the hungriest init container counts alone"),
        pytest.param([container(2)], [container(1, restartPolicy="Always")], 3, id="a sidecar runs beside the rest"),
        pytest.param(
            [container(1)],
            [container(2, restartPolicy="Always"), container(4)],
            6,
            id="an init container after a sidecar runs beside it",
        ),
        pytest.param([], [], 0, id="none"),
    ],
)
def test_accelerators_as_the_scheduler_counts_them(
    containers: list[dict[str, Any]], init_containers: list[dict[str, Any]], want: int
) -> None:
    pod = decode.pod(
        raw({"metadata": {"name": "x"}, "spec": {"containers": containers, "initContainers": init_containers}})
    )
    assert pod.requests == {"pods": 1} | ({"nvidia.com/gpu": want} if want else {})


def test_what_a_pod_asks_for_is_read_whoever_it_says_that_it_belongs_to() -> None:
    owner = {"uid": "job", "controller": True}
    meta = {"name": "x", "ownerReferences": [owner], "labels": {"muster.dev/job-uid": "job"}}
    pod = decode.pod(raw({"metadata": meta, "spec": {"containers": [container(2)]}}))
    assert (pod.owner_uid, pod.job_uid, pod.requests) == ("job", "job", {"pods": 1, "nvidia.com/gpu": 2})
    assert decode.bare_pod(raw({"metadata": meta, "spec": {"nodeName": "n1"}})).requests


def test_node() -> None:
    node = decode.node(
        raw(
            {
                "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7", "labels": {"rack": "r1"}},
                "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
                "status": {
                    "conditions": [
                        {"type": "MemoryPressure", "status": "False"},
                        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
                    ],
                    "allocatable": {"cpu": "64", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"},
                    "nodeInfo": {"bootID": "boot-1", "kernelVersion": "6.1"},
                },
            }
        )
    )
    assert (node.name, node.uid, node.resource_version, node.labels) == ("n1", "u", 7, {"rack": "r1"})
    assert node.taints == (Taint("k", "", "NoSchedule"),)
    assert (node.unschedulable, node.ready, node.ready_reason) == (True, False, "NodeStatusUnknown")
    assert (node.boot_id, node.allocatable) == (
        "boot-1",
        {"cpu": 64_000, "memory": 1 << 40, "nvidia.com/gpu": 8, "pods": 110},
    )
    assert decode.node_meta(node).key == ("", "n1")


def test_node_lease() -> None:
    lease = decode.node_lease(
        raw(
            {
                "metadata": {"name": "n1", "namespace": "kube-node-lease", "resourceVersion": "9"},
                "spec": {"renewTime": "2026-01-31T12:00:00.123456Z"},
            }
        )
    )
    assert lease == ("n1", "2026-01-31T12:00:00.123456Z", 9)
    assert decode.lease_meta(lease).key == ("kube-node-lease", "n1")


JOB_META = {"name": "j", "namespace": "team", "uid": "u", "resourceVersion": "3", "generation": 2}


def test_training_job() -> None:
    job = decode.custom(TrainingJob)(raw({"metadata": JOB_META, "spec": {"nodes": 2, "template": {"spec": {}}}}))
    assert isinstance(job, TrainingJob)
    assert job.spec.nodes == 2
    assert decode.custom_meta(job) == decode.Meta(("team", "j"), "u", 3)


def test_object_that_does_not_fit_names_the_field() -> None:
    job = decode.custom(TrainingJob)(raw({"metadata": JOB_META, "spec": {"nodes": 0, "template": {}}}))
    assert isinstance(job, Undecodable)
    assert (job.namespace, job.name, job.uid, job.resource_version, job.generation) == ("team", "j", "u", 3, 2)
    assert job.error.startswith("spec.nodes: ")
    assert decode.custom_meta(job) == decode.Meta(("team", "j"), "u", 3)


def test_a_gang_that_does_not_fit_is_found_under_its_job() -> None:
    owners = [{"uid": "somebody"}, {"uid": "job-uid", "controller": True}]
    kind = informer.gangs(object()).kind  # type: ignore[arg-type]
    gang = kind.decode(raw({"metadata": {**JOB_META, "ownerReferences": owners}, "spec": {"level": "Unheard"}}))
    assert isinstance(gang, Undecodable)
    assert kind.index(gang) == gang.owner_uid == "job-uid"


@pytest.mark.parametrize("answer", [b"<html>Log in</html>", b"", b'{"login":"here"}'])
def test_a_page_that_is_no_list_comes_from_something_in_between(answer: bytes) -> None:
    with pytest.raises(Unreachable, match="no answer of the API server, but of something in between: ") as raised:
        decode.list_page(answer)
    assert (raised.value.status, (answer.decode() or "nothing") in str(raised.value)) == (200, True)


def test_list_page_and_watch_event() -> None:
    page = decode.list_page(raw({"metadata": {"resourceVersion": "5", "continue": "token"}, "items": [POD]}))
    assert (page.metadata.resource_version, page.metadata.continue_) == ("5", "token")
    assert [decode.pod(item).name for item in page.items or ()] == ["job-abc-2-1"]
    event = decode.watch_event(raw({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77"}}}))
    assert (event.type, decode.resource_version(event.object)) == ("BOOKMARK", 77)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_span_can_be_added_to_is_none(moment: str) -> None:
    condition = {"type": "GpuSick", "status": "True", "lastTransitionTime": moment}
    node = decode.node(raw({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}))
    assert node.conditions[0].since is None


def test_evidence_of_a_time_that_nobody_can_reckon_with_is_named() -> None:
    evidence = {"kind": "Xid", "firstSeen": "0001-01-01T00:00:00Z", "lastSeen": "2026-01-31T12:00:00Z"}
    data = raw({"metadata": {"name": "n", "resourceVersion": "4"}, "status": {"evidence": [evidence]}})
    found = decode.custom(NodeHealth)(data)
    assert isinstance(found, decode.Undecodable)
    assert found.error.startswith("status.evidence.0.firstSeen")
    assert "between 1970 and 2200" in found.error


def test_of_what_cannot_be_read_the_identity_is_left() -> None:
    meta = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "9",
        "creationTimestamp": "0000-01-01T00:00:00Z",
    }
    pod = raw({"metadata": meta, "spec": {"nodeName": "n1"}})
    with pytest.raises(ValueError, match="creation"):
        decode.occupant(pod)
    occupant, of_which_nothing_is_known = decode.bare_occupant(pod), decode.bare_node(pod)
    assert (occupant.node, occupant.uid, claim_of(occupant, of_which_nothing_is_known, "nvidia.com/gpu")[0]) == (
        "n1",
        "u",
        "pod/ns/p",
    )
    labelled = raw({"metadata": {**meta, "labels": {"muster.dev/job-uid": "j"}}, "spec": {"nodeName": "n1"}})
    assert claim_of(decode.bare_pod(labelled), of_which_nothing_is_known, "nvidia.com/gpu")[0] == "pod/ns/p"
    node = decode.bare_node(pod)
    assert (node.name, node.resource_version, node.ready) == ("p", 9, False)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
N1 = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


@pytest.mark.parametrize(
    ("spec", "pinned"),
    [
        pytest.param({}, "n1", id="to be bound to the one that its affinity names"),
        pytest.param({"nodeName": "n1"}, "", id="bound"),
        pytest.param({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, "", id="gated"),
        pytest.param({"affinity": None}, "", id="no affinity"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: 5}}}, "", id="no affinity that could be"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}, "", id="any node"),
        pytest.param(
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [N1]}, {}]}}}},
            "",
            id="or any",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": 2 * [{"matchFields": [N1]}]}}}},
            "n1",
            id="the same in each",
        ),
    ],
)
def test_where_a_pod_may_be_bound_is_known_before_it_is(spec: dict[str, Any], pinned: str) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [N1]}]}}}
    unbound = {**POD, "spec": {"containers": [], "affinity": affinity, **spec}}
    found = decode.pod(raw(unbound))
    assert (found.pinned, found.place) == (pinned, found.node or pinned)


def test_a_lease_and_a_priority_class_that_cannot_be_read_count_for_nothing() -> None:
    lease = raw({"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {"renewTime": 5}})
    with pytest.raises(ValueError, match="renewTime"):
        decode.node_lease(lease)
    assert decode.bare_lease(lease) == decode.NodeLease("n1", "", 7)
    assert decode.bare_lease(lease).moment is None
    priority = raw({"metadata": {"name": "high", "resourceVersion": "8"}, "value": "much", "globalDefault": True})
    with pytest.raises(ValueError, match="value"):
        decode.priority_class(priority)
    assert decode.bare_priority(priority) == decode.PriorityClass("high", 0, is_default=False, resource_version=8)


def test_of_a_namespace_its_labels_are_read() -> None:
    metadata = {"name": "team-a", "uid": "u", "resourceVersion": "7"}
    labelled = {"metadata": {**metadata, "labels": {"team": "a"}}, "status": {"phase": "Active"}}
    assert decode.namespace(raw(labelled)) == decode.NamespaceView("team-a", "u", 7, {"team": "a"})
    assert decode.namespace(raw({"metadata": metadata})) == decode.NamespaceView("team-a", "u", 7, {})
    assert decode.node_meta(decode.namespace(raw(labelled))).key == ("", "team-a")


def test_of_a_quota_with_thousands_of_names_only_the_identity_is_read() -> None:
    """A tenant may write one; the API server counts by it all the same."""
    hard = {f"requests.a/x{number}": "1" for number in range(5000)}
    metadata = {"namespace": "ns", "name": "q", "uid": "u", "resourceVersion": "7"}
    quota = {"metadata": metadata, "status": {"hard": hard, "used": {}}}
    assert decode.resource_quota(raw(quota)).hard == {}


def test_a_resource_quota_counts_by_its_status() -> None:
    spec = {
        "hard": {"pods": "9"},
        "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a", "b"]}]},
    }
    metadata = {"namespace": "ns", "name": "q", "uid": "u", "resourceVersion": "7"}
    status = {"hard": {"pods": "4", "count/services": "2"}, "used": {"pods": "1", "count/services": "1"}}
    scopes = (Scope("NotTerminating"), Scope("PriorityClass", "In", ("a", "b")))
    quota = {"metadata": metadata, "spec": spec, "status": status}
    assert decode.resource_quota(raw(quota)) == QuotaView("ns", "q", "u", 7, {"pods": 4}, {"pods": 1}, scopes)
    fresh = {"metadata": metadata, "spec": {"hard": {"pods": "9"}}}
    assert decode.resource_quota(raw(fresh)) == QuotaView("ns", "q", "u", 7), "no controller has seen it yet"
    broken = raw({"metadata": metadata, "status": {"hard": {"pods": "few"}}})
    with pytest.raises(ValueError, match="few"):
        decode.resource_quota(broken)
    assert decode.bare_quota(broken) == QuotaView("ns", "q", "u", 7), "it is left to the API server"


def test_the_answer_to_a_deletion_may_nest_deeper_than_python_does() -> None:
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    assert not decode.is_gone(b'{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":30},"status":%s}' % deep)
    assert decode.is_gone(b'{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":0},"status":%s}' % deep)


@pytest.mark.parametrize("moment", ["0000-01-01T00:00:00Z", "10000-01-01T04:59:59Z"])
def test_an_impossible_time_in_conditions_leaves_the_pod_readable(moment: str) -> None:
    conditions = [*POD["status"]["conditions"], {"type": "X", "status": "True", "lastTransitionTime": moment}]
    data = json.dumps({**POD, "status": {**POD["status"], "conditions": conditions}}).encode()
    assert decode.pod(data) == decode.pod(json.dumps(POD).encode())


@pytest.mark.parametrize(
    ("claims", "labels", "found"),
    [
        pytest.param(None, {}, "", id="none"),
        pytest.param([], {}, "", id="an empty list"),
        pytest.param(
            [{"name": "gpus", "resourceClaimName": "all-eight"}, {"name": "nic"}], {}, "all-eight", id="claim"
        ),
        pytest.param([{"name": "gpus", "resourceClaimTemplateName": "eight"}], {}, "eight", id="a template"),
        pytest.param([{"name": "gpus"}], {}, "gpus", id="a source that is not known"),
        pytest.param([{"name": "d"}], {decode.COMPUTE_DOMAIN_LABEL: "uid"}, "", id="the daemon of a ComputeDomain"),
    ],
)
def test_a_pod_with_a_resource_claim_may_hold_accelerators(claims: Any, labels: dict[str, str], found: str) -> None:
    meta = {**POD["metadata"], "labels": {**POD["metadata"].get("labels", {}), **labels}}
    data = raw({**POD, "metadata": meta, "spec": {**POD["spec"], "resourceClaims": claims}})
    assert (decode.pod(data).device_claim, decode.occupant(data).device_claim) == (found, found)


def test_the_uid_of_what_lasts_is_read_however_deep_the_rest_nests() -> None:
    deep = b"[" * 3000 + b"]" * 3000
    assert decode.lasting_uid(b'{"metadata":{"uid":"u","managedFields":%s}}' % deep) == "u"
    going = b'{"metadata":{"uid":"u","deletionTimestamp":"2026-01-31T12:10:00Z"},"spec":%s}' % deep
    assert decode.lasting_uid(going) == ""


def test_managed_fields_of_a_pod_may_nest_deeper_than_python_does() -> None:
    nested = b'"managedFields":[%s],' % (b'{"f:a":' * 3000 + b"1" + b"}" * 3000)
    plain = json.dumps(POD).encode()
    data = plain.replace(b'"metadata": {', b'"metadata": {' + nested, 1)
    assert (decode.pod(data), decode.occupant(data)) == (decode.pod(plain), decode.occupant(plain))
    assert decode.requests(data) == decode.requests(plain)


def test_what_nests_deeper_than_any_python_reads_hides_no_other_object() -> None:
    """Python 3.13 lets extension modules recurse 10,000 deep, whatever sys.setrecursionlimit says."""
    nested = b'"managedFields":[%s],' % (b'{"f:a":{},"]}\\"{[":' * 13_000 + b"[]" + b"}" * 13_000)
    plain = json.dumps(POD).encode()
    data = plain.replace(b'"metadata": {', b'"metadata": {' + nested, 1)
    page = decode.list_page(b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}' % (data, plain))
    event = decode.watch_event(b'{"type":"ADDED","object":%s}' % data)
    assert [decode.pod(each) for each in (data, event.object, *(page.items or ()))] == [decode.pod(plain)] * 4


def test_the_boot_id_of_a_node_fits_into_records_whatever_its_kubelet_says() -> None:
    node = raw({"metadata": {"name": "n", "resourceVersion": "5"}, "status": {"nodeInfo": {"bootID": "1" * 5000}}})
    incident = {"time": "2026-01-01T00:00:00Z", "state": "Unhealthy", "reason": "Xid79"}
    assert HealthIncident.model_validate({**incident, "bootId": decode.node(node).boot_id}).boot_id == "1" * 64


def a_large_pod(containers: int = 1, **requests: str) -> dict[str, Any]:
    names = [f"tenant.example/invented-{number:06}" for number in range(25_000)]
    parts = [dict.fromkeys(names[number::containers], "1") for number in range(containers)]
    parts[-1].update(requests)
    asked = [{"resources": {"requests": part, "limits": part}} for part in parts]
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodeName": "n0", "containers": asked},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("containers", [1, 1000])
def test_a_pod_that_names_thousands_of_resources_counts_for_what_nodes_offer(containers: int) -> None:
    large = raw(a_large_pod(containers, cpu="2", **{"nvidia.com/gpu": "8"}))
    assert len(large) > decode.MAX_POD_BYTES
    for read in (decode.pod, decode.occupant):
        found = read(large, {"nvidia.com/gpu", "rdma/hca"})
        assert found.requests == {"pods": 1, "cpu": 2000, "nvidia.com/gpu": 8}, "no more than its node gives it"


def test_a_pod_with_few_resources_keeps_those_that_no_node_offers_yet() -> None:
    few = a_large_pod()
    few["spec"]["containers"] = [{"resources": {"requests": {"vendor.example/new": "1"}}}]
    assert decode.pod(raw(few)).requests == {"pods": 1, "vendor.example/new": 1}


@pytest.mark.parametrize(("padding", "most"), [(0, 4096), (300_000, 64)], ids=["usual", "large"])
def test_messages_of_a_pod_are_cut(padding: int, most: int) -> None:
    long = "a" * 5000 + "z" * 5000
    ended = {"exitCode": 1, "reason": long, "message": long}
    statuses = [{"name": "a", "state": {"waiting": {"message": long}}}, {"name": "b", "state": {"terminated": ended}}]
    pod = a_large_pod()
    pod["spec"] = {"containers": [], "padding": "x" * padding}
    condition = {"type": "PodScheduled", "status": "False", "message": long}
    pod["status"] = {"phase": "Failed", "message": long, "containerStatuses": statuses, "conditions": [condition]}
    found = decode.pod(raw(pod))
    waiting, terminated = found.containers
    assert (found.message, found.unschedulable_message, waiting.waiting_message) == ("a" * most,) * 3
    assert terminated.terminated_message == "z" * most, "the last lines say why it ended"


def test_what_a_container_has_printed_steers_no_terminal_of_a_status() -> None:
    """A tenant's program writes the message with which its container ends, and names its image."""
    evil, clean = "boom\n\x1b[2J\u202eok\x9b", "boom\n\ufffd[2J\ufffdok\ufffd"
    ended = {"exitCode": 1, "reason": evil, "message": evil}
    waits = {"reason": evil, "message": evil}
    pod = a_large_pod()
    statuses = [{"name": "a", "state": {"waiting": waits}}, {"name": "b", "state": {"terminated": ended}}]
    condition = {"type": "PodScheduled", "status": "False", "message": evil}
    pod["status"] = {
        "phase": "Failed",
        "reason": evil,
        "message": evil,
        "containerStatuses": statuses,
        "conditions": [condition],
    }
    found = decode.pod(raw(pod))
    waiting, terminated = found.containers
    shown = [found.reason, found.message, found.unschedulable_message, waiting.waiting_reason, waiting.waiting_message]
    assert {*shown, terminated.terminated_reason, terminated.terminated_message} == {clean}
