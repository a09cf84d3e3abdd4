"""Jobs of other systems, of the kinds that their projects document, as TrainingJobs: what they become, and what is said
of it."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.convert.builders import MANIFESTS, a_pytorch_job, job_of, objects, only, result, said, trainer
from tests.unit.convert.changes import assert_that_what_is_changed_comes_out_valid_or_refused

from muster.convert.documents import convert_objects, why_outside
from muster.convert.trainjob import merged
from muster.node.launcher.environment import RankFiles, rank_environment
from muster.protocol.expansion import REFERRING, expanded, referring, with_identity
from muster.protocol.messages import RUN, Directive

ACCEPTED = [name for name, case in MANIFESTS.items() if "becomes" in case.right]


def job(name: str) -> dict[str, Any]:
    return job_of(result(name))


def of_rank(made: dict[str, Any], node: int) -> tuple[list[str], dict[str, str]]:
    """Command and environment of the process on a node, as the launcher makes them."""
    container = trainer(made)
    inherited = {each["name"]: str(each.get("value", "")) for each in container.get("env", ())}
    gpus = made["spec"]["gpusPerNode"]
    inherited |= {"MUSTER_GPUS_PER_NODE": str(gpus or ""), REFERRING: json.dumps(referring(inherited.items()))}
    directive = Directive(
        RUN, node_rank=node, node_count=made["spec"]["nodes"], attempt=1, master_address="10.0.0.7", master_port=29501
    )
    command = [*container.get("command", ()), *container.get("args", ())]
    environment = with_identity(rank_environment(inherited, directive, 0, RankFiles.within("/m", 0), command))
    return expanded(command, environment), environment


def fields(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the values outside of pod templates, without indexes."""
    if isinstance(value, dict) and not (path and "containers" in value.get("spec", {}) and path[-1] == "template"):
        for key, each in value.items():
            yield from fields(each, (*path, key))
    elif isinstance(value, list):
        for each in value:
            yield from fields(each, path)
    elif not isinstance(value, dict):
        yield path


# Of these the path alone says nothing; of the others it stands in the notes, or in those of an object around it.
AROUND = {
    "spec",
    "template",
    "replicatedJobs",
    "runPolicy",
    "elasticPolicy",
    "pytorchReplicaSpecs",
    "Master",
    "Worker",
    "trainer",
}
AROUND |= {"mlPolicy", "failurePolicy", "schedulingPolicy", "metadata", "labels", "annotations", "runtimeRef", "torch"}
# What the number of nodes, the template and the names of notes say.
SAID = {
    "replicas",
    "parallelism",
    "completions",
    "completionMode",
    "numNodes",
    "name",
    "kind",
    "apiGroup",
    "numProcPerNode",
}
SAID |= {
    "nprocPerNode",
    "nProcPerNode",
    "image",
    "command",
    "env",
    "resourcesPerNode",
    "runtimePatches",
    "podTemplateOverrides",
}
SAID |= {"trainer.kubeflow.org/trainjob-ancestor-step"}


@pytest.mark.parametrize("name", ACCEPTED)
def test_no_field_is_lost_without_a_word(name: str) -> None:
    words = said(result(name))
    for source in (it["spec"] for it in objects(name) if it["kind"] not in ("FleetPolicy", "Service")):
        told = [
            path for path in fields(source) if any(key in SAID or key in words for key in path if key not in AROUND)
        ]
        assert [path for path in fields(source) if path not in told] == []


def test_a_field_that_nobody_knows_is_told() -> None:
    (source,) = objects("jobset-script")
    source["spec"]["newThing"] = {"a": 1}
    source["spec"]["replicatedJobs"][0]["template"]["spec"]["newer"] = "b"
    (found,) = convert_objects([source])
    assert found is not None
    assert 'spec.newThing: {"a": 1}: a TrainingJob has nothing like it' in found.notes.left_out
    assert any(note.startswith("spec.replicatedJobs[0].template.spec.newer: b:") for note in found.notes.left_out)


