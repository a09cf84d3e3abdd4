"""Where no jobs start, an API server with the policy `muster-training` creates none, and says what changes that."""

import bisect
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster.api import ApiError, wait_for
from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.api.fleetpolicy import FleetPolicySpec
from muster.kube.decode import MAX_TEMPLATE_BYTES
from muster.queueing.enabling import add_limit_command
from muster.queueing.enabling import refusal as refusal_of

ROOT = Path(__file__).parents[3]
SHIPPED: dict[str, Any] = yaml.safe_load((ROOT / "manifests" / "fleetpolicy.yaml").read_text())
POLICIES = "/apis/muster.dev/v1alpha1/fleetpolicies"
LABEL = {"matchLabels": {"muster.dev/training": "enabled"}}
ENABLED = {"muster.dev/training": "enabled"}


@pytest.fixture
def said(api_server: ControlPlane, admission: None, manifest: Callable[..., Any]) -> Callable[..., None]:
    """`said(labels, text)`: waits until a job in a namespace with these labels is refused with this text; "": until one
    is created. NAME stands for the namespace's name. `name`: of a namespace that is there already."""
    api, job = api_server.api, manifest("TrainingJob")

    def wait(labels: dict[str, str], text: str, name: str = "") -> None:
        if not name:
            name = f"test-{uuid.uuid4().hex[:8]}"
            api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        path, found = f"/apis/muster.dev/v1alpha1/namespaces/{name}/trainingjobs?dryRun=All", [""]

        def is_answered() -> bool:
            try:
                api.create(path, job)
                found[0] = ""
            except ApiError as error:
                found[0] = str(error)
            quoted = json.dumps(text.replace("NAME", name))[1:-1]  # as in the Status that the API server sends
            return quoted in found[0] if text else not found[0]

        wait_for(is_answered, f"the answer {text!r}", PATIENCE_SECONDS)

    return wait


BY_SELECTOR = "gives it labels that spec.queueing.namespaceSelector of FleetPolicy default selects: "
NOT_ENABLED = "namespace NAME is not enabled for training: an administrator "
NO_LIMIT = f"an administrator sets a limit: {add_limit_command('NAME', 2)}"


