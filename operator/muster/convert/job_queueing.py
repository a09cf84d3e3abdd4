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
    limits: Iterable[tuple[str, int]], of_gang: Mapping[str, Any], of_pods: Sequence[Mapping[str, Any]], notes: Notes
) -> dict[str, Any]:
    """Return spec.queueing of a gang.

    Args:
        limits: the paths of fields that limit the time of the gang or of a pod, with their seconds.
        of_gang: labels and annotations of the other systems on the whole gang.
        of_pods: those on the pods of each replica.
        notes: takes what the user should know.
    """
    seconds = _expected_seconds(limits, (of_gang, *of_pods), notes)
    return {
        **({"expectedDurationSeconds": seconds} if seconds else {}),
        **({"preemptible": True} if _is_preemptible(of_gang, of_pods, notes) else {}),
    }


def _expected_seconds(
    limits: Iterable[tuple[str, int]], marks: Iterable[Mapping[str, Any]], notes: Notes
) -> int | None:
    """Return the shortest limit, which is the best estimate that the source has; None: it has none."""
    labels = (_number(str(written[_MAX_EXECUTION])) for written in marks if _MAX_EXECUTION in written)
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


def _is_preemptible(of_gang: Mapping[str, Any], of_pods: Sequence[Mapping[str, Any]], notes: Notes) -> bool:
    """Whether the source lets all pods be preempted, and no mark says otherwise."""
    written = {mark: [str(foreign.get(mark, "")) for foreign in (of_gang, *of_pods)] for mark in _PREEMPTIBLE}
    denied = any(text and text.lower() not in _PREEMPTIBLE[mark] for mark, texts in written.items() for text in texts)
    may_leave = False
    for mark, (usual, *others) in _PREEMPTIBLE.items():
        gang_may, *pods_may = (text.lower() in (usual, *others) for text in written[mark])
        if not denied and (gang_may or all(pods_may)):
            notes.became.append(f"{mark}: {usual} -> spec.queueing.preemptible: true")
            may_leave = True
        elif gang_may or any(pods_may):
            why = "not all pods have it, or another mark says otherwise, and a gang leaves as a whole: write "
            notes.leave_out(mark, usual, f"{why}spec.queueing.preemptible where it may")
        elif any(written[mark]):
            notes.leave_out(mark, max(written[mark]), f"only {usual} becomes spec.queueing.preemptible")
    if may_leave:
        notes.check.append(
            "spec.queueing.preemptible: true: when other jobs need its nodes, the job is asked to save, and leaves "
            "within spec.checkpoint.saveTimeoutSeconds: what it has not saved by then is lost. It cannot be set back "
            "to false"
        )
    return may_leave
