"""What becomes of each field of a pod and its containers where the pod stays while its ranks restart."""

import json
from typing import Any

import pytest
from tests.unit.convert.builders import a_pytorch_job, objects, result, said

from muster.convert import pod
from muster.convert.documents import Result, convert_objects

OTHERS = {
    "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "a"}},
    "topologyKey": "kubernetes.io/hostname",
}
OWN = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def made(pod_spec: dict[str, Any], trainer: dict[str, Any] | None = None, policy: str = "Never") -> Result:
    """What becomes of a PyTorchJob whose pods have these fields beside the trainer, which has those."""
    source = a_pytorch_job(["torchrun", "train.py"], **(trainer or {}))
    worker = source["spec"]["pytorchReplicaSpecs"]["Worker"]
    spec = worker["template"]["spec"]
    worker["restartPolicy"] = policy
    spec |= {**pod_spec, "containers": [*spec["containers"], *pod_spec.get("containers", ())]}
    (found,) = convert_objects([source])
    assert found is not None
    return found


def spec_of(found: Result) -> dict[str, Any]:
    """The pod's spec after it."""
    assert found.job is not None, found.refused
    return dict(found.job["spec"]["template"]["spec"])


def test_each_field_has_one_meaning() -> None:
    pods, containers = (
        [pod.POD_KEPT, {*pod.POD_LEFT_OUT}, pod.POD_TOLD],
        [
            pod.CONTAINER_KEPT,
            {*pod.CONTAINER_LEFT_OUT},
            pod.CONTAINER_TOLD,
        ],
    )
    for parts in (pods, containers):
        assert sum(map(len, parts)) == len(set().union(*parts))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hostname", "trainer"),
        ("subdomain", "trainers"),
        ("setHostnameAsFQDN", True),
        ("preemptionPolicy", "Never"),
        ("priority", 1000),
        ("readinessGates", [{"conditionType": "example.org/ready"}]),
        ("ephemeralContainers", [{"name": "debug", "image": "i"}]),
        ("terminationGracePeriodSeconds", 0),
        ("affinity", {"podAntiAffinity": {REQUIRED: [OTHERS]}}),
        ("affinity", {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": OTHERS}]}}),
        ("topologySpreadConstraints", [{**OTHERS, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]),
    ],
)
def test_what_has_no_meaning_in_a_workers_pod_is_left_out_with_a_reason(field: str, value: Any) -> None:
    found = made({field: value})
    assert field not in spec_of(found)
    (note,) = [note for note in found.notes.left_out if note.startswith(f"template.spec.{field}")]
    assert note.count(": ") >= 2
    assert "nothing like it" not in note


def test_rules_by_labels_of_ones_own_stay() -> None:
    affinity = {"podAntiAffinity": {REQUIRED: [OTHERS, OWN]}, "nodeAffinity": {PREFERRED: []}}
    found = spec_of(made({"affinity": affinity, "topologySpreadConstraints": [OWN]}))
    assert found["affinity"] == {"podAntiAffinity": {REQUIRED: [OWN]}, "nodeAffinity": {PREFERRED: []}}
    assert found["topologySpreadConstraints"] == [OWN]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("terminationGracePeriodSeconds", 600, "spec.checkpoint.saveTimeoutSeconds"),
        ("shareProcessNamespace", True, "would take a restart for the end"),
        ("priorityClassName", "high", "it orders Muster's queue"),
        ("newerThanThis", {"a": 1}, "it is not known what it means in a pod that stays"),
        ("dnsPolicy", "Default", "write ClusterFirst"),
    ],
)
def test_what_means_something_else_stays_and_is_told(field: str, value: Any, says: str) -> None:
    found = made({field: value})
    assert spec_of(found)[field] == value
    (note,) = [note for note in [*found.notes.check, *found.notes.became] if f"template.spec.{field}" in note]
    assert says in note


@pytest.mark.parametrize(
    "kept",
    [{"hostNetwork": True}, {"runtimeClassName": "nvidia"}, {"terminationGracePeriodSeconds": 30}, {"hostIPC": True}],
)
def test_what_means_the_same_is_kept_without_a_word(kept: dict[str, Any]) -> None:
    (field,) = kept
    found = made(kept)
    assert spec_of(found)[field] == kept[field]
    assert f"template.spec.{field}" not in said(found)


