"""What is kept of a job that has ended, and that it fits: pure, from its account and incidents to an EndedJob's spec.

Time that failures took is in five buckets of the account. What of it is which failure's is not counted anywhere, so it
is allotted by the time that each took, from its fault to the first step after it and the work that it took back: an
estimate whose sum is exact. What is beyond the time of all incidents is none's: suspensions stop and start a gang, too.
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
    MAX_COUNT,
    MESSAGE_LENGTH,
    Blamed,
    Cause,
    EndedJobSpec,
    Ending,
)
from muster.api.gang import FaultClass, Gang, GangIncident
from muster.api.goodput import LONGEST_MILLISECONDS, MAX_STEP, Bucket, Goodput
from muster.api.trainingjob import CompletionResult, Incident, TrainingJob
from muster.goodput.failure_rate import by_class
from muster.goodput.figures import KeptWork, figures, give_up_unsaved
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
"""Of an EndedJob's spec; the API server's own part (names, times, who has written it) has at most 768 more."""
WORST = 3
"""Nodes that are kept rather than what was said at the end."""
_OF_THE_NODE = kinds_with(lambda traits: traits.lost_node) | {Kind.NODE_UNHEALTHY}
"""Failures that a node is blamed for whatever their class. All others a tenant can bring about: he deletes pods, fills
disks, kills launchers, and the largest job's would weigh most."""


@dataclass(frozen=True, slots=True)
class _Took:
    """One incident, and how many seconds it took, at least one; or what none of them took."""

    fault_class: str
    reason: str
    node: str
    seconds: int
    incidents: int = 1


def ended_job_record(
    job: TrainingJob, gang: Gang | None, goodput: Goodput, state: Ending, model: str = ""
) -> EndedJobSpec:
    """What is kept of a job with these figures.

    Args:
        gang: its record, which knows more incidents than the status does; None where there is none any more.
        state: how it ended, as far as its status does not say.
        model: of its accelerators, "" where it is not known.
    """
    metadata, status, end = job.metadata, job.status, job.status.completion
    ended, message = "", ""
    if end is not None:
        state = Ending.SUCCEEDED if end.result is CompletionResult.SUCCEEDED else Ending.FAILED
        ended, message = end.reason, end.message
    taken = min(sum(goodput.gpu_seconds.get(bucket, 0) for bucket in TAKEN), LONGEST_MILLISECONDS)
    took = _timed_incidents(job, gang, goodput)
    lost_at_end = min(goodput.lost_at_end_seconds, goodput.seconds.get(Bucket.LOST_WORK, 0))
    taken_seconds = sum(goodput.seconds.get(bucket, 0) for bucket in TAKEN) - lost_at_end
    # What is longer than all of them can have been was spent suspended.
    weights = level_amounts([each.seconds for each in took], taken_seconds)
    rest = int(taken_seconds - sum(weights))
    if (took or lost_at_end) and rest > len(took):  # times are whole seconds
        is_suspension = goodput.seconds.get(Bucket.SUSPENDED, 0) > 0
        fault_class, reason = (FaultClass.PLANNED, SUSPENSION) if is_suspension else (FaultClass.UNKNOWN, NOT_RECORDED)
        took, weights = [*took, _Took(str(fault_class), reason, "", rest, incidents=0)], [*weights, rest]
    if lost_at_end:
        took = [*took, _Took(str(FaultClass.UNKNOWN), NOT_SAVED, "", lost_at_end, incidents=0)]
        weights = [*weights, lost_at_end]
    shares = allot_amount(taken, [max(round(each), 1) for each in weights])
    causes, blamed = _causes(took, shares, taken), _blamed_nodes(took, shares)
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
            creation_time=goodput.creation_time,
            end_time=goodput.counted_until,
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
            step=None if status.step is None else min(status.step, MAX_STEP),
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
    """The figures without a look at launchers: the status's, or the account's where it has come further."""
    told, account = job.status.goodput, gang.spec.account if gang else None
    if account is None or (
        told is not None and told.creation_time == account.creation_time and told.counted_until >= account.counted_until
    ):
        return told if told is None or job.status.completion is not None else give_up_unsaved(told)
    found = figures(account, None, told, kept_work(job, gang))
    return found.model_copy(update={"failures_by_class": by_class(gang.spec.incidents if gang else ())})


def kept_work(job: TrainingJob, gang: Gang | None) -> KeptWork:
    """What of the work of a job that has ended, or is gone, is known to be kept."""
    end = job.status.completion
    succeeded = end is not None and end.result is CompletionResult.SUCCEEDED
    return KeptWork(job.spec.checkpoint.directory is not None, _checkpoint(job, gang), True, succeeded)


def model_of(labels: Mapping[str, str]) -> str:
    """The model of a node's accelerators by its labels; "" if they do not say."""
    return next((labels[label] for label in MODEL_LABELS[:-1] if labels.get(label)), "")


def allot_amount(amount: int, weights: Sequence[int]) -> list[int]:
    """A whole amount in whole parts by weight; their sum is the amount (largest remainders are rounded up)."""
    whole = sum(weights)
    if whole <= 0:
        return [0] * len(weights)
    parts = [amount * weight // whole for weight in weights]
    rest = amount - sum(parts)
    for place in sorted(range(len(weights)), key=lambda at: (-(amount * weights[at] % whole), at))[:rest]:
        parts[place] += 1
    return parts


def level_amounts(amounts: Sequence[float], most: float) -> list[float]:
    """The amounts, the largest of them cut to one size where all together are more than `most`."""
    level, left = float(most), float(most)
    for place, amount in enumerate(sorted(amounts)):
        level = left / (len(amounts) - place)
        if amount >= level:
            return [min(each, level) for each in amounts]
        left -= amount
    return list(amounts)


def within_record_limit(spec: EndedJobSpec) -> EndedJobSpec:
    """The same, as large as may be: nodes that took least are only counted, and causes that took least are taken
    together."""
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
    """Bytes that it has at most as JSON in etcd: Go writes <, > and & with six."""
    written = json.dumps(part.to_json(), separators=(",", ":"))
    return len(written) + 5 * sum(written.count(each) for each in "<>&")


def cleaned_text(text: str, length: int) -> str:
    """What others wrote on one line of at most so many characters, without what moves a cursor or changes direction."""
    seen = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text[: 8 * length])
    seen = " ".join(seen.split())
    return seen if len(seen) <= length else f"{seen[: length - 1]}…"


