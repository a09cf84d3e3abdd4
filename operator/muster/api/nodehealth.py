"""NodeHealth: what is known against a node, what Muster makes of it, and what a human has decided about it.

Three writers, each with fields of its own: the node's agent writes `status.evidence` and `status.agent` (server-side
apply, and a ValidatingAdmissionPolicy lets it write nothing else, and only of its own node), the operator the rest of
the status, and people the spec (`kubectl muster cordon`, `release`, `lost` and `check`).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import NAME_LENGTH, UID_LENGTH, ApiModel, ObjectMeta, Time, checks, rule, shortened_to
from muster.api.maintenance import NodeMaintenance
from muster.api.preflight import Profile

MAX_EVIDENCE = 64
MAX_INCIDENTS = 32
MAX_PORTS = 128
SUBJECT_LENGTH = 128


class Decision(StrEnum):
    """What a human has decided about a node."""

    CORDON = "Cordon"
    RELEASE = "Release"


class HumanDecision(ApiModel):
    """A human's word, which outweighs what Muster thinks until it is taken back or, for a release, until something new
    happens."""

    decision: Decision
    reason: str = Field(min_length=1, max_length=512, description="For those who find the node like that.")
    by: str = Field("", max_length=NAME_LENGTH, description="Who said so.")
    time: Time


class LostNode(ApiModel):
    """A human's word that a machine is dead: powered off, or gone. It holds until the machine gives a sign of life."""

    time: Time = Field(description="As of when: of what was on the node then, no process is alive any more.")
    reason: str = Field(min_length=1, max_length=512, description="For those who find the node like that.")
    by: str = Field("", max_length=NAME_LENGTH, description="Who said so.")
    boot_id: str = Field(
        "",
        max_length=UID_LENGTH,
        description="Boot of the node that this is about; in another one the word counts no more.",
    )
    last_renewal: str = Field(
        "",
        max_length=UID_LENGTH,
        description="`renewTime` of the node's lease (namespace kube-node-lease) as it stood then, to the letter: "
        "once another one stands there the word counts no more. Empty: not known, and `time` is compared with the "
        "kubelet's clock.",
    )


class CheckWish(ApiModel):
    """A human's wish that a node be tested."""

    id: str = Field(min_length=1, max_length=64, description="Another one for each wish; the result names it.")
    profile: Profile = Profile.QUICK
    by: str = Field("", max_length=NAME_LENGTH, description="Who said so.")
    time: Time


class NodeHealthSpec(ApiModel):
    """What people decide."""

    override: HumanDecision | None = Field(None, description="`kubectl muster cordon` and `release` write it.")
    lost: LostNode | None = Field(
        None,
        description="`kubectl muster lost` writes it. The ranks of pods that were made on the node before count as "
        "dead, once its kubelet and their launchers have been silent for 20 s, and for as long as neither is heard "
        "again.",
    )
    check: CheckWish | None = Field(
        None, description="`kubectl muster check` writes it. The node is tested once no gang has it."
    )


class Evidence(ApiModel):
    """One thing that the agent has seen on its node and that stands against it. A fact; what it means the operator
    judges.

    Kinds are stable and CamelCase, e.g. Xid, GpuLost, RecoveryAction; docs/node-health.md lists them.
    """

    kind: str = Field(min_length=1, max_length=64)
    subject: str = Field("", max_length=SUBJECT_LENGTH, description="GPU UUID, port, disk; empty: the node.")
    code: int = Field(0, description="For Xid and SXid the number, for RecoveryAction the driver's value; else 0.")
    value: Annotated[str, shortened_to(128)] = Field("", max_length=128, description="What was measured, with unit.")
    threshold: Annotated[str, shortened_to(128)] = Field("", max_length=128, description="What was allowed.")
    message: Annotated[str, shortened_to(512)] = Field("", max_length=512, description="For people, e.g. the log line.")
    first_seen: Time
    last_seen: Time
    count: int = Field(1, ge=1, description="How often; a burst within three minutes counts once.")
    boot_id: str = Field("", max_length=UID_LENGTH, description="Boot of the node in which it was last seen.")


