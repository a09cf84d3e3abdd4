"""Beside which ranks of an earlier attempt another one may start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from simulate.apiserver import Where
from simulate.checks import WAKES_SECONDS, Checks
from simulate.storage import Directory, Save
from simulate.surroundings import Surroundings
from simulate.training import Script, Trainer
from simulate.violation import ViolationError

RULE = "no rank starts while one of another attempt is alive"
UID = "uid-of-a"
TIME = "2026-01-01T00:00:00.000000Z"


class Stage:
    """A job of one rank on machines without kubelets; each pod is there until somebody removes it."""

    def __init__(self) -> None:
        self.around = Surroundings(1)
        self.around.directories[UID] = Directory("/ckpt/a", self.around.wall_clock, node_clocks=1)
        self.machines = {name: SimpleNamespace(name=name, runs=True, workers={}) for name in ("n0", "n1")}
        trainers: dict[str, Trainer] = {}
        self.checks = Checks(self.around, self.machines, trainers)  # type: ignore[arg-type]
        self.trainer = trainers[UID] = Trainer(self.around, self.checks, UID, Script())
        self.trainers = trainers

    def another_job(self) -> None:
        """From now on ranks of another job start."""
        self.trainer = self.trainers["uid-of-b"] = Trainer(self.around, self.checks, "uid-of-b", Script())
        self.around.directories["uid-of-b"] = Directory("/ckpt/b", self.around.wall_clock, node_clocks=1)

    def start(self, attempt: int, node: str, pod: str, step: int = 0, thawed_at: float = float("-inf")) -> Any:
        """The rank of an attempt starts in a pod of its own, from a checkpoint or from scratch."""
        body = {"metadata": {"name": pod, "namespace": "team"}, "spec": {"nodeName": node, "containers": []}}
        self.around.server.create(Where("pods", "team", pod, ""), body)
        found = self.around.server.peek("pods", "team", pod)
        assert found is not None
        machine = self.machines[node]
        worker: Any = SimpleNamespace(
            around=self.around,
            machine=machine,
            trainer=self.trainer,
            uid=found["metadata"]["uid"],
            is_frozen=False,
            thawed_at=thawed_at,
            reaches_storage=True,
            can_write=True,
            ranks=[],
            now=lambda: self.around.agenda.now,
            wake=lambda: None,
        )
        machine.workers[worker.uid] = worker
        rank = self.trainer.start(worker, attempt, 0, 1, step, pid=attempt)
        worker.ranks.append(rank)
        return rank

    def died(self, attempt: int, step: int) -> None:
        """An attempt starts from a checkpoint and fails before it makes a step."""
        self.start(attempt, "n0", f"pod-{attempt}", step).exit(1, "UnpicklingError")

    def save(self, step: int) -> None:
        directory = self.around.directories[UID]
        save = Save(step, attempt=1, ranks=1, ahead_seconds=0.0)
        directory.write_shard(save, 0, "n0", self.around.agenda.now)
        directory.write_metadata(save, "n0", self.around.agenda.now)

    def record(self, attempt: int, **spec: Any) -> None:
        """The record of the job is written."""
        where = Where("gangs", "team", "a", "")
        body = {"metadata": {"name": "a", "namespace": "team"}, "spec": {"jobUid": UID, "attempt": attempt, **spec}}
        self.around.server.create(
            where,
            {**body, "spec": {"members": [], "incidents": [], "reason": "RankFailed", "time": TIME, **body["spec"]}},
        )


@pytest.fixture
def stage() -> Iterator[Stage]:
    """One for each test; its loop is closed."""
    found = Stage()
    yield found
    found.around.loop.close()


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_program_that_comes_up_as_it_thaws_is_its_launchers_for_a_second(stage: Stage, seconds: float) -> None:
    now = stage.around.agenda.now
    stage.start(2, "n1", "a-1")
    with nullcontext() if seconds < WAKES_SECONDS else pytest.raises(ViolationError, match=RULE):
        stage.start(1, "n0", "a-0", thawed_at=now - seconds)


def hang_in_the_kernel(rank: Any) -> None:
    """SIGKILL does not end it before the kernel lets it go."""
    rank.hung = rank.unkillable = True


def test_no_rank_starts_beside_one_that_hangs_and_that_nobody_has_sent_sigkill(stage: Stage) -> None:
    hang_in_the_kernel(stage.start(1, "n0", "first"))
    with pytest.raises(ViolationError, match=f"{RULE}: attempt 2 .* beside rank 0 of attempt 1 on n0"):
        stage.start(2, "n1", "second")


def test_a_rank_starts_on_another_node_than_one_for_which_sigkill_waits(stage: Stage) -> None:
    """Its launcher's fence sends SIGKILL, and nothing but that is what the operator counts by."""
    first = stage.start(1, "n0", "first")
    hang_in_the_kernel(first)
    assert not first.kill()
    assert stage.start(2, "n1", "second").alive
    assert first.alive


