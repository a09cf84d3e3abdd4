"""What only the operator can know about a template, said before anything is built from it."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, running
from tests.unit.lifecycle.selecting import costliest_costs_some_times_an_ordinary_one, expressions, selecting

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Member
from muster.api.trainingjob import ProgressPreset, TrainingJob
from muster.lifecycle.plan import ApplySupport, CheckTemplate, CreatePod
from muster.lifecycle.step import decide
from muster.pods.worker_pod import worker_manifest
from muster.protocol.presets import AUTO, BY_NAME, OFF
from muster.status.report import State
from muster.status.template import problem
from muster.world.fleet import Fleet

CONTAINER: dict[str, Any] = {"name": "main", "image": "trainer:1", "command": ["train"]}


def told(template: dict[str, Any]) -> tuple[str, str]:
    found = problem(a_job(template=template), Fleet())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ({"metadata": {"labels": ["a"]}, "spec": {"containers": [CONTAINER]}}, "metadata.labels"),
        ({"spec": {"nodeSelector": ["a"], "containers": [CONTAINER]}}, "spec.nodeSelector"),
        ({"spec": {"tolerations": {"key": "a"}, "containers": [CONTAINER]}}, "spec.tolerations"),
        ({"spec": {"tolerations": ["a"], "containers": [CONTAINER]}}, "spec.tolerations[0]"),
        ({"spec": {"containers": [{**CONTAINER, "resources": [1]}]}}, "spec.containers[0].resources"),
        ({"spec": {"containers": [{**CONTAINER, "env": {"A": "b"}}]}}, "spec.containers[0].env"),
        ({"spec": {"containers": [{**CONTAINER, "command": ["train", 0.1]}]}}, "command[1]: text is needed, not float"),
        ({"spec": {"containers": [{**CONTAINER, "args": [{"a": 1}]}]}}, "spec.containers[0].args[0]"),
        ({"spec": {"containers": [CONTAINER], "initContainers": [{"args": [None]}]}}, "spec.initContainers[0].args[0]"),
        ({"spec": {"affinity": {"nodeAffinity": []}, "containers": [CONTAINER]}}, "spec.affinity.nodeAffinity"),
        (
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]
                            }
                        }
                    },
                    "containers": [CONTAINER],
                }
            },
            "nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
    ],
)
def test_a_template_of_the_wrong_shape_is_named(template: dict[str, Any], where: str) -> None:
    reason, message = told(template)
    assert reason == "TemplateInvalid"
    assert where in message


LONG: dict[str, tuple[Callable[[int], dict[str, Any]], int, str]] = {
    "tolerations": (lambda count: {"tolerations": [{"key": f"k{n}"} for n in range(count)]}, 64, "operator Exists"),
    "selector": (lambda count: {"nodeSelector": {f"k{n}": "v" for n in range(count)}}, 64, "spec.nodeSelector"),
    "terms": (lambda count: selecting(*[{}] * count), 64, "nodeSelectorTerms"),
    "expressions of one term": (lambda count: selecting({"matchExpressions": expressions(count)}), 64, "[0].matchExp"),
    "expressions of many": (
        lambda count: selecting(*({"matchFields": [each]} for each in expressions(count - 32)), *[TERM_OF_32]),
        64,
        "in all terms together",
    ),
    "values": (
        lambda count: selecting({"matchExpressions": expressions(1, count)}),
        1024,
        "matchExpressions[0].values",
    ),
    "values of many": (
        lambda count: selecting(
            *({"matchExpressions": [each]} for each in expressions(16, 60)), *values_of(count - 960)
        ),
        1024,
        "in all terms together",
    ),
}
TERM_OF_32 = {"matchExpressions": expressions(32)}


def values_of(count: int) -> list[dict[str, Any]]:
    return [{"matchExpressions": expressions(1, count)}]


@pytest.mark.parametrize("what", LONG)
def test_what_would_cost_the_queue_too_much_is_refused_by_name_with_a_remedy(what: str) -> None:
    spec_of, most, says = LONG[what]
    assert problem(a_job(template={"spec": {**spec_of(most), "containers": [CONTAINER]}}), Fleet()) is None
    reason, message = told({"spec": {**spec_of(most + 1), "containers": [CONTAINER]}})
    assert (reason, says in message) == ("TemplateInvalid", True), message
    assert f"{most + 1} are too many, Muster takes at most {most}" in message
    assert message.startswith("spec.template.spec.")


def test_the_costliest_template_costs_a_plan_some_times_what_an_ordinary_one_does() -> None:
    costliest_costs_some_times_an_ordinary_one(nodes=64)


def test_the_service_of_a_plain_job_names_the_worker_of_rank_0_whatever_its_index() -> None:
    members = [
        Member(index=0, rank=1, node="n0", incarnation=1, pod_uid="pod-0-1"),
        Member(index=1, rank=0, node="n1", incarnation=1),
    ]
    scene = Scene(a_job(nodes=2, launch={"mode": "Plain"})).fleet().gang(go=False, members=members).pod(0, node="n0")
    plan = decide(scene.world(), SETTINGS)
    (service,) = [action.manifest for action in plan.actions if isinstance(action, ApplySupport)]
    assert service["spec"]["selector"]["muster.dev/index"] == "1"
    (created,) = [action.manifest for action in plan.actions if isinstance(action, CreatePod)]
    environment = {each["name"]: each["value"] for each in created["spec"]["containers"][0]["env"]}
    assert environment["MASTER_ADDR"].startswith(f"{created['metadata']['name']}."), "it is itself the first"


@pytest.mark.parametrize(
    ("progress", "preset", "pattern"),
    [
        ({}, "Auto", None),
        ({"preset": "Auto"}, "Auto", None),
        ({"preset": "NeMo"}, "NeMo", None),
        ({"preset": "Off"}, None, None),
        ({"stepPattern": "step ([0-9]+)"}, None, "step ([0-9]+)"),
    ],
)
def test_the_launcher_is_told_how_steps_are_read(
    progress: dict[str, str], preset: str | None, pattern: str | None
) -> None:
    scene = Scene(a_job(progress=progress)).fleet().gang(go=False)
    created = next(a.manifest for a in decide(scene.world(), SETTINGS).actions if isinstance(a, CreatePod))
    environment = {each["name"]: each.get("value") for each in created["spec"]["containers"][0]["env"]}
    assert environment.get("MUSTER_PROGRESS_PRESET") == preset
    assert environment.get("MUSTER_STEP_PATTERN") == (pattern.replace("$", "$$") if pattern else None)


def resuming(command: list[str], argument: list[str] | None) -> TrainingJob:
    container = {**CONTAINER, "command": command}
    checkpoint = {"directory": "/c", **({"resumeArgument": argument} if argument else {})}
    return a_job(template={"spec": {"containers": [container]}}, checkpoint=checkpoint)


def test_the_words_that_resume_reach_the_launcher_as_they_are_written() -> None:
    scene = Scene(resuming(["python3", "train.py"], ["--load", "$(MUSTER_RESUME_PATH)"])).fleet().gang(go=False)
    created = next(a.manifest for a in decide(scene.world(), SETTINGS).actions if isinstance(a, CreatePod))
    environment = {each["name"]: each.get("value") for each in created["spec"]["containers"][0]["env"]}
    by_the_kubelet = environment["MUSTER_RESUME_ARGUMENT"].replace("$$", "$")
    assert json.loads(by_the_kubelet) == ["--load", "$(MUSTER_RESUME_PATH)"]
    assert "$" not in environment["MUSTER_RESUME_ARGUMENT"].replace("$$", "")


@pytest.mark.parametrize("shell", [["bash", "-c"], ["/bin/sh", "-ec"], ["bash", "-l", "-c"]])
def test_words_that_a_shell_would_not_pass_on_are_refused(shell: list[str]) -> None:
    found = problem(resuming([*shell, "python3 train.py"], ["--load", "/c"]), Fleet())
    assert found is not None
    assert found[0] == "ResumeArgumentUnused"
    assert "${MUSTER_RESUME_PATH:+--resume $MUSTER_RESUME_PATH}" in found[1]
    assert problem(resuming([*shell, "python3 train.py"], None), Fleet()) is None


@pytest.mark.parametrize(
    "command", [["python3", "-c", "..."], ["bash", "train.sh", "-c"], ["bash", "--norc", "train.sh"]]
)
def test_other_programs_get_the_words_that_resume(command: list[str]) -> None:
    assert problem(resuming(command, ["--load", "/c"]), Fleet()) is None


def test_every_preset_of_the_table_can_be_asked_for() -> None:
    assert [preset.value for preset in ProgressPreset] == [AUTO, OFF, *BY_NAME]


def test_null_is_as_good_as_absent() -> None:
    spec = dict.fromkeys(("nodeSelector", "tolerations", "affinity", "volumes", "initContainers", "securityContext"))
    container = {**CONTAINER, "resources": None, "env": None, "volumeMounts": None, "args": None}
    job = a_job(template={"metadata": None, "spec": {**spec, "containers": [container]}})
    assert problem(job, Fleet()) is None
    pod = worker_manifest(job, Member(index=0, rank=0, node="n1"), SETTINGS)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    scene = Scene(job).fleet().but(template_verdict=None)
    assert [type(action) for action in decide(scene.world(), SETTINGS).actions] == [CheckTemplate]


MANY: dict[str, dict[str, Any]] = {
    "spec.initContainers: 40000": {"initContainers": [{}] * 40000, "containers": [CONTAINER]},
    "spec.volumes: 513": {"volumes": [{}] * 513, "containers": [CONTAINER]},
    "spec.containers[0].env: 1025": {"containers": [{**CONTAINER, "env": [{}] * 1025}]},
    "spec.containers[1].volumeMounts: 1025": {"containers": [CONTAINER, {"volumeMounts": [{}] * 1025}]},
}


@pytest.mark.parametrize("where", MANY)
def test_lists_of_any_length_are_refused(where: str) -> None:
    reason, message = told({"spec": MANY[where]})
    assert (reason, message.partition(" are too many, ")[0]) == ("TemplateInvalid", f"spec.template.{where}")


def test_pods_of_a_large_template_share_its_parts_and_leave_it_as_it_is() -> None:
    """To copy it for each of a thousand pods takes 15 s."""
    rule = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    template = {
        "metadata": {"annotations": {f"a{i}": "" for i in range(100)}},
        "spec": {
            "containers": [{**CONTAINER, "env": [{"name": f"A{i}"} for i in range(1024)], "resources": {"limits": {}}}],
            "volumes": [{"name": f"v{i}", "emptyDir": {}} for i in range(512)],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rule]},
                }
            },
        },
    }
    before, job = copy.deepcopy(template), a_job(template=template)
    assert problem(job, Fleet()) is None
    pods = [worker_manifest(job, Member(index=i, rank=i, node=f"n{i}"), SETTINGS, direct=True) for i in range(20)]
    given, (first, *_) = job.spec.template["spec"], pods
    assert first["spec"]["volumes"][0] is given["volumes"][0]
    assert any(each is given["containers"][0]["env"][0] for each in first["spec"]["containers"][0]["env"])
    assert job.spec.template == before
    assert len({json.dumps(pod, sort_keys=True) for pod in pods}) == 20


MISSHAPEN: list[dict[str, Any]] = [
    {"spec": 5},
    {"spec": {"containers": 7}},
    {"spec": {"containers": ["main"], "terminationGracePeriodSeconds": "long"}},
    {"spec": {"containers": [{**CONTAINER, "env": 5}]}},
    {"spec": {"containers": [CONTAINER], "tolerations": 3}},
]


@pytest.mark.parametrize("template", MISSHAPEN)
def test_of_a_template_that_a_backup_has_brought_no_pod_is_made(template: dict[str, Any]) -> None:
    """The record was made when the template was another one: nobody looks at it again before pods are needed."""
    world = Scene(a_job(template=template)).fleet().gang(go=False).pod(0).world()
    plan = decide(world, SETTINGS)
    assert not [action for action in plan.actions if isinstance(action, CreatePod)]
    assert plan.status_report is not None
    assert (plan.status_report.state, plan.status_report.reason) == (State.STALLED, "TemplateInvalid")


@pytest.mark.parametrize("template", [{}, {"spec": {}}, {"spec": {"containers": [{}]}}, *MISSHAPEN])
def test_what_trains_goes_on_whatever_has_become_of_its_template(template: dict[str, Any]) -> None:
    job = a_job(template=template)
    scene = Scene(job).fleet().gang()
    for index in range(job.spec.nodes):
        scene.pod(index).launcher(index, running(1, step=5, rank=index))
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert plan.status.state == "Running"
    assert not plan.acts


def test_a_container_without_a_name_is_shown_to_the_api_server_which_will_refuse_it() -> None:
    template = {"spec": {"containers": [{"image": "trainer:1", "command": ["train"]}]}}
    scene = Scene(a_job(template=template)).fleet()
    scene.changes["template_verdict"] = None
    plan = decide(scene.world(), SETTINGS)
    (check,) = (action for action in plan.actions if isinstance(action, CheckTemplate))
    assert "name" not in check.pod["spec"]["containers"][0]


def test_nobody_can_take_the_name_of_the_trial_beforehand() -> None:
    """A pod of that name would keep the API server's answer, with all of its defaults, from Muster."""
    scene = Scene(a_job()).fleet()
    scene.changes["template_verdict"] = None
    (check,) = (action for action in decide(scene.world(), SETTINGS).actions if isinstance(action, CheckTemplate))
    assert "name" not in check.pod["metadata"]
    assert check.pod["metadata"]["generateName"].endswith("-trial-")