def test_a_pod_of_another_operating_system_is_refused() -> None:
    assert "template.spec.os.name: windows" in made({"os": {"name": "windows"}}).refused


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("livenessProbe", {"exec": {"command": ["true"]}}),
        ("startupProbe", {"exec": {"command": ["true"]}}),
        ("restartPolicy", "OnFailure"),
        ("restartPolicyRules", [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}]),
        ("stdin", True),
        ("lifecycle", {"stopSignal": "SIGUSR1"}),
        ("resizePolicy", [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
    ],
)
def test_fields_of_the_trainer_that_would_end_or_mislead_it_are_left_out(field: str, value: Any) -> None:
    found = made({}, {field: value})
    assert field not in spec_of(found)["containers"][0]
    assert any(note.startswith(field) and "pytorch" in note for note in found.notes.left_out)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("lifecycle", {"postStart": {"exec": {"command": ["a"]}}}, "runs once, when the pod begins"),
        ("lifecycle", {"preStop": {"exec": {"command": ["a"]}}}, "not when ranks restart"),
        ("terminationMessagePath", "/tmp/why", "is read when the pod ends"),
        ("newerThanThis", 1, "it is not known what it means"),
    ],
)
def test_fields_of_the_trainer_that_mean_something_else_are_told(field: str, value: Any, says: str) -> None:
    found = made({}, {field: value})
    assert spec_of(found)["containers"][0][field] == value
    assert any(note.startswith(field) and says in note for note in found.notes.check)


def test_files_that_stay_are_told_but_not_those_of_shared_memory() -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "scratch", "mountPath": "/scratch"}, {"name": "shm", "mountPath": "/dev/shm"}]
    checks = [note for note in made({"volumes": volumes}, {"volumeMounts": mounts}).notes.check if "emptyDir" in note]
    assert [note.partition(": ")[0] for note in checks] == ["emptyDir at /scratch"]


def test_every_mount_of_a_volume_that_stays_is_told() -> None:
    volumes = [{"name": "both", "emptyDir": {}}, {"name": "own", "ephemeral": {}}, {"name": "shm", "emptyDir": {}}]
    mounts = [
        {"name": "both", "mountPath": "/scratch"},
        {"name": "both", "mountPath": "/dev/shm", "subPath": "shm"},
        {"name": "own", "mountPath": "/data"},
        {"name": "shm", "mountPath": "/dev/shm/"},
    ]
    checks = [note for note in made({"volumes": volumes}, {"volumeMounts": mounts}).notes.check if "it stays" in note]
    assert [note.partition(": ")[0] for note in checks] == ["emptyDir at /scratch, /data"]


def test_a_directory_of_each_node_is_named_by_what_the_kubelet_knows() -> None:
    index = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    name = {"fieldRef": {"fieldPath": "metadata.name"}}
    env = [{"name": "PLACE", "valueFrom": index}, {"name": "POD_NAME", "valueFrom": name}]
    written = ["$(PLACE)", "a/$(RANK)", "$(POD_NAME)", "$(MASTER_ADDR)", "$(USER)"]
    mounts = [{"name": "v", "mountPath": f"/{n}", "subPathExpr": each} for n, each in enumerate(written)]
    found = made({"volumes": [{"name": "v", "hostPath": {"path": "/v"}}]}, {"env": env, "volumeMounts": mounts})
    after = [each["subPathExpr"] for each in spec_of(found)["containers"][0]["volumeMounts"]]
    assert after == ["$(MUSTER_WORKER_INDEX)", "a/$(MUSTER_WORKER_INDEX)", *written[2:]]
    told = [note for note in found.notes.check if note.startswith("volumeMounts")]
    assert [("POD_NAME" in note, "MASTER_ADDR" in note) for note in told] == [(True, False), (False, True)]


def test_containers_that_nothing_restarts_any_more_are_told() -> None:
    beside = {"containers": [{"name": "logs", "image": "i"}]}
    assert any("container logs: nothing restarts it" in note for note in made(beside, policy="OnFailure").notes.check)
    assert not any("nothing restarts it" in note for note in made(beside, policy="ExitCode").notes.check)