def test_a_priority_class_that_the_template_overrides_is_told() -> None:
    (source,) = objects("pytorchjob-master-and-workers")
    for replica in source["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["priorityClassName"] = "urgent"
    (found,) = convert_objects([source])
    assert found is not None
    assert [note for note in found.notes.left_out if "PriorityClass" in note] == [
        "spec.runPolicy.schedulingPolicy.priorityClass: training-high: the template names another PriorityClass, which "
        "counts"
    ]


def test_run_policy() -> None:
    found = result("pytorchjob-master-and-workers")
    spec = job("pytorchjob-master-and-workers")["spec"]
    assert spec["recovery"] == {"applicationRestartsPerDay": 5}
    assert spec["completion"] == {"ttlSecondsAfterFinished": 3600}
    assert spec["queueing"] == {"expectedDurationSeconds": 86400}
    assert spec["template"]["spec"]["priorityClassName"] == "training-high"
    assert "schedulerName" not in spec["template"]["spec"]
    assert spec["template"]["metadata"] == {"annotations": {"sidecar.istio.io/inject": "false"}}
    left = {note.partition(":")[0].rpartition(".")[2] for note in found.notes.left_out}
    assert left >= {
        "cleanPodPolicy",
        "minAvailable",
        "queue",
        "scheduleTimeoutSeconds",
        "schedulerName",
    }


def test_restarts_have_one_source_and_a_limit() -> None:
    assert job("pytorchjob-elastic")["spec"]["recovery"] == {"applicationRestartsPerDay": 100}  # of 250
    assert job("pytorchjob-args-only")["spec"]["recovery"] == {"applicationRestartsPerDay": 0}  # restartPolicy: Never
    assert job("jobset-slices")["spec"]["recovery"] == {
        "applicationRestartsPerDay": 4
    }  # not the backoffLimit of its Jobs
    assert "recovery" not in job("trainjob-alone")["spec"]
    assert job("trainjob-with-runtime")["spec"]["recovery"] == {"applicationRestartsPerDay": 2}


def test_more_restarts_than_there_can_be_and_those_of_the_node_s_system_are_told() -> None:
    source = a_pytorch_job(["torchrun", "train.py"])
    source["metadata"]["annotations"] = {
        "sagemaker.amazonaws.com/enable-job-auto-resume": "true",
        "sagemaker.amazonaws.com/node-health-status": "Schedulable",
    }
    source["spec"]["elasticPolicy"] = {"maxRestarts": 200}
    (found,) = convert_objects([source])
    assert found is not None
    assert any("applicationRestartsPerDay: 100, the most in place of 200:" in note for note in found.notes.became)
    assert "sagemaker.amazonaws.com/enable-job-auto-resume: true: Muster restarts ranks itself (spec.recovery)" in (
        found.notes.left_out
    )
    assert list(job_of(found)["metadata"]["annotations"]) == ["sagemaker.amazonaws.com/node-health-status"]


def test_restart_policy_never_ends_a_pytorch_job_whatever_its_limit() -> None:
    """A Job goes by its back-off limit."""
    source = a_pytorch_job(["torchrun", "train.py"])
    source["spec"]["runPolicy"] = {"backoffLimit": 3}
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    indexed = an_indexed_job("b", subdomain="b")  # its pods have restartPolicy: Never
    indexed["spec"]["backoffLimit"] = 3
    ended, again = convert_objects([source, indexed])
    assert ended is not None
    assert again is not None
    assert job_of(ended)["spec"]["recovery"] == {"applicationRestartsPerDay": 0}
    assert any(note.startswith("spec.runPolicy.backoffLimit: 3: another field") for note in ended.notes.left_out)
    assert job_of(again)["spec"]["recovery"] == {"applicationRestartsPerDay": 3}


def test_options_by_which_nodes_meet_leave_the_command() -> None:
    container = trainer(job("pytorchjob-elastic"))
    assert container["command"] == ["python", "-m", "torch.distributed.run", "./tiny.py"]
    assert container["args"] == ["--lr=0.1"]
    assert any(note.startswith("--nnodes 1:4:") for note in result("pytorchjob-elastic").notes.left_out)


@pytest.mark.parametrize(
    ("options", "program"),
    [
        (["--nnodes=2"], ["-m", "pkg.train", "--nnodes", "2", "--max-restarts", "3", "--lr", "1e-4"]),
        (["--nnodes", "2", "--max_restarts", "3"], ["--no-python", "/opt/bin/train", "--master_port", "80"]),
        (["--standalone"], ["train.py", "--standalone"]),
    ],
)
def test_options_of_the_program_itself_stay(options: list[str], program: list[str]) -> None:
    (found,) = convert_objects([a_pytorch_job(["torchrun", *options, *program])])
    assert found is not None
    assert found.job is not None
    assert trainer(found.job)["command"] == ["torchrun", *program]
    restarts = [note for note in found.notes.left_out if "max_restarts" in note]
    assert all("Muster starts the ranks again" in note for note in restarts)
    assert len(restarts) == ("--max_restarts" in options)


def test_what_neighbours_ask_of_the_other_system_is_told() -> None:
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    source = a_pytorch_job(["torchrun", "train.py"])
    pod = source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["initContainers"] = [
        {
            "name": "cleaner",
            "image": "i",
            "restartPolicy": "Always",
            "env": [{"name": "NODE_RANK", "valueFrom": index}],
        },
        {"name": "fetch", "image": "i", "command": ["sh", "-c", "curl -o /d/$RANK ${MASTER_ADDR}:80/$SIZE"]},
        {"name": "own", "image": "i", "command": ["sh", "-c", "echo $RANK"], "env": [{"name": "RANK", "value": "0"}]},
    ]
    (found,) = convert_objects([source])
    assert found is not None
    told = [note for note in found.notes.check if "nothing sets it there" in note]
    assert [note.partition(",")[0] for note in told] == [
        "batch.kubernetes.io/job-completion-index is used by initContainer cleaner",
        "MASTER_ADDR is used by initContainer fetch",
        "RANK is used by initContainer fetch",
    ]


def test_a_job_of_a_set_says_when_it_goes_and_its_index_stands_there_once() -> None:
    (source,) = objects("jobset-script")
    source["spec"].pop("ttlSecondsAfterFinished")
    batch = source["spec"]["replicatedJobs"][0]["template"]["spec"]
    batch["ttlSecondsAfterFinished"] = 43_200
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    container = batch["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "JOB_COMPLETION_INDEX", "valueFrom": index}]
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert found.job["spec"]["completion"] == {"ttlSecondsAfterFinished": 43_200}
    assert trainer(found.job)["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "$(NODE_RANK)"}]


def test_what_only_other_schedulers_know_of_a_pod_is_left_out_and_told() -> None:
    source = a_pytorch_job(["torchrun", "train.py"])
    spec = {"schedulingGroup": {"podGroupName": "g"}, "workloadRef": {"name": "w"}}
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"] |= spec
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert not {*spec} & {*found.job["spec"]["template"]["spec"]}
    left = [note.partition(":")[0] for note in found.notes.left_out]
    assert left == [f"template.spec.{name}" for name in sorted(spec)]


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_that_a_pod_would_be_restarted_where_it_is_is_left_out_and_told(policy: str) -> None:
    source = a_pytorch_job(["torchrun", "train.py"])
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = policy
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert "restartPolicy" not in found.job["spec"]["template"]["spec"]
    (told,) = found.notes.left_out
    assert told.startswith(f"template.spec.restartPolicy: {policy}: Muster restarts ranks itself")


def test_a_template_that_nobody_has_filled_in_is_refused_with_a_remedy() -> None:
    source = a_pytorch_job(["torchrun", "train.py"])
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "$NUM_NODES"
    (found,) = convert_objects([source])
    assert found is not None
    assert found.refused.endswith("$NUM_NODES is no int: fill the template in first (envsubst < FILE)")


@pytest.mark.parametrize(
    ("version", "kind"),
    [("batch.volcano.sh/v1alpha1", "Job"), ("ray.io/v1", "RayJob"), ("workload.codeflare.dev/v1beta2", "AppWrapper")],
)
def test_gangs_of_other_systems_are_refused(version: str, kind: str) -> None:
    (found, plain) = convert_objects([{"apiVersion": version, "kind": kind}, {"apiVersion": "batch/v1", "kind": "Job"}])
    assert found is not None
    assert found.refused.startswith(f"{kind} of {version} cannot be converted")
    assert plain is None


def test_another_kind_of_gang_is_refused_and_not_passed_on_to_start_elsewhere() -> None:
    (mpi, own) = convert_objects(
        [{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}, {"apiVersion": "a/v1", "kind": "MPIJob"}]
    )
    assert mpi is not None
    assert mpi.job is None
    assert mpi.refused.startswith(
        "MPIJob of kubeflow.org/v2beta1 cannot be converted: PyTorchJob, TrainJob, JobSet can"
    )
    assert own is None


def test_a_number_of_processes_that_a_script_starts_itself_is_told() -> None:
    env = [{"name": "WORLD_SIZE", "value": "16"}]
    loop = ["bash", "-c", "for i in 0 1 2 3 4 5 6 7; do LOCAL_RANK=$i python train.py & done; wait"]
    (found,) = convert_objects([a_pytorch_job(loop, env=env)])
    assert found is not None
    (told,) = [note for note in found.notes.check if "WORLD_SIZE" in note]
    assert "WORLD_SIZE=2:" in told
    for command, value in ((["torchrun", "train.py"], "16"), (loop, "2")):
        (found,) = convert_objects([a_pytorch_job(command, env=[{"name": "WORLD_SIZE", "value": value}])])
        assert found is not None
        assert not [note for note in found.notes.check if "WORLD_SIZE" in note]


def test_a_hostfile_is_told() -> None:
    (found,) = convert_objects([a_pytorch_job(["deepspeed", "--hostfile", "/job/hostfile", "train.py"])])
    assert found is not None
    assert any("by ssh" in note for note in found.notes.check)


def test_a_line_that_loses_the_exit_code_is_told() -> None:
    (found,) = convert_objects([a_pytorch_job(["bash", "-c", "torchrun train.py 2>&1 | tee log"])])
    assert found is not None
    assert any("Put `set -o pipefail;` in front of the line" in note for note in found.notes.check)


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("pytorchjob-master-and-workers", "8"),  # as many as GPUs: nothing has to be said
        ("pytorchjob-elastic", "auto"),  # no GPU: torchrun counts the CPUs
        ("pytorchjob-hosts-by-hand", "4"),  # of a shell script, on eight GPUs
        ("trainjob-alone", "2"),
        ("trainjob-with-runtime", "2"),  # no GPU, 1500m of CPU
    ],
)
def test_as_many_processes_start_as_before(name: str, processes: str) -> None:
    assert of_rank(job(name), 1)[1]["PET_NPROC_PER_NODE"] == processes


def test_hosts_and_indexes_are_those_that_the_launcher_gives() -> None:
    command, environment = of_rank(job("pytorchjob-hosts-by-hand"), 2)
    assert command[2] == "torchrun --nnodes=$WORLD --rdzv_endpoint=10.0.0.7:29400 train.py"
    assert environment["STORE"] == "tcp://10.0.0.7:7000"
    assert environment["PLACE"] == "2"
    assert of_rank(job("jobset-leader-and-workers"), 1)[0][-1] == "--host=10.0.0.7"
    script = job("jobset-script")
    assert trainer(script)["env"][0] == {
        "name": "JOB_COMPLETION_INDEX",
        "value": "$(NODE_RANK)",
    }  # before who refers to it
    assert of_rank(script, 3)[1]["JOB_COMPLETION_INDEX"] == "3"


def test_what_only_a_person_can_mend_is_named() -> None:
    assert "${HOSTNAME##*-} is no rank" in said(result("pytorchjob-rank-of-host-name"))
    assert "job-completion-index is used by initContainer ckpt-cleaner" in said(result("jobset-tcpxo"))
    check = "\n".join(result("pytorchjob-hosts-by-hand").notes.check)
    assert "gpt-mini-master-0: no host will be called so" in check  # of the init container
    assert "gpt-mini-worker-1: no host will be called so" in check
    assert "container shipper is taken for a sidecar of pytorch" in check
    assert "JOBSET_RESTART_ATTEMPT is used" in said(result("jobset-script"))
    assert "write the image's entry point there beside args" in said(result("pytorchjob-args-only"))
    assert "train alone" not in said(
        result("jobset-one-domain")
    )  # accelerate's launcher for several GPUs is torchrun's
    assert "has to be google.com/tpu" in said(result("jobset-slices"))
    assert "ClusterTrainingRuntime torch-distributed is not in the input" in said(result("trainjob-alone"))


def test_the_one_that_trains_is_named_where_another_one_asks_for_accelerators() -> None:
    (source,) = objects("jobset-script")
    containers = source["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    containers[0]["resources"] = {"limits": {"nvidia.com/gpu": 7}}
    containers.append({"name": "evaluator", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}})
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert found.job["spec"]["launch"] == {"workerContainer": "pytorch"}


def test_what_a_script_says_of_meeting_is_told_in_one_line() -> None:
    (source,) = objects("jobset-script")
    container = source["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["command"][2] = "torchrun --nnodes=4 --master_addr=$MASTER_ADDR --node_rank=$RANK train.py"
    (found,) = convert_objects([source])
    assert found is not None
    told = [note for note in found.notes.check if "out of the script" in note]
    assert told == [
        "--nnodes, --master_addr, --node_rank: take them out of the script: nodes find each other by the PET_ "
        "variables, which Muster sets at each start"
    ]


def test_that_nothing_asks_for_accelerators_is_told() -> None:
    assert any(
        note.startswith("no accelerators -> spec.gpusPerNode: 0") for note in result("jobset-script").notes.became
    )


def test_names_at_the_beginning_of_a_line_are_seen() -> None:
    (source,) = objects("jobset-script")
    container = source["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["command"][2] = "resnet-workers-0-0.trainers\nresnet-workers-2-0\nJOBSET_NAME\n"
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert trainer(found.job)["command"][2].startswith("$(MASTER_ADDR)\nresnet-workers-2-0\n")
    notes = "\n".join(found.notes.check)
    assert "resnet-workers-2-0: no host will be called so" in notes
    assert "JOBSET_NAME is used" in notes


def test_a_job_in_kueues_queue_is_not_suspended() -> None:
    made = job("trainjob-with-runtime")
    assert "suspend" not in made["spec"]
    assert made["metadata"] == {"name": "llama-sft", "labels": {"team": "llm"}, "annotations": {"cost-center": "7"}}


def test_patches_go_over_the_runtime_and_the_trainer_over_both() -> None:
    pod = job("trainjob-with-runtime")["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}]
    assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("trainer", {"pool": "gpu"})
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.org/torch:2"
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/cache",
        "PET_NPROC_PER_NODE": "2",
    }
    overridden = job("trainjob-overrides")
    assert trainer(overridden)["image"] == "registry.example.org/jax:2"
    assert trainer(overridden)["volumeMounts"] == [{"name": "ckpt", "mountPath": "/ckpt"}]
    assert overridden["spec"]["template"]["metadata"] == {"labels": {"tier": "gold"}}


def test_labels_of_what_trainer_would_make_are_the_jobs() -> None:
    made = job("trainjob-function")
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]) == ({"x": "y"}, {"z": "w"})
    assert made["spec"]["template"]["metadata"] == {"labels": {"q": "r"}}


def test_a_runtime_of_another_namespace_is_not_taken() -> None:
    runtime, source = objects("trainjob-overrides")
    runtime["metadata"]["namespace"] = "elsewhere"
    source["spec"]["trainer"].pop("image")
    _, found = convert_objects([runtime, source])
    assert found is not None
    assert "TrainingRuntime jax-with-logs is not in the input" in found.refused


def test_an_unknown_label_of_a_topology_is_no_guess() -> None:
    _, source = objects("jobset-one-domain")
    (found,) = convert_objects([source])  # without the FleetPolicy
    assert found is not None
    assert found.job is not None
    assert "placement" not in found.job["spec"]
    assert any("name one there, and write it at spec.placement.required" in note for note in found.notes.left_out)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"apiVersion": "jobset.x-k8s.io/v1alpha1"}, "jobset.x-k8s.io/v1alpha2 is what can be read"),
        ({"metadata": {"generateName": "a-"}}, "metadata.name: there is none"),
        ({"metadata": {"name": "a" * 41}}, "at most 40 lower-case letters"),
        ({"metadata": {"name": "4you"}}, "beginning with a letter"),
        ({"spec": {"replicatedJobs": []}}, "spec.replicatedJobs: there are none"),
        ({"spec": {"replicatedJobs": {"a": 1}}}, 'spec.replicatedJobs: {"a": 1} is no list'),
        ({"spec": {"replicatedJobs": [{"replicas": "two"}]}}, "spec.replicatedJobs[0].replicas: two is no int"),
        ({"spec": {"replicatedJobs": [{"name": "a"}]}}, "it has not the shape of a JobSet"),
    ],
)
def test_bad_objects_are_refused_in_a_line(change: dict[str, Any], says: str) -> None:
    (source,) = objects("jobset-script")
    (found,) = convert_objects([{**source, **change}])
    assert found is not None
    assert found.job is None
    assert says in found.refused


