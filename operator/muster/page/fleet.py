"""Build the heat map of the fleet: pure, from nodes, their health and the jobs that the user may see."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field

from muster.answers.health import HealthRow, health_row, verdict
from muster.api.base import ApiModel, Time
from muster.api.fleetpolicy import TopologyLevel
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.world.views import NodeView

MAX_WORDS = 300


class Cell(ApiModel):
    """One node. Usual values are left out."""

    name: str
    state: str | None = Field(None, description="Suspect, Degraded, ...; left out: no finding counts against it.")
    ready: bool | None = Field(None, description="False: its kubelet does not say that it is well.")
    cordoned: bool | None = Field(None, description="True: cordoned in Kubernetes.")
    message: str | None = Field(None, description="The findings that count against it.")
    job: str | None = Field(None, description="NAMESPACE/NAME of the job that holds it, of those one may see.")


class Group(ApiModel):
    """The nodes of one innermost domain."""

    path: list[str] = Field(description="Names of the domains, outermost first; empty: without such a label.")
    nodes: list[Cell]


class HeatMap(ApiModel):
    """The fleet at a moment."""

    time: Time
    levels: list[str] = Field(description="Outermost first.")
    groups: list[Group]
    counts: dict[str, int] = Field(description="Nodes by what they are: used, free, unhealthy, notReady.")


def heat_map(
    time: Time,
    levels: Sequence[TopologyLevel],
    nodes: Iterable[NodeView],
    healths: Iterable[NodeHealth],
    jobs: Iterable[TrainingJob],
) -> HeatMap:
    """Build the heat map by domain, with the names of these jobs."""
    rows = {health.metadata.name: health_row(health) for health in healths}
    held: dict[str, str] = {}
    for job in sorted(jobs, key=lambda job: (job.metadata.namespace, job.metadata.name)):
        if job.wants_nodes:
            for name in filter(None, job.status.nodes):
                held.setdefault(name, f"{job.metadata.namespace}/{job.metadata.name}")
    groups: dict[tuple[str, ...], list[Cell]] = {}
    counts = {"used": 0, "free": 0, "unhealthy": 0, "notReady": 0}
    for node in nodes:
        cell = _cell(node, rows.get(node.name), held)
        groups.setdefault(tuple(node.labels.get(level.label, "") for level in levels), []).append(cell)
        kind = "notReady" if cell.ready is False else "unhealthy" if cell.state else "used" if cell.job else "free"
        counts[kind] += 1
    return HeatMap(
        time=time,
        levels=[level.name for level in levels],
        groups=[
            Group(path=list(path), nodes=sorted(cells, key=lambda cell: natural(cell.name)))
            for path, cells in sorted(groups.items(), key=lambda item: [natural(part) for part in item[0]])
        ],
        counts=counts,
    )


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which gpu-9 comes before gpu-10."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for character in [*name, ""]:
        if character.isascii() and character.isdigit():
            digits += character
            continue
        if digits:
            parts.append((0, int(digits), ""))
            digits = ""
        if character:
            parts.append((1, 0, character))
    return parts


def _cell(node: NodeView, row: HealthRow | None, held: Mapping[str, str]) -> Cell:
    unhealthy = row is not None and row.is_unhealthy
    words = ""
    if row is not None and row.is_unhealthy:
        words = ": ".join(filter(None, (verdict(row), row.message)))[:MAX_WORDS]
    elif not node.ready:
        words = f"not ready: {node.ready_reason}"[:MAX_WORDS]
    return Cell(
        name=node.name,
        state=str(row.state) if row is not None and unhealthy else None,
        ready=None if node.ready else False,
        cordoned=True if node.unschedulable else None,
        message=words or None,
        job=held.get(node.name),
    )
