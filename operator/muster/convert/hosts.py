"""Finds the host names of the other system's pods, and pieces of them, in a worker's pod: no host is called so now.

The functions change their arguments, and note each change.

Tests: tests/unit/convert/test_hosts.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.convert.fields import Notes, short
from muster.convert.worker import others, rewrite_texts, text_of, words

_REFERENCE = re.compile(r"(?<![$\\])\$(?:\((\w+)\)|\{(\w+)\}|([A-Za-z_]\w*))")
# What a script, a loop or a format puts in the place of an index.
_COMPUTED = r"(?=[$%{<`])"


@dataclass(frozen=True, slots=True)
class HostNames:
    """How the other system names the hosts of a gang: JOB-KIND-INDEX.DOMAIN.

    Attributes:
        job: name of the job.
        kinds: names of its replicas, of those with the first pod first; (): the names have no such part.
        indexes: how many numbers end a name.
        domain: name of the Service within which the hosts have names; "": each host has a Service of its name.
    """

    job: str = ""
    kinds: tuple[str, ...] = ()
    indexes: int = 1
    domain: str = ""

    @property
    def first(self) -> str:
        """Return the name of the first pod's host, without a domain."""
        return "-".join([self.job, *self.kinds[:1], *["0"] * self.indexes])

    @property
    def stem(self) -> str:
        """Return what precedes the indexes, as a regular expression."""
        kinds = f"-(?:{'|'.join(map(re.escape, self.kinds))})" if self.kinds else ""
        return re.escape(self.job) + kinds

    @property
    def full_name(self) -> str:
        """Return a regular expression of all names, without a domain."""
        return self.stem + r"-\d+" * self.indexes

    @property
    def marks(self) -> dict[str, str]:
        """Return labels and annotations of the other system that have one value on all pods of the gang."""
        names = ("jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name")
        marks = dict.fromkeys((*names, *(() if self.kinds else ("batch.kubernetes.io/job-name", "job-name"))), self.job)
        if len(self.kinds) == 1:
            marks |= dict.fromkeys(
                ("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type"), self.kinds[0]
            )
        return marks

    def is_piece(self, value: str) -> bool:
        """Whether a value can be a piece of a host's name, and is none of the names that a job may use elsewhere."""
        prefix = rf"{self.stem}(?:-\d+)*{'-?' if self.kinds else '-'}|{re.escape(self.job)}-"
        domain = re.escape(self.domain) if self.domain else "(?!)"
        alone = rf"|{domain}" if self.domain != self.job else ""
        is_full = re.fullmatch(self.full_name, value) is not None
        return not is_full and bool(
            re.fullmatch(rf"{prefix}|\.?{domain}\.[a-z0-9-]+\.svc[\w.-]*|\.{domain}{alone}", value)
        )


def replace_first(container: dict[str, Any], hosts: HostNames, notes: Notes) -> None:
    """Replace the host name of the first pod, with or without its domain, by $(MASTER_ADDR).

    The name may be put together from variables of the container.
    """
    host = re.compile(rf"(?<![\w.-]){re.escape(hosts.first)}(?:\.[a-z][\w-]*)*(?![\w-])")
    variables = _known(container, hosts)

    def replaced(text: Any, where: str) -> Any:
        if not isinstance(text, str):
            return text
        for written in (text, _resolved(text, variables)[0]):
            match = host.search(written)
            if match:
                notes.became.append(f"{where}: {match.group()} -> $(MASTER_ADDR)")
                return host.sub("$(MASTER_ADDR)", written)
        return text

    rewrite_texts(container, replaced)


def note_remaining(template: Mapping[str, Any], container: Mapping[str, Any], hosts: HostNames, notes: Notes) -> None:
    """Note the host names that are left in a worker's pod, and the pieces of which its scripts make such names."""
    host_name = re.compile(rf"\b{hosts.full_name}\b")
    waiting = [
        other
        for kind, other in others(template, container)
        if kind == "initContainer" and other.get("restartPolicy") != "Always" and host_name.search(text_of(other))
    ]
    for init_container in waiting:
        notes.check.append(
            f"initContainer {init_container.get('name')}: {host_name.findall(text_of(init_container))[0]}: no host "
            "will be called so, and rank 0 starts once all init containers have ended: a wait for it has no end: take "
            "that out"
        )
    written = {**template, "spec": {**template["spec"], "initContainers": []}}
    beside = [
        init_container
        for init_container in template["spec"].get("initContainers") or ()
        if init_container not in waiting
    ]
    remaining = sorted(set(host_name.findall(text_of([written, beside]))))
    notes.check.extend(f"{host}: no host will be called so: rank 0 is at $(MASTER_ADDR)" for host in remaining)
    containers = [container, *(other for _, other in others(template, container))]
    pieces = dict.fromkeys(piece for pod_container in containers for piece in _pieces_in(pod_container, hosts))
    if pieces:
        notes.check.append(
            f"{', '.join(pieces)}: of this host names are made, and no host will be called so: rank 0 is at "
            "$(MASTER_ADDR), and ranks find each other through it: no variable lists the others"
        )


def _pieces_in(container: Mapping[str, Any], hosts: HostNames) -> list[str]:
    """Return the pieces of host names in a container: variables, and beginnings of names in its texts."""
    variables, values = _known(container, hosts), _values(container)
    host_variables = {name for name, value in values.items() if hosts.is_piece(value)}
    written: list[str] = []
    for text in [*words(container), *(value for name, value in values.items() if name not in host_variables)]:
        resolved, places = _resolved(text, variables)
        for match in _made_up(hosts).finditer(resolved):
            used = {name for name, start, end in places if start < match.end() and end > match.start()}
            host_variables |= used
            written += [] if used else [short(match.group())]
    return [*(f"env {name}: {values[name]}" for name in values if name in host_variables), *written]


def _made_up(hosts: HostNames) -> re.Pattern[str]:
    """Return a pattern of a host's name with a computed index, or of a domain without a host."""
    domain = re.escape(hosts.domain)
    name = rf"{hosts.stem}-(?:\d+-)?{_COMPUTED}" + ("" if hosts.kinds else rf"\S*?\.{domain}\b" if domain else "(?!)")
    alone = rf"|(?<![\w-])\.?{domain}\.[a-z0-9-]+\.svc\b" if domain else ""
    return re.compile(rf"(?<![\w.-]){name}{alone}")


def _values(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the container's variables that have a text as value."""
    listed = (variable for variable in container.get("env") or () if isinstance(variable.get("value"), str))
    return {str(variable.get("name")): variable["value"] for variable in listed}


def _known(container: Mapping[str, Any], hosts: HostNames) -> dict[str, str]:
    """Return the variables of which the container may make a host's name."""
    plain = {hosts.job, hosts.domain, *hosts.kinds} - {""}
    return {name: value for name, value in _values(container).items() if value in plain or hosts.is_piece(value)}


def _resolved(written: str, variables: Mapping[str, str]) -> tuple[str, list[tuple[str, int, int]]]:
    """Return a text with the values of known variables, and the name, beginning and end of each in it."""
    parts: list[str] = []
    places: list[tuple[str, int, int]] = []
    done = length = 0
    for match in _REFERENCE.finditer(written):
        name = next(filter(None, match.groups()))
        if name in variables:
            parts += [written[done : match.start()], variables[name]]
            length += len(parts[-2]) + len(parts[-1])
            places.append((name, length - len(parts[-1]), length))
            done = match.end()
    return "".join([*parts, written[done:]]), places
