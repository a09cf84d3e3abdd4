"""FleetPolicy: what the platform team says about the fleet. None is needed; without one the defaults below hold."""

from pydantic import Field

from muster.api.base import ApiModel, ObjectMeta

MAX_LEVELS = 16


class TopologyLevel(ApiModel):
    """One level of the network's tree."""

    name: str = Field(min_length=1, max_length=63, description="Short name that jobs use, e.g. rack.")
    label: str = Field(min_length=1, max_length=317, description="Node label whose value names the domain.")


class Topology(ApiModel):
    """The network's tree, outermost level first; the node itself is the implied innermost one."""

    levels: list[TopologyLevel] = Field(
        [
            TopologyLevel(name="block", label="topology.muster.dev/block"),
            TopologyLevel(name="rack", label="topology.muster.dev/rack"),
        ],
        max_length=MAX_LEVELS,
    )


class FleetPolicySpec(ApiModel):
    """What the platform team says about the fleet."""

    topology: Topology = Topology()
    accelerator_resource: str = Field(
        "nvidia.com/gpu", min_length=3, max_length=317, description="Extended resource that gpusPerNode counts."
    )


class FleetPolicy(ApiModel):
    """The policy of the fleet; the one named `default` is used."""

    metadata: ObjectMeta
    spec: FleetPolicySpec = FleetPolicySpec()