def asking_for(limits: dict[str, Any], **spec: Any) -> TrainingJob:
    return a_job(template={"spec": {"containers": [{**CONTAINER, "resources": {"limits": limits}}]}}, **spec)


@pytest.mark.parametrize("name", ["google.com/tpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_accelerators_beside_those_that_are_counted_are_refused(name: str) -> None:
    found = problem(asking_for({name: 4, "nvidia.com/gpu": 8}), Fleet())
    assert found is not None
    assert found[0] == "AcceleratorMismatch"
    assert f"asks for 8 nvidia.com/gpu, and the template's container for {name}: 4 as well" in found[1]
    assert problem(asking_for({"rdma/hca": 1, name: 0}), Fleet()) is None
    policy = FleetPolicySpec.model_validate({"acceleratorResource": "google.com/tpu"})
    assert problem(asking_for({"google.com/tpu": 8}), Fleet(policy)) is None


def test_accelerators_that_nothing_counts_are_a_warning() -> None:
    for job, is_warned in (
        (asking_for({"google.com/tpu": "4"}, gpusPerNode=0), True),
        (asking_for({"rdma/hca": "1"}, gpusPerNode=0), False),
    ):
        assert problem(job, Fleet()) is None
        scene = Scene(job).fleet()
        plan = decide(scene.world(), SETTINGS)
        assert plan.status is not None
        assert ("AcceleratorsNotCounted" in [each.reason for each in plan.status.warnings]) is is_warned
