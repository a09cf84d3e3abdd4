"""Says what becomes of labels and annotations by which other systems queue, place and restart pods.

Source: kubernetes-sigs/kueue, its page of labels and annotations; NVIDIA/KAI-Scheduler, pkg/common/constants, and its
docs/priority; apache/yunikorn-k8shim, pkg/common/constants/constants.go.

Tests: tests/unit/convert/test_marks.py.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from muster.convert.fields import Notes, short

_RESTARTS = re.compile(r"sagemaker\.amazonaws\.com/(?:enable-job-auto-resume|job-max-retry-count)")
_PRIORITY = "priorityClassName"
_PARTS_OF_A_GPU = re.compile(r"gpu-fraction(?:-num-devices)?|gpu-memory|runai-gpu(?:-limit|-group)?")
_OTHERS = re.compile(
    r"(?:[\w.-]+\.)?(?:kueue\.x-k8s\.io|scheduling\.x-k8s\.io|scheduling\.sigs\.k8s\.io|jobset\.sigs\.k8s\.io|volcano\.sh|"
    r"kubeflow\.org|kai\.scheduler|run\.ai|yunikorn\.apache\.org)/.*|runai/.*|scheduling\.k8s\.io/group-name|"
    rf"pod-group-name|{_PRIORITY}|{_PARTS_OF_A_GPU.pattern}|{_RESTARTS.pattern}"
)
CONVERTED = frozenset({_PRIORITY})
_PRIORITY_FIELD = "spec.template.spec.priorityClassName"
_TO_CHECK = (
    (
        re.compile(r"kueue\.x-k8s\.io/priority-class"),
        f"{_PRIORITY_FIELD} orders Muster's queue: write a PriorityClass there, which a WorkloadPriorityClass is not",
    ),
    (
        _PARTS_OF_A_GPU,
        "a worker has whole accelerators, and its node to itself: write how many in spec.gpusPerNode",
    ),
)
_LEFT_OUT = (
    (_RESTARTS, "Muster restarts ranks itself (spec.recovery)"),
    (re.compile(r"volcano\.sh/cooldown-time"), "the FleetPolicy has queueing.preemption.minRunSeconds for all"),
    (re.compile(r".*(?:topology|slice).*"), "Muster places jobs itself, see spec.placement"),
    (re.compile(r".*"), "Muster queues and places jobs itself, see docs/queueing.md"),
)


def is_anothers(key: str, part: str = "labels") -> bool:
    """Whether a label (`part`: or an annotation) belongs to another system."""
    return _OTHERS.fullmatch(key) is not None and (key != _PRIORITY or part == "labels")


def convert_priority(marks: Iterable[Mapping[str, str]], pod_spec: dict[str, Any], notes: Notes) -> None:
    """Write the PriorityClass by which KAI orders a gang into its pods.

    Args:
        marks: labels and annotations of the other systems on the whole gang, which come first for KAI, and on the pods
            of each replica.
        pod_spec: the spec of a worker's pod; changed in place.
        notes: takes what the user should know.
    """
    for wanted in dict.fromkeys(filter(None, (written.get(_PRIORITY) for written in marks))):
        if pod_spec.setdefault(_PRIORITY, wanted) == wanted:
            notes.became.append(f"label {_PRIORITY}: {wanted} -> {_PRIORITY_FIELD}: it orders Muster's queue")
        else:
            notes.check.append(
                f"label {_PRIORITY}: {short(wanted)}: {_PRIORITY_FIELD} orders Muster's queue, and is "
                f"{pod_spec[_PRIORITY]}: write the one by which the job shall wait"
            )


def note_others(marks: Mapping[str, str], notes: Notes) -> None:
    """Note what replaces the marks that nothing converts."""
    for key, value in marks.items():
        remedy = next((text for pattern, text in _TO_CHECK if pattern.fullmatch(key)), "")
        if remedy:
            notes.check.append(f"{key}: {short(value)}: {remedy}")
        else:
            notes.leave_out(key, value, next(text for pattern, text in _LEFT_OUT if pattern.fullmatch(key)))
