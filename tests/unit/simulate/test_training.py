"""The simulated program of a job, one attempt at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from simulate.loop import Agenda, SimulatedLoop
from simulate.streams import Streams
from simulate.training import Attempt, Script


def rank_of(agenda: Agenda) -> Any:
    worker = SimpleNamespace(machine=SimpleNamespace(runs=True), is_frozen=False, wake=lambda: None)
    return SimpleNamespace(rank=0, ready_at=agenda.now + 1.0, alive=True, hung=False, told=[], worker=worker)


def test_a_pod_that_is_made_anew_in_the_same_attempt_trains() -> None:
    """A Plain pod that ends before the attempt has its go is replaced without another attempt."""
    agenda = Agenda(SimulatedLoop())
    around = SimpleNamespace(agenda=agenda, stream=Streams(1).stream, network=SimpleNamespace(cuts=()))
    script = Script(step_seconds=1.0, total_steps=10**6, checkpoint_every=10**6)
    trainer: Any = SimpleNamespace(
        around=around,
        script=script,
        has_forgotten=False,
        is_broken=False,
        job="a",
        stepped=lambda _: None,
        is_last=lambda _: False,
    )
    attempt = Attempt(trainer, 1, 1, 0)
    first = rank_of(agenda)
    attempt.join(first)
    while not first.told:
        agenda.run_one_due()
    first.alive = False
    while agenda.next_at < float("inf"):
        agenda.run_one_due()
    second = rank_of(agenda)
    attempt.join(second)
    while not second.told:
        agenda.run_one_due()
    assert second.told == [first.told[-1] + 1]
