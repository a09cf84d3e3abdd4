"""Converts a JobSet (jobset.x-k8s.io/v1alpha2), by itself or as the template of a TrainingRuntime.

Source: kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go; host names and variables: its documentation,
Concepts.

Tests: tests/unit/convert/test_documents.py.
"""

from collections.abc import Mapping
from typing import Any

from muster.convert.fields import Fields, Notes, RefusedError
from muster.convert.hosts import HostNames
from muster.convert.job import EXCLUSIVE, Gang


def gang(source: Mapping[str, Any], notes: Notes, path: str = "spec") -> Gang:
    """Read the gang from a JobSet.

    Args:
        source: the JobSet.
        notes: takes what the user should know.
        path: the path of its spec.

    Raises:
        RefusedError: its Jobs differ, are no gangs, or need a feature that a TrainingJob lacks.
    """
    made = Gang(source["metadata"], "node")
    spec = Fields(source.get("spec"), path, notes)
    made.ends(spec, notes)
    made.lasts(spec)
    failure = spec.inner("failurePolicy")
    made.restarts(failure, "maxRestarts", failure.pop_field("maxRestarts", int), notes)
    if spec.pop_field("volumeClaimPolicies"):
        raise RefusedError(
            f"{spec.at('volumeClaimPolicies')}: Muster makes no claims: write a PersistentVolumeClaim that every "
            "node can mount, and name it in the template's volumes"
        )
    kinds = []
    for part in spec.several("replicatedJobs"):
        jobs, job = part.pop_field("replicas", int), part.inner("template")
        marks, batch = job.inner("metadata"), job.inner("spec")
        exclusive = (marks.pop_field("annotations", dict) or {}).get(EXCLUSIVE)
        if exclusive:
            made.metadata = {
                **made.metadata,
                "annotations": {**(made.metadata.get("annotations") or {}), EXCLUSIVE: exclusive},
            }
        size, ended = batch.pop_field("parallelism", int), batch.pop_field("completions", int)
        size = (ended or 1) if size is None else size
        if ended not in (None, size):
            raise RefusedError(
                f"{batch.path}: {ended} completions with a parallelism of {size} are no gang, but a queue: leave it "
                "a JobSet"
            )
        batch.pop_field("completionMode")  # each worker has an index
        if "completion" not in made.spec:
            made.ends(batch, notes)
        made.lasts(batch)
        jobs = 1 if jobs is None else jobs
        made.joins(part, batch.pop_field("template", dict), jobs * size, notes)
        made.restarts(batch, "backoffLimit", batch.pop_field("backoffLimit", int), notes)
        made.sizes += [size] * jobs
        kinds.append(str(part.pop_field("name")))
    if not made.nodes:
        raise RefusedError(f"{spec.at('replicatedJobs')}: there are none: write the one that trains")
    spec.report_rest()
    domain = (source["spec"].get("network") or {}).get("subdomain") or made.name
    made.hosts = HostNames(made.name, tuple(kinds), 2, str(domain))
    return made
