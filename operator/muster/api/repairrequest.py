"""RepairRequest: a node that is empty of jobs is handed over to a person or program that repairs it, and comes back.

Two writers: the operator writes the spec, once, and deletes the object; the person or program that repairs the machine
writes the status. Muster itself reboots nothing.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import NAME_LENGTH, UID_LENGTH, ApiModel, ObjectMeta, Time, checks, rule, shortened_to
from muster.api.nodehealth import Finding

MAX_REPAIR_EVIDENCE = 8


class RepairAction(StrEnum):
    """RepairAction is what to do with the machine: inspect it, reset its GPUs, reboot it, or replace hardware."""

    INSPECT = "Inspect"
    RESET = "Reset"
    REBOOT = "Reboot"
    REPLACE = "Replace"


class RepairPhase(StrEnum):
    """RepairPhase is how far a repair is: InProgress, Done or Failed."""

    IN_PROGRESS = "InProgress"
    DONE = "Done"
    FAILED = "Failed"


class Machine(ApiModel):
    """Machine is the hardware that is to be repaired, as the node's agent last saw it."""

    system_uuid: str = Field(
        "",
        max_length=UID_LENGTH,
        description="systemUuid is the UUID of the machine's mainboard. Empty means that none can be read.",
    )
    gpu_model: str = Field(
        "", max_length=128, description="gpuModel is the model of the machine's GPUs. Empty means that it is not known."
    )
    gpu_serials: list[Annotated[str, Field(max_length=64)]] = Field(
        [],
        max_length=64,
        description="gpuSerials are the serial numbers of the machine's GPUs, as the agent last read them.",
    )
    boot_id: str = Field(
        "", max_length=UID_LENGTH, description="bootId is the boot ID of the node when Muster made the request."
    )


class RepairRequestSpec(ApiModel):
    """RepairRequestSpec is what Muster asks for. It never changes: for another action or another fault, Muster
    creates another object.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule("self == oldSelf", "what is asked for does not change: delete the object, and Muster asks again")
        )
    )

    node: str = Field(
        min_length=1,
        max_length=NAME_LENGTH,
        description="node is the name of the node to repair. The RepairRequest has the same name.",
    )
    node_uid: str = Field(
        "", max_length=UID_LENGTH, description="nodeUid is the UID of the Node object when Muster made the request."
    )
    action: RepairAction = Field(
        description=(
            "action is what to do with the machine: inspect it, reset its GPUs, reboot it, or replace hardware. A "
            "stronger action is allowed; a weaker one does not help."
        )
    )
    incident_time: Time = Field(
        description=(
            "incidentTime is when the node became unfit for use. It is the time of that incident in status.incidents "
            "of the NodeHealth."
        )
    )
    reason: str = Field(
        "", max_length=64, description="reason is the strongest reason for the repair, in CamelCase, for example Xid79."
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "", max_length=1024, description="message says for people what happened to the node."
    )
    evidence: list[Finding] = Field(
        [],
        max_length=MAX_REPAIR_EVIDENCE,
        description="evidence lists the findings that took the node out of use, strongest first.",
    )
    machine: Machine = Machine()


class RepairRequestStatus(ApiModel):
    """RepairRequestStatus is how far the repair is. The person or program that repairs the machine writes it."""

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
        description=(
            "phase is how far the repair is; if it is absent, no repair system has begun. Set InProgress first: the "
            "machine may then go down, and Muster keeps off the node. Set Done or Failed at the end; Done cannot be "
            "taken back."
        ),
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "", max_length=1024, description="message says for people what the repair does or has done."
    )


class RepairRequest(ApiModel):
    """RepairRequest asks a person or a program to repair a node that no job uses.

    Muster creates one where spec.health.repair of the FleetPolicy asks for it, and deletes it when it is no longer
    needed. Deleting one in progress tells Muster that the repair has ended.
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
