"""Checks of the parts of an installation that run."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.cli.installing import (
    ALL_PODS,
    DAEMON,
    DEPLOYMENT,
    GANGS,
    HEALTHS,
    JOBS,
    KINDS,
    LEASE,
    NOW,
    PODS,
    POLICIES,
    SYSTEM,
    a_gang,
    a_health,
    a_job,
    a_namespace,
    a_node,
    a_pod,
    a_worker_pod,
    install,
    only_wrong,
    refuse,
    renewed_at,
    rows_of,
    set_variable,
    unread,
    with_images,
)

from muster.api.base import rfc3339
from muster.api.sizes import DEFAULT_NODES, SIZES
from muster.cli import doctor_parts
from muster.cli.doctor_parts import (
    check_clock,
    check_command,
    check_daemons,
    check_images,
    check_leader,
    check_marks,
    check_namespaces,
    check_node_health,
    check_operator,
    check_pods,
    check_policy,
    check_preemption,
    check_profile,
    check_scope,
    check_size,
    check_waiting_jobs,
    tag_of,
)
from muster.kube.client import Answers

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BY_DIGEST = f"@sha256:{'0' * 64}"


@pytest.fixture
def installed(api: Any) -> Any:
    install(api)
    return api


@pytest.mark.parametrize(("wanted", "available"), [(2, 1), (0, 0)])
def test_a_replica_that_is_not_available_is_wrong(installed: Any, wanted: int, available: int) -> None:
    installed.bodies[DEPLOYMENT]["spec"]["replicas"] = wanted
    installed.bodies[DEPLOYMENT]["status"] = {"availableReplicas": available}
    finding, remedy = only_wrong(installed, check_operator)
    assert f"has {available} of {wanted} replicas available" in finding
    assert ("scale deployment muster --replicas=2" in remedy) == (wanted == 0)


def test_an_operator_that_is_not_installed_is_wrong(installed: Any) -> None:
    del installed.bodies[DEPLOYMENT]
    finding, remedy = only_wrong(installed, check_operator)
    assert finding == "there is no Deployment muster in namespace muster-system"
    assert remedy.endswith(
        "kubectl apply -k manifests/overlays/default (in a release: -f install.yaml), your own overlay, or the chart, "
        "or "
        "those of the profile that you chose: observe, health, burn-in"
    )


def test_marks_on_nodes_without_an_operator_are_wrong(installed: Any) -> None:
    tainted, other = a_node("tainted"), a_node("other")
    tainted["spec"] = {"taints": [{"key": "muster.dev/unhealthy"}]}
    other["spec"] = {"taints": [{"key": "nvidia.com/gpu"}]}
    installed.lists("/api/v1/nodes", tainted, other)
    assert [state for state, *_ in rows_of(installed, check_marks)] == ["Ok"]
    del installed.bodies[DEPLOYMENT]
    finding, remedy = only_wrong(installed, check_marks)
    assert finding == "no operator updates the taint or condition of 1 node: tainted"
    assert "kubectl taint nodes --all muster.dev/unhealthy-; kubectl get nodes" in remedy
    installed.lists("/api/v1/nodes", other)
    assert [state for state, *_ in rows_of(installed, check_marks)] == ["Ok"]


def test_images_of_no_registry_are_wrong(installed: Any) -> None:
    with_images(installed, "0.1.0", "0.1.0", registry="muster.invalid/set-your-registry-in-the-overlay")
    finding, remedy = only_wrong(installed, check_images)
    assert finding == "no registry is set for the image of: operator, launcher, agent"
    assert "newName" in remedy


@pytest.mark.parametrize(("operator", "agent"), [("0.3.0", "0.1.4"), ("v0.1.0", "0.3.0-rc1"), ("1.0.0", "0.9.0")])
def test_images_more_than_a_minor_version_apart_are_wrong(installed: Any, operator: str, agent: str) -> None:
    with_images(installed, operator, agent)
    finding, remedy = only_wrong(installed, check_images)
    assert finding == (
        "the versions are more than one minor version apart; "
        f"tags: operator {operator}, launcher {operator}, agent {agent}"
    )
    assert "-f install.yaml" in remedy


@pytest.mark.parametrize(("operator", "agent"), [("0.2.0", "0.1.0"), ("0.2.0-rc1", "0.2.0"), ("0.2.1", "v0.3.0")])
def test_images_that_work_together_are_well_whatever_they_are(installed: Any, operator: str, agent: str) -> None:
    with_images(installed, operator, agent)
    ((state, finding, remedy),) = rows_of(installed, check_images)
    assert (state, finding) == ("Ok", f"tags: operator {operator}, launcher {operator}, agent {agent}")
    assert remedy.startswith("not urgent, they work together")


def test_a_tag_may_begin_with_v(installed: Any) -> None:
    with_images(installed, "v0.2.0", "0.2.0")
    assert rows_of(installed, check_images) == [("Ok", "tags: operator v0.2.0, launcher v0.2.0, agent 0.2.0", "")]


def test_tags_that_are_of_no_release_may_differ(installed: Any) -> None:
    with_images(installed, "3f9a1c", "77be02")
    assert rows_of(installed, check_images) == [("Ok", "tags: operator 3f9a1c, launcher 3f9a1c, agent 77be02", "")]
    with_images(installed, "3f9a1c", "v0.1.0")
    assert [(state, remedy) for state, _, remedy in rows_of(installed, check_images)] == [("Ok", "")]


def test_a_digest_beside_a_tag_is_no_part_of_it(installed: Any) -> None:
    with_images(installed, f"0.2.0-rc1{BY_DIGEST}", f"0.2.0-rc1{BY_DIGEST}")
    found = "tags: operator 0.2.0-rc1, launcher 0.2.0-rc1, agent 0.2.0-rc1"
    assert rows_of(installed, check_images) == [("Ok", found, "")]


@pytest.mark.parametrize(
    ("operator", "agent", "expected"),
    [
        ("0.2.0", BY_DIGEST, "tags: operator 0.2.0, launcher 0.2.0; without a tag, and not compared: agent"),
        (BY_DIGEST, BY_DIGEST, "tags: none; without a tag, and not compared: operator, launcher, agent"),
    ],
)
def test_images_by_digest_alone_are_named(installed: Any, operator: str, agent: str, expected: str) -> None:
    with_images(installed, operator, agent)
    ((state, finding, remedy),) = rows_of(installed, check_images)
    assert (state, finding) == ("Ok", expected)
    assert remedy.endswith("beside the digest: IMAGE:VERSION@DIGEST")


@pytest.mark.parametrize(("own", "operator"), [("0.3.0", "0.1.4"), ("0.1.0", "v0.3.0-rc1"), ("1.0.0", "0.9.0")])
def test_a_command_of_another_version_is_wrong(
    installed: Any, monkeypatch: pytest.MonkeyPatch, own: str, operator: str
) -> None:
    monkeypatch.setattr(doctor_parts, "__version__", own)
    with_images(installed, operator, operator)
    finding, remedy = only_wrong(installed, check_command)
    assert finding == (
        f"this command is {own}, and the operator {operator.lstrip('v')}: they are more than one minor version apart"
    )
    assert remedy.startswith("install the command of the operator's version")


@pytest.mark.parametrize("operator", ["0.1.4", "0.2.0-rc1", "0.3.0"])
def test_a_command_works_with_an_operator_that_is_a_minor_version_apart(
    installed: Any, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setattr(doctor_parts, "__version__", "0.2.1")
    with_images(installed, operator, operator)
    finding = f"this command is 0.2.1, and the operator {operator}: they work together"
    assert rows_of(installed, check_command) == [("Ok", finding, "")]


@pytest.mark.parametrize(("tag", "has_remedy"), [("3f9a1c", False), (BY_DIGEST, True)])
def test_an_operator_whose_version_is_unknown_is_said(
    installed: Any, monkeypatch: pytest.MonkeyPatch, tag: str, has_remedy: bool
) -> None:
    monkeypatch.setattr(doctor_parts, "__version__", "0.2.1")
    with_images(installed, tag, "0.2.0")
    ((state, finding, remedy),) = rows_of(installed, check_command)
    assert (state, finding) == ("Ok", "this command is 0.2.1; the operator's image does not name its version")
    assert bool(remedy) == has_remedy


def test_the_checkers_image_counts_too(installed: Any) -> None:
    with_images(installed, "0.1.0", "0.1.0")
    daemon = "/apis/apps/v1/namespaces/muster-check/daemonsets/muster-check"
    set_variable(installed, "MUSTER_CHECKER_NAMESPACE", "muster-check")
    container = {"name": "checker", "image": "registry.example.org/burn-in:0.3.0"}
    installed.put(daemon, {"spec": {"template": {"spec": {"containers": [container]}}}})
    assert only_wrong(installed, check_images)[0].endswith("agent 0.1.0, checker 0.3.0")


def test_a_launcher_without_an_image_is_wrong(installed: Any) -> None:
    set_variable(installed, "MUSTER_LAUNCHER_IMAGE", "")
    assert "names no image of the launcher" in only_wrong(installed, check_images)[0]


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("registry:5000/muster/operator:0.1.0", "0.1.0"),
        ("registry:5000/operator", ""),
        (f"registry/operator@sha256:{'0' * 64}", ""),
        (f"registry/operator:2@sha256:{'0' * 64}", "2"),
    ],
)
def test_the_tag_of_an_image(image: str, tag: str) -> None:
    assert tag_of(image) == tag


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


def test_pods_that_cannot_pull_their_image_are_one_row(installed: Any) -> None:
    pods = [a_pod(f"muster-agent-{n}", f"gpu-{n}", **waiting("ImagePullBackOff", "no such tag")) for n in (1, 2)]
    installed.lists(PODS.format("muster-agent"), *pods)
    finding, remedy = only_wrong(installed, check_pods)
    assert finding == (
        "ImagePullBackOff of 2 pods in namespace muster-agent, e.g. muster-agent-1 on gpu-1: no such tag"
    )
    assert remedy.endswith("kubectl -n muster-agent describe pod muster-agent-1")


def test_pods_of_checkers_are_read_where_there_are_checkers(installed: Any) -> None:
    installed.lists(PODS.format("muster-check"), a_pod("muster-check-1", **waiting("ErrImagePull")))
    assert [state for state, *_ in rows_of(installed, check_pods)] == ["Ok"]
    set_variable(installed, "MUSTER_CHECKER_NAMESPACE", "muster-check")
    assert "muster-check-1" in only_wrong(installed, check_pods)[0]


def test_a_pod_that_does_not_start_is_wrong(installed: Any) -> None:
    installed.lists(PODS.format(SYSTEM), a_pod("muster-1", **waiting("CrashLoopBackOff")))
    finding, remedy = only_wrong(installed, check_pods)
    assert finding == "CrashLoopBackOff of 1 pod in namespace muster-system, e.g. muster-1 on gpu-1"
    assert "kubectl -n muster-system logs muster-1 --previous" in remedy


@pytest.mark.parametrize(("restarts", "minutes", "is_wrong"), [(3, 10, True), (2, 10, False), (3, 70, False)], ids=str)
def test_a_pod_that_restarts_repeatedly_is_wrong(installed: Any, restarts: int, minutes: int, is_wrong: bool) -> None:
    ended = {"finishedAt": rfc3339(NOW - timedelta(minutes=minutes)), "reason": "Error"}
    container = {"state": {"running": {}}, "restartCount": restarts, "lastState": {"terminated": ended}}
    installed.lists(PODS.format(SYSTEM), a_pod("muster-1", containerStatuses=[container]))
    rows = rows_of(installed, check_pods)
    assert [state for state, *_ in rows] == ["Wrong" if is_wrong else "Ok"]
    if is_wrong:
        assert rows[0][1].endswith("e.g. muster-1 on gpu-1: 3 times, last: Error")


@pytest.mark.parametrize("state", [{"running": {}}, {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}])
def test_a_pod_that_was_killed_at_its_memory_limit_is_wrong(installed: Any, state: dict[str, Any]) -> None:
    ended = {"finishedAt": rfc3339(NOW - timedelta(minutes=10)), "reason": "OOMKilled"}
    container = {"state": state, "restartCount": 1, "lastState": {"terminated": ended}}
    installed.lists(PODS.format(SYSTEM), a_pod("muster-1", containerStatuses=[container]))
    finding, remedy = only_wrong(installed, check_pods)
    assert finding == "OOMKilled of 1 pod in namespace muster-system, e.g. muster-1 on gpu-1: 1 restart"
    assert "docs/sizes.md" in remedy


def with_nodes(installed: Any, count: int, **resources: Any) -> None:
    installed.lists("/api/v1/nodes", *(a_node(f"n{number}") for number in range(count)))
    if resources:
        installed.bodies[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["resources"] = resources


def test_a_memory_limit_that_is_too_small_for_the_nodes_is_wrong(installed: Any) -> None:
    with_nodes(installed, 2049)
    finding, remedy = only_wrong(installed, check_size)
    assert finding.startswith("the operator's memory limit is 2Gi, and the cluster has 2,049 nodes")
    assert remedy.endswith("--requests=cpu=250m,memory=1Gi --limits=memory=4Gi")


@pytest.mark.parametrize(
    ("resources", "finding"),
    [
        ({"requests": {"memory": "1Gi"}, "limits": {"memory": "4096Mi"}}, "1Gi of memory and the limit 4096Mi fit"),
        ({"requests": {"memory": "1Gi"}}, "1Gi of memory and the limit (none) fit 2,049 nodes"),
        ({"requests": {"memory": "100Mi"}}, "the operator requests 100Mi, and the cluster has 2,049 nodes"),
        ({"limits": {"memory": "4Gi"}}, "the operator requests no memory, and the cluster has 2,049 nodes"),
    ],
)
def test_a_request_that_is_too_small_is_named(installed: Any, resources: dict[str, Any], finding: str) -> None:
    with_nodes(installed, 2049, **resources)
    ((state, text, remedy),) = rows_of(installed, check_size)
    assert (state, text.startswith(finding)) == ("Ok", True)
    assert bool(remedy) == ("requests" in finding)


def test_as_installed_the_operator_fits_the_default_size(installed: Any) -> None:
    with_nodes(installed, DEFAULT_NODES)
    assert [row[0::2] for row in rows_of(installed, check_size)] == [("Ok", "")]


def test_more_nodes_than_were_measured_are_unknown(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.api.sizes.SIZES", SIZES[:1])
    with_nodes(installed, SIZES[0].nodes + 1)
    assert "and Muster was measured with" in unread(installed, check_size)[0]


def test_a_pod_that_fits_no_node_is_wrong(installed: Any) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    installed.lists(PODS.format(SYSTEM), a_pod("muster-1", "", conditions=[condition]))
    finding, _ = only_wrong(installed, check_pods)
    assert finding == "Unschedulable of 1 pod in namespace muster-system, e.g. muster-1: 0/2 nodes"


def test_a_lease_that_is_not_there_or_not_held_is_wrong(installed: Any) -> None:
    installed.bodies[LEASE]["spec"]["holderIdentity"] = ""
    assert "is not held" in only_wrong(installed, check_leader)[0]
    del installed.bodies[LEASE]
    assert "is not held" in only_wrong(installed, check_leader)[0]
    assert unread(installed, check_clock)[0] == "no replica has renewed Lease muster-leader"


@pytest.mark.parametrize("by_server", [None, NOW - timedelta(seconds=40)])
def test_a_lease_that_nobody_renews_is_wrong(installed: Any, by_server: Any) -> None:
    renewed_at(installed, NOW - timedelta(seconds=40), by_server)
    finding, remedy = only_wrong(installed, check_leader)
    assert finding == "no replica leads: muster-1_0a1b has not renewed Lease muster-leader for 40 s"
    assert "kubectl -n muster-system logs" in remedy


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (100, "the leader's clock is 100 s ahead of the API server's"),
        (-100, "the leader's clock is 100 s behind the API server's"),
    ],
)
def test_a_leaders_clock_that_is_wrong_does_not_make_it_no_leader(installed: Any, seconds: int, text: str) -> None:
    renewed_at(installed, NOW + timedelta(seconds=seconds), NOW)
    finding, remedy = only_wrong(installed, check_clock)
    assert finding == text
    assert "muster-1_0a1b" in remedy
    assert [state for state, *_ in rows_of(installed, check_leader)] == ["Ok"]


@pytest.mark.parametrize("seconds", [-9, 2])
def test_a_renewal_takes_its_time(installed: Any, seconds: int) -> None:
    renewed_at(installed, NOW + timedelta(seconds=seconds), NOW)
    assert [state for state, *_ in rows_of(installed, check_clock)] == ["Ok"]


def test_without_the_dates_of_fields_a_clock_ahead_is_seen(installed: Any) -> None:
    renewed_at(installed, NOW + timedelta(seconds=30), None)
    assert "30 s ahead" in only_wrong(installed, check_clock)[0]


@pytest.mark.parametrize("check", [check_pods, check_leader, check_clock])
def test_the_servers_time_is_that_of_an_answer(installed: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.answers = Answers()
    renewed_at(installed, NOW, None)
    get = installed.get

    async def dated(*arguments: Any, **options: Any) -> bytes:
        installed.is_at(NOW)
        answer: bytes = await get(*arguments, **options)
        return answer

    monkeypatch.setattr(installed, "get", dated)
    assert [state for state, *_ in rows_of(installed, check)] == ["Ok"]


def test_without_the_servers_time_nobody_knows_who_leads(installed: Any) -> None:
    installed.answers = Answers()
    assert "have no time" in unread(installed, check_leader)[0]


@pytest.mark.parametrize("part", ["agent", "checker"])
def test_a_daemonset_that_is_missing_or_not_ready_is_wrong(installed: Any, part: str) -> None:
    name = {"agent": "muster-agent", "checker": "muster-check"}[part]
    set_variable(installed, f"MUSTER_{part.upper()}_NAMESPACE", name)
    path = f"/apis/apps/v1/namespaces/{name}/daemonsets/{name}"
    installed.put(path, {"status": {"numberReady": 1, "desiredNumberScheduled": 2}})
    finding, remedy = only_wrong(installed, check_daemons)
    assert finding == f"DaemonSet {name} in namespace {name} is ready on 1 of 2 nodes"
    assert remedy == f"kubectl -n {name} get pods -o wide shows where not"
    del installed.bodies[path]
    assert f"DaemonSet {name} in namespace {name} is missing" in only_wrong(installed, check_daemons)[0]


def test_agents_that_are_missing_come_with_the_overlay_of_the_profile(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    del installed.bodies[DAEMON]
    assert "kubectl apply -k manifests/overlays/observe " in only_wrong(installed, check_daemons)[1]


def test_where_agents_are_left_out_none_is_missed(installed: Any) -> None:
    set_variable(installed, "MUSTER_AGENT_NAMESPACE", "")
    del installed.bodies[DAEMON]
    rows = rows_of(installed, check_daemons)
    assert [row[:2] for row in rows] == [("Ok", "neither agents nor checkers are installed")]
    assert rows_of(installed, check_node_health) == []


def test_a_node_without_a_report_of_its_agent_is_wrong(installed: Any) -> None:
    never = a_health("gpu-2")
    del never["status"]["agent"]
    installed.lists(HEALTHS, never)
    finding, remedy = only_wrong(installed, check_node_health)
    assert finding == "no agent has reported from 2 nodes: gpu-1, gpu-2"
    assert remedy.startswith("kubectl -n muster-agent get pods -o wide")


def test_nodes_that_agents_are_not_for_need_none(installed: Any) -> None:
    nodes = [a_node("gpu-1"), a_node("gpu-2"), a_node("win-1", {"kubernetes.io/os": "windows"})]
    installed.lists("/api/v1/nodes", *nodes)
    assert [state for state, *_ in rows_of(installed, check_node_health)] == ["Ok"]


def test_an_agent_that_is_silent_is_wrong(installed: Any) -> None:
    silence = {"source": "agent", "reason": "AgentSilent", "since": rfc3339(NOW)}
    installed.lists(HEALTHS, a_health("gpu-1", "", silence), a_health("gpu-2"))
    assert only_wrong(installed, check_node_health)[0] == "the agent is silent on 1 node: gpu-1"


def test_problems_of_agents_are_counted(installed: Any) -> None:
    problem = "the kernel log cannot be read (/dev/kmsg: Operation not permitted)"
    installed.lists(HEALTHS, a_health("gpu-1", problem), a_health("gpu-2", problem))
    finding, remedy = only_wrong(installed, check_node_health)
    assert finding == f"agents of 2 nodes cannot see all: {problem} (gpu-1, gpu-2)"
    assert "kubectl get nodehealth gpu-1" in remedy


def test_a_node_without_gpus_has_no_driver_and_is_well(installed: Any) -> None:
    no_driver = "no driver: no libnvidia-ml.so.1"
    installed.lists(HEALTHS, a_health("gpu-1", no_driver), a_health("gpu-2"))
    rows = rows_of(installed, check_node_health)
    assert [row[:2] for row in rows] == [("Ok", "2 agents report, and see all of their nodes")]
    installed.lists(HEALTHS, a_health("gpu-1", f"{no_driver}; no kernel log"), a_health("gpu-2"))
    finding, _ = only_wrong(installed, check_node_health)
    assert finding == "agents of 1 node cannot see all: no kernel log (gpu-1)"


def policy_of(installed: Any) -> dict[str, Any]:
    policy: dict[str, Any] = installed.bodies[POLICIES]["items"][0]
    return policy


def test_without_jobs_a_missing_policy_keeps_none_from_starting(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    installed.lists(POLICIES)
    assert only_wrong(installed, check_policy)[0] == "there is no FleetPolicy default, so the defaults apply"


def test_without_a_policy_no_job_starts(installed: Any) -> None:
    installed.lists(POLICIES)
    assert only_wrong(installed, check_policy) == (
        "there is no FleetPolicy default, so no job starts",
        "create it from a copy that was kept; for a new installation: kubectl create -f manifests/fleetpolicy.yaml "
        "(in a "
        "release: -f fleetpolicy.yaml)",
    )
    assert rows_of(installed, check_namespaces) == []


def test_a_policy_that_cannot_be_read_is_wrong(installed: Any) -> None:
    policy_of(installed)["spec"]["queueing"]["defaultLimit"] = "many"
    finding, _ = only_wrong(installed, check_policy)
    assert finding.startswith("FleetPolicy default cannot be read by this version: ")


def test_another_policy_counts_for_nothing(installed: Any) -> None:
    other = {"metadata": {"name": "other", "resourceVersion": "1"}, "spec": {}}
    installed.lists(POLICIES, policy_of(installed), other)
    finding, remedy = only_wrong(installed, check_policy)
    assert finding == "only FleetPolicy default counts, and there are others: other"
    assert remedy == "kubectl delete fleetpolicy other"


def test_a_selector_that_selects_no_namespace_is_wrong(installed: Any) -> None:
    installed.lists("/api/v1/namespaces", a_namespace("team-a"))
    finding, remedy = only_wrong(installed, check_namespaces)
    assert "selects no namespace" in finding
    assert remedy == "enable one: kubectl label namespace NAMESPACE muster.dev/training=enabled"


def test_a_default_limit_of_0_without_any_limit_is_wrong(installed: Any) -> None:
    queueing = policy_of(installed)["spec"]["queueing"]
    queueing["limits"] = [{"namespace": "team-a", "nodes": 0}]
    finding, remedy = only_wrong(installed, check_namespaces)
    assert finding.startswith("no job may hold a node")
    assert "kubectl patch fleetpolicy default --type=json" in remedy
    del queueing["defaultLimit"]
    assert [state for state, *_ in rows_of(installed, check_namespaces)] == ["Ok"]


def test_an_enabled_namespace_without_a_limit_is_wrong(installed: Any) -> None:
    enabled = {"muster.dev/training": "enabled"}
    installed.lists("/api/v1/namespaces", a_namespace("team-a", enabled), a_namespace("team-b", enabled))
    finding, remedy = only_wrong(installed, check_namespaces)
    assert finding.endswith("defaultLimit is 0: team-b")
    assert '"namespace":"team-b"' in remedy
    policy_of(installed)["spec"]["queueing"]["defaultLimit"] = 4
    assert [state for state, *_ in rows_of(installed, check_namespaces)] == ["Ok"]


def test_where_all_namespaces_are_enabled_those_without_jobs_need_no_limit(installed: Any) -> None:
    del policy_of(installed)["spec"]["queueing"]["namespaceSelector"]
    rows = rows_of(installed, check_namespaces)
    assert [row[:2] for row in rows] == [("Ok", "jobs may start in default, team-a")]


def test_a_class_by_which_no_job_preempts_is_wrong(installed: Any) -> None:
    listed = [{"name": "urgent", "namespaces": ["team-a"]}]
    policy_of(installed)["spec"]["queueing"]["preemption"] = {"priorityClasses": listed}
    installed.lists(CLASSES)
    finding, remedy = only_wrong(installed, check_preemption)
    assert finding.endswith("lists PriorityClass urgent, which does not exist: no job preempts by it")
    assert remedy.startswith("create it (kubectl create priorityclass urgent --value=VALUE)")
    urgent = {"metadata": {"name": "urgent", "resourceVersion": "1"}, "value": 1000, "preemptionPolicy": "Never"}
    installed.lists(CLASSES, urgent)
    finding, _ = only_wrong(installed, check_preemption)
    assert finding.endswith("urgent, which has preemptionPolicy Never: no job preempts by it")
    installed.lists(CLASSES, {**urgent, "preemptionPolicy": "PreemptLowerPriority"})
    assert rows_of(installed, check_preemption) == [("Ok", "jobs preempt by urgent", "")]
    refuse(installed, CLASSES)
    assert unread(installed, check_preemption)[0] == "you may not list priorityclasses.scheduling.k8s.io"


def test_without_a_listed_class_no_class_is_read(installed: Any) -> None:
    refuse(installed, CLASSES)
    assert [state for state, *_ in rows_of(installed, check_preemption)] == ["Ok"]
    set_variable(installed, "MUSTER_PROFILE", "health")
    assert rows_of(installed, check_preemption) == []


def test_jobs_that_wait_for_their_namespace_are_wrong(installed: Any) -> None:
    installed.lists(JOBS, a_job("llama"), a_job("bert", "Pending", "NotEnabled"))
    finding, remedy = only_wrong(installed, check_waiting_jobs)
    assert finding == "jobs wait with NotEnabled (1): team-a/bert"
    assert remedy.startswith("kubectl muster status team-a/bert")


def test_a_profile_without_what_the_policy_asks_for_is_wrong(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    policy_of(installed)["spec"]["health"] = {"nodeCondition": True}
    finding, remedy = only_wrong(installed, check_profile)
    assert "profile observe (MUSTER_PROFILE), which leaves out" in finding
    assert "spec.health.nodeCondition. Install profile health" in finding
    assert remedy == (
        "apply the definitions: kubectl apply -k manifests/definitions-health (in a release: -f "
        "definitions-health.yaml), "
        "or the chart muster-definitions, then the overlay: kubectl apply -k manifests/overlays/health (in a release: "
        "-f install-health.yaml); or add its components to your own, or set profile in both charts"
    )


def test_a_profile_that_nobody_knows_is_named(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "all")
    finding, remedy = unread(installed, check_profile)
    assert finding == "MUSTER_PROFILE of Deployment muster is 'all'"
    assert remedy.endswith("MUSTER_PROFILE=jobs (or observe, health, burn-in)")


def test_without_jobs_nothing_of_jobs_is_missed(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "health")
    set_variable(installed, "MUSTER_LAUNCHER_IMAGE", "")
    policy_of(installed)["spec"]["queueing"] = {"defaultLimit": 0}
    assert [state for state, _, _ in rows_of(installed, check_images)] == ["Ok"]
    installed.lists(JOBS)
    assert rows_of(installed, check_namespaces) == []
    assert rows_of(installed, check_waiting_jobs) == []


def test_jobs_that_a_profile_without_jobs_never_runs_are_wrong(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "health")
    ended, ejected = a_job("ended"), a_job("ejected")
    ended["status"]["completion"] = {"result": "Succeeded", "time": rfc3339(NOW), "reason": "Succeeded"}
    ejected["status"]["conditions"] = [{"type": "Ejected", "status": "True", "lastTransitionTime": rfc3339(NOW)}]
    new = a_job("new", "", "")
    left = a_job("suspended", "Suspended", suspend=True), ended, ejected
    installed.lists(JOBS, a_job("llama"), new, *left)
    finding, remedy = only_wrong(installed, check_waiting_jobs)
    assert finding == "2 TrainingJobs; profile health runs none: team-a/llama, team-a/new"
    assert "-f definitions.yaml), or the chart muster-definitions, then apply the manifests again" in remedy
    installed.lists(JOBS, *left)
    assert rows_of(installed, check_waiting_jobs) == []


@pytest.mark.parametrize("kinds", [(), ("nodehealths",)])
def test_where_jobs_are_not_defined_there_are_none(installed: Any, kinds: tuple[str, ...]) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    installed.put(KINDS, {"resources": [{"name": kind} for kind in kinds]})
    del installed.bodies[JOBS]
    assert rows_of(installed, check_waiting_jobs) == []
    refuse(installed, KINDS)
    assert unread(installed, check_waiting_jobs)[0] == f"you may not get {KINDS}"


def test_jobs_that_hold_nodes_keep_a_profile_without_jobs_from_leading(installed: Any) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    installed.lists(JOBS, *map(a_job, ("llama", "bert", "freed", "ejected")))
    gangs = a_gang("freed"), a_gang("ejected", "gpu-2", ejected=True), a_gang("deleted", "gpu-2")
    installed.lists(GANGS, a_gang("llama", "gpu-1"), *gangs)
    finding, remedy = only_wrong(installed, check_waiting_jobs)
    assert finding == (
        "profile observe runs no jobs, and jobs hold nodes (1): team-a/llama; until they hold none, a replica with "
        "this profile neither is Ready nor leads"
    )
    assert "kubectl muster eject team-a/llama" in remedy
    assert "MUSTER_PROFILE=jobs" in remedy
    installed.lists(GANGS, *gangs)
    assert "profile observe runs none" in only_wrong(installed, check_waiting_jobs)[0]


@pytest.mark.parametrize("gangs", [[], [{**a_gang("llama"), "spec": {"jobUid": "uid-llama", "level": "R9"}}]])
def test_a_job_without_a_readable_gang_holds_nodes_by_its_pods(installed: Any, gangs: list[dict[str, Any]]) -> None:
    set_variable(installed, "MUSTER_PROFILE", "observe")
    installed.lists(JOBS, a_job("llama"), a_job("bert", suspend=True))
    installed.lists(GANGS, *gangs)
    installed.lists(ALL_PODS, a_worker_pod("llama"), a_worker_pod("bert", node=""))
    assert "jobs hold nodes (1): team-a/llama;" in only_wrong(installed, check_waiting_jobs)[0]
    refuse(installed, ALL_PODS)
    assert unread(installed, check_waiting_jobs)[0] == "you may not list pods"


@pytest.mark.parametrize(("profile", "folder"), [("observe", "-observe"), ("burn-in", "-health"), ("jobs", "")])
@pytest.mark.parametrize(
    ("check", "path"),
    [
        (check_policy, POLICIES),
        (check_profile, POLICIES),
        (check_scope, POLICIES),
        (check_namespaces, POLICIES),
        (check_node_health, HEALTHS),
    ],
)
def test_an_unknown_kind_is_defined_by_the_folder_of_the_profile(
    installed: Any, check: Any, path: str, profile: str, folder: str
) -> None:
    set_variable(installed, "MUSTER_PROFILE", profile)
    del installed.bodies[path]
    finding, remedy = unread(installed, check)
    assert finding == f"the API server does not know {path.rpartition('/')[2]}"
    assert f"kubectl apply -k manifests/definitions{folder} (in a release: -f definitions{folder}.yaml)" in remedy


def test_a_scope_that_selects_no_node_is_wrong(installed: Any) -> None:
    scope = {"matchLabels": {"kubernetes.io/os": "linux"}}
    policy_of(installed)["spec"]["scope"] = {"nodeSelector": scope}
    assert rows_of(installed, check_scope)[0][:2] == (
        "Ok",
        "2 of 2 nodes are Muster's; kubelets may change the label of their own node: kubernetes.io/os",
    )
    scope["matchLabels"]["kubernetes.io/os"] = "plan9"
    finding, remedy = only_wrong(installed, check_scope)
    assert finding == "spec.scope.nodeSelector of FleetPolicy default selects no node, so Muster does nothing"
    assert "kubectl edit fleetpolicy default" in remedy


@pytest.mark.parametrize(
    ("key", "is_named"),
    [
        ("example.org/cluster", True),
        ("cluster", True),
        ("node.kubernetes.io/instance-type", True),
        ("not-node-restriction.kubernetes.io/cluster", True),
        ("node-restriction.kubernetes.io/cluster", False),
        ("team.node-restriction.kubernetes.io/cluster", False),
        ("node-role.kubernetes.io/training", False),
    ],
)
def test_a_label_of_the_scope_that_kubelets_may_change_is_named(installed: Any, key: str, is_named: bool) -> None:
    policy_of(installed)["spec"]["scope"] = {
        "nodeSelector": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}
    }
    ((state, finding, remedy),) = rows_of(installed, check_scope)
    assert (state, f"may change the label of their own node: {key}" in finding) == ("Ok", is_named)
    assert ("node-restriction.kubernetes.io/" in remedy) is is_named
