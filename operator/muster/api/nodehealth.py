"""NodeHealth: what is known against a node, what Muster makes of it, and what people have decided about it.

Three writers, each with fields of its own: the node's agent writes `status.evidence` and `status.agent` (server-side
apply, and a ValidatingAdmissionPolicy lets it write nothing else, and only of its own node), the operator the rest of
the status, and people the spec (`kubectl muster cordon`, `release`, `lost` and `check`).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from muster.api.base import (
    NAME_LENGTH,
    UID_LENGTH,
    ApiModel,
    ObjectMeta,
    RecordedModel,
    Time,
    checks,
    rule,
    shortened_to,
)
from muster.api.maintenance import NodeMaintenance
from muster.api.preflight import Profile

MAX_EVIDENCE = 64
MAX_INCIDENTS = 32
MAX_EARLIER_OFFENCES = 8
MAX_PORTS = 128
SUBJECT_LENGTH = 128


class Decision(StrEnum):
    """Decision is Cordon to keep a node out of use until the decision is taken back. Release lets a node be used
    again at once, until something newer is found.
    """

    CORDON = "Cordon"
    RELEASE = "Release"


class HumanDecision(ApiModel):
    """HumanDecision is what a person decided about the node. It overrides Muster's verdict. A cordon holds until it
    is taken back, and a release until something newer is found.
    """

    decision: Decision
    reason: str = Field(
        min_length=1,
        max_length=512,
        description="reason says why, for people who find the node in this state later. It must not be empty.",
    )
    user: str = Field(
        "",
        max_length=NAME_LENGTH,
        description=(
            "user is the name of the user who decided, as the API server knows it. Empty means that it is not known."
        ),
    )
    time: Time = Field(description="time is when the person decided.")


class LostNode(ApiModel):
    """LostNode is a person's statement that the machine is dead: powered off, or gone. It holds until the machine
    gives a sign of life.
    """

    time: Time = Field(
        description=(
            "time is when the machine was dead at the latest. Processes that were on the node before then count as "
            "ended."
        )
    )
    reason: str = Field(
        min_length=1,
        max_length=512,
        description=(
            "reason says how the person knows that the machine is dead, for people who find the node in this state "
            "later. It must not be empty."
        ),
    )
    user: str = Field(
        "",
        max_length=NAME_LENGTH,
        description=(
            "user is the name of the user who made the statement, as the API server knows it. Empty means that "
            "it is not known."
        ),
    )
    boot_id: str = Field(
        "",
        max_length=UID_LENGTH,
        description=(
            "bootId is the node's boot ID for which the statement holds. Once the node reports another boot ID, the "
            "statement no longer counts."
        ),
    )
    last_renewal: str = Field(
        "",
        max_length=UID_LENGTH,
        description=(
            "lastRenewal is renewTime of the node's lease (namespace kube-node-lease) when the statement was made. "
            "Once the lease has another value, the statement no longer counts. Empty means not known: then time is "
            "compared with the kubelet's clock."
        ),
    )


class CheckRequest(ApiModel):
    """CheckRequest is a person's request to test the node."""

    id: str = Field(
        min_length=1,
        max_length=64,
        description=(
            "id identifies the request: each request needs a new one. The answer in status.check has the same id."
        ),
    )
    profile: Profile = Field(
        Profile.QUICK,
        description=(
            "profile is how thoroughly the node is tested. Quick takes at most 30 s, Standard at most 3 minutes, and "
            "Deep at most 15 minutes."
        ),
    )
    user: str = Field(
        "",
        max_length=NAME_LENGTH,
        description=(
            "user is the name of the user who requested the test, as the API server knows it. Empty means that "
            "it is not known."
        ),
    )
    time: Time = Field(description="time is when the person requested the test.")


