"""Build the life of one node: pure, from its NodeHealth, its Node and the jobs' records to the answer of `nodes NODE`.

Its life is one list of moments with a kind each; new sources add moments to that list.

Tests: tests/unit/cli/test_node.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.health import HealthRow, health_row
from muster.answers.inquiry import split
from muster.answers.text_parts import duration
from muster.api.base import ApiModel, Time
from muster.api.gang import Gang
from muster.api.nodehealth import (
    AgentStatus,
    CheckResult,
    Decision,
    Evidence,
    Finding,
    LostNode,
    NodeHealth,
    Offences,
)
from muster.api.repairrequest import RepairRequest
from muster.api.trainingjob import Incident, TrainingJob
from muster.health.maintenance import REASONS
from muster.world.views import NodeView

MAX_LIFE = 64


class Happening(ApiModel):
    """One event of its life."""

    time: Time
    until: Time | None = Field(None, description="When it was over, where it has an end.")
    kind: Literal["Verdict", "Evidence", "Human", "Check", "BurnIn", "Job", "Repair", "Maintenance"]
    event: str


class NodeJob(ApiModel):
    """One job that names the node."""

    name: str = Field(description="namespace/name.")
    state: str
    workers: list[int] = Field([], description="Indexes of its workers here.")
    unfenced_workers: int = Field(0, description="Earlier pods here of which it waits for proof that they have ended.")
    failures: int = Field(0, description="Its recorded failures here, without planned evacuations.")
    avoids_until: Time | None = Field(None, description="It avoids the node until then.")


class NodeRepair(ApiModel):
    """The request to repair the machine, and its state."""

    action: str
    phase: str = Field(description="Requested, InProgress, Done or Failed.")
    reason: str = Field("", description="Of the node's verdict when it was asked for.")
    message: str = Field("", description="What the repair system says.")
    since: Time | None = Field(None, description="When it was asked for.")


class NodeLife(ApiModel):
    """One node. Fields without a value are left out of JSON and YAML."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["NodeLife"] = "NodeLife"
    name: str
    exists: bool | None = Field(None, description="Whether the cluster has such a Node; left out: it may not be read.")
    ready: bool | None = None
    cordoned: bool = Field(False, description="By kubectl cordon.")
    taints: list[str] = Field([], description="key=value:effect.")
    labels: dict[str, str] = Field({}, description="Its levels of topology.")
    health: HealthRow | None = Field(None, description="Left out: nothing is known, or it may not be read.")
    agent: AgentStatus | None = Field(None, description="The agent and the machine.")
    findings: list[Finding] = Field([], description="What counts now, strongest first.")
    evidence: list[Evidence] = Field([], description="What the agent has seen, newest first.")
    offences: Offences | None = Field(None, description="How often the machine has been bad, fading with time.")
    check: CheckResult | None = Field(None, description="The last test that was requested.")
    lost: LostNode | None = Field(None, description="A human's word that it is dead.")
    repair: NodeRepair | None = Field(
        None, description="Its RepairRequest; left out: there is none, or it may not be read."
    )
    jobs: list[NodeJob] = Field([], description="Those that name it now, by name.")
    history: list[Happening] = Field([], description="The newest first.")
    notes: list[str] = Field([], description="What limits this answer.")


def life(
    name: str,
    health: NodeHealth | None,
    node: NodeView | None,
    exists: bool | None,
    jobs: Sequence[TrainingJob],
    gangs: Sequence[Gang],
    levels: Iterable[str] = (),
    notes: Sequence[str] = (),
    request: RepairRequest | None = None,
) -> NodeLife:
    """Build what is known of a node.

    Args:
        name: of the node.
        health: None: there is none, or it may not be read.
        node: None: there is none, or it may not be read.
        exists: whether the cluster has such a Node; None: it may not be read.
        jobs: those that this user may read.
        gangs: those that this user may read.
        levels: labels with the node's place in the network.
        notes: what could not be read.
        request: for its repair.
    """
    status = health.status if health else None
    happened = [*(_of_health(health) if health else ()), *_of_jobs(name, jobs, gangs)]
    repair = _repair(request)
    if repair is not None and repair.since is not None:
        why = f": {repair.reason}" if repair.reason else ""
        happened.append(Happening(time=repair.since, kind="Repair", event=f"{repair.action} asked for{why}"))
    happened.sort(key=lambda happening: happening.time, reverse=True)
    all_notes = list(notes)
    if len(happened) > MAX_LIFE:
        all_notes.append(f"only the newest {MAX_LIFE} of {len(happened)} entries of its history are shown")
    offences = status.offences if status and status.offences.as_of else None
    return NodeLife(
        name=name,
        exists=exists,
        ready=node.ready if node else None,
        cordoned=bool(node and node.unschedulable),
        taints=[f"{t.key}{'=' if t.value else ''}{t.value}:{t.effect}" for t in node.taints] if node else [],
        labels={label: node.labels[label] for label in levels if label in node.labels} if node else {},
        health=health_row(health) if health else None,
        agent=status.agent if status else None,
        findings=status.findings if status else [],
        evidence=sorted(status.evidence, key=lambda seen: seen.last_seen, reverse=True) if status else [],
        offences=offences,
        check=status.check if status else None,
        lost=health.spec.lost if health else None,
        repair=repair,
        jobs=_jobs(name, jobs, gangs),
        history=happened[:MAX_LIFE],
        notes=all_notes,
    )