class AgentStatus(ApiModel):
    """The agent and the machine that it looks at."""

    version: str = Field("", max_length=64)
    boot_id: str = Field("", max_length=UID_LENGTH)
    system_uuid: str = Field("", max_length=UID_LENGTH, description="Of the mainboard; empty where none can be read.")
    gpu_serials: list[Annotated[str, Field(max_length=64)]] = Field([], max_length=64)
    gpu_model: str = Field("", max_length=128)
    gpus: int = Field(0, ge=0, description="GPUs seen now.")
    gpus_expected: int = Field(
        0, ge=0, description="The most GPUs that the machine has had, in this boot or before it."
    )
    ports: int | None = Field(None, ge=0, description="Ports of InfiniBand, RoCE or EFA that are up now.")
    ports_expected: int | None = Field(
        None, ge=0, description="The most of them that were up at once, in this boot or before it."
    )
    ports_up: list[Annotated[str, Field(max_length=SUBJECT_LENGTH)]] = Field(
        [], max_length=MAX_PORTS, description="Those that are up now, e.g. mlx5_0/1."
    )
    ports_expected_up: list[Annotated[str, Field(max_length=SUBJECT_LENGTH)]] = Field(
        [], max_length=MAX_PORTS, description="Those that were up when the most were, by the names that they had then."
    )
    driver: str = Field("", max_length=64, description="Driver version; empty: no driver, which is not sickness.")
    problem: Annotated[str, shortened_to(512)] = Field(
        "", max_length=512, description="What keeps the agent from seeing everything (no driver, no kernel log, ...)."
    )
    resets_watched_since: int | None = Field(
        None, ge=0, description="Seconds after the boot: since then agents on this node see resets of its GPUs."
    )


class VerdictState(StrEnum):
    """What Muster makes of a node."""

    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    QUARANTINED = "Quarantined"
    VALIDATING = "Validating"


class RecommendedAction(StrEnum):
    """What somebody should do with the machine."""

    NONE = "None"
    RESET = "Reset"
    REBOOT = "Reboot"
    REPLACE = "Replace"
    INSPECT = "Inspect"


class Severity(StrEnum):
    """How much one finding weighs. Info: for the record. Warning: the node is suspect. Degraded: jobs leave after their
    next checkpoint. Fatal: jobs leave now.
    """

    INFO = "Info"
    WARNING = "Warning"
    DEGRADED = "Degraded"
    FATAL = "Fatal"


class Finding(ApiModel):
    """One reason of a verdict, whatever source it comes from."""

    source: str = Field(max_length=64, description="agent, kubernetes, nvsentinel, eks, ...")
    reason: str = Field(max_length=64, description="Stable and CamelCase, e.g. Xid79.")
    subject: str = Field("", max_length=SUBJECT_LENGTH)
    severity: Severity = Field(Severity.INFO, description="What it weighs now.")
    message: Annotated[str, shortened_to(512)] = Field("", max_length=512)
    since: Time
    observed: bool = Field(False, description="The FleetPolicy only observes it: nothing follows from it.")
    released_time: Time | None = Field(
        None, description="A human's release covers it, dated like this by the node's own clock; another date is news."
    )


class HealthIncident(ApiModel):
    """One time that the node was taken out of use."""

    time: Time
    state: VerdictState
    reason: str = Field(max_length=64)
    message: Annotated[str, shortened_to(512)] = Field("", max_length=512)
    boot_id: str = Field("", max_length=UID_LENGTH)
    taken_out_time: Time | None = Field(
        None,
        description=(
            "When Muster had the jobs leave (and tainted the node): what the breaker's budget counts. Empty: it "
            "holds back."
        ),
    )
    charged_to: Annotated[str, shortened_to(128)] = Field(
        "",
        max_length=128,
        description="For which cause it was taken, e.g. agent/Xid79; empty: it was not, or is of old.",
    )
    certain: bool = Field(
        False, description="It was taken from the part of the budget that is kept for certain faults."
    )
    pool: Annotated[str, shortened_to(128)] = Field(
        "", max_length=128, description="The nodes whose budget was charged; empty: none, or it is of old."
    )
    yielded_time: Time | None = Field(None, description="When Muster left the node to the system that repairs it.")
    repair_ended_time: Time | None = Field(
        None,
        description=(
            "When its RepairRequest was last seen to have ended: tests that were passed before count for nothing."
        ),
    )
    cleared_time: Time | None = Field(None, description="When it was let back.")
    cleared_by: Annotated[str, shortened_to(128)] = Field("", max_length=128, description="What let it back.")