class NodeHealthSpec(ApiModel):
    """NodeHealthSpec is what people decide about the node; kubectl muster cordon, release, lost and check write it."""

    override: HumanDecision | None = Field(
        None,
        description=(
            "override is a person's decision about the node, which overrides Muster's verdict. kubectl muster cordon "
            "and release write it. If it is absent, the verdict alone counts."
        ),
    )
    lost: LostNode | None = Field(
        None,
        description=(
            "lost states that the machine is dead; kubectl muster lost writes it. Ranks of pods from before count as "
            "ended once kubelet and launchers have been silent for 20 s. If one of them is heard again, the statement "
            "no longer counts."
        ),
    )
    check: CheckRequest | None = Field(
        None,
        description=(
            "check requests a test of the node; kubectl muster check writes it. Muster tests the node once no gang "
            "holds it, and writes the result to status.check."
        ),
    )


class Evidence(ApiModel):
    """Evidence is one fact against the node that its agent has seen. The operator decides what it means."""

    kind: str = Field(
        min_length=1,
        max_length=64,
        description=(
            "kind is what the agent has seen, in CamelCase, for example Xid or GpuLost. docs/node-health.md lists all "
            "kinds."
        ),
    )
    subject: str = Field(
        "",
        max_length=SUBJECT_LENGTH,
        description=(
            "subject is the part of the node that is meant: the UUID of a GPU, a port or a disk. Empty means the whole "
            "node."
        ),
    )
    code: int = Field(
        0,
        description=(
            "code is the error number for the kinds Xid and SXid, and the driver's value for RecoveryAction. It is 0 "
            "for all other kinds."
        ),
    )
    value: Annotated[str, shortened_to(128)] = Field(
        "",
        max_length=128,
        description="value is what the agent measured, with its unit. Empty means that nothing was measured.",
    )
    threshold: Annotated[str, shortened_to(128)] = Field(
        "",
        max_length=128,
        description="threshold is the limit with which the agent compared value. Empty means that there is none.",
    )
    message: Annotated[str, shortened_to(512)] = Field(
        "",
        max_length=512,
        description="message describes the fact for people, for example with the line of the kernel log.",
    )
    first_seen: Time = Field(description="firstSeen is when the agent first saw the fact, by the node's clock.")
    last_seen: Time = Field(description="lastSeen is when the agent last saw the fact, by the node's clock.")
    count: int = Field(
        1,
        ge=1,
        description="count is how many times the agent has seen the fact. A burst within three minutes counts once.",
    )
    boot_id: str = Field(
        "",
        max_length=UID_LENGTH,
        description=(
            "bootId is the boot ID of the node when the fact was last seen. Once the agent has reported in a newer "
            "boot, evidence of an earlier one no longer counts."
        ),
    )


class AgentStatus(ApiModel):
    """AgentStatus is what the node's agent reports about itself and the machine."""

    version: str = Field("", max_length=64, description="version is the version of the agent.")
    boot_id: str = Field(
        "", max_length=UID_LENGTH, description="bootId is the boot ID of the node when the agent last reported."
    )
    system_uuid: str = Field(
        "",
        max_length=UID_LENGTH,
        description="systemUuid is the UUID of the machine's mainboard. Empty means that none can be read.",
    )
    gpu_serials: list[Annotated[str, Field(max_length=64)]] = Field(
        [],
        max_length=64,
        description="gpuSerials are the serial numbers of the machine's GPUs, as the agent last read them.",
    )
    gpu_model: str = Field(
        "",
        max_length=128,
        description="gpuModel is the model of the machine's GPUs. Empty means that the agent has seen none.",
    )
    gpus: int = Field(0, ge=0, description="gpus is the number of GPUs that the agent sees now.")
    gpus_expected: int = Field(
        0,
        ge=0,
        description=(
            "gpusExpected is the largest number of GPUs that the machine has had, in this boot or an earlier one. If "
            "gpus is smaller, that is a fault of the node."
        ),
    )
    ports: int | None = Field(
        None,
        ge=0,
        description=(
            "ports is the number of InfiniBand, RoCE and EFA ports that are up now. If it is absent, the number is not "
            "known."
        ),
    )
    ports_expected: int | None = Field(
        None,
        ge=0,
        description=(
            "portsExpected is the largest number of InfiniBand, RoCE and EFA ports that were up at once, in this boot "
            "or an earlier one. If it is absent, the number is not known."
        ),
    )
    ports_up: list[Annotated[str, Field(max_length=SUBJECT_LENGTH)]] = Field(
        [],
        max_length=MAX_PORTS,
        description=(
            "portsUp are the names of the InfiniBand, RoCE and EFA ports that are up now, for example mlx5_0/1."
        ),
    )
    ports_expected_up: list[Annotated[str, Field(max_length=SUBJECT_LENGTH)]] = Field(
        [],
        max_length=MAX_PORTS,
        description=(
            "portsExpectedUp are the names of the InfiniBand, RoCE and EFA ports that were up when their number was "
            "largest. The names are those of that time."
        ),
    )
    driver: str = Field(
        "",
        max_length=64,
        description=(
            "driver is the version of the GPU driver. Empty means that the node has no driver, which does not make it "
            "unhealthy."
        ),
    )
    problem: Annotated[str, shortened_to(512)] = Field(
        "",
        max_length=512,
        description=(
            "problem is what keeps the agent from seeing all of its node, for example a kernel log that cannot be "
            "read. Empty means that nothing does."
        ),
    )
    resets_watched_since: int | None = Field(
        None,
        ge=0,
        description=(
            "resetsWatchedSince is since when agents on this node see resets of its GPUs, in seconds after the boot. "
            "Errors from before count until a later reset is seen, or the next boot."
        ),
    )


