"""Derive the EndedJob of a job that has ended from its account and incidents, within the size limit. Pure.

Time that failures took is in five buckets of the account, which do not say which failure took it. It is shared out by
the time of each failure: from its fault to the first step after it, and the work that it took back. So each part is an
estimate, and the sum is exact. Time beyond that of all incidents belongs to none: suspensions stop and start a gang,
too.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.api.base import ApiModel
from muster.api.endedjob import (
    LABEL_LENGTH,
    MAX_BLAMED,
    MAX_CAUSES,
    MESSAGE_LENGTH,
    Blamed,
    Cause,
    EndedJobSpec,
    Ending,
)
from muster.api.gang import FaultClass, Gang, GangIncident
from muster.api.goodput import LONGEST_MILLISECONDS, MAX_COUNT, Bucket, Goodput
from muster.api.trainingjob import CompletionResult, Incident, TrainingJob
from muster.goodput.failure_rate import by_class
from muster.goodput.figures import KeptWork, figures, give_up_unsaved
from muster.goodput.opened import clock_lead_seconds
from muster.health.pools import MODEL_LABELS
from muster.recovery.failure import Kind, kinds_with

EXPERIMENT_LABEL = "muster.dev/experiment"
OWNER_LABEL = "muster.dev/owner"
TAKEN = (Bucket.LOST_WORK, Bucket.UNDETECTED, Bucket.RECLAIM, Bucket.REQUEUED, Bucket.RESTARTING)
"""Time that failures and planned evacuations take."""
OTHERS = "Others"
NOT_RECORDED = "NotRecorded"
"""Reason where time was taken and no incident is known."""
NOT_SAVED = "NotSaved"
"""Reason of the work that no complete checkpoint held when the job ended without success."""
SUSPENSION = "Suspension"
"""Reason of the time that stopping for a suspension and starting again after it took."""
MAX_SPEC_BYTES = 3328
"""Size of an EndedJob's spec; the API server's own part (names, times, managers of fields) has at most 768 more."""
WORST = 3
"""Blamed nodes that are kept in preference to the last message."""
_OF_THE_NODE = kinds_with(lambda traits: traits.lost_node) | {Kind.NODE_UNHEALTHY}
"""Failures that a node is blamed for whatever their class. A tenant can cause all others: it deletes pods, fills disks,
kills launchers, and the largest job's would weigh most."""


@dataclass(frozen=True, slots=True)
class _Took:
    """One incident and the seconds that it took, at least one; without an incident, the seconds that none took."""

    fault_class: str
    reason: str
    node: str
    seconds: int
    incidents: int = 1