class Offences(ApiModel):
    """How often the machine has been bad, fading with time; bound to the hardware, not to the node's name."""

    hardware: str = Field("", max_length=UID_LENGTH, description="Digest of system UUID and GPU serials.")
    score: Annotated[str, Field(max_length=32)] = Field(
        "0", max_length=32, description="Decimal; 1 per incident, halved by time."
    )
    as_of: Time | None = None


class CheckOutcome(StrEnum):
    """What a test of one node says."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class CheckedProbe(ApiModel):
    """One probe of a test."""

    probe: str = Field(max_length=128)
    outcome: CheckOutcome
    value: str = Field("", max_length=128, description="What was measured, with unit; the worst of the devices.")
    threshold: str = Field(
        "", max_length=256, description="What it has to reach, and who says so; empty: only measured."
    )
    message: Annotated[str, shortened_to(512)] = Field("", max_length=512)


class CheckResult(ApiModel):
    """What came of a test."""

    id: str = Field(max_length=64, description="Of the wish.")
    profile: Profile
    outcome: CheckOutcome
    time: Time
    seconds: int = Field(0, ge=0, description="That it took.")
    device: str = Field("", max_length=128, description="What was tested: a GPU model, or the CPU.")
    probes: list[CheckedProbe] = Field([], max_length=32)
    message: Annotated[str, shortened_to(1024)] = Field("", max_length=1024)


class NodeHealthStatus(ApiModel):
    """Everything that is known and concluded."""

    evidence: list[Evidence] = Field(
        [],
        max_length=MAX_EVIDENCE,
        description="Written by the agent.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    agent: AgentStatus | None = Field(None, description="Written by the agent.")
    state: VerdictState | None = Field(None, description="What Muster makes of the node.")
    reason: str = Field("", max_length=64, description="The strongest reason, CamelCase.")
    message: Annotated[str, shortened_to(1024)] = Field(
        "", max_length=1024, description="What happened, and what to do."
    )
    since: Time | None = Field(None, description="In this state since.")
    recommended_action: RecommendedAction = RecommendedAction.NONE
    findings: list[Finding] = Field([], max_length=MAX_EVIDENCE, description="All that counts now, strongest first.")
    effect: Annotated[str, shortened_to(256)] = Field(
        "", max_length=256, description="What Muster did: nothing, excluded, tainted; or why it holds back."
    )
    incidents: list[HealthIncident] = Field([], max_length=MAX_INCIDENTS, description="Newest last.")
    offences: Offences = Offences()
    check: CheckResult | None = Field(None, description="What came of the last test that somebody wished for.")
    maintenance: NodeMaintenance | None = Field(
        None, description="A maintenance window of the FleetPolicy that is near."
    )
    node_uid: str = Field("", max_length=UID_LENGTH, description="The Node object that all this is about.")
    boot_id: str = Field("", max_length=UID_LENGTH)


class NodeHealth(ApiModel):
    """The health of the node of the same name."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(self.spec.override) || self.spec.override.reason.size() > 0",
                "say why, for those who find the node like that",
                at=".spec.override.reason",
            ),
            rule(
                "!has(self.spec.lost) || self.spec.lost.reason.size() > 0",
                "say how you know, for those who find the node like that",
                at=".spec.lost.reason",
            ),
        )
    )

    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
