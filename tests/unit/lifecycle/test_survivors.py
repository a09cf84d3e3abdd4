"""Whose ranks may be alive, and what proves that they are not."""

from typing import Any, ClassVar

import pytest
from tests.unit.lifecycle.builders import MARKER, SETTINGS, Scene, a_job, at, idle, running

from muster.api.gang import FENCE_SECONDS, GangSpec, Ghost, Proof
from muster.lifecycle import record as records
from muster.lifecycle.directive import directive_for
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.resume import Missing
from muster.lifecycle.step import decide
from muster.recovery import failures
from muster.recovery.failures import Kind

FENCED_SECONDS = FENCE_SECONDS + 2.0


def trains(nodes: int = 3, marker: bool = False, silent: float = 0.5, **spec: Any) -> Scene:
    """A gang that has trained for a while; nothing has been heard of any of it for so long."""
    here = Scene(a_job(nodes=nodes, **spec), seconds=1000.0).fleet(2 * nodes).gang().pods()
    assert here.record is not None
    members = [member.model_copy(update={"reads_marker": marker}) for member in here.record.members]
    here.record = here.record.model_copy(update={"members": members, "marker": MARKER if marker else ""})
    for index in range(nodes):
        here.node(f"n{index}", ready=silent < 40).lease(f"n{index}", silent)
    return here.all(running(1, 7, heard_age_seconds=silent, step_age_seconds=silent))


def after_loss(here: Scene) -> GangSpec:
    world = here.world()
    assert world.gang is not None
    found = failures.find(world)
    assert found
    return records.recovered(world, world.gang.spec, found)


def waits(record: GangSpec, *views: Any, seconds: float = 2000.0, **changes: Any) -> Missing | GangSpec:
    """What the next start waits for, when every new member is idle and says this."""
    here = Scene(a_job(nodes=len(record.members), **changes), seconds=seconds).fleet(2 * len(record.members))
    here.record = record
    here.pods()
    for member, view in zip(record.members, views, strict=True):
        here.launchers[here.uid(member.index, member.incarnation)] = view
    world = here.world()
    assert world.gang is not None
    found = records.started(world, world.gang.spec)
    return found if isinstance(found, Missing) else found[0]