@pytest.mark.parametrize(
    ("selector", "labels", "text"),
    [
        pytest.param(None, {}, "", id="no selector"),
        pytest.param({}, {}, "", id="an empty selector"),
        pytest.param(LABEL, ENABLED, "", id="the label"),
        pytest.param(
            LABEL, {}, f"{NOT_ENABLED}enables it: kubectl label namespace NAME muster.dev/training=enabled", id="none"
        ),
        pytest.param(
            LABEL,
            {"muster.dev/training": "disabled"},
            f"{NOT_ENABLED}enables it: kubectl label namespace NAME muster.dev/training=enabled --overwrite",
            id="another value",
        ),
        *(
            pytest.param(
                {"matchExpressions": [{"key": "team", "operator": operator, **({"values": values} if values else {})}]},
                labels,
                text and f"{NOT_ENABLED}{BY_SELECTOR}{text}",
                id=f"{operator} {values} with {labels}",
            )
            for operator, values, labels, text in (
                ("In", ["a", "b"], {"team": "b"}, ""),
                ("In", ["a", "b"], {"team": "c"}, "team in (a,b)"),
                ("In", ["a"], {}, "team in (a)"),
                ("NotIn", ["a"], {}, ""),
                ("NotIn", ["a"], {"team": "b"}, ""),
                ("NotIn", ["a"], {"team": "a"}, "team notin (a)"),
                ("Exists", None, {"team": ""}, ""),
                ("Exists", None, {}, "team"),
                ("DoesNotExist", None, {}, ""),
                ("DoesNotExist", None, {"team": ""}, "!team"),
            )
        ),
        pytest.param(
            {**LABEL, "matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["test"]}]},
            {"stage": "test"},
            f"{NOT_ENABLED}{BY_SELECTOR}muster.dev/training=enabled,stage notin (test)",
            id="a label and an expression",
        ),
    ],
)
def test_jobs_are_created_in_namespaces_that_are_selected(
    fleet_policy: Callable[..., None],
    said: Callable[..., None],
    selector: dict[str, Any] | None,
    labels: dict[str, str],
    text: str,
) -> None:
    spec = {"queueing": {} if selector is None else {"namespaceSelector": selector}}
    fleet_policy(spec)
    said(labels, text)
    assert (refusal_of(FleetPolicySpec.model_validate(spec), "x", labels) is None) is (not text), "the operator agrees"


def test_no_job_is_created_where_the_limit_is_0(
    api_server: ControlPlane, fleet_policy: Callable[..., None], said: Callable[..., None]
) -> None:
    fleet_policy({"queueing": {"defaultLimit": 0, "limits": [{"namespace": "other", "nodes": 4}]}})
    said({}, f"may hold no nodes, because spec.queueing.defaultLimit of FleetPolicy default says 0: {NO_LIMIT}")
    path = f"{POLICIES}/default"
    api_server.api.merge(path, {"spec": {"queueing": {"defaultLimit": 1}}})
    said({}, "")


def test_a_limit_of_its_own_counts_in_place_of_the_default(
    api_server: ControlPlane, fleet_policy: Callable[..., None], said: Callable[..., None], namespace: str
) -> None:
    fleet_policy({"queueing": {"limits": [{"namespace": namespace, "nodes": 0}]}})
    said({}, "")
    raised = "of FleetPolicy default says 0: an administrator raises it: kubectl edit fleetpolicy default"
    said({}, f"jobs of namespace {namespace} may hold no nodes, because spec.queueing.limits {raised}", namespace)
    queueing = {"limits": [{"namespace": namespace, "nodes": 1}], "defaultLimit": 0}
    api_server.api.merge(f"{POLICIES}/default", {"spec": {"queueing": queueing}})
    said({}, "", namespace)


def test_what_is_shipped_is_closed_until_a_namespace_has_the_label_and_a_limit(
    fleet_policy: Callable[..., None], said: Callable[..., None]
) -> None:
    fleet_policy(SHIPPED["spec"])
    said({}, NOT_ENABLED)
    said(ENABLED, "spec.queueing.defaultLimit of FleetPolicy default says 0")


def test_without_a_fleet_policy_no_job_is_created(said: Callable[..., None]) -> None:
    said(ENABLED, "no params found for policy binding with `Deny` parameterNotFoundAction")


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(lambda size: [{"name": "A", "value": "aé" * size}], id="text"),
        pytest.param(lambda size: [{"name": "A", "value": ", " * size}], id="text with commas"),
        pytest.param(lambda size: [{}] * size, id="small parts"),
        pytest.param(lambda size: [{"value": "a" * size}, *[None, True, 10**18, 0.5, "\u00a0"] * 600], id="all types"),
    ],
)
def test_a_template_that_the_operator_reads_is_taken_and_a_large_one_refused(
    api_server: ControlPlane,
    fleet_policy: Callable[..., None],
    said: Callable[..., None],
    namespace: str,
    manifest: Callable[..., Any],
    env: Callable[[int], Any],
) -> None:
    fleet_policy({})
    said({}, "")
    path = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs?dryRun=All"

    def job(size: int) -> Any:
        made = manifest("TrainingJob")
        made["spec"]["template"]["spec"]["containers"][0]["env"] = env(size)
        return made

    def is_read(size: int) -> bool:
        template = json.dumps(job(size)["spec"]["template"], ensure_ascii=False, separators=(",", ":"))
        return len(template.encode()) <= MAX_TEMPLATE_BYTES

    largest = bisect.bisect_left(range(MAX_TEMPLATE_BYTES), True, key=lambda size: not is_read(size)) - 1
    api_server.api.create(path, job(largest))
    with pytest.raises(ApiError, match=r"spec\.template is larger than 128 KiB: put scripts and data into the image"):
        api_server.api.create(path, job(3 * largest))


def test_a_job_that_is_there_may_be_changed(
    api_server: ControlPlane,
    fleet_policy: Callable[..., None],
    said: Callable[..., None],
    manifest: Callable[..., Any],
    namespace: str,
) -> None:
    fleet_policy({})
    said({}, "")
    path = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
    api_server.api.create(path, manifest("TrainingJob"))
    api_server.api.merge(f"{POLICIES}/default", {"spec": {"queueing": {"namespaceSelector": LABEL, "defaultLimit": 0}}})
    said({}, NOT_ENABLED)
    name = manifest("TrainingJob")["metadata"]["name"]
    changed = api_server.api.merge(f"{path}/{name}", {"spec": {"suspend": True}})
    assert changed["spec"]["suspend"] is True
