"""Fleets from a line of text and jobs that wait, so that a test spells only what it is about."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.lifecycle.builders import a_fleet, a_node, at
from tests.unit.queueing.planned import plan

from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.queueing.enabling import NotEnabled
from muster.queueing.queue import NamespaceRules
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed

NEEDS = Requirements(8, {}, {})


def tree(text: str, **changes: Any) -> Fleet:
    """`b1/r1:3 b1/r2:1+2` as a fleet of so many free nodes; those behind `+` are held by the job `busy`."""
    nodes, holders = [], {}
    for part in text.split():
        path, count = part.split(":")
        block, rack = path.split("/")
        free, _, held = count.partition("+")
        for number in range(int(free) + int(held or 0)):
            node = a_node(f"{block}-{rack}-{number}", block, rack)
            nodes.append(node)
            if number >= int(free):
                holders[node.name] = {"busy"}
    fleet = a_fleet(nodes, holders=holders, **changes)
    fleet.names["busy"] = "default/busy"
    return fleet


def wants(name: str, count: int, *, seconds: float = 0, **changes: Any) -> WaitingJob:
    """A job that waits since so many seconds into the test; keyword arguments are of the request or of the job."""
    of_job = {key: changes.pop(key) for key in ("priority", "replacement", "namespace", "held") if key in changes}
    namespace = of_job.pop("namespace", "default")
    request = Request(**({"count": count, "needs": NEEDS, "job_uid": f"uid-of-{name}"} | changes))
    job = WaitingJob(f"uid-of-{name}", f"{namespace}/{name}", namespace, 0, at(seconds), request)
    if of_job.get("replacement"):
        of_job.setdefault("held", len(request.kept))
    return replace(job, **of_job)


def queue(*jobs: WaitingJob) -> list[WaitingJob]:
    """The jobs, each younger than the one before it."""
    return [replace(job, created=at(number)) for number, job in enumerate(jobs)]


def answers(
    fleet: Fleet,
    jobs: list[WaitingJob],
    limits: Mapping[str, int] | None = None,
    held: Mapping[str, int] | None = None,
    closed: Mapping[str, NotEnabled] | None = None,
) -> dict[str, Placed | NotPlaced]:
    """What the plan says to each job, by its name without the namespace."""
    turns = plan(fleet, jobs, NamespaceRules(limits or {}, held or {}, closed=closed or {}))
    return {job.name.partition("/")[2]: turns[job.job_uid].answer for job in jobs}


def told(found: Mapping[str, Placed | NotPlaced]) -> dict[str, int | str]:
    """How many nodes each job got, or the reason why none."""
    return {
        name: answer.reason if isinstance(answer, NotPlaced) else len(answer.nodes) + len(answer.spares)
        for name, answer in found.items()
    }
