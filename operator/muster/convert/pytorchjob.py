"""Converts a PyTorchJob of Kubeflow's training operator, version 1 (kubeflow.org/v1).

Source: kubeflow/training-operator release-1.9, pkg/apis/kubeflow.org/v1 and pkg/controller.v1/pytorch/envvar.go.

Tests: tests/unit/convert/test_documents.py.
"""

from collections.abc import Mapping
from typing import Any

from muster.convert.fields import Fields, Notes, RefusedError
from muster.convert.hosts import HostNames
from muster.convert.job import Gang


def gang(source: Mapping[str, Any], notes: Notes) -> Gang:
    """Read the gang from a PyTorchJob.

    Raises:
        RefusedError: its replicas differ, or it has none.
    """
    made = Gang(source["metadata"], "pytorch")
    spec = Fields(source.get("spec"), "spec", notes)
    run, elastic, replicas = (spec.inner(name) for name in ("runPolicy", "elasticPolicy", "pytorchReplicaSpecs"))
    scheduling = run.inner("schedulingPolicy")
    made.ends(run, notes)
    made.lasts(run)
    kinds = [kind for kind in ("Master", "Worker") if kind in replicas]
    for kind in kinds:
        part = replicas.inner(kind)
        nodes, template, policy = (
            part.pop_field("replicas", int),
            part.pop_field("template", dict),
            part.pop_field("restartPolicy"),
        )
        made.joins(part, template, 1 if nodes is None else nodes, notes)
        made.restarts_containers |= policy not in ("Never", "ExitCode")  # the operator's default is OnFailure
        if policy == "Never" and "recovery" not in made.spec:
            made.restarts(part, "restartPolicy", 0, notes)
        elif policy:
            notes.leave_out(part.at("restartPolicy"), policy)
    if not made.nodes or [*replicas]:
        raise RefusedError(
            f"{replicas.path}: Master and Worker are what a PyTorchJob has: write them, and nothing else"
        )
    made.restarts(run, "backoffLimit", run.pop_field("backoffLimit", int), notes)
    made.restarts(elastic, "maxRestarts", elastic.pop_field("maxRestarts", int), notes)
    priority = scheduling.pop_field("priorityClass", str)
    templates = [template["spec"] for _, template, _ in made.parts] if priority else []
    if {template.setdefault("priorityClassName", priority) for template in templates} - {priority}:
        why = "the template names another PriorityClass, which counts"
        notes.leave_out(scheduling.at("priorityClass"), priority, why)
    made.processes = str(elastic.pop_field("nProcPerNode") or spec.pop_field("nprocPerNode") or "auto")
    if made.processes.isdecimal() and "Master" in kinds:
        made.given = {"WORLD_SIZE": str(made.nodes * int(made.processes))}
    made.hosts = HostNames(made.name, tuple(kind.lower() for kind in kinds))
    spec.report_rest()
    return made
