"""FleetPolicy: what the platform team says about the fleet. None is needed; without one the defaults below hold."""

from pydantic import ConfigDict, Field

from muster.api.base import ApiModel, ObjectMeta, checks, rule

MAX_LEVELS = 16


class TopologyLevel(ApiModel):
    """One level of the network's tree."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Short name that jobs use, e.g. rack.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
                "write a short name of lower-case letters, digits and '-', e.g. rack",
            )
        ),
    )
    label: str = Field(
        min_length=1,
        max_length=317,
        description="Node label whose value names the domain.",
        json_schema_extra=checks(
            rule(
                "!format.qualifiedName().validate(self).hasValue()",
                "write the key of a node label, e.g. topology.muster.dev/rack",
            )
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


class FleetPolicySpec(ApiModel):
    """What the platform team says about the fleet."""

    topology: Topology = Topology()
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
