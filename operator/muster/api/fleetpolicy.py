"""FleetPolicy: what the platform team says about the fleet. None is needed; without one the defaults below hold."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from muster.api.base import ApiModel, ObjectMeta, checks, rule

MAX_LEVELS = 16
MAX_POOLS = 64
MAX_LIMITS = 1024


def _short_name(example: str) -> JsonDict:
    """A name that people write in manifests."""
    return rule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        f"write a short name of lower-case letters, digits and '-', e.g. {example}",
    )


class TopologyLevel(ApiModel):
    """One level of the network's tree."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name that jobs use, e.g. rack.",
        json_schema_extra=checks(_short_name("rack")),
    )
    label: str = Field(
        min_length=1,
        max_length=317,
        description="Node label whose value names the domain.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a node label, e.g. topology.muster.dev/rack",
            ),
            rule(
                "self != 'kubernetes.io/hostname'",
                "the node itself is the innermost level already: leave kubernetes.io/hostname out",
            ),
        ),
    )


class Topology(ApiModel):
    """The network's tree, outermost level first; the node itself is the implied innermost one."""

    levels: list[TopologyLevel] = Field(
        [
            TopologyLevel(name="block", label="topology.muster.dev/block"),
            TopologyLevel(name="rack", label="topology.muster.dev/rack"),
        ],
        max_length=MAX_LEVELS,
        description="Levels, outermost first. Empty: no topology, every node is as near as any other.",
        json_schema_extra=checks(
            rule(
                "self.all(a, self.exists_one(b, b.name == a.name))",
                "two levels have the same name: give each level a name of its own",
            ),
            rule(
                "self.all(a, self.exists_one(b, b.label == a.label))",
                "two levels have the same label: give each level a label of its own",
            ),
        ),
    )


class Binding(StrEnum):
    """Who binds the workers' pods to their nodes."""

    SCHEDULER = "Scheduler"
    DIRECT = "Direct"


class NodePool(ApiModel):
    """Nodes that are treated alike."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name for people, e.g. h200.",
        json_schema_extra=checks(_short_name("h200")),
    )
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        {},
        max_length=16,
        description="Labels that a node of this pool has. Empty: every node that is in no pool before it.",
    )
    binding: Binding = Field(
        Binding.SCHEDULER,
        description="Scheduler: the cluster's scheduler binds each pod to the node that it is pinned to. Direct: Muster "
        "itself binds the whole gang once every pod exists; for nodes on which nothing but Muster's jobs and DaemonSets "
        "asks for much.",
    )


class NamespaceLimit(ApiModel):
    """How many nodes the jobs of a namespace may hold together."""

    namespace: str = Field(
        min_length=1,
        max_length=63,
        description="The namespace.",
        json_schema_extra=checks(
            rule("!format.dns1123Label().validate(self).hasValue()", "write the name of a namespace")
        ),
    )
    nodes: int = Field(ge=0, le=1_000_000, description="Nodes at most. A job that would go beyond it waits.")


class Queueing(ApiModel):
    """How jobs wait for nodes: by priority of their PriorityClass, then by age, all or nothing."""

    limits: list[NamespaceLimit] = Field(
        [],
        max_length=MAX_LIMITS,
        description="Limits by namespace; one without a limit may use the whole fleet.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["namespace"],
        },
    )
    assembly_timeout_seconds: int = Field(
        300,
        ge=10,
        le=86400,
        description="A gang whose pods do not all exist on their nodes within this time (a quota, a webhook, a node that "
        "never comes) gives its nodes back and waits again, at first for a minute, then longer each time.",
    )


class FleetPolicySpec(ApiModel):
    """What the platform team says about the fleet."""

    topology: Topology = Topology()
    pools: list[NodePool] = Field(
        [],
        max_length=MAX_POOLS,
        description="Pools of nodes; the first whose labels a node has is the node's. A node of no pool is bound by the "
        "scheduler.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    queueing: Queueing = Queueing()
    accelerator_resource: str = Field(
        "nvidia.com/gpu",
        min_length=3,
        max_length=317,
        description="Extended resource that gpusPerNode counts.",
        json_schema_extra=checks(
            rule(
                "self.contains('/') && !format.qualifiedName().validate(self).hasValue()",
                "write the name of an extended resource with its domain, e.g. nvidia.com/gpu",
            )
        ),
    )


class FleetPolicy(ApiModel):
    """The policy of the fleet; the one named `default` is used."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.metadata.name == 'default'",
                "the fleet has one policy, and it is called default: use this name",
                at=".metadata.name",
            )
        )
    )

    metadata: ObjectMeta
    spec: FleetPolicySpec = FleetPolicySpec()
