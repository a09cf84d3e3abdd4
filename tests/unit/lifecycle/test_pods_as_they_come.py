"""Pods as people have them: sidecars, devices, networks, rights. What Muster leaves as it is, sets, and refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.lifecycle.builders import GPU, SETTINGS, Scene, a_fleet, a_job, a_node, at, running

from muster.api.gang import Member
from muster.api.trainingjob import TrainingJob
from muster.kube import decode
from muster.lifecycle.plan import CommitGang, CreatePod, DeletePod
from muster.lifecycle.step import decide
from muster.placement.eligibility import Requirements, refusal
from muster.pods.launching import start_text
from muster.pods.requirements import requirements
from muster.pods.worker_pod import worker_manifest
from muster.recovery.exits import message_of
from muster.recovery.failures import find
from muster.status.template import problem
from muster.world.fleet import Fleet
from muster.world.job import JobWorld, PodAges
from muster.world.resources import template_requests
from muster.world.views import ContainerView, PodView

CASES = {path.stem: path for path in sorted((Path(__file__).parent / "pods").iterdir())}
EVERY = pytest.mark.parametrize("case", CASES)
LAUNCHER = "muster-launcher"


def job_of(case: str, **changes: Any) -> TrainingJob:
    found = yaml.safe_load(CASES[case].read_text())
    metadata = {**found["metadata"], "namespace": "team", "uid": f"uid-of-{case}", "generation": 1}
    return TrainingJob.model_validate({"metadata": metadata, "spec": {**found["spec"], **changes}})


def pod_of(job: TrainingJob) -> dict[str, Any]:
    return worker_manifest(job, Member(index=1, rank=1, node="n1"), SETTINGS)


def needs_of(case: str) -> Requirements:
    """Before the API server has answered."""
    return requirements(JobWorld(now=at(0.0), job=job_of(case)), None)


def trainer_of(job: TrainingJob, pod: dict[str, Any]) -> dict[str, Any]:
    name = job.spec.launch.worker_container or job.spec.containers[0]["name"]
    return next(each for each in pod["spec"]["containers"] if each["name"] == name)


@EVERY
def test_it_is_taken(case: str) -> None:
    assert problem(job_of(case), Fleet()) is None


@EVERY
def test_what_is_beside_the_trainer_stays_as_it_is_and_comes_after_the_launcher(case: str) -> None:
    job = job_of(case)
    pod, template = pod_of(job)["spec"], job.spec.pod
    trainer = trainer_of(job, {"spec": pod})
    assert [each["name"] for each in pod["containers"]] == [each["name"] for each in template["containers"]]
    assert [each for each in pod["containers"] if each is not trainer] == [
        each for each in template["containers"] if each["name"] != trainer["name"]
    ]
    assert pod["initContainers"][0]["name"] == LAUNCHER
    assert pod["initContainers"][1:] == template.get("initContainers", [])
    assert pod["volumes"][: len(template.get("volumes", []))] == template.get("volumes", [])
    changed = {"containers", "initContainers", "volumes", "restartPolicy", "tolerations", "affinity", "dnsPolicy"}
    assert {name: pod[name] for name in pod.keys() - changed} == {
        name: template[name] for name in template.keys() - changed
    }


@EVERY
def test_no_name_and_no_place_is_taken_twice(case: str) -> None:
    pod = pod_of(job_of(case))["spec"]
    every = [*pod["initContainers"], *pod["containers"]]
    for names in (
        [each["name"] for each in every],
        [each["name"] for each in pod["volumes"]],
        *([mount["mountPath"] for mount in each.get("volumeMounts", ())] for each in every),
    ):
        assert len(set(names)) == len(names)
    volumes = {each["name"] for each in pod["volumes"]}
    assert {mount["name"] for each in every for mount in each.get("volumeMounts", ())} <= volumes


def quality(spec: dict[str, Any]) -> str:
    """The pod's class. Source: Kubernetes documentation, "Pod Quality of Service Classes"."""

    def asked(container: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        for name in ("cpu", "memory"):
            yield (resources.get("requests") or {}).get(name, limits.get(name)), limits.get(name)

    pairs = [pair for each in [*spec.get("initContainers", []), *spec["containers"]] for pair in asked(each)]
    if all(request == limit and limit is not None for request, limit in pairs):
        return "Guaranteed"
    return "Burstable" if any(part is not None for pair in pairs for part in pair) else "BestEffort"


@EVERY
def test_its_class_stays_and_so_does_what_it_asks_for(case: str) -> None:
    """A pod that is not Guaranteed any more loses the processors that the kubelet keeps for it alone."""
    job = job_of(case)
    pod = pod_of(job)["spec"]
    assert quality(pod) == quality(job.spec.pod)
    wanted = template_requests({**pod, "initContainers": job.spec.pod.get("initContainers", [])})
    assert template_requests(pod) == wanted
    assert decode.requests(json.dumps({"metadata": {}, "spec": as_stored(pod)}).encode()) == wanted


def as_stored(pod: dict[str, Any]) -> dict[str, Any]:
    """People may write numbers for quantities; the API server gives them back as text."""

    def stored(container: dict[str, Any]) -> dict[str, Any]:
        parts = (container.get("resources") or {}).items()
        return {**container, "resources": {part: {k: str(v) for k, v in asked.items()} for part, asked in parts}}

    return {**pod, **{name: [stored(each) for each in pod[name]] for name in ("initContainers", "containers")}}


def test_a_pod_with_processors_of_its_own_keeps_them() -> None:
    assert quality(pod_of(job_of("aws-efa"))["spec"]) == "Guaranteed"


def test_a_node_needs_all_that_the_containers_ask_for_together() -> None:
    """An answer of the API server is not needed for that: eight GPUs, seven of them the trainer's."""
    rdma = {GPU: 8, "rdma/rdma_shared_device_a": 63}
    needs = needs_of("mellanox-rdma")
    assert (needs.accelerators, needs.requests[GPU], needs.requests["rdma/rdma_shared_device_a"]) == (7, 8, 1)
    for allocatable, expected in (
        (rdma, ""),
        ({**rdma, GPU: 7}, GPU),
        ({GPU: 8}, "rdma/rdma_shared_device_a"),
    ):
        node = a_node("n1", allocatable=allocatable)
        found = refusal(node, needs, a_fleet([node]), "uid")
        assert (found.message if found else "") == (expected and f"with too little {expected} for a worker")


def test_an_init_container_with_accelerators_needs_no_more_of_them() -> None:
    assert needs_of("native-sidecar").requests[GPU] == 8


def test_a_node_without_huge_pages_takes_nobody_who_needs_some() -> None:
    needs = needs_of("aws-efa")
    offered = {GPU: 8, "vpc.amazonaws.com/efa": 32}
    for pages, short in (({"hugepages-2Mi": 5 << 30}, False), ({"hugepages-2Mi": 1 << 30}, True), ({}, True)):
        node = a_node("n1", allocatable={**offered, **pages})
        found = refusal(node, needs, a_fleet([node]), "uid")
        assert (found.message if found else "") == ("with too little hugepages-2Mi for a worker" if short else "")


class TestTheContainerThatTrains:
    def test_is_not_guessed_where_another_one_has_the_accelerators(self) -> None:
        found = problem(job_of("gke-tcpxo", launch={}), Fleet())
        assert found is not None
        assert found[0] == "WorkerContainerUnclear"
        assert found[1].startswith("spec.launch.workerContainer: the first container of the template is tcpxo-daemon")
        assert "trainer asks for nvidia.com/gpu" in found[1]

    def test_may_leave_the_accelerators_to_muster(self) -> None:
        template = {"spec": {"containers": [{"name": "a", "command": ["a"]}, {"name": "b"}]}}
        assert problem(a_job(template=template), Fleet()) is None

    def test_gets_its_accelerators_wherever_it_stands(self) -> None:
        job = job_of("gke-tcpxo")
        daemon, trainer = pod_of(job)["spec"]["containers"]
        assert "resources" not in daemon
        assert trainer["resources"]["limits"] == {GPU: "8"}
        assert trainer["command"][:5] == ["python3", "-I", "/muster/run.pyz", "--", "torchrun"]

    @pytest.mark.parametrize("mode", ["Managed", "Plain"])
    def test_is_never_restarted_or_ended_by_the_kubelet(self, mode: str) -> None:
        rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
        container = {"name": "a", "command": ["a"], "restartPolicy": "Always", "restartPolicyRules": rules}
        spec = {"containers": [container], "activeDeadlineSeconds": 60}
        pod = pod_of(a_job(template={"spec": spec}, launch={"mode": mode}, checkpoint={}))["spec"]
        (trainer,) = pod["containers"]
        assert not {"restartPolicy", "restartPolicyRules"} & trainer.keys()
        assert "activeDeadlineSeconds" not in pod


class TestItsProbes:
    def test_are_not_asked_while_the_gang_waits(self) -> None:
        job = job_of("logging-sidecar")
        assert "livenessProbe" not in trainer_of(job, pod_of(job))
        assert "livenessProbe of container pytorch are not used" in start_text(job)

    def test_stay_where_the_program_runs_from_the_beginning(self) -> None:
        job = job_of("logging-sidecar", launch={"mode": "Plain"})
        assert "livenessProbe" in trainer_of(job, pod_of(job))
        assert "livenessProbe" not in start_text(job)

    def test_of_readiness_stay(self) -> None:
        job = job_of("native-sidecar")
        assert trainer_of(job, pod_of(job))["readinessProbe"] == {"tcpSocket": {"port": 8265}}


class TestTheHostsNetwork:
    @pytest.mark.parametrize("written", [{}, {"dnsPolicy": None}, {"dnsPolicy": "ClusterFirst"}])
    def test_finds_names_of_the_cluster(self, written: dict[str, Any]) -> None:
        template = job_of("host-network").spec.template
        job = job_of("host-network", template={"spec": {**template["spec"], **written}})
        assert pod_of(job)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
        assert "dnsPolicy is ClusterFirstWithHostNet" in start_text(job)

    def test_leaves_what_was_chosen(self) -> None:
        template = job_of("host-network").spec.template
        config = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.96.0.10"]}}
        job = job_of("host-network", template={"spec": {**template["spec"], **config}})
        assert problem(job, Fleet()) is None
        assert pod_of(job)["spec"]["dnsPolicy"] == "None"

    @pytest.mark.parametrize(
        ("on_host", "mode", "expected"),
        [
            (True, "Managed", "the name of Muster; write ClusterFirstWithHostNet."),
            (False, "Managed", "the name of Muster; write ClusterFirst."),
            (True, "Plain", "the name of the worker of rank 0; write ClusterFirstWithHostNet."),
        ],
    )
    def test_with_the_nodes_resolver_is_refused(self, on_host: bool, mode: str, expected: str) -> None:
        template = job_of("host-network").spec.template
        pod = {**template["spec"], "hostNetwork": on_host, "dnsPolicy": "Default"}
        found = problem(job_of("host-network", template={"spec": pod}, launch={"mode": mode}), Fleet())
        assert found is not None
        assert (found[0], found[1].partition(":")[0]) == ("ClusterDnsMissing", "spec.template.spec.dnsPolicy")
        assert expected in found[1]

    def test_a_pod_of_its_own_network_is_left_alone(self) -> None:
        assert "dnsPolicy" not in pod_of(job_of("openshift"))["spec"]


def test_a_node_that_is_named_in_the_template_is_refused() -> None:
    template = {"spec": {"nodeName": "n1", "containers": [{"name": "a", "command": ["a"]}]}}
    found = problem(a_job(template=template), Fleet())
    assert found is not None
    assert (found[0], found[1].partition(":")[0]) == ("TemplateInvalid", "spec.template.spec.nodeName")


class TestAnyUser:
    def test_the_launchers_init_container_names_none_and_writes_nothing_but_its_volume(self) -> None:
        pod = pod_of(job_of("openshift"))["spec"]
        installer = pod["initContainers"][0]
        assert "runAsUser" not in installer["securityContext"]
        assert installer["securityContext"]["readOnlyRootFilesystem"]
        assert [mount["mountPath"] for mount in installer["volumeMounts"]] == ["/muster"]

    def test_the_launcher_writes_where_a_volume_of_its_own_is(self) -> None:
        job = job_of("openshift")
        pod = pod_of(job)
        trainer = trainer_of(job, pod)
        environment = {each["name"]: each.get("value") for each in trainer["env"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in trainer["volumeMounts"]}
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        assert volumes[mounts[environment["MUSTER_DIRECTORY"]]] == {"name": "muster", "emptyDir": {}}


class TestASidecarThatNeverEnds:
    """What came into the pod by a webhook is known by no template."""

    PROXY = ContainerView("istio-proxy", running=True)

    def scene(self, *others: ContainerView, code: int) -> Scene:
        job = a_job(template={"spec": {"containers": [{"name": "main", "image": "i", "command": ["a"]}]}})
        ended = ContainerView("main", terminated=True, exit_code=code, terminated_reason="Error")
        return Scene(job).fleet().gang().pods().all(running(1, 7)).pod(1, containers=(*others, ended))

    @pytest.mark.parametrize(
        "proxy", [PROXY, ContainerView("istio-proxy", init=True, running=True)], ids=["ordinary", "native"]
    )
    def test_does_not_keep_a_member_alive_that_has_ended(self, proxy: ContainerView) -> None:
        (failure,) = find(self.scene(proxy, code=1).world())
        assert (failure.index, failure.exit_code) == (1, 1)

    @pytest.mark.parametrize(
        "proxy",
        [
            ContainerView("istio-proxy", waiting_reason="CrashLoopBackOff", init=True),
            ContainerView("istio-proxy", terminated=True, exit_code=137, terminated_reason="OOMKilled"),
        ],
        ids=["native", "ordinary"],
    )
    def test_does_not_end_a_member_that_trains(self, proxy: ContainerView) -> None:
        here = self.scene(code=0).pod(1, containers=(proxy, ContainerView("main", running=True)))
        assert find(here.world()) == []

    def test_that_cannot_be_pulled_does_not_move_a_member_that_trains(self) -> None:
        """Its pod is Pending for as long as one of its containers has never begun; before the go that is waited for."""
        stuck = ContainerView("proxy", waiting_reason="ImagePullBackOff")
        trains, waits = ContainerView("main", running=True), ContainerView("main", waiting_reason="PodInitializing")
        for container, kinds in ((trains, []), (waits, ["PodStartTimeout"])):
            here = self.scene(code=0).pod(1, phase="Pending", containers=(stuck, container))
            assert here.world().by_index[1].runs is (container is trains)
            here.but(pod_ages={here.uid(1): PodAges(there=1000.0)})
            assert [failure.kind.value for failure in find(here.world())] == kinds

    def test_its_pod_is_deleted_before_the_next_one_comes(self) -> None:
        here = self.scene(self.PROXY, code=1)
        old = here.world().names[1]
        (commit,) = decide(here.world(), SETTINGS).actions
        assert isinstance(commit, CommitGang)
        here.record = commit.spec
        assert here.world().names[1] != old
        actions = decide(here.world(), SETTINGS).actions
        assert [action.name for action in actions if isinstance(action, DeletePod)] == [old]
        assert not [action for action in actions if isinstance(action, CreatePod)], "the old one holds the accelerators"


class TestAContainerThatCannotStart:
    MISSING = 'exec: "python3": executable file not found in $PATH'

    def message(self, container: ContainerView, **spec: Any) -> str:
        job = a_job(
            template={"spec": {"containers": [{"name": "main", "image": "i", "command": ["a"]}]}},
            checkpoint={},
            **spec,
        )
        here = Scene(job).fleet().gang().pods().all(running(1, 7))
        others = () if container.name == "main" else (ContainerView("main", waiting_reason="PodInitializing"),)
        (failure,) = find(here.pod(1, phase="Failed", containers=(container, *others)).world())
        assert failure.kind == "ContainerCannotStart"
        return failure.message

    def failed(self, name: str, text: str, **changes: Any) -> ContainerView:
        shape = {"exit_code": 128, "terminated_reason": "StartError", "terminated_message": text, **changes}
        return ContainerView(name, terminated=True, **shape)

    def test_for_want_of_python_is_told_what_the_launcher_needs(self) -> None:
        told = self.message(self.failed("main", self.MISSING))
        assert told.startswith("container main of pod ")
        assert self.MISSING in told
        assert "Put python3 (3.8 or later, with its standard library) on the PATH of the image" in told

    def test_in_mode_plain_is_told_of_its_own_command(self) -> None:
        told = self.message(self.failed("main", self.MISSING), launch={"mode": "Plain"})
        assert "Correct its command in spec.template.spec.containers" in told

    def test_before_the_trainer_is_told_of_its_own_command(self) -> None:
        told = self.message(self.failed("fetch", 'exec: "gsutil": executable file not found in $PATH', init=True))
        assert "container fetch of pod " in told
        assert "Correct its command in spec.template.spec.initContainers" in told
        assert "python3 (3.8" not in told

    @pytest.mark.parametrize(
        "said",
        [
            "Python 3.8 or later is needed in this image, it has 3.6.8",
            "this image's Python lacks a part of the standard library: No module named 'ssl'",
        ],
    )
    def test_for_a_python_that_will_not_do_is_told_at_once(self, said: str) -> None:
        ended = self.failed("main", f"muster: {said}\n", exit_code=78, terminated_reason="Error")
        told = self.message(ended)
        assert said in told
        assert "Put python3 (3.8 or later" in told

    @pytest.mark.parametrize("said", ["bad option --lr", "muster: MUSTER_GANG: a name is expected, not ''"])
    def test_another_end_with_the_same_code_is_not_taken_for_it(self, said: str) -> None:
        job = a_job(template={"spec": {"containers": [{"name": "main", "image": "i", "command": ["a"]}]}})
        here = Scene(job).fleet().gang().pods().all(running(1, 7))
        ended = self.failed("main", f"{said}\n", exit_code=78, terminated_reason="Error")
        world = here.pod(1, phase="Failed", containers=(ended,)).world()
        (failure,) = find(world)
        assert failure.kind == "PodEnded"
        assert f"its last lines: {said}" in message_of(world, failure)

    def test_the_launchers_last_words_reach_the_status(self) -> None:
        job = job_of("openshift")
        assert trainer_of(job, pod_of(job))["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_a_port_of_the_node_that_is_taken_is_the_nodes_affair() -> None:
    here = Scene(a_job()).fleet().gang().pods().all(running(1, 7))
    (failure,) = find(here.pod(1, phase="Failed", reason="NodePorts", containers=()).world())
    assert failure.kind == "RejectedByKubelet"


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        (ContainerView("main", waiting_reason="PodInitializing"), True),
        (ContainerView("main", running=True), False),
        (ContainerView("main", terminated=True, exit_code=1), False),
    ],
)
def test_a_pod_whose_init_container_has_failed_has_had_no_ranks(trainer: ContainerView, expected: bool) -> None:
    init = ContainerView("fetch", init=True, terminated=True, exit_code=1, terminated_reason="Error")
    assert PodView("team", "p", "u", 1, phase="Failed", containers=(init, trainer)).failed_before is expected
    assert not PodView("team", "p", "u", 1, phase="Running", containers=(init, trainer)).failed_before


def test_what_a_pod_asks_for_as_a_whole_counts_before_its_containers() -> None:
    container = {"resources": {"requests": {"cpu": "1"}, "limits": {GPU: "8"}}}
    spec = {"resources": {"requests": {"cpu": "96", "memory": "1Gi"}}, "containers": [container, container]}
    wanted = {"pods": 1, "cpu": 96000, "memory": 1 << 30, GPU: 16}
    assert template_requests(spec) == wanted
    assert decode.requests(json.dumps({"metadata": {}, "spec": spec}).encode()) == wanted