class TestAWholeGangThatFellSilent:
    """It may train on: nobody of it misses anybody."""

    def test_with_a_shared_directory_its_successor_tells_it_by_the_marker(self) -> None:
        record = after_loss(trains(marker=True, silent=60.0))
        assert {ghost.proof for ghost in record.ghosts} == {Proof.MARKER}
        early = waits(record, *[idle(2, marker_attempt=2, marker_age_seconds=79.0)] * 3)
        assert isinstance(early, Missing)
        assert "the checkpoint directory tells it to; 1 s left" in early.message
        assert isinstance(waits(record, *[idle(2, marker_attempt=2, marker_age_seconds=80.0)] * 3), GangSpec)

    def test_between_two_answers_there_is_always_a_moment_and_that_is_no_complaint(self) -> None:
        here = trains(marker=True, silent=12.0)
        for index in range(3):
            told = {other: 0.4 for other in range(3) if other != index}
            view = running(1, 7, heard_age_seconds=12.0, step_age_seconds=12.0, silent_peers=told)
            here.launcher(index, view).lease(f"n{index}", 60.0)
        here.job = here.job.model_copy(
            update={
                "spec": here.job.spec.model_copy(
                    update={"recovery": here.job.spec.recovery.model_copy(update={"unreachable_timeout_seconds": 10})}
                )
            }
        )
        assert {ghost.proof for ghost in after_loss(here).ghosts} == {Proof.MARKER}

    def test_one_who_fell_silent_with_it_complains_no_more(self) -> None:
        here = trains(marker=True, silent=12.0)
        here.launcher(0, running(1, 7, heard_age_seconds=9.0, step_age_seconds=20.0, silent_peers={1: 8.0, 2: 0.2}))
        here.launcher(1, running(1, 7, heard_age_seconds=12.0, step_age_seconds=20.0))
        here.launcher(2, running(1, 7, heard_age_seconds=12.0, step_age_seconds=20.0))
        here.job = a_job(recovery={"unreachableTimeoutSeconds": 8})
        for index in range(3):
            here.lease(f"n{index}", 60.0)
        assert {ghost.proof for ghost in after_loss(here).ghosts} == {Proof.MARKER}

    def test_one_marker_of_an_attempt_before_tells_nobody(self) -> None:
        record = after_loss(trains(marker=True, silent=60.0))
        assert isinstance(waits(record, *[idle(2, marker_attempt=1, marker_age_seconds=900.0)] * 3), Missing)

    def test_the_marker_waits_longer_for_a_longer_fence(self) -> None:
        here = trains(marker=True, silent=200.0)
        assert here.record is not None
        members = [member.model_copy(update={"fence_seconds": 120}) for member in here.record.members]
        here.record = here.record.model_copy(update={"members": members})
        record = after_loss(here)
        assert isinstance(waits(record, *[idle(2, marker_attempt=2, marker_age_seconds=184.0)] * 3), Missing)
        assert isinstance(waits(record, *[idle(2, marker_attempt=2, marker_age_seconds=185.0)] * 3), GangSpec)

    def test_a_directory_that_cannot_be_written_is_told_with_the_remedy(self) -> None:
        record = after_loss(trains(marker=True, silent=60.0))
        found = waits(record, *[idle(2, marker_error="read-only file system")] * 3)
        assert isinstance(found, Missing)
        assert "read-only file system" in found.message
        assert "kubectl muster lost n0" in found.message

    def test_the_one_who_claims_is_told_so(self) -> None:
        record = after_loss(trains(marker=True, silent=60.0))
        here = Scene(a_job(), seconds=2000.0)
        here.record = record
        here.pods()
        job, gang = here.job, here.world().gang
        claims = [
            directive_for(job, gang, here.world().names[index], here.uid(index, 2), lambda _: None).claim
            for index in range(3)
        ]
        assert claims == [True, False, False]

    def test_without_one_it_gets_the_time_that_the_job_allows(self) -> None:
        here = trains(silent=299.0)
        assert failures.find(here.world()) == []
        record = after_loss(trains(silent=300.0))
        assert {ghost.proof for ghost in record.ghosts} == {Proof.DEATH}
        assert isinstance(waits(record, *[idle(2)] * 3, seconds=1000.0), GangSpec), "its time is over already"

    def test_a_longer_limit_of_the_job_binds(self) -> None:
        limit = {"recovery": {"unprovedDeathTimeoutSeconds": 3600}}
        assert failures.find(trains(silent=3599.0, **limit).world()) == []
        assert failures.find(trains(silent=3600.0, **limit).world())

    def test_also_a_gang_of_one(self) -> None:
        record = after_loss(trains(nodes=1, marker=True, silent=60.0))
        assert record.ghosts[0].proof is Proof.MARKER

    def test_a_persons_word_proves_it(self) -> None:
        here = trains(silent=60.0)
        here.but(lost=frozenset({here.uid(0), here.uid(1), here.uid(2)}))
        record = after_loss(here)
        assert (record.reason, record.ghosts) == (Kind.NODE_LOST, [])

    def test_a_reboot_proves_it(self) -> None:
        record = after_loss(trains(marker=True, silent=60.0))
        record = record.model_copy(
            update={"ghosts": [ghost.model_copy(update={"boot": "boot-0"}) for ghost in record.ghosts]}
        )
        assert isinstance(waits(record, *[idle(2)] * 3), GangSpec)


