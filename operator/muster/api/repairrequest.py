"""RepairRequest: a node that is empty of jobs is handed over to whoever repairs machines, and comes back through the
same object.

Two writers: the operator writes the spec, once, and deletes the object; whoever repairs writes the status. Muster
itself reboots nothing.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import NAME_LENGTH, UID_LENGTH, ApiModel, ObjectMeta, Time, checks, rule, shortened_to
from muster.api.nodehealth import Finding

MAX_REPAIR_EVIDENCE = 8


class RepairAction(StrEnum):
    """What is to be done with the machine, as NodeHealth's `recommendedAction` has it."""

    INSPECT = "Inspect"
    RESET = "Reset"
    REBOOT = "Reboot"
    REPLACE = "Replace"


class RepairPhase(StrEnum):
    """How far a repair is. Nothing: nobody has taken it on."""

    IN_PROGRESS = "InProgress"
    DONE = "Done"
    FAILED = "Failed"


class Machine(ApiModel):
    """The hardware, as the node's agent has last seen it."""

    system_uuid: str = Field("", max_length=UID_LENGTH, description="Of the mainboard; empty where none can be read.")
    gpu_model: str = Field("", max_length=128)
    gpu_serials: list[Annotated[str, Field(max_length=64)]] = Field([], max_length=64)
    boot_id: str = Field("", max_length=UID_LENGTH, description="Boot of the node when this was asked for.")


class RepairRequestSpec(ApiModel):
    """What Muster asks for. It never changes: for another action, or another fault, there is another object."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule("self == oldSelf", "what is asked for does not change: delete the object, and Muster asks again")
        )
    )

    node: str = Field(min_length=1, max_length=NAME_LENGTH, description="The node; the object has the same name.")
    node_uid: str = Field("", max_length=UID_LENGTH, description="The Node object then.")
    action: RepairAction = Field(description="What is to be done. More than that may be done; less does not help.")
    incident_time: Time = Field(description="When the node was taken out: `time` of the incident in its NodeHealth.")
    reason: str = Field("", max_length=64, description="The strongest, CamelCase, e.g. Xid79.")
    message: Annotated[str, shortened_to(1024)] = Field("", max_length=1024, description="What happened.")
    evidence: list[Finding] = Field(
        [], max_length=MAX_REPAIR_EVIDENCE, description="The findings that took the node out, strongest first."
    )
    machine: Machine = Machine()


class RepairRequestStatus(ApiModel):
    """What becomes of it; written by whoever repairs."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(oldSelf.phase) || oldSelf.phase != 'Done' || (has(self.phase) && self.phase == 'Done')",
                "what is done stays done, because Muster may use the node again: it asks anew if the fault is still "
                "there",
                at=".phase",
            )
        )
    )

    phase: RepairPhase | None = Field(
        None,
        description="InProgress: from now on the machine may go down at any moment, and Muster keeps off it whatever "
        "it sees. Done, Failed: the machine is left alone again.",
    )
    message: Annotated[str, shortened_to(1024)] = Field("", max_length=1024, description="For people.")


class RepairRequest(ApiModel):
    """A node that needs a human or a machine, and that no job uses: Muster writes it where FleetPolicy
    `spec.health.repair` asks for that, and deletes it when the node is well again or gone, or when nobody has taken it
    on and it is not needed.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.metadata.name == self.spec.node",
                "there is one request for a node at a time, and it has the node's name",
                at=".metadata.name",
            )
        )
    )

    metadata: ObjectMeta
    spec: RepairRequestSpec
    status: RepairRequestStatus = RepairRequestStatus()
