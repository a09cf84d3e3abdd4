"""Reads objects of other systems so that no field is lost silently: a field that no code takes is reported as left out,
with the reason.

Tests: tests/unit/convert/test_documents.py.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_GANG = "a gang gets all of its nodes at once or none, without another scheduler"
_MEETING = "ranks find each other by the variables that Muster sets (MASTER_ADDR, PET_MASTER_ADDR and others)"
_TOGETHER = "an attempt starts on every node or on none"
_REASONS = {
    "a gang has one size, spec.nodes": "maxReplicas metrics minReplicas",
    _GANG: "minAvailable minResources podGroupPolicy schedulerName schedulingGates schedulingGroup workloadRef",
    "a gang waits until there is room; kubectl muster status JOB says for what": "scheduleTimeoutSeconds",
    "a job has succeeded when every rank has ended with code 0": "successPolicy",
    "all jobs wait in Muster's own queue, by priority and age (docs/queueing.md)": "queue",
    _TOGETHER: "dependsOn startupPolicy",
    "another field has set spec.recovery.applicationRestartsPerDay": "backoffLimit maxRestarts",
    "exit codes are not distinguished; failures of nodes never use up the job's restarts": "podFailurePolicy rules",
    "it runs in the cluster that it is applied to": "managedBy",
    "Muster finds its own pods": "manualSelector selector",
    "Muster restarts ranks itself (spec.recovery), in pods that stay": "restartPolicy restartStrategy",
    _MEETING: "coordinator network rdzvBackend rdzvConf rdzvHost rdzvId rdzvPort standalone",
    "the gang is restarted as a whole": "backoffLimitPerIndex maxFailedIndexes podReplacementPolicy",
    "when a job has ended its nodes are free, and its pods go with it (spec.completion.ttlSecondsAfterFinished)": (
        "cleanPodPolicy"
    ),
}
_REASON_OF = {name: reason for reason, names in _REASONS.items() for name in names.split()}


class RefusedError(Exception):
    """The object cannot be converted; the message is one line that begins with the field and ends with what to do."""


@dataclass(slots=True)
class Notes:
    """The remarks on the conversion of one object.

    Attributes:
        became: fields that were carried over under another name.
        left_out: fields that were not carried over, why, and what replaces them.
        check: questions that only a person can decide.
    """

    became: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)

    def add(self, others: "Notes") -> None:
        """Add the remarks on a part of the object; each remark once."""
        for ours, theirs in (
            (self.became, others.became),
            (self.left_out, others.left_out),
            (self.check, others.check),
        ):
            ours += [note for note in theirs if note not in ours]

    def leave_out(self, where: str, value: Any, why: str = "") -> None:
        """Add that a field was left out. Without `why`, the reason is the known one for the field's name."""
        reason = why or _REASON_OF.get(where.rpartition(".")[2], "a TrainingJob has nothing like it")
        self.left_out.append(f"{where}: {short(value)}: {reason}")


def short(value: Any) -> str:
    """Return the value on one line, cut where it is long."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


class Fields:
    """The fields of one object: each is taken once, and `report_rest` reports those that no code took.

    Raises:
        RefusedError: the object, or a field that is taken, has the wrong type.
    """

    def __init__(self, value: Any, path: str, notes: Notes) -> None:
        self.path, self._notes = path, notes
        self._left: dict[str, Any] = {"": value or {}}
        self._left = dict(self.pop_field("", dict))
        self._inner: list[Fields] = []

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the fields that are left."""
        return iter(sorted(self._left))

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}".rstrip(".")

    def pop_field(self, name: str, kind: type = object) -> Any:
        """Take the value of this kind; None where there is none."""
        value = self._left.pop(name, None)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            remedy = "fill the template in first (envsubst < FILE)" if "$" in str(value) else "see kubectl explain"
            raise RefusedError(f"{self.at(name)}: {short(value)} is no {kind.__name__}: {remedy}")
        return value

    def inner(self, name: str) -> "Fields":
        """Take an object within; `report_rest` of this object reports its rest, too."""
        self._inner.append(Fields(self.pop_field(name), self.at(name), self._notes))
        return self._inner[-1]

    def several(self, name: str) -> "list[Fields]":
        """Take the objects of a list; `report_rest` of this object reports their rest, too."""
        listed = self.pop_field(name, list) or []
        objects = [Fields(entry, f"{self.at(name)}[{index}]", self._notes) for index, entry in enumerate(listed)]
        self._inner += objects
        return objects

    def report_rest(self) -> None:
        """Report the fields that no code took as left out."""
        for name, value in self._left.items():
            if value not in ({}, [], "", False):
                self._notes.leave_out(self.at(name), value)
        for inner in self._inner:
            inner.report_rest()