class VerdictState(StrEnum):
    """VerdictState is Muster's verdict on a node.

    Healthy and Suspect nodes are used, Suspect ones after others that are as near. Degraded, Unhealthy and Quarantined
    nodes get no new workers, and jobs leave them; Validating ones are tested first.
    """

    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    QUARANTINED = "Quarantined"
    VALIDATING = "Validating"


class RecommendedAction(StrEnum):
    """RecommendedAction is what an administrator should do with the machine. Muster itself does none of it.

    Reset means to reset the GPUs or to reboot, Replace to replace a GPU or the machine, and Inspect to look for the
    cause.
    """

    NONE = "None"
    RESET = "Reset"
    REBOOT = "Reboot"
    REPLACE = "Replace"
    INSPECT = "Inspect"


class Severity(StrEnum):
    """Severity is how much a finding weighs. Info has no effect, and Warning makes the node Suspect. With Degraded,
    jobs leave the node after their next checkpoint; with Fatal, they leave at once.
    """

    INFO = "Info"
    WARNING = "Warning"
    DEGRADED = "Degraded"
    FATAL = "Fatal"


class Finding(ApiModel):
    """Finding is one reason for the verdict on a node, from any source."""

    source: str = Field(
        max_length=64,
        description="source is the system that reports the finding, for example agent, kubernetes, nvsentinel or eks.",
    )
    reason: str = Field(
        max_length=64,
        description=(
            "reason is what was found, in CamelCase, for example Xid79. Its name does not change between releases."
        ),
    )
    subject: str = Field(
        "",
        max_length=SUBJECT_LENGTH,
        description=(
            "subject is the part of the node that is meant: the UUID of a GPU, a port or a disk. Empty means the whole "
            "node."
        ),
    )
    severity: Severity = Field(
        Severity.INFO,
        description=(
            "severity is how much the finding weighs now. Info has no effect, and Warning makes the node Suspect. With "
            "Degraded, jobs leave the node after their next checkpoint; with Fatal, they leave at once."
        ),
    )
    message: Annotated[str, shortened_to(512)] = Field(
        "", max_length=512, description="message describes the finding for people."
    )
    job: str = Field(
        "",
        max_length=317,
        description=(
            "job is the TrainingJob in whose burn-in the node failed, as namespace/name. If it is empty, the finding "
            "is not from the burn-in of a job."
        ),
    )
    since: Time = Field(description="since is when the finding began.")
    observed: bool = Field(
        False,
        description="observed is true if the FleetPolicy only observes the finding: then nothing follows from it.",
    )
    released_time: Time | None = Field(
        None,
        description=(
            "releasedTime is set if a person's release covers the finding: it is the finding's date by the node's "
            "clock. If the node reports another date, the finding is a new one and counts. If it is absent, no release "
            "covers the finding."
        ),
    )