def _repair(request: RepairRequest | None) -> NodeRepair | None:
    if request is None:
        return None
    return NodeRepair(
        action=request.spec.action,
        phase=request.status.phase or "Requested",
        reason=request.spec.reason,
        message=request.status.message,
        since=request.metadata.creation_timestamp,
    )


def _of_health(health: NodeHealth) -> Iterator[Happening]:
    status, human = health.status, health.spec.override
    for incident in status.incidents:
        over = f"; cleared by {incident.cleared_by}" if incident.cleared_by else ""
        planned = incident.reason in REASONS
        held = "" if incident.taken_out_time or incident.yielded_time or planned else " (not taken out)"
        left = " (left to the system that repairs it)" if incident.yielded_time else ""
        yield Happening(
            time=incident.time,
            until=incident.cleared_time,
            kind="Verdict",
            event=f"{incident.state}: {incident.reason}{held}{left}{over}",
        )
        if incident.repair_ended_time is not None:
            if planned:
                yield Happening(time=incident.repair_ended_time, kind="Maintenance", event="its window ended")
            else:
                yield Happening(
                    time=incident.repair_ended_time, kind="Repair", event=f"its repair ended ({incident.reason})"
                )
    for seen in status.evidence:
        often = f", {seen.count} times" if seen.count > 1 else ""
        yield Happening(
            time=seen.first_seen,
            until=seen.last_seen if seen.last_seen > seen.first_seen else None,
            kind="Evidence",
            event=f"{evidence_name(seen)}{often}",
        )
    if human is not None:
        done = "cordoned" if human.decision is Decision.CORDON else "released"
        yield Happening(time=human.time, kind="Human", event=f"{done} by {human.user or 'a user'}: {human.reason}")
    lost = health.spec.lost
    if lost is not None:
        yield Happening(time=lost.time, kind="Human", event=f"declared lost by {lost.user or 'a user'}: {lost.reason}")
    check = status.check
    if check is not None:
        failed = ", ".join(probe.probe for probe in check.probes if probe.outcome != "Pass")
        yield Happening(
            time=check.time,
            kind="Check",
            event=f"test {check.profile} in {duration(check.seconds)}: {check.outcome}"
            + (f" ({failed})" if failed else ""),
        )


def evidence_name(seen: Evidence) -> str:
    """Name the evidence, e.g. `Xid 79 on GPU-1`."""
    return f"{seen.kind}{f' {seen.code}' if seen.code else ''}{f' on {seen.subject}' if seen.subject else ''}"


def _of_jobs(name: str, jobs: Sequence[TrainingJob], gangs: Sequence[Gang]) -> Iterator[Happening]:
    for job in jobs:
        called = f"{job.metadata.namespace}/{job.metadata.name}"
        for incident in job.status.incidents:
            if incident.node == name:
                cause_text, _ = split(incident.message)
                yield Happening(
                    time=incident.time,
                    until=incident.resumed_time,
                    kind="Job",
                    event=f"{called} incident {incident.attempt}: {incident.reason} ({incident.fault_class})"
                    + (f": {cause_text}" if cause_text else ""),
                )
    names = {job.metadata.uid: f"{job.metadata.namespace}/{job.metadata.name}" for job in jobs}
    for gang in gangs:
        called = names.get(gang.spec.job_uid, f"{gang.metadata.namespace}/{gang.metadata.name}")
        for failure in gang.spec.burn_in.failures if gang.spec.burn_in else ():
            if failure.node == name:
                beside = f" beside {', '.join(failure.partners)}" if failure.partners else ""
                text = f": {failure.message}" if failure.message else ""
                yield Happening(
                    time=failure.time, kind="BurnIn", event=f"failed {failure.probe} for {called}{beside}{text}"
                )


def _jobs(name: str, jobs: Sequence[TrainingJob], gangs: Sequence[Gang]) -> list[NodeJob]:
    records = {gang.spec.job_uid: gang.spec for gang in gangs}
    node_jobs = []
    for job in jobs:
        record = records.get(job.metadata.uid)
        going = job.status.completion is None
        members = [m.index for m in record.members if m.node == name] if record and going else []
        unfenced_workers = (
            sum(unfenced_worker.node == name for unfenced_worker in record.unfenced_workers) if record and going else 0
        )
        avoids = record.excluded_nodes.get(name) if record and going else None
        if record is None and going:
            members = [index for index, node in enumerate(job.status.nodes) if node == name]
        failures = sum(_failed_on(name, incident) for incident in job.status.incidents)
        if members or unfenced_workers or avoids:
            node_jobs.append(
                NodeJob(
                    name=f"{job.metadata.namespace}/{job.metadata.name}",
                    state=job.status.state,
                    workers=members,
                    unfenced_workers=unfenced_workers,
                    failures=failures,
                    avoids_until=avoids,
                )
            )
    return sorted(node_jobs, key=lambda job: job.name)


def _failed_on(name: str, incident: Incident) -> bool:
    return incident.node == name and incident.fault_class != "Planned"
