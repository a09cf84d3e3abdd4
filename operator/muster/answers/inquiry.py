"""Build the report of one incident: pure, from the job, its record, its Events and its node."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION, JobEvent
from muster.answers.text_parts import count, duration
from muster.answers.training import seen_time
from muster.api.base import ApiModel, Time
from muster.api.gang import FaultClass, GangIncident, GangSpec, Level, StackGroup
from muster.api.goodput import Fingerprint
from muster.api.nodehealth import NodeHealth, Severity
from muster.api.trainingjob import Incident, Recovery, TrainingJob
from muster.goodput.fingerprint import at_attempt
from muster.recovery.exits import BETWEEN_LINES, LAST_LINES_FOLLOW
from muster.recovery.failure import Kind

# What happened to the node or the job so long before the fault, or after the incident, may be related to it.
BEFORE, AFTER = timedelta(minutes=10), timedelta(minutes=2)
# The job's own Events belong to it from this long before the fault to this long after the first step after it.
AROUND = timedelta(seconds=5)
# An incident without a known end is examined for so long.
OPEN_FOR = timedelta(hours=1)
MAX_TIMELINE = 64

_LAUNCHER = "the launcher of {worker}"
_KUBELET = "the kubelet of {node}"
_OPERATOR = "the operator"
_SEEN_BY: Mapping[str, str] = {
    Kind.RANK_FAILED: _LAUNCHER,
    Kind.CORRUPTION: "the trainer itself, reported by the launcher of {worker}",
    Kind.HANG: "the operator: no step was finished for as long as the job allows",
    Kind.START_HANG: "the operator: no first step was finished for as long as the job allows",
    Kind.FENCED: _LAUNCHER,
    Kind.RECLAIM_SLOW: _LAUNCHER,
    Kind.LAUNCHER_SILENT: "the operator, which heard nothing from {worker}",
    Kind.LAUNCHER_STUCK: _LAUNCHER,
    Kind.LISTING_STUCK: _LAUNCHER,
    Kind.RESUMED_BEHIND: _LAUNCHER,
    Kind.POD_DELETED: "the API server",
    Kind.POD_GONE: "the API server",
    Kind.POD_ENDED: _KUBELET,
    Kind.CONTAINER_LOST: _KUBELET,
    Kind.OUT_OF_MEMORY: "the kernel of {node}, as its kubelet or the launcher of {worker} reported",
    Kind.EVICTED: _KUBELET,
    Kind.START_FAILED: _KUBELET,
    Kind.POD_REJECTED: _KUBELET,
    Kind.NODE_CONFLICT: _KUBELET,
    Kind.POD_STUCK: "the operator: the old pod of {worker} did not end",
    Kind.POD_START_TIMEOUT: "the operator: the pod of {worker} did not start",
    Kind.NODE_GONE: "the API server: the Node object was deleted",
    Kind.NODE_UNREACHABLE: "two witnesses of {node}: its launcher and its kubelet's heartbeat, both silent",
    Kind.NODE_LOST: "a human's word about {node} (kubectl muster lost)",
    Kind.NODE_UNHEALTHY: "the verdict on {node} (kubectl muster nodes {node})",
}
_DONE: Mapping[str, str] = {
    "Start": "the whole gang restarted",
    "R0": "the ranks restarted in place: nodes and pods were good",
    "R0b": "the worker got a new pod on the same node",
    "R2": "the worker moved to another node",
    "R4": "the whole gang was rebuilt",
}


class Moment(ApiModel):
    """One event of the incident."""

    time: Time
    source: str = Field(description="The component that saw or reported it.")
    event: str


class JobIncident(ApiModel):
    """One incident. Fields without a value are left out of JSON and YAML."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["JobIncident"] = "JobIncident"
    name: str
    namespace: str
    number: int = Field(description="The attempt that ended by it.")
    time: Time = Field(description="When it was seen.")
    fault_time: Time | None = Field(None, description="When it happened, as far as is known.")
    asked_time: Time | None = Field(None, description="When a planned evacuation began; absent: it is a failure.")
    resumed_time: Time | None = Field(None, description="When the first step after it was finished.")
    reason: str
    fault_class: str
    level: str = Field(description="R0 in place, R0b new pod, R2 new node, R4 new gang.")
    node: str = ""
    worker: int | None = Field(None, description="Index.")
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = Field("", description="What was seen, without the last lines.")
    last_lines: list[str] = Field([], description="Of the culprit, oldest first, as far as the record has them.")
    stacks: list[StackGroup] = Field([], description="After a hang: where the ranks stood, most ranks first.")
    step: int | None = Field(None, description="Newest step known to be finished when it happened.")
    resumed_step: int | None = Field(None, description="Step that the following attempt went on from.")
    lost_steps: int | None = None
    lost_seconds: int | None = None
    fingerprint: Fingerprint | None = Field(None, description="What the ranks ran with; absent: not known.")
    fingerprint_before: Fingerprint | None = Field(
        None, description="What the attempts before ran with, where it was this one that changed it."
    )
    timeline: list[Moment] = Field([], description="What was seen, by which component, and when; oldest first.")
    decisions: list[str] = Field([], description="Sentences: what Muster decided, and why.")
    notes: list[str] = Field([], description="What limits this answer.")


