"""Maintenance windows: when people work on nodes. The FleetPolicy lists them, and NodeHealth shows what they mean."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import ApiModel, NodeName, Time, checks, rule
from muster.api.labels import LabelSelector

MAX_WINDOWS = 64
MAX_WINDOW_NODES = 1024
MAX_WINDOW_DAYS = 90


class WindowNodes(ApiModel):
    """WindowNodes says which nodes a maintenance window is about: those in names, and those that selector selects."""

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
        description="names are the names of nodes that the window is about.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    selector: LabelSelector | None = Field(
        None,
        description=(
            "selector selects nodes that the window is about by their labels. If it is absent, names alone count."
        ),
    )


class MaintenanceWindow(ApiModel):
    """MaintenanceWindow is a time in which people work on nodes, or may switch them off."""

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
        description="name is a short name for the window that people recognize, for example rack-7.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                "write a short name of lower-case letters, digits and '-', e.g. rack-7",
            )
        ),
    )
    start_time: Time = Field(
        description=(
            "startTime is from when the machines may go down, in RFC 3339, for example 2026-01-31T08:00:00+01:00. Jobs "
            "leave the nodes before."
        )
    )
    end_time: Time = Field(
        description=(
            "endTime is when the work ends, in RFC 3339. Muster uses a node again once its agent has reported and, "
            "where nodes are tested, its burn-in has passed."
        )
    )
    nodes: WindowNodes = Field(
        description="nodes says which nodes the window is about: those in names, and those that selector selects."
    )
    reason: str = Field(
        "",
        max_length=256,
        description="reason says what is done in the window, for people whose jobs wait for the nodes.",
    )


class MaintenancePolicy(ApiModel):
    """MaintenancePolicy lists times in which people work on nodes, and says how nodes are emptied before. No
    disruption budget limits it.
    """

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
        3600,
        ge=60,
        le=1209600,
        description="closeBeforeSeconds is how many seconds before a window starts its nodes stop taking new workers.",
    )
    evacuate_before_seconds: int = Field(
        1800,
        ge=60,
        le=1209600,
        description=(
            "evacuateBeforeSeconds is how many seconds before a window starts running jobs begin to leave its nodes. "
            "Each job leaves at its next complete checkpoint. The value must not exceed closeBeforeSeconds."
        ),
    )
    windows: list[MaintenanceWindow] = Field(
        [],
        max_length=MAX_WINDOWS,
        description="windows are the times in which people work on nodes. A window that is over has no effect.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class MaintenanceStage(StrEnum):
    """MaintenanceStage is how near the maintenance of a node is.

    Closed means that the node takes no new workers, and Evacuating that running jobs leave it, too. InProgress means
    that the machine may be down.
    """

    CLOSED = "Closed"
    EVACUATING = "Evacuating"
    IN_PROGRESS = "InProgress"


class NodeMaintenance(ApiModel):
    """NodeMaintenance is what maintenance windows mean for a node now."""

    stage: MaintenanceStage = Field(
        description=(
            "stage is how near the maintenance is. Closed means that the node takes no new workers, and Evacuating "
            "that running jobs leave it, too. InProgress means that the machine may be down."
        )
    )
    window: str = Field(
        max_length=63,
        description="window is the name of the maintenance window in the FleetPolicy that counts for the node now.",
    )
    start_time: Time = Field(
        description="startTime is when the maintenance window that counts for the node now starts or started."
    )
    end_time: Time = Field(
        description=(
            "endTime is when the maintenance of the node ends. Windows with less than an hour between them count as "
            "one."
        )
    )
