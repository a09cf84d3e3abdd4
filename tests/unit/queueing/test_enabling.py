"""Which namespaces train, and what a job in another one is told."""

from typing import Any

import pytest

from muster.api.fleetpolicy import FleetPolicySpec
from muster.queueing.enabling import refusal

LABEL = {"matchLabels": {"muster.dev/training": "enabled"}}
LIVE = {"key": "stage", "operator": "NotIn", "values": ["retired", "test"]}
OWNED = {"key": "owner", "operator": "Exists"}
OPEN = {"key": "muster.dev/closed", "operator": "DoesNotExist"}


def policy(selector: dict[str, Any] | None) -> FleetPolicySpec:
    return FleetPolicySpec.model_validate({"queueing": {"namespaceSelector": selector}})


@pytest.mark.parametrize("labels", [None, {}, {"team": "a"}])
def test_without_a_selector_every_namespace_trains(labels: dict[str, str] | None) -> None:
    assert refusal(policy(None), "team-a", labels) is None


def test_an_empty_selector_selects_every_namespace() -> None:
    assert refusal(policy({}), "team-a", {}) is None


@pytest.mark.parametrize(
    ("selector", "labels", "remedy"),
    [
        pytest.param(
            LABEL, {}, "enables it: kubectl label namespace team-a muster.dev/training=enabled", id="no label"
        ),
        pytest.param(
            LABEL,
            {"muster.dev/training": "disabled"},
            "enables it: kubectl label namespace team-a muster.dev/training=enabled --overwrite",
            id="another value",
        ),
        pytest.param(
            {"matchLabels": {"muster.dev/training": "enabled", "team": "a"}, "matchExpressions": [LIVE]},
            {"team": "a"},
            "enables it: kubectl label namespace team-a muster.dev/training=enabled",
            id="one of two labels, and an expression that holds",
        ),
        pytest.param(
            {**LABEL, "matchExpressions": [LIVE, OWNED, OPEN]},
            {"stage": "test"},
            "gives namespace team-a labels that spec.queueing.namespaceSelector of FleetPolicy default selects: "
            "muster.dev/training=enabled,stage notin (retired,test),owner,!muster.dev/closed",
            id="expressions that do not hold",
        ),
    ],
)
def test_what_enables_a_namespace(selector: dict[str, Any], labels: dict[str, str], remedy: str) -> None:
    answer = refusal(policy(selector), "team-a", labels)
    assert answer is not None
    assert (answer.reason, answer.message) == ("NotEnabled", "namespace team-a is not enabled for training")
    assert answer.remedy == f"an administrator {remedy}"


def test_labels_that_were_not_read_enable_nothing() -> None:
    answer = refusal(policy(LABEL), "team-a", None)
    assert answer is not None
    assert (answer.reason, answer.is_known) == ("NotEnabled", False)
    assert "right to list and watch namespaces" in answer.remedy
