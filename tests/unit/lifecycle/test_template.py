"""What only the operator can know about a template, said before anything is built from it."""

import re
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job

from muster.api.gang import Member
from muster.lifecycle.plan import CheckTemplate
from muster.lifecycle.step import decide
from muster.lifecycle.template import problem
from muster.lifecycle.worker_pod import worker_manifest
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


def test_null_is_as_good_as_absent() -> None:
    spec = dict.fromkeys(("nodeSelector", "tolerations", "affinity", "volumes", "initContainers", "securityContext"))
    container = {**CONTAINER, "resources": None, "env": None, "volumeMounts": None, "args": None}
    job = a_job(template={"metadata": None, "spec": {**spec, "containers": [container]}})
    assert problem(job, Fleet()) is None
    pod = worker_manifest(job, Member(index=0, rank=0, node="n1"), SETTINGS)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    scene = Scene(job).fleet().but(template_verdict=None)
    assert [type(action) for action in decide(scene.world(), SETTINGS).actions] == [CheckTemplate]


def pattern_problem(pattern: str) -> tuple[str, str] | None:
    return problem(a_job(template={"spec": {"containers": [CONTAINER]}}, progress={"stepPattern": pattern}), Fleet())


SLOW = [
    "(?i)(" + r"[\0-\U0010ffff]" * 12 + ")",
    "(?i)(" + "[\u0100-\uffff]" * 40 + ")",
    r"(?i)([\]a-\uffff])",
    r"(?i)([]a-\uffff])",
    r"(?i)([^]a-\uffff])",
    r"(?i)(\\[a-\N{SNOWMAN}])",
    r"(?i)([--\U0010ffff])",
]


@pytest.mark.parametrize("pattern", SLOW, ids=range(len(SLOW)))
def test_a_step_pattern_that_takes_long_to_compile_is_refused_unread(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(re, "compile", None)
    found = pattern_problem(pattern)
    assert found is not None
    assert found[0] == "InvalidStepPattern"
    assert "beyond ASCII" in found[1]


@pytest.mark.parametrize(
    "pattern", [r"\[étape-№ (\d+)\]", "Schritt-№ ([0-9]+)", "[a-z]+-ß ([0-9]+)", r"[\w.-]+ ([^\x00-\xff]*)"]
)
def test_a_step_pattern_in_any_language_is_taken(pattern: str) -> None:
    assert pattern_problem(pattern) is None