def test_an_unkillable_rank_blocks_its_node_until_its_pod_is_removed(stage: Stage) -> None:
    """SIGKILL waits in the kernel, and the pod is removed by force."""
    first = stage.start(1, "n0", "first")
    hang_in_the_kernel(first)
    assert not first.kill()
    with pytest.raises(ViolationError, match=RULE):
        stage.start(2, "n0", "second")
    stage.around.server.remove("pods", "team", "first")
    assert stage.start(3, "n0", "third").alive


def test_an_unkillable_rank_keeps_other_jobs_from_its_node_until_its_pod_is_removed(stage: Stage) -> None:
    """Afterwards nothing says so, if its job's record was deleted as well."""
    first = stage.start(1, "n0", "first")
    hang_in_the_kernel(first)
    assert not first.kill()
    stage.another_job()
    with pytest.raises(ViolationError, match="one gang per node: n0 trains for"):
        stage.start(1, "n0", "second")
    stage.around.server.remove("pods", "team", "first")
    assert stage.start(2, "n0", "third").alive


def test_a_rank_for_which_sigkill_waits_writes_no_part_of_a_checkpoint(stage: Stage) -> None:
    rank = stage.start(1, "n0", "first")
    hang_in_the_kernel(rank)
    assert rank.can_write
    assert not rank.kill()
    assert not rank.can_write


def test_nothing_is_moved_aside_beside_a_rank(stage: Stage) -> None:
    rank = stage.start(1, "n0", "first")
    with pytest.raises(ViolationError, match=r"nothing is moved aside under ranks: beside ranks \[\(1, 0\)\]"):
        stage.trainer.moves_incomplete()
    rank.kill()
    stage.trainer.moves_incomplete()


BACK = {
    "checkpoint": {"step": 20, "path": "/ckpt/a/step-20"},
    "fallback": {"step": 10, "path": "/ckpt/a/step-10"},
    "excludedCheckpoints": "20:1",
}


def test_a_start_behind_the_newest_is_allowed_after_two_vain_ones_from_it(stage: Stage) -> None:
    """A start is vain if it makes no step."""
    for step in (10, 20):
        stage.save(step)
    for attempt in (1, 2):
        stage.died(attempt, 20)
    stage.record(3, suspectCheckpoint=BACK)
    stage.died(3, 10)
    stage.save(20)
    with pytest.raises(
        ViolationError, match=r"attempt 4 .* goes on from step 10, and there is a checkpoint of step 20"
    ):
        stage.died(4, 10)


def test_no_record_falls_back_after_one_failure(stage: Stage) -> None:
    for step in (10, 20):
        stage.save(step)
    stage.died(1, 20)
    with pytest.raises(ViolationError, match="left behind only after two starts"):
        stage.record(2, suspectCheckpoint=BACK)


@pytest.mark.parametrize("in_status", [1, 2])
def test_an_attempt_starts_twice_only_where_the_status_did_not_name_it(stage: Stage, in_status: int) -> None:
    """The record was deleted by hand."""
    job = {"metadata": {"name": "a", "namespace": "team"}, "spec": {"nodes": 1}, "status": {"attempt": in_status}}
    stage.around.server.create(Where("trainingjobs", "team", "a", ""), job)
    stage.around.server.change("trainingjobs", "team", "a", {"metadata": {"uid": UID}})
    stage.record(2, start={"time": TIME})
    stage.around.server.remove("gangs", "team", "a")
    with nullcontext() if in_status == 1 else pytest.raises(ViolationError, match="attempts grow"):
        stage.record(2, start={"time": TIME})


def lend(stage: Stage, attempt: int, *nodes: str, **spec: Any) -> None:
    """The record names nodes, of which some are lent to the job."""
    members = [{"index": index, "rank": index, "node": node} for index, node in enumerate(nodes)]
    spec = {"backfillUntil": None, "lentUntil": None, **spec}
    stage.around.server.change(
        "gangs", "team", "a", {"spec": {"attempt": attempt, "backfilled": True, "members": members, **spec}}
    )


@pytest.fixture
def borrower(stage: Stage) -> Stage:
    """With a job to which n0 was lent until it left it."""
    stage.checks.waits.begin(lambda _: 0, ())
    stage.record(1)
    lend(stage, 1, "n0", backfillUntil=TIME, lentUntil=TIME)
    lend(stage, 2)
    return stage


def test_a_job_returns_to_nodes_that_were_lent_to_it_without_an_estimate(borrower: Stage) -> None:
    lend(borrower, 3, "n0", "n1")


def test_it_does_not_so_to_other_nodes(borrower: Stage) -> None:
    with pytest.raises(ViolationError, match="who passes has said when it ends"):
        lend(borrower, 3, "n1")


def test_it_keeps_nodes_to_which_it_returns_for_no_time(borrower: Stage) -> None:
    with pytest.raises(ViolationError, match="who passes has said when it ends"):
        lend(borrower, 3, "n0", lentUntil=TIME)