@pytest.mark.parametrize("part", [{"claims": [{"name": "gpus"}]}, {"limits": {"nvidia.com/mig-1g.5gb": 1}}])
def test_other_devices_are_not_counted_but_named(part: dict[str, Any]) -> None:
    (source,) = objects("pytorchjob-elastic")
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = part
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert found.job["spec"]["gpusPerNode"] == 0
    assert trainer(found.job)["resources"] == part
    assert any(note.startswith("spec.gpusPerNode is 0") for note in found.notes.check)


def test_jobs_of_several_sizes_are_no_segments() -> None:
    (source,) = objects("jobset-leader-and-workers")
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    source["metadata"] |= {"annotations": {key: "example.org/rack"}, "finalizers": ["a.example.org/b"]}
    (found,) = convert_objects([source])
    assert found is not None
    assert found.job is not None
    assert "placement" not in found.job["spec"]
    assert "annotations" not in found.job["metadata"]
    left = [note.partition(": ")[0] for note in found.notes.left_out]
    assert key in left
    assert "metadata.finalizers" in left


def test_other_objects_stay_and_nothing_given_is_changed() -> None:
    given = [{"kind": "ConfigMap"}, 7, None, *objects("trainjob-with-runtime")]
    before = copy.deepcopy(given)
    found = convert_objects(given)
    assert [each is None for each in found] == [True, True, True, True, False]
    assert given == before


