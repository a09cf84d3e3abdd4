"""Label selectors of the FleetPolicy, over labels of nodes and of namespaces.

Tests: tests/unit/api/test_labels.py.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import ApiModel, checks, rule


class LabelOperator(StrEnum):
    """LabelOperator is how a label is compared: In, NotIn, Exists or DoesNotExist."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(ApiModel):
    """LabelRequirement is one condition on a label."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                "In and NotIn compare with values, Exists and DoesNotExist with none: add values, or leave them out",
                at=".values",
            )
        )
    )

    key: str = Field(
        min_length=1,
        max_length=317,
        description="key is the key of the label.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a label, e.g. topology.muster.dev/rack",
            )
        ),
    )
    operator: LabelOperator = Field(
        description=(
            "operator is how the label is compared. In and NotIn compare its value with values; Exists and "
            "DoesNotExist only look for the key."
        )
    )
    values: list[Annotated[str, Field(max_length=63)]] = Field(
        [],
        max_length=64,
        description=(
            "values are the label values for the operators In and NotIn. The list has to be empty for Exists and "
            "DoesNotExist."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the condition. As everywhere in Kubernetes, an object without the
        key meets NotIn.
        """
        if self.operator is LabelOperator.IN:
            return labels.get(self.key) in self.values
        if self.operator is LabelOperator.NOT_IN:
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self.operator is LabelOperator.EXISTS)


class LabelSelector(ApiModel):
    """LabelSelector selects objects by their labels, as everywhere in Kubernetes. All of its conditions have to hold.
    An empty selector selects every object.
    """

    match_labels: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {},
        max_length=16,
        description="matchLabels are labels that an object has to have, with these values.",
        json_schema_extra=checks(
            rule(
                "self.all(key, !format.qualifiedName().validate(key).hasValue() "
                "&& !format.labelValue().validate(self[key]).hasValue())",
                "write keys and values of labels, e.g. muster.dev/training: enabled",
            )
        ),
    )
    match_expressions: list[LabelRequirement] = Field(
        [],
        max_length=16,
        description="matchExpressions are conditions on labels that an object has to meet.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        has_labels = all(labels.get(key) == value for key, value in self.match_labels.items())
        return has_labels and all(requirement.matches(labels) for requirement in self.match_expressions)