class TestAPartOfAGang:
    def test_but_not_from_before_its_last_step_or_its_last_word(self) -> None:
        for heard, stepped, counted in ((60.0, 9.0, 9.0), (21.0, 60.0, 16.0)):
            here = trains().node("n1", ready=False).lease("n1", 60.0)
            here.all(running(1, 7, step_age_seconds=stepped, silent_peers={1: 16.0}))
            here.launcher(1, running(1, 7, heard_age_seconds=heard, step_age_seconds=60.0))
            here.job = a_job(recovery={"unreachableTimeoutSeconds": 9})
            (ghost,) = after_loss(here).ghosts
            assert (ghost.proof, ghost.fenced_time) == (Proof.FENCE, at(1000.0 + FENCED_SECONDS - counted))

    def test_a_member_that_is_proved_dead_is_missed_by_the_others(self) -> None:
        here = trains(silent=300.0)
        here.but(proved_dead=frozenset({here.uid(0)}))
        ghosts = after_loss(here).ghosts
        assert [(ghost.pod_uid, ghost.proof) for ghost in ghosts] == [
            (here.uid(1), Proof.FENCE),
            (here.uid(2), Proof.FENCE),
        ]

    def test_a_ghost_of_before_is_fenced_once_one_of_its_gang_has_gone_on_whoever_is_lost_then(self) -> None:
        ghost = Ghost(
            pod="old", pod_uid="old", node="n5", fenced_time=at(900.0), attempt=1, proof=Proof.DEATH, passes_news=True
        )
        here = trains().all(idle(2, attempt_age_seconds=5.0)).but(leader_age_seconds=100.0)
        assert here.record is not None
        here.record = here.record.model_copy(update={"attempt": 2, "go": None, "ghosts": [ghost]})
        here.pod(1, deleting=True)
        (still,) = (g for g in after_loss(here).ghosts if g.pod_uid == "old")
        assert (still.proof, still.fenced_time) == (Proof.FENCE, at(1000.0 + FENCED_SECONDS - 5.0))

    def test_whoever_is_missed_by_a_neighbour_counts_from_there(self) -> None:
        here = trains().node("n1", ready=False).lease("n1", 60.0)
        here.all(running(1, 7, step_age_seconds=60.0, silent_peers={1: 25.0}))
        here.launcher(1, running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        (ghost,) = after_loss(here).ghosts
        assert (ghost.proof, ghost.fenced_time) == (Proof.FENCE, at(1000.0 + FENCED_SECONDS - 25.0))

    def test_five_that_fell_silent_together_get_no_credit_where_nobody_complains(self) -> None:
        """Inside of a rack that was cut off the inner ones hear only each other."""
        here = trains(nodes=9)
        for index in range(9):
            away = 2 <= index <= 6
            silent_peers = {2: 25.0, 3: 25.0} if index == 1 else {}
            view = running(
                1, 7, heard_age_seconds=60.0 if away else 0.5, step_age_seconds=60.0, silent_peers=silent_peers
            )
            here.launcher(index, view)
            if away:
                here.node(f"n{index}", ready=False).lease(f"n{index}", 60.0)
        ghosts = {ghost.pod_uid: ghost for ghost in after_loss(here).ghosts}
        assert [ghosts[here.uid(index)].proof for index in range(2, 7)] == [Proof.FENCE] * 2 + [Proof.DEATH] * 3

    def test_a_ghost_whose_gang_has_not_been_heard_to_go_on_is_waited_for(self) -> None:
        """Those who were kept may be with it: they count once they have told that they are idle."""
        ghost = Ghost(
            pod="old", pod_uid="old", node="n5", fenced_time=at(0.0), attempt=1, proof=Proof.DEATH, passes_news=True
        )
        record = trains().record
        assert record is not None
        record = record.model_copy(update={"attempt": 2, "go": None, "ghosts": [ghost]})
        never = {"recovery": {"unprovedDeathTimeoutSeconds": 604800}}
        before = waits(record, *[idle(2, attempt_age_seconds=FENCED_SECONDS - 1)] * 3, **never)
        assert isinstance(before, Missing)
        assert "since the others have gone on" in before.message
        assert isinstance(waits(record, *[idle(2, attempt_age_seconds=FENCED_SECONDS)] * 3, **never), GangSpec)


class TestTheLengthOfAFence:
    def test_it_stands_in_the_record_before_it_is_served(self) -> None:
        here = trains().all(running(1, 7, step_seconds=60.0))
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert {member.fence_seconds for member in action.spec.members} == {240}
        world = here.world()
        served = directive_for(here.job, world.gang, world.names[0], here.uid(0), lambda _: None)
        assert served.fence_seconds == 15.0
        here.record = action.spec
        world = here.world()
        served = directive_for(here.job, world.gang, world.names[0], here.uid(0), lambda _: None)
        assert served.fence_seconds == 240.0

    def test_it_does_not_fall_within_an_attempt(self) -> None:
        here = trains().all(running(1, 7, step_seconds=1.0))
        assert here.record is not None
        members = [member.model_copy(update={"fence_seconds": 240}) for member in here.record.members]
        here.record = here.record.model_copy(update={"members": members})
        assert not any(isinstance(action, CommitGang) for action in decide(here.world(), SETTINGS).actions)

    def test_a_leader_that_has_heard_nobody_knows_it(self) -> None:
        here = trains().all(running(1, 7, step_seconds=60.0))
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        here.record = action.spec
        here.launchers.clear()
        here.pod(1, phase="Failed", reason="gone", deleting=True)
        here.pod_views.pop(here.world().names[1])
        (ghost,) = after_loss(here).ghosts
        assert ghost.fence_seconds == 240


class TestPlain:
    """No launcher, no fence: only proof of death, or the job's own limit."""

    JOB: ClassVar[dict[str, Any]] = {"launch": {"mode": "Plain"}, "checkpoint": {}}

    @pytest.mark.parametrize("nodes", [1, 3])
    def test_a_minute_without_heartbeats_is_nothing(self, nodes: int) -> None:
        here = Scene(a_job(nodes=nodes, **self.JOB)).fleet().gang().pods()
        for index in range(nodes):
            here.node(f"n{index}", ready=False, ready_reason="NodeStatusUnknown").lease(f"n{index}", 86400.0)
        assert failures.find(here.world()) == []

    def test_a_moved_worker_finds_the_first_one_under_its_own_name(self) -> None:
        here = Scene(a_job(**self.JOB)).fleet(4).gang(2, go=False).pods()
        assert here.record is not None
        first, second, third = here.record.members
        here.pod_views.pop(here.world().names[1])
        moved = second.model_copy(update={"node": "n3", "incarnation": 4})
        here.record = here.record.model_copy(update={"members": [first, moved, third]})
        plan = decide(here.world(), SETTINGS)
        (pod,) = [action.manifest for action in plan.actions if type(action).__name__ == "CreatePod"]
        env = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert env["MASTER_ADDR"].split(".")[0].endswith("-0-1")