def test_lists_of_pods_are_merged_by_their_keys() -> None:
    one = {
        "containers": [{"name": "a", "args": ["1"], "env": [{"name": "X", "value": "1"}]}],
        "tolerations": [{"key": "a"}],
    }
    other = {
        "containers": [{"name": "a", "args": ["2"], "env": [{"name": "Y", "value": "2"}]}],
        "tolerations": [{"key": "b"}],
    }
    assert merged(one, other) == {
        "containers": [{"name": "a", "args": ["2"], "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}],
        "tolerations": [{"key": "b"}],
    }


def test_whatever_is_changed_in_them_comes_out_valid_or_refused() -> None:
    assert_that_what_is_changed_comes_out_valid_or_refused(times=6)


def an_indexed_job(name: str, **pod: Any) -> dict[str, Any]:
    """A Job of two pods with eight GPUs each."""
    trainer = {"name": "t", "image": "i", "command": ["torchrun", "train.py"]}
    trainer |= {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [trainer], **pod}}
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_jobs_that_share_a_service_are_one_gang_and_refused() -> None:
    one, two = convert_objects([an_indexed_job("a", subdomain="s"), an_indexed_job("b", subdomain="s")])
    assert one is not None
    assert "another Job (b)" in one.refused
    assert two is not None
    assert "another Job (a)" in two.refused


def test_jobs_beside_each_other_are_a_gang_each() -> None:
    found = convert_objects([an_indexed_job("a", subdomain="a"), an_indexed_job("b", subdomain="b")])
    assert [each.job is not None for each in found if each is not None] == [True, True]


def test_pods_without_host_names_may_work_alone_and_that_is_told() -> None:
    (alone,), (meets,) = (convert_objects([an_indexed_job("a", **pod)]) for pod in ({}, {"subdomain": "a"}))
    assert [any("works alone" in note for note in each.notes.check) for each in (alone, meets) if each] == [True, False]


@pytest.mark.parametrize(("gpus", "is_told"), [(1, True), (4, True), (8, False)])
def test_pods_that_may_share_a_node_are_told(gpus: int, is_told: bool) -> None:
    source = a_pytorch_job(["torchrun", "train.py"], resources={"limits": {"nvidia.com/gpu": gpus}})
    told = f"{gpus} nvidia.com/gpu in each of 2 pods: each becomes a worker with a node to itself"
    assert any(note.startswith(told) for note in only(source).notes.check) is is_told
    source["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    assert not any("in each of" in note for note in only(source).notes.check)


@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        (["torchrun", "--nnodes=4", "train.py"], True),
        (["torchrun", "--nnodes", "2", "train.py"], False),
        (["torchrun", "--nnodes=1:4", "train.py"], False),
        (["bash", "-c", "torchrun --nnodes 4 train.py"], True),
        (["bash", "-c", "torchrun --nnodes $N train.py"], False),
    ],
)
def test_a_count_of_nodes_that_is_not_that_of_the_pods_is_told(command: list[str], is_told: bool) -> None:
    notes = only(a_pytorch_job(command)).notes.check
    assert any(note.startswith("--nnodes=4: the source has 2 pods") for note in notes) is is_told


def test_a_job_with_accelerators_that_is_no_gang_does_not_pass_without_a_word() -> None:
    one = an_indexed_job("a")
    one["spec"] |= {"parallelism": 1, "completions": 1}
    assert convert_objects([one]) == [None]
    assert "ask for nvidia.com/gpu: 8" in why_outside(one)
    assert "spec.nodes: 1" in why_outside(one)
    one["spec"]["template"]["spec"]["containers"][0].pop("resources")
    for silent in (one, an_indexed_job("a"), {"kind": "Job", "spec": {"template": 7}}, {"kind": "Pod"}, None):
        assert why_outside(silent) == ""
