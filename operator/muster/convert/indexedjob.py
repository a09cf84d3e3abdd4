"""Converts an Indexed Job of several pods (batch/v1), which meet by the host names that a headless Service gives them.

Source: kubernetes/api, batch/v1/types.go; host names and the index: Kubernetes documentation, Jobs (completion mode),
and Job with Pod-to-Pod Communication.

Tests: tests/unit/convert/test_documents.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.convert import pod
from muster.convert.fields import Fields, Notes, RefusedError
from muster.convert.hosts import HostNames
from muster.convert.job import Gang


def is_gang(it: Any) -> bool:
    """Whether an object is a Job of several pods that know their index: other Jobs prepare data, or have no order."""
    if not isinstance(it, dict) or (it.get("kind"), it.get("apiVersion")) != ("Job", "batch/v1"):
        return False
    spec = it.get("spec")
    if not isinstance(spec, dict) or spec.get("completionMode") != "Indexed":
        return False
    pods = spec.get("parallelism")
    return isinstance(pods, int) and pods > 1


def gang(source: Mapping[str, Any], others: Sequence[Any], notes: Notes) -> Gang:
    """Read the gang from a Job.

    Args:
        source: the Job.
        others: the other objects of the input.
        notes: takes what the user should know.

    Raises:
        RefusedError: its pods are a queue, or a part of a gang.
    """
    made = Gang(source["metadata"], "trainer")
    spec = Fields(source.get("spec"), "spec", notes)
    size, ended = spec.pop_field("parallelism", int), spec.pop_field("completions", int)
    if ended != size:
        raise RefusedError(
            f"spec: {ended} completions with a parallelism of {size} are no gang, but a queue: leave it a Job"
        )
    spec.pop_field("completionMode")  # each worker has an index
    made.ends(spec, notes)
    made.lasts(spec)
    made.restarts(spec, "backoffLimit", spec.pop_field("backoffLimit", int), notes)
    template = spec.pop_field("template", dict) or {}
    if not isinstance(template.get("spec"), dict):
        raise RefusedError("spec.template.spec: is missing, or no mapping")
    made.files = _files(source["metadata"].get("namespace"), others)
    made.hosts = HostNames(made.name, domain=str(template["spec"].get("subdomain") or ""))
    _refuse_a_part(made, template, others)
    written = template.get("metadata") or {}
    for name in filter(pod.OF_JOBS.fullmatch, tuple(written.get("labels") or ())):
        notes.leave_out(
            f"template.metadata.labels.{name}", written["labels"].pop(name), "the Job's controller wrote it"
        )
    if not template["spec"].get("subdomain"):
        notes.check.append(
            "spec.template.spec.subdomain: there is none, so that pods have no host names to meet by: where each index "
            "works alone, leave it a Job: a gang ends, and starts again, as a whole"
        )
    made.restarts_containers = template["spec"].get("restartPolicy") == "OnFailure"
    made.joins(Fields({}, "spec.parallelism", notes), template, size, notes)
    spec.report_rest()
    return made


def _files(namespace: Any, others: Sequence[Any]) -> dict[str, str]:
    """Return the texts of the namespace's ConfigMaps in the input, by the names of their files."""
    maps = (other for other in others if isinstance(other, dict) and other.get("kind") == "ConfigMap")
    file_maps = (other.get("data") for other in maps if (other.get("metadata") or {}).get("namespace") == namespace)
    return {str(name): str(text) for data in file_maps if isinstance(data, dict) for name, text in data.items()}


def _refuse_a_part(made: Gang, template: Mapping[str, Any], others: Sequence[Any]) -> None:
    """Raise where pods of another Job belong to the gang: they share a Service, or this Job names a host of another."""
    inner = template["spec"]
    domain, place = inner.get("subdomain"), made.metadata.get("namespace")
    if not domain:
        return
    beside = (
        other["metadata"].get("name")
        for other in others
        if is_gang(other)
        and other["metadata"].get("namespace") == place
        and other["metadata"].get("name") != made.name
        and other["spec"].get("template", {}).get("spec", {}).get("subdomain") == domain
    )
    values = [
        str(variable.get("value"))
        for inner_container in inner["containers"]
        for variable in inner_container.get("env") or ()
    ]
    hosts = (match[1] for value in values if (match := re.match(rf"([a-z0-9.-]+-\d+)\.{re.escape(domain)}\b", value)))
    named = (host for host in hosts if not re.fullmatch(made.hosts.full_name, host))
    other = next(beside, None) or next(named, None)
    if other:
        raise RefusedError(
            f"spec.template.spec.subdomain: {domain}: pods of another Job ({other}) belong to this gang: write one "
            "Job with all of them, whose completions and parallelism are their number, and convert that"
        )
