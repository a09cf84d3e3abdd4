"""What a pod counts for in ResourceQuotas: rows from the rules of the API server's own evaluator."""

from typing import Any

import pytest

from muster.world.quotas import QuotaView, Scope, claim_of_pod, quota_amounts

GI = 1024**3


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "resources": resources}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


USAGE = [
    pytest.param(pod({"name": "c"}), {}, id="a pod alone"),
    pytest.param(
        pod(container(requests={"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "2Gi"}, limits={"cpu": "2"})),
        {
            "cpu": 500,
            "requests.cpu": 500,
            "memory": GI,
            "requests.memory": GI,
            "ephemeral-storage": 2 * GI,
            "requests.ephemeral-storage": 2 * GI,
            "limits.cpu": 2000,
        },
        id="requests count by two names, limits by one",
    ),
    pytest.param(
        pod(container(limits={"nvidia.com/gpu": "8", "hugepages-2Mi": "4Mi"})),
        {"requests.nvidia.com/gpu": 8, "hugepages-2Mi": 4 * 1024**2, "requests.hugepages-2Mi": 4 * 1024**2},
        id="extended resources count by requests alone",
    ),
    pytest.param(
        pod(container(requests={"cpu": "1"}), container(requests={"cpu": "2"}), overhead={"cpu": "250m"}),
        {"cpu": 3250, "requests.cpu": 3250},
        id="containers and overhead add up",
    ),
    pytest.param(
        pod(
            container(requests={"cpu": "1"}),
            initContainers=[
                {"restartPolicy": "Always", **container(requests={"cpu": "1"})},
                container(requests={"cpu": "4"}),
            ],
        ),
        {"cpu": 5000, "requests.cpu": 5000},
        id="an init container counts on top of the sidecars before it",
    ),
    pytest.param(
        pod(container(requests={"cpu": "1"}, limits={"cpu": "1"}), overhead={"cpu": "1", "memory": "1Gi"}),
        {"cpu": 2000, "requests.cpu": 2000, "memory": GI, "requests.memory": GI, "limits.cpu": 2000},
        id="overhead is added to limits that there are",
    ),
    pytest.param(
        pod(container(requests={"cpu": "1"}), resources={"requests": {"cpu": "6"}, "limits": {"cpu": "6"}}),
        {"cpu": 6000, "requests.cpu": 6000, "limits.cpu": 6000},
        id="the pod as a whole goes before its containers",
    ),
    pytest.param(pod(container(requests={"cpu": ("many")}), None, "x"), {}, id="what is no quantity is absent"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("manifest", "expected"), USAGE)
def test_usage(manifest: dict[str, Any], expected: dict[str, int]) -> None:
    assert claim_of_pod(manifest).usage == {"pods": 1, "count/pods": 1, **expected}


PLAIN = pod(container(requests={"nvidia.com/gpu": "8"}))
ASKING = pod(container(requests={"cpu": "1"}))
URGENT = pod({}, priorityClassName="urgent")
CROSSING = {"podAffinityTerm": {"namespaces": ["other"]}}

SCOPES = [
    pytest.param([], PLAIN, True, id="a quota without scopes counts every pod"),
    pytest.param([Scope("Terminating")], PLAIN, False, id="without a deadline"),
    pytest.param([Scope("NotTerminating")], PLAIN, True, id="without a deadline, NotTerminating"),
    pytest.param([Scope("Terminating")], pod({}, activeDeadlineSeconds=0), True, id="with a deadline"),
    pytest.param([Scope("BestEffort")], PLAIN, True, id="accelerators alone make no class"),
    pytest.param([Scope("BestEffort")], ASKING, False, id="with a request for CPU"),
    pytest.param([Scope("NotBestEffort")], ASKING, True, id="with a request for CPU, NotBestEffort"),
    pytest.param([Scope("BestEffort")], {**PLAIN, "status": {"qosClass": "Burstable"}}, False, id="as the answer says"),
    pytest.param([Scope("PriorityClass")], PLAIN, False, id="without a class"),
    pytest.param([Scope("PriorityClass")], URGENT, True, id="with a class"),
    pytest.param([Scope("PriorityClass", "DoesNotExist")], PLAIN, True, id="without a class, DoesNotExist"),
    pytest.param([Scope("PriorityClass", "In", ("low", "urgent"))], URGENT, True, id="in"),
    pytest.param([Scope("PriorityClass", "In", ("low",))], URGENT, False, id="not in"),
    pytest.param([Scope("PriorityClass", "NotIn", ("low",))], URGENT, True, id="NotIn"),
    pytest.param([Scope("PriorityClass", "NotIn", ("low",))], PLAIN, True, id="NotIn without a class"),
    pytest.param([Scope("CrossNamespacePodAffinity")], PLAIN, False, id="without affinity"),
    pytest.param(
        [Scope("CrossNamespacePodAffinity")],
        pod({}, affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [CROSSING]}}),
        True,
        id="an affinity across namespaces",
    ),
    pytest.param(
        [Scope("CrossNamespacePodAffinity")],
        pod(
            {},
            affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaceSelector": {}}]}},
        ),
        True,
        id="an affinity to all namespaces",
    ),
    pytest.param(
        [Scope("CrossNamespacePodAffinity")],
        pod({}, affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k"}]}}),
        False,
        id="an affinity within the namespace",
    ),
    pytest.param([Scope("NotTerminating"), Scope("BestEffort")], ASKING, False, id="all scopes have to match"),
    pytest.param([Scope("VolumeAttributesClass")], PLAIN, False, id="a scope that is not of pods"),
]


@pytest.mark.parametrize(("scopes", "manifest", "expected"), SCOPES)
def test_scopes(scopes: list[Scope], manifest: dict[str, Any], expected: bool) -> None:
    quota = QuotaView("ns", "q", "uid", 1, scopes=tuple(scopes))
    assert claim_of_pod(manifest).falls_under(quota) is expected


def test_of_a_quota_only_what_pods_use_is_read() -> None:
    amounts = {
        "requests.cpu": "1500m",
        "limits.memory": "1Gi",
        "requests.nvidia.com/gpu": "8",
        "pods": "10",
        "count/pods": "20",
        "count/services": "5",
        "requests.storage": "1Ti",
        "nvidia.com/gpu": "8",
    }
    expected = {"requests.cpu": 1500, "limits.memory": GI, "requests.nvidia.com/gpu": 8, "pods": 10, "count/pods": 20}
    assert quota_amounts(amounts) == expected