def ended_job_record(
    job: TrainingJob, gang: Gang | None, goodput: Goodput, state: Ending, model: str = ""
) -> EndedJobSpec:
    """Build the EndedJob's spec from these figures.

    Args:
        job: the one that has ended.
        gang: its record, which has more incidents than the status; None without one.
        goodput: its figures.
        state: how it ended, where its status does not say.
        model: of its accelerators, "" where it is not known.
    """
    metadata, status, end = job.metadata, job.status, job.status.completion
    ahead = clock_lead_seconds(goodput)  # reports compare jobs by the API server's clock
    ended, message = "", ""
    if end is not None:
        state = Ending.SUCCEEDED if end.result is CompletionResult.SUCCEEDED else Ending.FAILED
        ended, message = end.reason, end.message
    taken_gpu_seconds = min(sum(goodput.gpu_seconds.get(bucket, 0) for bucket in TAKEN), LONGEST_MILLISECONDS)
    took = _timed_incidents(job, gang, goodput)
    lost_at_end = min(goodput.lost_at_end_seconds, goodput.seconds.get(Bucket.LOST_WORK, 0))
    taken_seconds = sum(goodput.seconds.get(bucket, 0) for bucket in TAKEN) - lost_at_end
    # Time beyond the longest that all can have taken was spent suspended.
    weights = level_amounts([incident.seconds for incident in took], taken_seconds)
    rest = int(taken_seconds - sum(weights))
    if (took or lost_at_end) and rest > len(took):  # times are whole seconds
        is_suspension = goodput.seconds.get(Bucket.SUSPENDED, 0) > 0
        fault_class, reason = (FaultClass.PLANNED, SUSPENSION) if is_suspension else (FaultClass.UNKNOWN, NOT_RECORDED)
        took, weights = [*took, _Took(str(fault_class), reason, "", rest, incidents=0)], [*weights, rest]
    if lost_at_end:
        took = [*took, _Took(str(FaultClass.UNKNOWN), NOT_SAVED, "", lost_at_end, incidents=0)]
        weights = [*weights, lost_at_end]
    shares = allot_amount(taken_gpu_seconds, [max(round(weight), 1) for weight in weights])
    causes, blamed = _causes(took, shares, taken_gpu_seconds), _blamed_nodes(took, shares)
    return within_record_limit(
        EndedJobSpec(
            job_uid=metadata.uid,
            namespace=metadata.namespace[:LABEL_LENGTH],
            name=metadata.name[:LABEL_LENGTH],
            experiment=_label(job, EXPERIMENT_LABEL),
            owner=_label(job, OWNER_LABEL),
            priority_class=cleaned_text(str(job.spec.pod.get("priorityClassName") or ""), LABEL_LENGTH),
            gpu_model=cleaned_text(goodput.gpu_model or model, LABEL_LENGTH),
            gpus=job.spec.nodes * job.spec.gpus_per_node,
            nodes=job.spec.nodes,
            creation_time=goodput.creation_time - ahead,
            end_time=goodput.counted_until - ahead,
            state=state,
            reason=cleaned_text(ended, 64),
            message=cleaned_text(message, MESSAGE_LENGTH),
            seconds=_known(goodput.seconds),
            gpu_seconds=_known(goodput.gpu_seconds),
            ettr_permille=goodput.ettr_permille,
            ettr_after_queue_permille=goodput.ettr_after_queue_permille,
            progress_unknown=goodput.progress_unknown,
            attempts=min(max(status.attempt, gang.spec.attempt if gang else 0), MAX_COUNT),
            failures=goodput.failures,
            failed_starts=goodput.failed_starts,
            failures_by_class=goodput.failures_by_class,
            step=status.step,
            steps=goodput.steps,
            throughput=job.spec.throughput,
            measured_tflops=goodput.measured_tflops,
            joules=goodput.joules,
            metered_gpu_seconds=goodput.metered_gpu_seconds,
            lost_steps=goodput.lost_steps,
            lost_seconds=_lost_seconds(job, gang, goodput),
            checkpoint_step=_checkpoint(job, gang),
            first_checkpoint_seconds=goodput.first_checkpoint_seconds,
            fingerprints=goodput.fingerprints,
            causes=causes,
            blamed_nodes=blamed[:MAX_BLAMED],
            other_blamed_nodes=len(blamed) - len(blamed[:MAX_BLAMED]),
        )
    )


def last_known(job: TrainingJob, gang: Gang | None) -> Goodput | None:
    """Return the figures without launchers' reports: the status's, or the account's where it is further."""
    published, account = job.status.goodput, gang.spec.account if gang else None
    if account is None or (
        published is not None
        and published.creation_time == account.creation_time
        and published.counted_until >= account.counted_until
    ):
        return published if published is None or job.status.completion is not None else give_up_unsaved(published)
    counted = figures(account, None, published, kept_work(job, gang))
    return counted.model_copy(update={"failures_by_class": by_class(gang.spec.incidents if gang else ())})


def kept_work(job: TrainingJob, gang: Gang | None) -> KeptWork:
    """Return how much work of an ended or deleted job is known to be kept."""
    end = job.status.completion
    succeeded = end is not None and end.result is CompletionResult.SUCCEEDED
    return KeptWork(job.spec.checkpoint.directory is not None, _checkpoint(job, gang), True, succeeded)