def numbers(job: TrainingJob, record: GangSpec | None) -> list[int]:
    """Return the numbers of the incidents that are still known, oldest first, each once."""
    kept = [incident.attempt for incident in (record.incidents if record else ())]
    return sorted({*kept, *(incident.attempt for incident in job.status.incidents)})


def inquire(
    job: TrainingJob,
    record: GangSpec | None,
    number: int,
    events: Sequence[JobEvent] | None,
    health: NodeHealth | None,
    notes: Sequence[str] = (),
) -> JobIncident | None:
    """Return what is known of an incident; None: there is none of this number.

    Args:
        job: with the incidents of its status.
        record: None: there is none, or it may not be read.
        number: of the attempt that the incident was in.
        events: of the job; None: they may not be read.
        health: of the incident's node; None: nothing is known, or it may not be read.
        notes: what could not be read.
    """
    reported = next((incident for incident in reversed(job.status.incidents) if incident.attempt == number), None)
    kept = next(
        (incident for incident in reversed(record.incidents if record else ()) if incident.attempt == number), None
    )
    base: Incident | GangIncident | None = reported or kept
    if base is None:
        return None
    cause_text, lines = split((kept or base).message)
    lost = reported.lost_steps if reported else None
    if lost is None and kept and kept.step is not None and kept.resumed_step is not None:
        lost = max(kept.step - kept.resumed_step, 0)
    all_notes = list(notes)
    if kept is None and record is not None:
        all_notes.append("the record no longer has it: rank, exit code and steps are not known")
    worker = _worker(kept.index if kept else None)
    timeline = sorted(_timeline(base, cause_text, worker, events or (), health), key=lambda entry: entry.time)
    if len(timeline) > MAX_TIMELINE:
        all_notes.append(f"only the newest {MAX_TIMELINE} of {len(timeline)} entries of its timeline are shown")
    goodput, account = job.status.goodput, record.account if record else None
    ran = account.fingerprints if account else goodput.fingerprints if goodput else []
    now = at_attempt(ran, number)
    return JobIncident(
        fingerprint=now,
        fingerprint_before=at_attempt(ran, number - 1) if now is not None and now.attempt == number else None,
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        number=number,
        time=seen_time(base),
        fault_time=base.fault_time,
        asked_time=base.asked_time,
        resumed_time=base.resumed_time,
        reason=base.reason,
        fault_class=base.fault_class,
        level=base.level,
        node=base.node,
        worker=kept.index if kept else None,
        rank=kept.rank if kept else None,
        exit_code=kept.exit_code if kept else None,
        signal=kept.signal if kept else None,
        message=cause_text,
        last_lines=lines,
        stacks=kept.stacks if kept else [],
        step=kept.step if kept else None,
        resumed_step=kept.resumed_step if kept else None,
        lost_steps=lost,
        lost_seconds=reported.lost_seconds if reported else None,
        timeline=timeline[-MAX_TIMELINE:],
        decisions=list(_decisions(job, record, base, kept, lost)),
        notes=all_notes,
    )


def split(message: str) -> tuple[str, list[str]]:
    """Split a message into what was seen, and the last lines of the failed rank."""
    cause_text, _, lines = message.partition(LAST_LINES_FOLLOW)
    return cause_text.strip(), [line for line in map(str.strip, lines.split(BETWEEN_LINES)) if line]


def _worker(index: int | None) -> str:
    return "the worker" if index is None else f"worker {index}"


