"""Converts what other systems know of a gang's time and of its preemption into spec.queueing.

Source: kubernetes-sigs/kueue, its page of labels and annotations; volcano-sh/volcano,
pkg/scheduler/api/pod_info.go; NVIDIA/KAI-Scheduler, its separation of priority and preemptibility.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.api.trainingjob import MAX_DURATION_SECONDS
from muster.convert.fields import Notes

DEADLINE = "activeDeadlineSeconds"
_MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
# The values that let a pod be preempted, in lower case, the usual one first.
_PREEMPTIBLE = {"volcano.sh/preemptable": ("true", "t", "1"), "kai.scheduler/preemptibility": ("preemptible",)}
MARKS = frozenset({_MAX_EXECUTION, *_PREEMPTIBLE})
"""The labels and annotations that are converted here."""
_ESTIMATE = "spec.queueing.expectedDurationSeconds"
_NO_ESTIMATE = f"{_ESTIMATE} is a number from 1 to {MAX_DURATION_SECONDS} (a year), and Muster ends no job by time"
_MOST_DIGITS = 10  # of a 32-bit number


def convert_queueing(
    limits: Iterable[tuple[str, int]], marks: Sequence[Mapping[str, Any]], notes: Notes
) -> dict[str, Any]:
    """Return spec.queueing of a gang.

    Args:
        limits: the paths of fields that limit the time of the gang or of a pod, with their seconds.
        marks: labels and annotations of the other systems on the pods of each replica, with those on the whole gang.
        notes: takes what the user should know.
    """
    seconds = _expected_seconds(limits, marks, notes)
    return {
        **({"expectedDurationSeconds": seconds} if seconds else {}),
        **({"preemptible": True} if _is_preemptible(marks, notes) else {}),
    }


def _expected_seconds(
    limits: Iterable[tuple[str, int]], marks: Sequence[Mapping[str, Any]], notes: Notes
) -> int | None:
    """Return the shortest limit, which is the best estimate that the source has; None: it has none."""
    labels = (_number(str(of_replica[_MAX_EXECUTION])) for of_replica in marks if _MAX_EXECUTION in of_replica)
    usable = set[tuple[int, str]]()
    for where, written in dict.fromkeys([*limits, *((_MAX_EXECUTION, label) for label in labels)]):
        if isinstance(written, int) and 0 < written <= MAX_DURATION_SECONDS:
            usable.add((written, where))
        else:
            notes.leave_out(where, written, _NO_ESTIMATE)
    if not usable:
        return None
    (shortest, first), *longer = sorted(usable)
    notes.became.append(f"{first} -> {_ESTIMATE}: {shortest}: it is no limit")
    for seconds, where in longer:
        notes.leave_out(where, seconds, f"another limit has set {_ESTIMATE}")
    return shortest


def _number(text: str) -> int | str:
    """Return the number that a label has, or the label where it is none."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else text


def _is_preemptible(marks: Sequence[Mapping[str, Any]], notes: Notes) -> bool:
    """Whether the source lets all pods be preempted."""
    allowing = [_allows(mark, *values, marks=marks, notes=notes) for mark, values in _PREEMPTIBLE.items()]
    if any(allowing):
        notes.check.append(
            "spec.queueing.preemptible: true: when other jobs need its nodes, the job is asked to save, and leaves "
            "within spec.checkpoint.saveTimeoutSeconds: what it has not saved by then is lost. It cannot be set back "
            "to false"
        )
    return any(allowing)


def _allows(mark: str, usual: str, *others: str, marks: Sequence[Mapping[str, Any]], notes: Notes) -> bool:
    """Whether a mark lets all pods be preempted, by a value that does."""
    written = [str(of_replica.get(mark, "")) for of_replica in marks]
    may_leave = [text.lower() in (usual, *others) for text in written]
    if all(may_leave):
        notes.became.append(f"{mark}: {usual} -> spec.queueing.preemptible: true")
        return True
    if any(may_leave):
        why = "not all pods have it, and a gang leaves as a whole: write spec.queueing.preemptible where it may"
        notes.leave_out(mark, usual, why)
    elif any(written):
        notes.leave_out(mark, max(written), f"only {usual} becomes spec.queueing.preemptible")
    return False