def test_init_containers_run_once_and_sidecars_do_not() -> None:
    inits = [{"name": "fetch", "image": "i"}, {"name": "proxy", "image": "i", "restartPolicy": "Always"}]
    (note,) = [note for note in made({"initContainers": inits}).notes.check if "runs once in each pod" in note]
    assert note.startswith("initContainer fetch:")


def test_each_container_and_each_name_that_nobody_sets_is_told() -> None:
    checks = result("jobset-neighbours").notes.check
    for container, names in {
        "initContainer prepare": ["JOB_COMPLETION_INDEX"],
        "initContainer agent": [],
        "container uploader": ["JOB_COMPLETION_INDEX"],
        "volume who": ["batch.kubernetes.io/job-completion-index"],
    }.items():
        told = [note.partition(" is used by ")[0] for note in checks if f" is used by {container}, " in note]
        assert told == names
    assert any("JOB_COMPLETION_INDEX" in note and "metadata.labels['muster.dev/index']" in note for note in checks)


def test_the_agent_of_restarts_in_place_is_told_wherever_it_is() -> None:
    assert any("initContainer agent is the agent" in note for note in result("jobset-neighbours").notes.check)
    (source,) = objects("jobset-neighbours")
    spec = source["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec.pop("initContainers")
    spec["containers"][0] = {
        "name": "in-place-restart-agent",
        "image": "i",
        "env": [{"name": "WORKER_COMMAND", "value": "a"}],
    }
    (found,) = convert_objects([source])
    assert found is not None
    assert any("container in-place-restart-agent is the agent" in note for note in found.notes.check)


def test_no_container_restarts_the_whole_pod() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
    sidecar = {"name": "agent", "image": "i", "restartPolicy": "Always", "restartPolicyRules": [rule]}
    found = made({"initContainers": [sidecar]})
    assert "RestartAllContainers" not in json.dumps(spec_of(found))
    assert any(note.startswith("restartPolicyRules of initContainer agent") for note in found.notes.left_out)


def test_a_label_that_the_template_has_is_not_missed() -> None:
    def asking(label: str) -> list[dict[str, Any]]:
        return [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}]

    for label, is_told in (("team", False), ("training.kubeflow.org/operator-name", True), ("job-name", True)):
        source = a_pytorch_job(["torchrun", "train.py"])
        template = source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        template["metadata"] = {"labels": {"team": "llm", "training.kubeflow.org/operator-name": "a"}}
        template["spec"]["containers"].append({"name": "beside", "image": "i", "env": asking(label)})
        (found,) = convert_objects([source])
        assert found is not None
        assert any(note.startswith(f"{label} is used by container beside") for note in found.notes.check) is is_told


def test_replicas_that_differ_only_in_what_is_done_in_another_way_are_one_template() -> None:
    found = result("pytorchjob-alike")
    (container,) = spec_of(found)["containers"]
    assert container["command"] == ["torchrun", "train.py"]
    assert container["env"] == [{"name": "HF_HOME", "value": "/cache"}]
    left = "\n".join(found.notes.left_out)
    for of_each in (
        "schedulerName: volcano",
        "--node-rank=0",
        "--node-rank=$(RANK)",
        "terminationGracePeriodSeconds: 0",
        "liveness",
    ):
        assert of_each in left
    assert len(found.notes.check) == len({*found.notes.check})


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"image": "i:2"}, "template.spec.containers[0].image"),
        ({"resources": {"limits": {"nvidia.com/gpu": 4}}}, "4 accelerators of its container"),
        ({"command": ["torchrun", "serve.py"]}, "template.spec.containers[0].command[1]"),
    ],
)
def test_replicas_that_differ_in_anything_else_are_refused(change: dict[str, Any], where: str) -> None:
    (source,) = objects("pytorchjob-alike")
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0] |= change
    (found,) = convert_objects([source])
    assert found is not None
    assert f"spec.pytorchReplicaSpecs.Worker: {where} is not that of the replicas before" in found.refused