def _timeline(
    base: Incident | GangIncident,
    cause_text: str,
    worker: str,
    events: Sequence[JobEvent],
    health: NodeHealth | None,
) -> Iterator[Moment]:
    fault = base.fault_time or base.time
    begin, end = fault - BEFORE, (base.resumed_time or base.time + OPEN_FOR) + AFTER
    if base.fault_time is not None:
        yield Moment(time=base.fault_time, source=_OPERATOR, event="it happened then, as far as is known")
    who = _SEEN_BY.get(base.reason, _OPERATOR).format(worker=worker, node=base.node or "the node")
    failure_text = f"{base.reason}: {cause_text}" if cause_text else base.reason
    yield Moment(time=seen_time(base), source=who, event=failure_text)
    if base.held_seconds is not None:
        held_text = f"it was held for {duration(base.held_seconds)} (spec.recovery.onFailure)"
        yield Moment(time=base.time, source=_OPERATOR, event=held_text)
    # Messages of later attempts are about those.
    last_event = base.resumed_time + AROUND if base.resumed_time else end
    for event in events:
        if event.time is not None and fault - AROUND <= event.time <= last_event:
            times = f" ({event.count} times)" if event.count > 1 else ""
            yield Moment(
                time=event.time, source=event.reporter or "an Event", event=f"{event.reason}: {event.message}{times}"
            )
    if base.resumed_time is not None:
        yield Moment(time=base.resumed_time, source=_OPERATOR, event="the first step after it was finished")
    if health is None:
        return
    for seen in health.status.evidence:
        first_or_last = seen.first_seen if begin <= seen.first_seen <= end else seen.last_seen
        if begin <= first_or_last <= end:
            code = f" {seen.code}" if seen.code else ""
            about = f" on {seen.subject}" if seen.subject else ""
            text = seen.message or seen.value
            yield Moment(
                time=first_or_last,
                source=f"the agent on {base.node}",
                event=f"{seen.kind}{code}{about}" + (f": {text}" if text else ""),
            )
    for judged in health.status.incidents:
        if begin <= judged.time <= end:
            yield Moment(
                time=judged.time, source=f"the verdict on {base.node}", event=f"{judged.state}: {judged.reason}"
            )
    for finding in health.status.findings:
        if finding.observed and finding.severity is not Severity.INFO and begin <= finding.since <= end:
            observed_text = f"only observed: {finding.reason} ({finding.severity})"
            yield Moment(time=finding.since, source=f"the verdict on {base.node}", event=observed_text)


def _decisions(
    job: TrainingJob,
    record: GangSpec | None,
    base: Incident | GangIncident,
    kept: GangIncident | None,
    lost: int | None,
) -> Iterator[str]:
    yield _DONE.get(base.level, f"it was repaired by level {base.level}")
    yield _paid(base.fault_class, job.spec.recovery)
    if kept is not None and not kept.settled:
        yield "class and blame are not final yet: what other workers say within seconds can change them"
    moved = base.level in (Level.REPLACE, Level.REBUILD)
    until = record.excluded_nodes.get(base.node) if record and base.node and moved else None
    if until is not None:
        yield f"this job avoids {base.node} until {until:%Y-%m-%d %H:%M:%S} UTC"
    if kept is not None and kept.resumed_step is not None:
        ran = f", {count(lost, 'step')} behind where it was" if lost else ""
        if kept.resumed_step:
            yield f"the next attempt went on from step {kept.resumed_step}{ran}: the newest complete checkpoint"
        else:
            yield "the next attempt started without a checkpoint from Muster"
    elif lost is not None and base.resumed_time is None and job.status.completion is not None:
        yield f"no complete checkpoint held {count(lost, 'step')} when the job ended"
    elif lost is not None:
        yield f"the next attempt went on {count(lost, 'step')} behind where it was: from the newest complete checkpoint"
    if base.resumed_time is not None:
        took = (base.resumed_time - (base.fault_time or base.time)).total_seconds()
        yield f"the training was back after {duration(max(took, 0))}"
    elif job.status.completion is not None:
        yield f"the job ended: {job.status.completion.reason}"


def _paid(fault_class: str, recovery: Recovery) -> str:
    """Name the budget that a failure of this class uses, and why."""
    if fault_class == FaultClass.PLANNED:
        return "it was planned: no budget pays"
    own = fault_class in (FaultClass.APPLICATION, FaultClass.UNKNOWN)
    reason_by_class = {
        FaultClass.APPLICATION: "the program failed by itself",
        FaultClass.UNKNOWN: "nothing says that a machine is to blame",
        FaultClass.HARDWARE: "the machine is to blame",
        FaultClass.INFRASTRUCTURE: "the program is not to blame",
    }
    why = next((text for name, text in reason_by_class.items() if name == fault_class), "")
    field, most = (
        ("applicationRestartsPerDay", recovery.application_restarts_per_day)
        if own
        else ("hardwareRestartsPerDay", recovery.hardware_restarts_per_day)
    )
    reasons = f" ({why})" if why else ""
    return (
        f"class {fault_class}{reasons}: spec.recovery.{field} pays, {most} within 24 h until a new checkpoint "
        "refills it"
    )
