"""Say what follows from a person's cordon or release of a node: pure, from what was known before.

The operator carries the decision out. These sentences predict it by the rules of docs/node-health.md, so that users
need not know them by heart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.health import HealthRow, verdict
from muster.api.base import ApiModel, Time
from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import Decision
from muster.health.verdict import CORDONED
from muster.world.names import verb_for
from muster.world.queuedecision import Refusal, RefusalKind

MAX_NAMES = 8  # nodes that a command to be copied names


class DecidedNode(ApiModel):
    """One node with the decision about it."""

    name: str
    health_before: HealthRow | None = Field(None, description="Its health before; left out: it had no NodeHealth.")
    used_by: list[str] | None = Field(
        None, description="The jobs and pods that held it; left out where that may not be read."
    )
    consequences: list[str] = Field(description="Sentences: what comes of it.")


class NodeDecisions(ApiModel):
    """A decision about nodes, and what follows from it."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["NodeDecisions"] = "NodeDecisions"
    decision: Decision
    reason: str
    user: str = Field(description="The name of the user as the API server knows it; empty: unknown.")
    time: Time
    nodes: list[DecidedNode] = Field(description="In the order given.")
    next: list[str] = Field([], description="Sentences: how to take it back, what to look at.")
    notes: list[str] = Field([], description="What limits this answer.")


@dataclass(frozen=True, slots=True)
class Known:
    """What was known of a node before the decision.

    Attributes:
        health: its health; None: it had no NodeHealth.
        used_by: its holders, jobs and foreign pods; None: it may not be read.
        refused: why it would take no worker even if Muster did not exclude it; None if it would.
        enforcement: of the policy for the node; None: it may not be read.
    """

    health: HealthRow | None = None
    used_by: tuple[str, ...] | None = None
    refused: Refusal | None = None
    enforcement: Enforcement | None = None


def consequence_of(decision: Decision, facts: Known) -> list[str]:
    """Say what follows from the decision."""
    return _of_cordon(facts) if decision is Decision.CORDON else _of_release(facts)


def _of_cordon(facts: Known) -> list[str]:
    if facts.refused and facts.refused.kind is RefusalKind.OUTSIDE_SCOPE:
        return [f"it is {facts.refused}, where Muster does nothing: the cordon takes effect once the node is selected"]
    consequences = ["it takes no new worker of a training job"]
    jobs = [name for name in facts.used_by or () if not _foreign(name)]
    others = [name for name in facts.used_by or () if _foreign(name)]
    if facts.used_by is None:
        consequences.append("jobs that have workers here are evacuated after their next checkpoint")
    elif jobs:
        consequences.append(f"{_and(jobs)} {verb_for(len(jobs))} evacuated after the next checkpoint")
    if others:
        consequences.append(f"{_and(others)} {'stays' if len(others) == 1 else 'stay'}: Muster moves only its own jobs")
    if facts.enforcement is Enforcement.NODES:
        consequences.append("the taint muster.dev/unhealthy keeps new pods of other systems away, too")
    elif facts.enforcement is not None:
        consequences.append("new pods of other systems still come: kubectl cordon keeps them away, too")
    human = facts.health.override if facts.health else None
    if human and human.decision is Decision.CORDON:
        consequences.append(f"it was cordoned already, by {human.user or 'a user'}: {human.reason}")
    return consequences


def _of_release(facts: Known) -> list[str]:
    consequences = []
    health = facts.health
    human = health.override if health else None
    if human and human.decision is Decision.CORDON:
        consequences.append(f"the cordon by {human.user or 'a user'} ends: {human.reason}")
    if health and health.is_unhealthy and health.reason != CORDONED:
        consequences.append(f"earlier findings no longer count ({verdict(health)}); new ones do")
    if not consequences:
        consequences.append("no finding counted against it")
    if facts.refused and facts.refused.kind is RefusalKind.CORDONED:
        consequences.append("it takes no worker yet, because it is cordoned for every pod: run kubectl uncordon")
    elif facts.refused:
        consequences.append(f"it takes no worker yet: {facts.refused}")
    return consequences


def next_steps(decision: Decision, names: Sequence[str]) -> list[str]:
    """Say how to reverse the decision, or what to inspect."""
    shown = " ".join(names) if len(names) <= MAX_NAMES else "NODE..."
    if decision is Decision.CORDON:
        return [f"to end the cordon: kubectl muster release {shown} --reason TEXT"]
    return ["to see findings on nodes: kubectl muster nodes --unhealthy"]


def groups(it: NodeDecisions) -> Mapping[tuple[str, ...], list[str]]:
    """Group the names of nodes by what follows for them, in the order given."""
    names_by_consequences: dict[tuple[str, ...], list[str]] = {}
    for node in it.nodes:
        names_by_consequences.setdefault(tuple(node.consequences), []).append(node.name)
    return names_by_consequences


def _foreign(holder: str) -> bool:
    """Whether a holder is a foreign pod, as `Fleet.name_of` writes it."""
    return holder.startswith("pod ")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
