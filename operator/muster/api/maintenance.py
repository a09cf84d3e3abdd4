"""Maintenance windows: when somebody will work on nodes. Part of the FleetPolicy, and what NodeHealth says of them."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import ApiModel, NodeName, Time, checks, rule

MAX_WINDOWS = 64
MAX_WINDOW_NODES = 1024
MAX_WINDOW_DAYS = 90


class LabelOperator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(ApiModel):
    """One expression about a label."""

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
        description="Key of the label.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a node label, e.g. topology.muster.dev/rack",
            )
        ),
    )
    operator: LabelOperator = Field(description="How its value is compared.")
    values: list[Annotated[str, Field(max_length=63)]] = Field(
        [],
        max_length=64,
        description="With what, for In and NotIn.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class LabelSelector(ApiModel):
    """A selector of nodes as everywhere in Kubernetes: all that it says has to hold; an empty one selects every
    node."""

    match_labels: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {}, max_length=16, description="Labels with these values."
    )
    match_expressions: list[LabelRequirement] = Field(
        [],
        max_length=16,
        description="Expressions about labels.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class WindowNodes(ApiModel):
    """Which nodes: those that are named, and those that the selector selects."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "(has(self.names) && self.names.size() > 0) || has(self.selector)",
                "a window is about nodes: write names, or a selector (an empty one, {}, selects the whole fleet)",
            )
        )
    )

    names: list[Annotated[NodeName, Field(min_length=1)]] = Field(
        [],
        max_length=MAX_WINDOW_NODES,
        description="Names of nodes.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    selector: LabelSelector | None = Field(None, description="Labels of nodes.")


class MaintenanceWindow(ApiModel):
    """A time in which somebody works on nodes, or may switch them off."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule("self.endTime > self.startTime", "a window ends after it starts: write a later time", at=".endTime"),
            rule(
                f"self.endTime - self.startTime <= duration('{MAX_WINDOW_DAYS * 24}h')",
                f"a window lasts at most {MAX_WINDOW_DAYS} days: look at the year, or cordon the nodes",
                at=".endTime",
            ),
            rule(
                "self.startTime >= timestamp('1970-01-01T00:00:00Z') && self.endTime <= "
                "timestamp('2200-01-01T00:00:00Z')",
                "a time between 1970 and 2200 is needed, e.g. 2026-01-31T12:00:00Z",
                at=".startTime",
            ),
        )
    )

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name for people, e.g. rack-7.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                "write a short name of lower-case letters, digits and '-', e.g. rack-7",
            )
        ),
    )
    start_time: Time = Field(
        description="From then on the machines may go down. RFC 3339, e.g. 2026-01-31T08:00:00+01:00."
    )
    end_time: Time = Field(description="From then on they are to be used again, once they are proved.")
    nodes: WindowNodes = Field(description="Which nodes.")
    reason: str = Field("", max_length=256, description="What is done, for those who wait.")


class MaintenancePolicy(ApiModel):
    """Windows in which somebody works on nodes, and how they are emptied before. No budget bounds it."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.evacuateBeforeSeconds <= self.closeBeforeSeconds",
                "jobs cannot leave before the nodes are closed to new ones: lower evacuateBeforeSeconds, or raise "
                "closeBeforeSeconds",
                at=".evacuateBeforeSeconds",
            )
        )
    )

    close_before_seconds: int = Field(
        3600, ge=60, le=1209600, description="So long before a window starts its nodes take no new workers."
    )
    evacuate_before_seconds: int = Field(
        1800,
        ge=60,
        le=1209600,
        description="So long before it starts running jobs begin to leave, each at its next complete checkpoint.",
    )
    windows: list[MaintenanceWindow] = Field(
        [],
        max_length=MAX_WINDOWS,
        description="The windows; those that are over count for nothing.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class MaintenanceStage(StrEnum):
    """Closed: no new workers. Evacuating: running jobs leave, too. InProgress: the machine may be down."""

    CLOSED = "Closed"
    EVACUATING = "Evacuating"
    IN_PROGRESS = "InProgress"


class NodeMaintenance(ApiModel):
    """What maintenance windows mean for a node now."""

    stage: MaintenanceStage = Field(
        description="Closed: no new workers. Evacuating: jobs leave. InProgress: the machine may be down."
    )
    window: str = Field(max_length=63, description="Name of the window in the FleetPolicy.")
    start_time: Time = Field(description="When the first of its windows starts.")
    end_time: Time = Field(description="When the last of those ends that follow each other.")