def model_of(labels: Mapping[str, str]) -> str:
    """Return the model of a node's accelerators from its labels; "" without one."""
    return next((labels[label] for label in MODEL_LABELS[:-1] if labels.get(label)), "")


def allot_amount(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole amount into whole parts by weight; their sum is the amount (largest remainders are rounded up)."""
    whole = sum(weights)
    if whole <= 0:
        return [0] * len(weights)
    parts = [amount * weight // whole for weight in weights]
    rest = amount - sum(parts)
    for place in sorted(range(len(weights)), key=lambda at: (-(amount * weights[at] % whole), at))[:rest]:
        parts[place] += 1
    return parts


def level_amounts(amounts: Sequence[float], most: float) -> list[float]:
    """Cut the largest amounts to one size where the sum is more than `most`."""
    level, left = float(most), float(most)
    for place, amount in enumerate(sorted(amounts)):
        level = left / (len(amounts) - place)
        if amount >= level:
            return [min(value, level) for value in amounts]
        left -= amount
    return list(amounts)


def within_record_limit(spec: EndedJobSpec) -> EndedJobSpec:
    """Shrink a record to its size limit: small nodes are only counted, and small causes are merged."""
    while size(spec) > MAX_SPEC_BYTES:
        if len(spec.fingerprints) > 1:
            spec = spec.model_copy(update={"fingerprints": spec.fingerprints[1:]})
        elif spec.blamed_nodes and (len(spec.blamed_nodes) > WORST or not spec.message):
            spec = spec.model_copy(
                update={"blamed_nodes": spec.blamed_nodes[:-1], "other_blamed_nodes": spec.other_blamed_nodes + 1}
            )
        elif spec.message:
            spec = spec.model_copy(update={"message": ""})
        elif len(spec.causes) > 1:
            spec = spec.model_copy(update={"causes": _merge_causes(spec.causes, len(spec.causes) - 1)})
        elif spec.fingerprints:
            spec = spec.model_copy(update={"fingerprints": []})
        else:
            break  # its fixed parts are bounded, and fit
    return spec


def size(part: ApiModel) -> int:
    """Return the maximum size as JSON in etcd, in bytes: Go writes <, > and & with six."""
    written = json.dumps(part.to_json(), separators=(",", ":"))
    return len(written) + 5 * sum(written.count(character) for character in "<>&")


def cleaned_text(text: str, length: int) -> str:
    """Put foreign text on one line of `length` characters, without control characters or changes of direction."""
    seen = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text[: 8 * length])
    seen = " ".join(seen.split())
    return seen if len(seen) <= length else f"{seen[: length - 1]}…"


def _label(job: TrainingJob, name: str) -> str:
    return cleaned_text(job.metadata.labels.get(name, ""), LABEL_LENGTH)


def _known(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts by bucket; buckets of a newer operator are added to unknown time."""
    names = {str(bucket) for bucket in Bucket}
    by_bucket: dict[str, int] = {}
    for name, amount in amounts.items():
        known_name = name if name in names else str(Bucket.UNKNOWN)
        by_bucket[known_name] = min(by_bucket.get(known_name, 0) + amount, LONGEST_MILLISECONDS)
    return by_bucket


def lost_before_the_end(job: TrainingJob, goodput: Goodput) -> list[int]:
    """Return the seconds of work that each incident of the status lost.

    The last incident of a failed job also has what the end lost; that part is left out.
    """
    lost, end = [incident.lost_seconds or 0 for incident in job.status.incidents], job.status.completion
    if lost and end is not None and end.result is CompletionResult.FAILED:
        lost[-1] = max(lost[-1] - goodput.lost_at_end_seconds, 0)
    return lost


def _lost_by_each(job: TrainingJob, gang: Gang | None, goodput: Goodput) -> list[int]:
    if gang is not None and gang.spec.incidents:
        return [(incident.lost_milliseconds or 0) // 1000 for incident in gang.spec.incidents]
    return lost_before_the_end(job, goodput)


def _timed_incidents(job: TrainingJob, gang: Gang | None, goodput: Goodput) -> list[_Took]:
    """Return the known incidents, oldest first, each with its time."""
    listed, lost = _listed(job, gang), _lost_by_each(job, gang, goodput)
    resumed = {(published.attempt, published.time): published.resumed_time for published in job.status.incidents}
    timed: list[_Took] = []
    for place, incident in enumerate(listed):
        fault = incident.fault_time or incident.time
        later = listed[place + 1] if place + 1 < len(listed) else None
        until = incident.resumed_time or resumed.get((incident.attempt, incident.time))
        until = until or ((later.fault_time or later.time) if later else goodput.counted_until)
        seconds = max(int((until - fault).total_seconds()), 0) + lost[place]
        timed.append(
            _Took(str(incident.fault_class), cleaned_text(incident.reason, 64), incident.node, max(seconds, 1))
        )
    return timed


def _listed(job: TrainingJob, gang: Gang | None) -> Sequence[GangIncident | Incident]:
    return gang.spec.incidents if gang is not None and gang.spec.incidents else job.status.incidents


def _causes(took: Sequence[_Took], shares: Sequence[int], taken_gpu_seconds: int) -> list[Cause]:
    if not took:
        return (
            [Cause(fault_class=FaultClass.UNKNOWN, reason=NOT_RECORDED, gpu_seconds=taken_gpu_seconds)]
            if taken_gpu_seconds
            else []
        )
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for incident, share in zip(took, shares, strict=True):
        many, gpu_seconds = counts.get((incident.fault_class, incident.reason), (0, 0))
        counts[incident.fault_class, incident.reason] = many + incident.incidents, gpu_seconds + share
    causes = [
        Cause(fault_class=fault_class[:32], reason=reason, incidents=many, gpu_seconds=amount)
        for (fault_class, reason), (many, amount) in counts.items()
    ]
    causes.sort(key=lambda cause: (-cause.gpu_seconds, -cause.incidents, cause.reason, cause.fault_class))
    return _merge_causes(causes, MAX_CAUSES)


def _merge_causes(causes: Sequence[Cause], most: int) -> list[Cause]:
    """Merge the causes that took least where there are more than `most`."""
    if len(causes) <= most:
        return list(causes)
    kept, rest = list(causes[: most - 1]), causes[most - 1 :]
    classes = {cause.fault_class for cause in rest}
    return [
        *kept,
        Cause(
            fault_class=classes.pop() if len(classes) == 1 else FaultClass.UNKNOWN,
            reason=OTHERS,
            incidents=min(sum(cause.incidents for cause in rest), MAX_COUNT),
            gpu_seconds=min(sum(cause.gpu_seconds for cause in rest), LONGEST_MILLISECONDS),
        ),
    ]


def _blamed_nodes(took: Sequence[_Took], shares: Sequence[int]) -> list[Blamed]:
    counts: dict[str, tuple[int, int]] = {}
    for incident, share in zip(took, shares, strict=True):
        if incident.node and (incident.fault_class == FaultClass.HARDWARE or incident.reason in _OF_THE_NODE):
            many, gpu_seconds = counts.get(incident.node, (0, 0))
            counts[incident.node] = many + 1, gpu_seconds + share
    blamed_nodes = [Blamed(node=node, incidents=many, gpu_seconds=amount) for node, (many, amount) in counts.items()]
    return sorted(blamed_nodes, key=lambda blamed: (-blamed.gpu_seconds, -blamed.incidents, blamed.node))


def _lost_seconds(job: TrainingJob, gang: Gang | None, goodput: Goodput) -> int:
    return min(sum(_lost_by_each(job, gang, goodput)), LONGEST_MILLISECONDS)


def _checkpoint(job: TrainingJob, gang: Gang | None) -> int | None:
    steps = [job.status.checkpoint.step] if job.status.checkpoint else []
    steps += [gang.spec.checkpoint.step] if gang and gang.spec.checkpoint else []
    return max(steps, default=None)
