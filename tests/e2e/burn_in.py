"""Gangs that are tested on chosen nodes."""

from __future__ import annotations

from collections.abc import Callable

from testbed.bed import Bed
from testbed.burnt import first_workers
from testbed.jobs import Job

SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]
ANEW = {"maxAgeSeconds": 0}
"""spec.preflight of a job whose nodes are tested however fresh their last pass is."""

Submit = Callable[..., Job]


def begun_on(bed: Bed, submit: Submit, name: str, *nodes: str, others: int = 0) -> tuple[Job, dict[str, int]]:
    """A job that begins on these nodes and so many others, whatever placement holds against any.

    Returns the job, and the incarnation of each of its first workers by node.
    """
    rest = [node for node in bed.cluster.node_names if node not in nodes]
    bed.kubectl("cordon", *rest[others:])
    try:
        job = submit(name, nodes=len(nodes) + others, trainer=SHORT, preflight=ANEW)
        first = first_workers(job)
    finally:
        bed.kubectl("uncordon", *rest[others:])
    assert set(nodes) <= set(first)
    return job, first