def _label(job: TrainingJob, name: str) -> str:
    return cleaned_text(job.metadata.labels.get(name, ""), LABEL_LENGTH)


def _known(amounts: Mapping[str, int]) -> dict[str, int]:
    """By bucket; of what a newer operator may have put into others, the sum is unknown."""
    names = {str(bucket) for bucket in Bucket}
    found: dict[str, int] = {}
    for name, amount in amounts.items():
        here = name if name in names else str(Bucket.UNKNOWN)
        found[here] = min(found.get(here, 0) + amount, LONGEST_MILLISECONDS)
    return found


def lost_before_the_end(job: TrainingJob, goodput: Goodput) -> list[int]:
    """Seconds of work that each incident of the status lost. The last one of a job that has failed also has what the
    end lost, which is left out here."""
    lost, end = [each.lost_seconds or 0 for each in job.status.incidents], job.status.completion
    if lost and end is not None and end.result is CompletionResult.FAILED:
        lost[-1] = max(lost[-1] - goodput.lost_at_end_seconds, 0)
    return lost


def _lost_by_each(job: TrainingJob, gang: Gang | None, goodput: Goodput) -> list[int]:
    if gang is not None and gang.spec.incidents:
        return [(each.lost_milliseconds or 0) // 1000 for each in gang.spec.incidents]
    return lost_before_the_end(job, goodput)


def _timed_incidents(job: TrainingJob, gang: Gang | None, goodput: Goodput) -> list[_Took]:
    """The incidents that are known, oldest first."""
    listed, lost = _listed(job, gang), _lost_by_each(job, gang, goodput)
    resumed = {(each.attempt, each.time): each.resumed_time for each in job.status.incidents}
    found: list[_Took] = []
    for place, each in enumerate(listed):
        fault = each.fault_time or each.time
        later = listed[place + 1] if place + 1 < len(listed) else None
        until = each.resumed_time or resumed.get((each.attempt, each.time))
        until = until or ((later.fault_time or later.time) if later else goodput.counted_until)
        seconds = max(int((until - fault).total_seconds()), 0) + lost[place]
        found.append(_Took(str(each.fault_class), cleaned_text(each.reason, 64), each.node, max(seconds, 1)))
    return found


def _listed(job: TrainingJob, gang: Gang | None) -> Sequence[GangIncident | Incident]:
    return gang.spec.incidents if gang is not None and gang.spec.incidents else job.status.incidents


def _causes(took: Sequence[_Took], shares: Sequence[int], taken: int) -> list[Cause]:
    if not took:
        return [Cause(fault_class=FaultClass.UNKNOWN, reason=NOT_RECORDED, gpu_seconds=taken)] if taken else []
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for each, share in zip(took, shares, strict=True):
        many, before = counts.get((each.fault_class, each.reason), (0, 0))
        counts[each.fault_class, each.reason] = many + each.incidents, before + share
    found = [
        Cause(fault_class=fault_class[:32], reason=reason, incidents=many, gpu_seconds=amount)
        for (fault_class, reason), (many, amount) in counts.items()
    ]
    found.sort(key=lambda each: (-each.gpu_seconds, -each.incidents, each.reason, each.fault_class))
    return _merge_causes(found, MAX_CAUSES)


def _merge_causes(causes: Sequence[Cause], most: int) -> list[Cause]:
    """The causes, of which those that took least are taken together where there are more than so many."""
    if len(causes) <= most:
        return list(causes)
    kept, rest = list(causes[: most - 1]), causes[most - 1 :]
    classes = {each.fault_class for each in rest}
    return [
        *kept,
        Cause(
            fault_class=classes.pop() if len(classes) == 1 else FaultClass.UNKNOWN,
            reason=OTHERS,
            incidents=min(sum(each.incidents for each in rest), MAX_COUNT),
            gpu_seconds=min(sum(each.gpu_seconds for each in rest), LONGEST_MILLISECONDS),
        ),
    ]


def _blamed_nodes(took: Sequence[_Took], shares: Sequence[int]) -> list[Blamed]:
    counts: dict[str, tuple[int, int]] = {}
    for each, share in zip(took, shares, strict=True):
        if each.node and (each.fault_class == FaultClass.HARDWARE or each.reason in _OF_THE_NODE):
            many, before = counts.get(each.node, (0, 0))
            counts[each.node] = many + 1, before + share
    found = [Blamed(node=node, incidents=many, gpu_seconds=amount) for node, (many, amount) in counts.items()]
    return sorted(found, key=lambda each: (-each.gpu_seconds, -each.incidents, each.node))


def _lost_seconds(job: TrainingJob, gang: Gang | None, goodput: Goodput) -> int:
    return min(sum(_lost_by_each(job, gang, goodput)), LONGEST_MILLISECONDS)


def _checkpoint(job: TrainingJob, gang: Gang | None) -> int | None:
    steps = [job.status.checkpoint.step] if job.status.checkpoint else []
    steps += [gang.spec.checkpoint.step] if gang and gang.spec.checkpoint else []
    return min(max(steps), MAX_STEP) if steps else None