class HealthIncident(RecordedModel):
    """HealthIncident is one time that the node was unfit for use, from the first fault until it was let back."""

    time: Time = Field(description="time is when the incident began.")
    state: VerdictState = Field(
        description=(
            "state is the gravest verdict on the node in this incident. Healthy and Suspect nodes are used, Suspect "
            "ones after others that are as near. Degraded, Unhealthy and Quarantined nodes get no new workers, and "
            "jobs leave them; Validating ones are tested first."
        )
    )
    reason: str = Field(
        max_length=64, description="reason is the strongest reason for the verdict, in CamelCase, for example Xid79."
    )
    message: Annotated[str, shortened_to(512)] = Field(
        "", max_length=512, description="message describes for people what was wrong with the node."
    )
    boot_id: str = Field(
        "",
        max_length=UID_LENGTH,
        description="bootId is the boot ID of the node when the incident began. Empty means not known.",
    )
    taken_out_time: Time | None = Field(
        None,
        description=(
            "takenOutTime is when Muster took the node out of use: jobs leave it. The disruption budgets count from "
            "then. If it is absent, Muster did not, for example because a budget is exhausted."
        ),
    )
    charged_to: Annotated[str, shortened_to(128)] = Field(
        "",
        max_length=128,
        description=(
            "chargedTo is the cause whose disruption budget was charged, for example agent/Xid79. Empty means that "
            "none was charged."
        ),
    )
    certain: bool = Field(
        False,
        description=(
            "certain is true if the node was charged to the part of the budget that is kept for certain faults."
        ),
    )
    pool: Annotated[str, shortened_to(128)] = Field(
        "",
        max_length=128,
        description=(
            "pool is the group of like nodes whose disruption budget was charged. Empty means that none was charged."
        ),
    )
    yielded_time: Time | None = Field(
        None,
        description=(
            "yieldedTime is when Muster left the node to another system that repairs it. If it is absent, Muster did "
            "not."
        ),
    )
    repair_ended_time: Time | None = Field(
        None,
        description=(
            "repairEndedTime is when the repair or the maintenance of the node was last seen to have ended. Tests that "
            "the node passed before then no longer count. If it is absent, none has ended."
        ),
    )
    cleared_time: Time | None = Field(
        None,
        description="clearedTime is when the node was let back into use. If it is absent, the incident is still open.",
    )
    cleared_by: Annotated[str, shortened_to(128)] = Field(
        "",
        max_length=128,
        description="clearedBy says for people what let the node back into use, for example a release or a new boot.",
    )


class Offences(RecordedModel):
    """Offences is how often the machine had faults, fading with time. It belongs to the hardware, not to the node's
    name.
    """

    hardware: str = Field(
        "",
        max_length=UID_LENGTH,
        description=(
            "hardware identifies the machine: a digest of its system UUID and of the serial numbers of its GPUs. Empty "
            "means not known."
        ),
    )
    score: Annotated[str, Field(max_length=32)] = Field(
        "0",
        max_length=32,
        description=(
            "score is a decimal number: each incident adds 1, and it halves every "
            "spec.health.quarantine.halfLifeSeconds of the FleetPolicy. Above a limit, the node is quarantined."
        ),
    )
    as_of: Time | None = Field(None, description="asOf is the time for which score holds.")


