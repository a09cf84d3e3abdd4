"""Which objects a label selector selects: as apimachinery's LabelSelectorAsSelector says."""

from typing import Any

import pytest

from muster.api.labels import LabelSelector


def requires(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "is_selected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"team": "a"}}, {"team": "a", "other": "b"}, True),
        ({"matchLabels": {"team": "a"}}, {"team": "b"}, False),
        ({"matchLabels": {"team": "a"}}, {}, False),
        ({"matchLabels": {"team": ""}}, {}, False),
        ({"matchLabels": {"team": "a", "stage": "live"}}, {"team": "a"}, False),
        (requires("team", "In", "a", "b"), {"team": "b"}, True),
        (requires("team", "In", "a", "b"), {"team": "c"}, False),
        (requires("team", "In", "a", "b"), {}, False),
        (requires("team", "NotIn", "a", "b"), {"team": "c"}, True),
        (requires("team", "NotIn", "a", "b"), {"team": "a"}, False),
        (requires("team", "NotIn", "a", "b"), {}, True),
        (requires("team", "Exists"), {"team": ""}, True),
        (requires("team", "Exists"), {}, False),
        (requires("team", "DoesNotExist"), {}, True),
        (requires("team", "DoesNotExist"), {"team": ""}, False),
        ({"matchLabels": {"team": "a"}, **requires("stage", "NotIn", "retired")}, {"team": "a"}, True),
        ({"matchLabels": {"team": "a"}, **requires("stage", "NotIn", "live")}, {"team": "a", "stage": "live"}, False),
    ],
)
def test_a_selector_selects_as_everywhere_in_kubernetes(
    selector: dict[str, Any], labels: dict[str, str], *, is_selected: bool
) -> None:
    assert LabelSelector.model_validate(selector).selects(labels) is is_selected
