"""Reads objects of others so that no field is lost without a word: what nobody takes is told as left out, with the
reason."""

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
    "exit codes are not told apart; failures of nodes never use up the job's restarts": "podFailurePolicy rules",
    "it runs in the cluster that it is applied to": "managedBy",
    "Muster restarts ranks itself (spec.recovery), in pods that stay": "restartPolicy restartStrategy",
    "no limit of time: spec.suspend stops a job, kubectl delete ends it": "activeDeadlineSeconds",
    _MEETING: "coordinator network rdzvBackend rdzvConf rdzvHost rdzvId rdzvPort standalone",
    "the gang is restarted as a whole": "backoffLimitPerIndex maxFailedIndexes",
    "when a job has ended its nodes are free, and its pods go with it (spec.completion.ttlSecondsAfterFinished)": (
        "cleanPodPolicy"
    ),
}
_REASON_OF = {name: reason for reason, names in _REASONS.items() for name in names.split()}


class RefusedError(Exception):
    """No TrainingJob can be made of it; the message is one line that begins with the field and ends with what to do."""


@dataclass(slots=True)
class Notes:
    """What is said of one object.

    Attributes:
        became: what was carried over under another name.
        left_out: what was not, why, and what stands in its place.
        check: what only a person can decide.
    """

    became: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)

    def add(self, others: "Notes") -> None:
        """Say what is said of a part, too; each once."""
        for ours, theirs in (
            (self.became, others.became),
            (self.left_out, others.left_out),
            (self.check, others.check),
        ):
            ours += [note for note in theirs if note not in ours]

    def leave_out(self, where: str, value: Any, why: str = "") -> None:
        """Say that a field was left out. Without a reason, that of its name."""
        reason = why or _REASON_OF.get(where.rpartition(".")[2], "a TrainingJob has nothing like it")
        self.left_out.append(f"{where}: {short(value)}: {reason}")


def short(value: Any) -> str:
    """The value on one line, cut where it is long."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


class Fields:
    """The fields of one object: each is taken once, and `report_rest` tells those that nobody took.

    Raises:
        RefusedError: it, or a field that is taken, has not the shape that it should have.
    """

    def __init__(self, value: Any, path: str, notes: Notes) -> None:
        self.path, self._notes = path, notes
        self._left: dict[str, Any] = {"": value or {}}
        self._left = dict(self.pop_field("", dict))
        self._inner: list[Fields] = []

    def __iter__(self) -> Iterator[str]:
        """Names of what is left."""
        return iter(sorted(self._left))

    def at(self, name: str) -> str:
        """Where a field stands."""
        return f"{self.path}.{name}".rstrip(".")

    def pop_field(self, name: str, kind: type = object) -> Any:
        """The value, of this kind; None where there is none."""
        value = self._left.pop(name, None)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            remedy = "fill the template in first (envsubst < FILE)" if "$" in str(value) else "see kubectl explain"
            raise RefusedError(f"{self.at(name)}: {short(value)} is no {kind.__name__}: {remedy}")
        return value

    def inner(self, name: str) -> "Fields":
        """An object within, the rest of which is told with the rest of this one."""
        self._inner.append(Fields(self.pop_field(name), self.at(name), self._notes))
        return self._inner[-1]

    def several(self, name: str) -> "list[Fields]":
        """The objects of a list, the same way."""
        listed = self.pop_field(name, list) or []
        found = [Fields(each, f"{self.at(name)}[{index}]", self._notes) for index, each in enumerate(listed)]
        self._inner += found
        return found

    def report_rest(self) -> None:
        """Tell what nobody took."""
        for name, value in self._left.items():
            if value not in ({}, [], "", False):
                self._notes.leave_out(self.at(name), value)
        for each in self._inner:
            each.report_rest()