class CheckOutcome(StrEnum):
    """CheckOutcome is what a test says about the node: Pass, Fail, or Inconclusive if it gave no clear answer."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class CheckedProbe(RecordedModel):
    """CheckedProbe is the result of one probe, which is one measurement of a test."""

    probe: str = Field(max_length=128, description="probe is the name of the probe, for example gemm-bf16.")
    outcome: CheckOutcome
    value: str = Field(
        "", max_length=128, description="value is what was measured, with its unit: the worst of the node's devices."
    )
    threshold: str = Field(
        "",
        max_length=256,
        description=(
            "threshold is what value has to reach, and where that limit comes from. Empty means that the probe only "
            "measured."
        ),
    )
    message: Annotated[str, shortened_to(512)] = Field(
        "", max_length=512, description="message describes the result of the probe for people."
    )


class CheckResult(RecordedModel):
    """CheckResult is the result of a test of the node that a person requested."""

    id: str = Field(max_length=64, description="id is the id of the request in spec.check that this result answers.")
    profile: Profile = Field(description="profile is how thoroughly the node was tested: Quick, Standard or Deep.")
    outcome: CheckOutcome
    time: Time = Field(description="time is when the operator recorded the result.")
    seconds: int = Field(0, ge=0, description="seconds is how long the test took, in seconds.")
    device: str = Field("", max_length=128, description="device is what was tested: a GPU model, or the CPU.")
    probes: list[CheckedProbe] = Field(
        [], max_length=32, description="probes lists the result of each probe of the test."
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "", max_length=1024, description="message sums up the result for people."
    )


class Evacuate(StrEnum):
    """Evacuate is whether running jobs have to leave the node: No, AfterCheckpoint (after their next checkpoint), or
    Now.
    """

    NO = "No"
    AFTER_CHECKPOINT = "AfterCheckpoint"
    NOW = "Now"


class ExclusionCause(StrEnum):
    """ExclusionCause is why the node gets no new workers: its Health, a Maintenance window, or a Removal of its
    machine. A node that is unhealthy, too, has the cause Health.
    """

    HEALTH = "Health"
    MAINTENANCE = "Maintenance"
    REMOVAL = "Removal"


class NodeRemoval(ApiModel):
    """NodeRemoval is what is known of a machine that another system takes away."""

    announced_by: str = Field(max_length=64, description="announcedBy is the system that announced the removal.")
    gone_by_time: Time | None = Field(
        None, description="goneByTime is when the machine goes at the latest. If it is absent, no time is known."
    )
    final: bool = Field(
        False,
        description=(
            "final is true if the removal is not cancelled, and the machine goes as soon as its pods are gone. False "
            "means that the drain may be given up."
        ),
    )


class NodeExclusion(ApiModel):
    """NodeExclusion is why the node gets no new workers, and what the present ones have to do."""

    reason: str = Field(max_length=64, description="reason is why, in CamelCase, for example Xid79.")
    message: Annotated[str, shortened_to(512)] = Field(
        "", max_length=512, description="message says what is wrong with the node, for people."
    )
    cause: ExclusionCause = Field(
        ExclusionCause.HEALTH,
        description="cause is what excludes the node: Health, Maintenance, or Removal.",
    )
    last_choice: bool = Field(
        False,
        description=(
            "lastChoice is true if a new worker that finds no other node takes this one all the same. A disruption "
            "budget keeps the node in use then."
        ),
    )
    evacuate: Evacuate = Field(
        Evacuate.NO,
        description=(
            "evacuate is whether running jobs have to leave the node: No, AfterCheckpoint (after their next "
            "checkpoint), or Now."
        ),
    )
    gone_by_time: Time | None = Field(
        None,
        description=(
            "goneByTime is when running jobs must have left, whether there is another node for them or not. If it is "
            "absent, no time is set."
        ),
    )
    removal: NodeRemoval | None = Field(
        None,
        description=(
            "removal is what is known of the machine's removal by another system. If it is absent, none is announced."
        ),
    )


class NodeSuspicion(ApiModel):
    """NodeSuspicion makes the node a later choice than others that are as near, though it may be used."""

    followed_time: Time | None = Field(
        None,
        description=(
            "followedTime is the time of the newest failure of a job that has followed the node from attempt to "
            "attempt. If it is absent, the suspicion has another reason."
        ),
    )
    wants_test: bool = Field(
        False,
        description=(
            "wantsTest is true if failures of several owners' jobs have followed the node. It is then tested before "
            "the next gang starts on it, whatever it passed before."
        ),
    )


class NodeHealthStatus(RecordedModel):
    """NodeHealthStatus is what is known about the node, and what Muster makes of it. The node's agent writes
    evidence and agent, the operator all other fields.
    """

    evidence: list[Evidence] = Field(
        [],
        max_length=MAX_EVIDENCE,
        description="evidence lists the facts against the node that its agent has seen. The agent writes them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    agent: AgentStatus | None = Field(
        None,
        description=(
            "agent is what the node's agent reports about itself and the machine. The agent writes it. If it is "
            "absent, no agent has reported."
        ),
    )
    state: VerdictState | None = Field(
        None,
        description=(
            "state is Muster's verdict on the node; if it is absent, nothing is known. Healthy and Suspect nodes are "
            "used, Suspect ones after others that are as near. Degraded, Unhealthy and Quarantined nodes get no new "
            "workers, and jobs leave them; Validating ones are tested first."
        ),
    )
    reason: str = Field(
        "",
        max_length=64,
        description=(
            "reason is the strongest reason for the state, in CamelCase, for example Xid79. It is empty if no finding "
            "counts against the node."
        ),
    )
    message: Annotated[str, shortened_to(1024)] = Field(
        "",
        max_length=1024,
        description="message says what happened to the node, since when, what Muster did and what to do.",
    )
    since: Time | None = Field(None, description="since is when the node came into this state.")
    recommended_action: RecommendedAction = Field(
        RecommendedAction.NONE,
        description=(
            "recommendedAction is what an administrator should do with the machine; Muster does none of it. Reset "
            "means to reset the GPUs or reboot, Replace to replace a GPU or the machine, and Inspect to find the "
            "cause."
        ),
    )
    findings: list[Finding] = Field(
        [],
        max_length=MAX_EVIDENCE,
        description=(
            "findings are all reasons for the verdict, strongest first. Those that are released or only observed are "
            "listed too, and have no effect."
        ),
    )
    effect: Annotated[str, shortened_to(256)] = Field(
        "",
        max_length=256,
        description=(
            "effect is what Muster did about the node: nothing, excluded from placement, or tainted. If Muster holds "
            "back, or its taint was refused, effect says why. It is empty if nothing is to be done."
        ),
    )
    exclusion: NodeExclusion | None = Field(
        None,
        description=(
            "exclusion is why jobs place no new worker on the node, and what their present ones do. Jobs act on what "
            "is written here. If it is absent, the node may be used."
        ),
    )
    fault: Annotated[str, shortened_to(600)] = Field(
        "",
        max_length=600,
        description=(
            "fault is what is wrong with the node, for people of all namespaces: a failure on it is put down to that. "
            "It is empty if nothing is known to be wrong, and for a mere cordon, window or removal."
        ),
    )
    suspicion: NodeSuspicion | None = Field(
        None,
        description=(
            "suspicion makes the node a later choice than others that are as near. If it is absent, there is none."
        ),
    )
    incidents: list[HealthIncident] = Field(
        [],
        max_length=MAX_INCIDENTS,
        description="incidents are the newest 32 times that the node was unfit for use, oldest first.",
    )
    offences: Offences = Offences()
    earlier_offences: list[Offences] = Field(
        [],
        max_length=MAX_EARLIER_OFFENCES,
        description=(
            "earlierOffences are the accounts of other machines that had the node's name before. A machine that comes "
            "back, under this name or another one, gets its account from here. At most 8 are kept, the highest ones."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    check: CheckResult | None = Field(
        None,
        description="check is the result of the newest test that a person requested. If it is absent, there is none.",
    )
    maintenance: NodeMaintenance | None = Field(
        None,
        description=(
            "maintenance is the maintenance window of the FleetPolicy that is near for this node. If it is absent, "
            "none is."
        ),
    )
    node_uid: str = Field(
        "", max_length=UID_LENGTH, description="nodeUid is the UID of the Node object that this status is about."
    )
    boot_id: str = Field(
        "", max_length=UID_LENGTH, description="bootId is the boot ID of the node for which the verdict was made."
    )


class NodeHealth(ApiModel):
    """NodeHealth is the health of the node of the same name: what its agent sees, what Muster makes of it, and what
    people decided.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "!has(self.spec.override) || self.spec.override.reason.size() > 0",
                "say why: the text is shown wherever the node is",
                at=".spec.override.reason",
            ),
            rule(
                "!has(self.spec.lost) || self.spec.lost.reason.size() > 0",
                "say how you know it: the text is shown wherever the node is",
                at=".spec.lost.reason",
            ),
        )
    )

    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
