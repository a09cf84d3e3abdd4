"""What jobs see of a node by its record: each field, and the texts for jobs that wait."""

from dataclasses import replace

import pytest
from tests.unit.health.builders import NOW, after, evidence, sick, world

from muster.api.fleetpolicy import Enforcement
from muster.api.maintenance import NodeMaintenance
from muster.api.nodehealth import (
    Evacuate,
    ExclusionCause,
    NodeExclusion,
    NodeHealthStatus,
    NodeRemoval,
    NodeSuspicion,
    VerdictState,
)
from muster.health.assess import assess
from muster.health.fitness import DecidedFitness, Fitness, corrected, fitness_of, suspicion_of
from muster.world.fleet import Exclusion, Removal, Suspicion

WINDOW = NodeMaintenance.model_validate(
    {"window": "rack-7", "stage": "InProgress", "startTime": NOW, "endTime": after(3600)}
)


def test_every_field_comes_to_jobs() -> None:
    status = NodeHealthStatus(
        state=VerdictState.UNHEALTHY,
        exclusion=NodeExclusion(
            reason="Xid79",
            message="fell off the bus",
            last_choice=True,
            evacuate=Evacuate.NOW,
            gone_by_time=after(60),
            removal=NodeRemoval(announced_by="karpenter", gone_by_time=after(120), final=True),
        ),
        fault="Xid79: fell off the bus",
        suspicion=NodeSuspicion(followed_time=NOW, wants_test=True),
    )
    assert fitness_of(status) == Fitness(
        Exclusion(
            "Xid79",
            "fell off the bus",
            Evacuate.NOW,
            after(60),
            last_choice=True,
            removal=Removal("karpenter", after(120), final=True),
        ),
        "Xid79: fell off the bus",
        Suspicion(NOW, wants_check=True),
    )
    assert fitness_of(NodeHealthStatus(state=VerdictState.UNHEALTHY)) == Fitness()


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (ExclusionCause.HEALTH, ""),
        (ExclusionCause.REMOVAL, "being removed by karpenter"),
        (ExclusionCause.MAINTENANCE, "in maintenance (rack-7) until 2026-11-20 10:41 UTC"),
    ],
)
def test_jobs_that_wait_are_told_what_the_node_waits_for(cause: ExclusionCause, text: str) -> None:
    excluded = NodeExclusion(reason="Reason", cause=cause, removal=NodeRemoval(announced_by="karpenter"))
    found = fitness_of(NodeHealthStatus(exclusion=excluded, maintenance=WINDOW)).exclusion
    assert found is not None
    assert found.waiting_text == text


KNOWN = Exclusion("Xid79", "fell off the bus", Evacuate.NOW)
AFTERWARDS = replace(KNOWN, evacuate=Evacuate.AFTER_CHECKPOINT)
WANTED = NodeExclusion(reason="Xid79", message="fell off the bus", evacuate=Evacuate.NOW, gone_by_time=NOW)


@pytest.mark.parametrize(
    ("recorded", "decided", "seen"),
    [
        (None, None, None),
        (None, WANTED, Exclusion("Xid79", "fell off the bus")),
        (KNOWN, None, replace(KNOWN, evacuate=Evacuate.NO)),
        (KNOWN, WANTED, KNOWN),
        (KNOWN, WANTED.model_copy(update={"evacuate": Evacuate.AFTER_CHECKPOINT}), AFTERWARDS),
        (AFTERWARDS, WANTED, AFTERWARDS),
        (replace(KNOWN, last_choice=True), WANTED, KNOWN),
        (KNOWN, WANTED.model_copy(update={"last_choice": True}), KNOWN),
    ],
)
def test_new_workers_stay_away_if_either_says_so_and_present_ones_leave_if_both_do(
    recorded: Exclusion | None, decided: NodeExclusion | None, seen: Exclusion | None
) -> None:
    assert corrected(Fitness(recorded), DecidedFitness(decided)) == Fitness(seen)


def test_a_fault_counts_once_it_is_decided() -> None:
    assert corrected(Fitness(), DecidedFitness(None, "Xid79: fell off the bus")).fault == "Xid79: fell off the bus"
    assert corrected(Fitness(fault="on record"), DecidedFitness()).fault == "on record"


@pytest.mark.parametrize(("enforcement", "sees"), [(Enforcement.OBSERVE, False), (Enforcement.JOBS, True)])
def test_nothing_follows_from_a_suspicion_where_the_policy_observes(enforcement: Enforcement, sees: bool) -> None:
    verdict = assess(world(sick(evidence("Xid", 154))))
    assert verdict.conclusion.state is VerdictState.SUSPECT
    assert (suspicion_of(verdict, enforcement) is not None) is sees
