"""Whose ranks may be alive, and what proves that they are not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from tests.unit.lifecycle.builders import FENCE_FILE, SETTINGS, Scene, a_job, at, failed, idle, opened, running

from muster.api.gang import FENCE_SECONDS, GangSpec, Proof, UnfencedWorker
from muster.checkpoints.resume import Missing
from muster.fencing.proofs import WHOLE_GANG_SECONDS, is_pod_given_up, moment_text
from muster.lifecycle import moves, repair
from muster.lifecycle.directive import directive_for
from muster.lifecycle.plan import CommitGang, CreatePod
from muster.lifecycle.step import decide
from muster.protocol.messages import RECLAIMING, RUNNING
from muster.record import starts
from muster.recovery import failures
from muster.recovery.failure import Kind
from muster.world.views import ContainerView, LauncherView

FENCED_SECONDS = FENCE_SECONDS + 2.0


def trains(nodes: int = 3, fence_file: bool = False, silent: float = 0.5, **spec: Any) -> Scene:
    """A gang that has trained for a while; nothing has been heard of any of it for so long."""
    here = Scene(a_job(nodes=nodes, **spec), seconds=1000.0).fleet(2 * nodes).gang().pods()
    assert here.record is not None
    members = [member.model_copy(update={"reads_fence_file": fence_file}) for member in here.record.members]
    here.record = here.record.model_copy(update={"members": members, "fence_file_id": FENCE_FILE if fence_file else ""})
    for index in range(nodes):
        here.node(f"n{index}", ready=silent < 40).lease(f"n{index}", silent)
    return here.all(running(1, 7, heard_age_seconds=silent, step_age_seconds=silent))


def after_loss(here: Scene) -> GangSpec:
    world = here.world()
    assert world.gang is not None
    found = failures.find(world)
    assert found
    return repair.after_failures(world, world.gang.spec, found)


def waits(
    record: GangSpec,
    *views: Any,
    seconds: float = 2000.0,
    leader: float = 1000.0,
    heard: Mapping[str, LauncherView] | None = None,
    **changes: Any,
) -> Missing | GangSpec:
    """What the next start waits for, when every new member is idle and says this.

    Args:
        leader: for how long this leader has been one.
        heard: what others have said, by uid of the pod.
    """
    here = Scene(a_job(nodes=len(record.members), **changes), seconds=seconds).fleet(2 * len(record.members))
    here.record = record
    here.pods()
    for member, view in zip(record.members, views, strict=True):
        here.launchers[here.uid(member.index, member.incarnation)] = view
    here.launchers.update(heard or {})
    return opened(here.but(leader_age_seconds=leader).world())


class TestAWholeGangThatFellSilent:
    """It may train on: nobody of it misses anybody."""

    def test_with_a_shared_directory_its_successor_tells_it_by_the_fence_file(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        assert {unfenced_worker.proof for unfenced_worker in record.unfenced_workers} == {Proof.FENCE_FILE}
        early = waits(record, *[idle(2, fence_file_attempt=2, fence_file_age_seconds=79.0)] * 3)
        assert isinstance(early, Missing)
        assert "The fence file in the checkpoint directory stops it by " in early.message
        assert isinstance(waits(record, *[idle(2, fence_file_attempt=2, fence_file_age_seconds=80.0)] * 3), GangSpec)

    def test_between_two_answers_there_is_always_a_moment_and_that_is_no_complaint(self) -> None:
        here = trains(fence_file=True, silent=12.0)
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
        assert {unfenced_worker.proof for unfenced_worker in after_loss(here).unfenced_workers} == {Proof.FENCE_FILE}

    def test_one_who_fell_silent_with_it_complains_no_more(self) -> None:
        here = trains(fence_file=True, silent=12.0)
        here.launcher(0, running(1, 7, heard_age_seconds=9.0, step_age_seconds=20.0, silent_peers={1: 8.0, 2: 0.2}))
        here.launcher(1, running(1, 7, heard_age_seconds=12.0, step_age_seconds=20.0))
        here.launcher(2, running(1, 7, heard_age_seconds=12.0, step_age_seconds=20.0))
        here.job = a_job(recovery={"unreachableTimeoutSeconds": 8})
        for index in range(3):
            here.lease(f"n{index}", 60.0)
        assert {unfenced_worker.proof for unfenced_worker in after_loss(here).unfenced_workers} == {Proof.FENCE_FILE}

    def test_one_of_its_own_attempt_has_not_gone_on_without_it(self) -> None:
        here = trains(fence_file=True, silent=60.0)
        here.all(running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0, attempt_age_seconds=900.0))
        assert {unfenced_worker.proof for unfenced_worker in after_loss(here).unfenced_workers} == {Proof.FENCE_FILE}

    def test_one_fence_file_of_an_attempt_before_tells_nobody(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        assert isinstance(waits(record, *[idle(2, fence_file_attempt=1, fence_file_age_seconds=900.0)] * 3), Missing)

    def test_one_in_another_directory_counts_for_nothing_beside_the_right_one(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        wrong = idle(2, fence_file_attempt=2, fence_file_age_seconds=900.0, fence_file_id="of-another-volume")
        told = idle(2, fence_file_attempt=2, fence_file_age_seconds=79.0)
        assert isinstance(waits(record, told, wrong, idle(2)), Missing)
        assert isinstance(waits(record, replace(told, fence_file_age_seconds=80.0), wrong, idle(2)), GangSpec)

    def test_a_leader_that_has_heard_nobody_yet_gives_it_a_whole_fence_to_be_heard(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        views = [idle(2, fence_file_attempt=2, fence_file_age_seconds=500.0)] * 3
        assert isinstance(waits(record, *views, leader=FENCED_SECONDS - 1), Missing)
        assert isinstance(waits(record, *views, leader=FENCED_SECONDS), GangSpec)

    @pytest.mark.parametrize("state", [RUNNING, RECLAIMING])
    def test_one_that_was_just_heard_may_start_ranks_or_end_them(self, state: str) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        views = [idle(2, fence_file_attempt=2, fence_file_age_seconds=500.0)] * 3
        last = replace(idle(1), state=state)
        assert isinstance(waits(record, *views, heard={record.unfenced_workers[0].pod_uid: last}), Missing)
        long_ago = replace(last, heard_age_seconds=FENCED_SECONDS + 1)
        assert isinstance(waits(record, *views, heard={record.unfenced_workers[0].pod_uid: long_ago}), GangSpec)

    def test_a_worker_without_ranks_is_awaited_no_longer_than_a_silent_one(self) -> None:
        """It goes on reporting."""
        record = after_loss(trains(silent=300.0))
        record = record.model_copy(update={"unfenced_workers": record.unfenced_workers[:1]})
        talks = {record.unfenced_workers[0].pod_uid: idle(1)}
        views = [idle(2)] * 3
        assert isinstance(waits(record, *views, seconds=1299.0, heard=talks), Missing)
        assert isinstance(waits(record, *views, seconds=1300.0, heard=talks), GangSpec)

    def test_of_a_long_limit_a_new_leader_has_to_see_only_five_minutes(self) -> None:
        """The clock counts the rest."""
        limit = {"recovery": {"unfencedTimeoutSeconds": 3600}}
        record = after_loss(trains(silent=3600.0, **limit))
        views = [idle(2)] * 3
        assert isinstance(waits(record, *views, seconds=1000.0, leader=299.0, **limit), Missing)
        assert isinstance(waits(record, *views, seconds=1000.0, leader=300.0, **limit), GangSpec)

    def test_the_fence_file_waits_longer_for_a_longer_fence(self) -> None:
        here = trains(fence_file=True, silent=200.0)
        assert here.record is not None
        members = [member.model_copy(update={"fence_seconds": 120}) for member in here.record.members]
        here.record = here.record.model_copy(update={"members": members})
        record = after_loss(here)
        assert isinstance(waits(record, *[idle(2, fence_file_attempt=2, fence_file_age_seconds=184.0)] * 3), Missing)
        assert isinstance(waits(record, *[idle(2, fence_file_attempt=2, fence_file_age_seconds=185.0)] * 3), GangSpec)

    def test_a_directory_that_cannot_be_written_is_told_with_the_remedy(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        found = waits(record, *[idle(2, fence_file_error="read-only file system")] * 3)
        assert isinstance(found, Missing)
        assert "read-only file system" in found.message
        assert "kubectl muster lost n0" in found.message

    def test_the_one_who_claims_is_told_so(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        here = Scene(a_job(), seconds=2000.0)
        here.record = record
        here.pods()
        job, gang = here.job, here.world().gang
        claims = [
            directive_for(job, gang, here.world().names[index], here.uid(index, 2), lambda _: None).writes_fence_file
            for index in range(3)
        ]
        assert claims == [True, False, False]

    def test_without_one_it_gets_the_time_that_the_job_allows(self) -> None:
        here = trains(silent=299.0)
        assert failures.find(here.world()) == []
        record = after_loss(trains(silent=300.0))
        assert {unfenced_worker.proof for unfenced_worker in record.unfenced_workers} == {Proof.DEATH}
        assert isinstance(waits(record, *[idle(2)] * 3, seconds=1000.0), GangSpec), "its time is over already"

    def test_a_longer_limit_of_the_job_binds(self) -> None:
        limit = {"recovery": {"unfencedTimeoutSeconds": 3600}}
        assert failures.find(trains(silent=3599.0, **limit).world()) == []
        assert failures.find(trains(silent=3600.0, **limit).world())

    def test_also_a_gang_of_one(self) -> None:
        record = after_loss(trains(nodes=1, fence_file=True, silent=60.0))
        assert record.unfenced_workers[0].proof is Proof.FENCE_FILE

    def test_a_persons_word_proves_it(self) -> None:
        here = trains(silent=60.0)
        here.but(lost=frozenset({here.uid(0), here.uid(1), here.uid(2)}))
        record = after_loss(here)
        assert (record.reason, record.unfenced_workers) == (Kind.NODE_LOST, [])

    def test_a_reboot_proves_it(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        record = record.model_copy(
            update={
                "unfenced_workers": [
                    unfenced_worker.model_copy(update={"boot_id": "boot-0"})
                    for unfenced_worker in record.unfenced_workers
                ]
            }
        )
        assert isinstance(waits(record, *[idle(2)] * 3), GangSpec)


class TestAPartOfAGang:
    def test_but_not_from_before_its_last_step_or_its_last_word(self) -> None:
        for heard, stepped, counted in ((60.0, 9.0, 9.0), (21.0, 60.0, 16.0)):
            here = trains().node("n1", ready=False).lease("n1", 60.0)
            here.all(running(1, 7, step_age_seconds=stepped, silent_peers={1: 16.0}))
            here.launcher(1, running(1, 7, heard_age_seconds=heard, step_age_seconds=60.0))
            here.job = a_job(recovery={"unreachableTimeoutSeconds": 9})
            (unfenced_worker,) = after_loss(here).unfenced_workers
            assert (unfenced_worker.proof, unfenced_worker.fenced_time) == (
                Proof.FENCE,
                at(1000.0 + FENCED_SECONDS - counted),
            )

    @pytest.mark.parametrize(
        ("others", "left"),
        [
            pytest.param(running(1, silent_peers={0: 25.0}), 17, id="only the silent one tells steps"),
            pytest.param(running(1, 7, step_age_seconds=60.0, silent_peers={0: 25.0}), 0, id="the others do, too"),
            pytest.param(
                failed(1, age=12.0, silent_peers={0: 25.0}), 5, id="a rank without which there is no step ended"
            ),
        ],
    )
    def test_nor_from_before_steps_of_which_nobody_tells(self, others: Any, left: int) -> None:
        """They may come by a network on which nobody pings, and be printed by rank 0 alone."""
        here = trains().node("n0", ready=False).lease("n0", 60.0).all(others)
        here.launcher(0, running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        world = here.world()
        assert world.gang is not None
        (unreachable,) = [found for found in failures.find(world) if found.kind is Kind.NODE_UNREACHABLE]
        record = repair.after_failures(world, world.gang.spec, [unreachable])
        assert [
            (unfenced_worker.proof, unfenced_worker.remaining_seconds) for unfenced_worker in record.unfenced_workers
        ] == [(Proof.FENCE, left)]

    def test_steps_of_an_attempt_before_are_none_of_this_one_that_has_started(self) -> None:
        here = trains().node("n1", ready=False).lease("n1", 60.0)
        here.all(running(2, 7, step_age_seconds=60.0, silent_peers={1: 25.0}))
        here.launcher(1, running(2, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        here.launcher(2, running(1, 7, step_age_seconds=0.3))
        assert here.record is not None
        here.record = here.record.model_copy(update={"attempt": 2})
        (unfenced_worker,) = after_loss(here).unfenced_workers
        assert (unfenced_worker.proof, unfenced_worker.fenced_time) == (Proof.FENCE, at(1000.0 + FENCED_SECONDS - 25.0))

    def test_nor_from_before_the_steps_of_an_attempt_that_is_being_ended(self) -> None:
        """The next one has just been committed: who has not heard of it finishes steps, and complains of one for
        long."""
        here = trains().node("n1", ready=False).lease("n1", 60.0)
        here.all(running(1, 7, step_age_seconds=0.3, silent_peers={1: 60.0}))
        here.launcher(1, running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        assert here.record is not None
        here.record = here.record.model_copy(update={"attempt": 2, "start": None, "time": at(999.9)})
        (unfenced_worker,) = after_loss(here).unfenced_workers
        assert (unfenced_worker.proof, unfenced_worker.remaining_seconds) == (Proof.FENCE, 17)

    def test_a_member_that_is_proved_dead_is_missed_by_the_others(self) -> None:
        here = trains(silent=300.0)
        here.but(proved_dead=frozenset({here.uid(0)}))
        unfenced_workers = after_loss(here).unfenced_workers
        assert [(unfenced_worker.pod_uid, unfenced_worker.proof) for unfenced_worker in unfenced_workers] == [
            (here.uid(1), Proof.FENCE),
            (here.uid(2), Proof.FENCE),
        ]

    def test_an_earlier_unfenced_worker_is_fenced_once_its_gang_has_gone_on(self) -> None:
        """Another worker is lost at that time."""
        unfenced_worker = UnfencedWorker(
            pod="old", pod_uid="old", node="n5", fenced_time=at(900.0), attempt=1, proof=Proof.DEATH
        )
        here = trains().all(idle(2, attempt_age_seconds=5.0)).but(leader_age_seconds=100.0)
        assert here.record is not None
        here.record = here.record.model_copy(
            update={"attempt": 2, "start": None, "unfenced_workers": [unfenced_worker]}
        )
        here.pod(1, deleting=True)
        (still,) = (g for g in after_loss(here).unfenced_workers if g.pod_uid == "old")
        assert (still.proof, still.fenced_time) == (Proof.FENCE, at(1000.0 + FENCED_SECONDS - 5.0))

    def test_a_ping_or_two_that_were_lost_are_no_complaint(self) -> None:
        here = trains().node("n1", ready=False, ready_reason="KubeletStopped").lease("n1", 60.0)
        here.all(running(1, 7, step_age_seconds=60.0, silent_peers={1: 4.0}))
        here.launcher(1, running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        (unfenced_worker,) = after_loss(here).unfenced_workers
        assert unfenced_worker.proof is Proof.DEATH

    def test_a_launcher_that_was_idle_before_its_go_may_have_ranks_since(self) -> None:
        here = trains().node("n1", ready=False).lease("n1", 60.0)
        here.all(running(1, 7, step_age_seconds=60.0, silent_peers={1: 25.0}))
        here.launcher(1, idle(1, heard_age_seconds=60.0))
        assert [unfenced_worker.pod_uid for unfenced_worker in after_loss(here).unfenced_workers] == [here.uid(1)]

    def test_those_that_are_still_in_its_attempt_have_not_gone_on(self) -> None:
        here = trains().node("n1", ready=False).lease("n1", 60.0)
        here.all(running(1, 7, step_age_seconds=60.0, silent_peers={1: 25.0}, attempt_age_seconds=900.0))
        here.launcher(1, running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        record = after_loss(here)
        (unfenced_worker,) = record.unfenced_workers
        death = unfenced_worker.model_copy(update={"proof": Proof.DEATH, "remaining_seconds": -1})
        record = record.model_copy(update={"unfenced_workers": [death]})
        behind = [running(1, 7, attempt_age_seconds=900.0), idle(2), idle(2)]
        assert isinstance(waits(record, *behind), Missing)

    def test_a_fence_that_counts_already_is_not_counted_twice(self) -> None:
        unfenced_worker = UnfencedWorker(
            pod="old", pod_uid="old", node="n5", fenced_time=at(1010.0), attempt=1, proof=Proof.FENCE
        ).model_copy(update={"remaining_seconds": 17})
        here = trains().all(idle(2, attempt_age_seconds=9.0)).but(leader_age_seconds=100.0)
        assert here.record is not None
        here.record = here.record.model_copy(
            update={"attempt": 2, "start": None, "unfenced_workers": [unfenced_worker]}
        )
        here.pod(1, deleting=True)
        (still,) = (g for g in after_loss(here).unfenced_workers if g.pod_uid == "old")
        assert still == unfenced_worker

    def test_a_worker_that_a_neighbour_misses_counts_from_there(self) -> None:
        here = trains().node("n1", ready=False).lease("n1", 60.0)
        here.all(running(1, 7, step_age_seconds=60.0, silent_peers={1: 25.0}))
        here.launcher(1, running(1, 7, heard_age_seconds=60.0, step_age_seconds=60.0))
        (unfenced_worker,) = after_loss(here).unfenced_workers
        assert (unfenced_worker.proof, unfenced_worker.fenced_time) == (Proof.FENCE, at(1000.0 + FENCED_SECONDS - 25.0))

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
        unfenced_workers = {
            unfenced_worker.pod_uid: unfenced_worker for unfenced_worker in after_loss(here).unfenced_workers
        }
        assert [unfenced_workers[here.uid(index)].proof for index in range(2, 7)] == [Proof.FENCE] * 2 + [
            Proof.DEATH
        ] * 3

    def test_an_unfenced_worker_whose_gang_has_not_been_heard_to_go_on_is_waited_for(self) -> None:
        """Those who were kept may be with it: they count once they have told that they are idle."""
        unfenced_worker = UnfencedWorker(
            pod="old", pod_uid="old", node="n5", fenced_time=at(0.0), attempt=1, proof=Proof.DEATH
        )
        record = trains().record
        assert record is not None
        record = record.model_copy(update={"attempt": 2, "start": None, "unfenced_workers": [unfenced_worker]})
        never = {"recovery": {"unfencedTimeoutSeconds": 604800}}
        before = waits(record, *[idle(2, attempt_age_seconds=FENCED_SECONDS - 1)] * 3, **never)
        assert isinstance(before, Missing)
        assert "the other workers have gone on" in before.message
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
        (unfenced_worker,) = after_loss(here).unfenced_workers
        assert unfenced_worker.fence_seconds == 240


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

    def lost(self, node_ready: bool = False, seconds: float = 1000.0, **spec: Any) -> Scene:
        """A gang whose worker 1 somebody has force-deleted."""
        here = Scene(a_job(**self.JOB | spec), seconds=seconds).fleet(8).gang().pods()
        here.pod_views.pop(here.world().names[1])
        return here.node("n1", ready=node_ready).lease("n1", 0.0 if node_ready else 50.0)

    def successor(self, here: Scene) -> Scene:
        """The same once the next record is committed and the pods that were left are dead."""
        record = after_loss(here)
        assert record.start is None
        assert {unfenced_worker.pod_uid for unfenced_worker in record.unfenced_workers} == {
            here.uid(index) for index in range(3)
        }
        after = Scene(here.job, seconds=here.seconds, nodes=dict(here.nodes), fleet_changes=here.fleet_changes)
        settled = [incident.model_copy(update={"settled": True}) for incident in record.incidents]
        after.record = record.model_copy(update={"incidents": settled})
        return after.but(proved_dead=frozenset({here.uid(0), here.uid(2)}))

    def waits_for(self, here: Scene) -> str:
        """What people are told, and that no pod is made; "" where it goes on."""
        plan = decide(here.world(), SETTINGS)
        assert not any(isinstance(action, CreatePod) for action in plan.actions)
        (commit,) = [action for action in plan.actions if isinstance(action, CommitGang)] or [None]
        if commit is not None:
            assert (commit.spec.unfenced_workers, commit.spec.attempt) == ([], 2)
            here.record = commit.spec
            again = decide(here.world(), SETTINGS)
            assert sum(isinstance(action, CreatePod) for action in again.actions) == 3
            return ""
        assert plan.status_report is not None
        return plan.status_report.message

    def test_a_pod_that_was_force_deleted_on_a_node_that_is_cut_off_is_waited_for(self) -> None:
        here = self.successor(self.lost())
        told = self.waits_for(here)
        assert here.record is not None
        assert here.record.unfenced_workers[1].pod in told
        assert "kubectl muster lost n1" in told
        here.seconds += 86400
        assert self.waits_for(here), "nothing proves that its ranks have ended"
        here.record = here.record.model_copy(update={"time": at(here.seconds - 3600)})
        assert self.waits_for(here), "and it is not given back for that"

    def test_until_its_kubelet_has_been_heard_for_a_while(self) -> None:
        here = self.successor(self.lost(node_ready=True))
        uid = here.uid(1)
        assert "kubelet of its node is heard" not in self.waits_for(here)
        assert "kubelet of its node is heard" in self.waits_for(here.but(removed_seconds={uid: 1.0}))
        assert moment_text(here.world().now, 89.0) in self.waits_for(here)
        assert self.waits_for(here.but(removed_seconds={uid: 90.0})) == ""

    def test_or_for_as_long_as_the_pod_may_take_to_end(self) -> None:
        template = a_job().spec.template
        template = {"spec": template["spec"] | {"terminationGracePeriodSeconds": 600}}
        here = self.successor(self.lost(node_ready=True, template=template))
        assert self.waits_for(here.but(removed_seconds={here.uid(1): 659.0}))
        assert self.waits_for(here.but(removed_seconds={here.uid(1): 660.0})) == ""

    def test_or_has_booted_or_a_person_speaks(self) -> None:
        lost = self.lost()
        assert lost.record is not None
        members = [member.model_copy(update={"boot_id": "boot-1"}) for member in lost.record.members]
        lost.record = lost.record.model_copy(update={"members": members})
        booted = self.successor(lost)
        assert self.waits_for(booted)
        assert self.waits_for(booted.node("n1", boot_id="boot-2")) == ""
        spoken = self.successor(self.lost())
        assert self.waits_for(spoken.but(lost=frozenset({spoken.uid(1)}))) == ""

    def test_or_until_the_limit_of_the_job_by_the_heartbeats_that_this_leader_has_missed(self) -> None:
        here = self.successor(self.lost(recovery={"unfencedTimeoutSeconds": 120}))
        until = moment_text(here.world().now, 70.0)
        assert f"assumed dead at {until} (spec.recovery.unfencedTimeoutSeconds)" in self.waits_for(here)
        here.seconds += 3600
        assert self.waits_for(here), "a clock that steps is no silence"
        assert self.waits_for(here.lease("n1", 120.0)) == ""

    def test_its_pods_are_waited_for_from_the_moment_at_which_they_are_bound(self) -> None:
        here = Scene(a_job(**self.JOB)).fleet(8).gang(go=False).pods()
        here.ended(1, "Error")
        assert {unfenced_worker.pod_uid for unfenced_worker in after_loss(here).unfenced_workers} == {
            here.uid(0),
            here.uid(2),
        }

    def test_they_stand_in_the_record_before_they_are_bound(self) -> None:
        """Else one that is force-deleted before all of them run would be forgotten, and made again beside itself."""
        here = Scene(a_job(**self.JOB)).fleet(8).gang(go=False).pods()
        for index in range(3):
            here.pod(index, node="", scheduler="muster", phase="Pending", containers=())
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert [member.pod_uid for member in action.spec.members] == [here.uid(index) for index in range(3)]
        here.record = action.spec
        assert [type(action).__name__ for action in decide(here.world(), SETTINGS).actions] == ["BindPod"] * 3
        here.pod_views.pop(here.world().names[1])
        assert {unfenced_worker.pod_uid for unfenced_worker in after_loss(here).unfenced_workers} == {
            here.uid(index) for index in range(3)
        }

    def test_one_that_a_kubelet_has_refused_has_run_nothing(self) -> None:
        here = Scene(a_job(**self.JOB)).fleet(8).gang(go=False).pods()
        here.pod(1, phase="Failed", reason="OutOfnvidia.com/gpu", containers=(), scheduler="muster")
        assert {unfenced_worker.pod_uid for unfenced_worker in after_loss(here).unfenced_workers} == {
            here.uid(0),
            here.uid(2),
        }

    def test_one_that_is_declared_over_by_others_than_its_kubelet_may_live(self) -> None:
        """The pod collector does that when a node is deleted."""
        here = Scene(a_job(**self.JOB), seconds=1000.0).fleet(8).gang().pods()
        here.pod(1, phase="Failed")
        here.nodes.pop("n1")
        after = self.successor(here)
        waits = self.waits_for(after)
        assert "That node is gone from the cluster." in waits
        assert "kubectl muster lost n1" in waits
        assert self.waits_for(after.but(lost=frozenset({here.uid(1)}))) == ""
        here.job = a_job(**self.JOB | {"recovery": {"unfencedTimeoutSeconds": 60}})
        after = self.successor(here)
        assert self.waits_for(after)
        assert self.waits_for(after.but(unfenced_ages={here.uid(1): 60.0})) == ""


class TestThePodOfAnUnfencedWorker:
    """A launcher that stands still as a whole ends nothing; its kubelet does."""

    def fenced(self, **spec: Any) -> Scene:
        here = Scene(a_job(**spec), seconds=1000.0).fleet(6).gang(2, go=False).pods().all(idle(2))
        assert here.record is not None
        unfenced_worker = UnfencedWorker(
            pod="old", pod_uid="old", node="n5", fenced_time=at(999.0), remaining_seconds=0, attempt=1
        )
        here.record = here.record.model_copy(update={"unfenced_workers": [unfenced_worker]})
        here.pod(9, 1, deleting=True)
        view = here.pod_views.pop(f"{here.world().gang_name}-9-1")
        here.pod_views["old"] = replace(view, name="old", uid="old", index=0, node="n5")
        return here

    def start(self, here: Scene) -> GangSpec | Missing:
        return opened(here.world())

    def test_its_end_is_waited_for_while_its_kubelet_is_heard(self) -> None:
        found = self.start(self.fenced())
        assert isinstance(found, Missing)
        assert "the kubelet of its node is heard, and is ending it. Muster waits until " in found.message

    def test_but_not_for_ever(self) -> None:
        assert isinstance(self.start(self.fenced().but(unfenced_ages={"old": 300.0})), GangSpec)

    def test_nor_where_the_node_is_dead_too(self) -> None:
        assert isinstance(self.start(self.fenced().lease("n5", 15.0)), GangSpec)
        assert isinstance(self.start(self.fenced().node("n5", ready=False)), GangSpec)

    def test_nor_once_it_has_ended(self) -> None:
        here = self.fenced()
        dead = ContainerView("main", terminated=True, exit_code=137)
        here.pod_views["old"] = replace(here.pod_views["old"], containers=(dead,))
        assert isinstance(self.start(here), GangSpec)

    def test_a_pod_that_was_force_deleted_is_dead_once_its_kubelet_has_been_heard(self) -> None:
        record = after_loss(trains(silent=300.0, recovery={"unfencedTimeoutSeconds": 300}))
        limit = {"recovery": {"unfencedTimeoutSeconds": 604800}}
        assert isinstance(waits(record, *[idle(2)] * 3, **limit), Missing)
        here = Scene(a_job(**limit), seconds=2000.0).fleet(6)
        here.record = record
        here.pods().but(removed_seconds={unfenced_worker.pod_uid: 90.0 for unfenced_worker in record.unfenced_workers})
        for member in record.members:
            here.launchers[here.uid(member.index, member.incarnation)] = idle(2)
        assert isinstance(self.start(here), GangSpec)

    def test_nor_while_its_launcher_tells_that_it_has_ranks(self) -> None:
        """It is heard though its pod is gone from Kubernetes, and some ranks cannot be killed."""
        record = after_loss(trains(silent=300.0))
        here = Scene(a_job(), seconds=2000.0).fleet(6)
        here.record = record
        here.pods().but(removed_seconds={unfenced_worker.pod_uid: 90.0 for unfenced_worker in record.unfenced_workers})
        for member in record.members:
            here.launchers[here.uid(member.index, member.incarnation)] = idle(2)
        here.launchers[record.unfenced_workers[0].pod_uid] = running(1, 7, state=RECLAIMING)
        found = self.start(here)
        assert isinstance(found, Missing)
        assert "its launcher reports living ranks" in found.message
        here.launchers[record.unfenced_workers[0].pod_uid] = running(1, 7, state=RECLAIMING, heard_age_seconds=20.0)
        assert isinstance(self.start(here), GangSpec)


class TestClocks:
    """What is seen counts, by a clock that does not step; the wall clock proves nothing."""

    def test_one_that_steps_forward_ends_no_fence(self) -> None:
        record = after_loss(trains().pod(1, deleting=True).launcher(0, running(1, 7, step_age_seconds=0.5)))
        (unfenced_worker,) = record.unfenced_workers
        assert (unfenced_worker.proof, unfenced_worker.remaining_seconds) == (Proof.DEATH, -1)
        fenced = unfenced_worker.model_copy(
            update={"proof": Proof.FENCE, "remaining_seconds": 15, "fenced_time": at(1015.0)}
        )
        here = Scene(a_job(), seconds=90000.0).fleet(6)
        here.record = record.model_copy(update={"unfenced_workers": [fenced]})
        here.pods().but(unfenced_ages={unfenced_worker.pod_uid: 14.0})
        for member in record.members:
            here.launchers[here.uid(member.index, member.incarnation)] = idle(2)
        found = opened(here.world())
        assert isinstance(found, Missing)
        assert f"its launcher ends its ranks by {moment_text(here.world().now, 1.0)}" in found.message
        here.but(unfenced_ages={unfenced_worker.pod_uid: 15.0})
        assert not isinstance(opened(here.world()), Missing)

    def test_nor_does_it_make_the_ranks_older_than_they_are(self) -> None:
        here = trains().node("n1", ready=False).lease("n1", 60.0).but(start_age_seconds=3.0)
        here.all(running(1, silent_peers={1: 25.0}))
        here.launcher(1, running(1, heard_age_seconds=60.0))
        (unfenced_worker,) = after_loss(here).unfenced_workers
        assert (unfenced_worker.proof, unfenced_worker.remaining_seconds) == (Proof.FENCE, 14)

    def test_nor_does_it_end_the_time_that_a_silent_gang_gets(self) -> None:
        record = after_loss(trains(silent=300.0))
        here = Scene(a_job(), seconds=90000.0).fleet(6)
        here.record = record
        here.pods().but(leader_age_seconds=299.0)
        for member in record.members:
            here.launchers[here.uid(member.index, member.incarnation)] = idle(2)
        assert isinstance(opened(here.world()), Missing)
        here.but(leader_age_seconds=300.0)
        assert not isinstance(opened(here.world()), Missing)


class TestTheDirectoryOfTheFenceFile:
    """A fence file proves something only about those who read the same one."""

    def test_a_reader_of_another_fence_file_is_not_stopped_by_it(self) -> None:
        here = Scene(a_job()).fleet().gang(go=False).pods().all(idle(1, reads_fence_file=True))
        here.launcher(2, idle(1, reads_fence_file=True, fence_file_id="of its own container"))
        found = opened(here.world())
        assert not isinstance(found, Missing)
        assert [member.reads_fence_file for member in found.members] == [True, True, False]
        assert found.fence_file_id == FENCE_FILE

    def test_nor_one_who_has_found_none(self) -> None:
        here = Scene(a_job()).fleet().gang(go=False).pods()
        here.all(idle(1, reads_fence_file=True, fence_file_id=""))
        found = opened(here.world())
        assert not isinstance(found, Missing)
        assert not any(map(found.obeys_fence_file, found.members))

    def test_an_attempt_whose_number_has_been_passed_there_takes_one_beyond(self) -> None:
        """The Gang was deleted by hand, and the status from which the new one counts had not kept up."""
        here = Scene(a_job()).fleet().gang(2, go=False).pods().all(idle(2, reads_fence_file=True, fence_file_attempt=2))
        here.launcher(0, idle(2, reads_fence_file=True, fence_file_attempt=5))
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert (action.spec.attempt, action.spec.start) == (6, None)
        here.record = action.spec
        here.all(idle(6, reads_fence_file=True, fence_file_attempt=6))
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert action.spec.start is not None
        absurd = (
            Scene(a_job())
            .fleet()
            .gang(go=False)
            .pods()
            .all(idle(1, reads_fence_file=True, fence_file_attempt=2**53 - 1))
        )
        (action,) = decide(absurd.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert action.spec.attempt == 1, "a number that nobody has come to by counting"

    def test_those_who_come_to_read_it_while_they_train_are_put_on_record_together(self) -> None:
        here = trains().all(running(1, 7, reads_fence_file=True, fence_file_attempt=1))
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert all(map(action.spec.obeys_fence_file, action.spec.members))
        here.record = action.spec
        assert not any(isinstance(action, CommitGang) for action in decide(here.world(), SETTINGS).actions)
        for other in ({"fence_file_id": "", "fence_file_attempt": 1}, {"fence_file_attempt": 0}):
            here = trains().all(running(1, 7, reads_fence_file=True, fence_file_attempt=1))
            here.launcher(1, running(1, 7, reads_fence_file=True, **other))
            plan = decide(here.world(), SETTINGS)
            assert not any(isinstance(action, CommitGang) for action in plan.actions), "it does not obey it yet"

    def test_a_record_without_a_fence_file_says_of_none_that_it_is_the_right_one(self) -> None:
        here = trains(fence_file=True, silent=300.0)
        assert here.record is not None
        here.record = here.record.model_copy(update={"fence_file_id": ""})
        assert {unfenced_worker.proof for unfenced_worker in after_loss(here).unfenced_workers} == {Proof.DEATH}

    def test_a_successor_that_writes_elsewhere_waits_for_death(self) -> None:
        record = after_loss(trains(fence_file=True, silent=60.0))
        never = {"recovery": {"unfencedTimeoutSeconds": 604800}}
        wrong = idle(2, fence_file_attempt=2, fence_file_age_seconds=900.0, fence_file_id="of its own container")
        found = waits(record, *[wrong] * 3, **never)
        assert isinstance(found, Missing)
        assert "another checkpoint directory" in found.message
        assert "kubectl muster lost n0" in found.message
        assert isinstance(waits(record, *[wrong] * 3), GangSpec), "the limit of the job holds then"


class TestWhoWritesTheFenceFile:
    """The first who can; and where ranks of before read one, the first who sees the same."""

    def claims(self, here: Scene, *views: Any) -> list[bool]:
        gang = here.world().gang
        assert here.record is not None
        return [
            directive_for(
                here.job,
                gang,
                name,
                here.uid(member.index, member.incarnation),
                lambda _: None,
                heard_lately=lambda place: views[place],
            ).writes_fence_file
            for name, member in zip(here.world().names, here.record.members, strict=True)
        ]

    @pytest.mark.parametrize(
        ("views", "who"),
        [
            pytest.param([None, None, None], 0, id="nobody is heard"),
            pytest.param([idle(1), idle(1), idle(1)], 0, id="all can"),
            pytest.param([idle(1, fence_file_error="no such file"), idle(1), idle(1)], 1, id="the first one cannot"),
            pytest.param([None, None, idle(1)], 2, id="the first ones are not heard"),
            pytest.param([idle(1, fence_file_error="no")] * 3, 0, id="nobody can"),
        ],
    )
    def test_it_is_asked_of_the_first_who_can(self, views: list[Any], who: int) -> None:
        here = Scene(a_job()).fleet().gang(go=False).pods()
        assert self.claims(here, *views) == [place == who for place in range(3)]

    def test_of_the_first_who_sees_the_one_that_an_unfenced_worker_reads(self) -> None:
        here = Scene(a_job(), seconds=2000.0)
        here.record = after_loss(trains(fence_file=True, silent=60.0))
        here.pods()
        assert self.claims(here, idle(2, fence_file_id="other"), idle(2), idle(2)) == [False, True, False]

    def test_of_nobody_where_there_is_no_directory(self) -> None:
        here = Scene(a_job(checkpoint={})).fleet().gang(go=False).pods()
        assert self.claims(here, *[idle(1)] * 3) == [False] * 3


def test_a_held_start_is_not_held_anew_when_the_last_worker_is_fenced() -> None:
    """The leader that wrote the hold had a clock three hours ahead: this one waits for the longest hold, once."""
    held = (
        Scene(a_job(nodes=2, launch={"mode": "Plain"}), seconds=5000.0)
        .fleet(2)
        .gang(attempt=8, go=False, hold_until=at(16000))
    )
    world = held.but(attempt_age_seconds=3600.0).world()
    assert world.gang is not None
    assert starts.after_all_fenced(world, world.gang.spec).hold_until is None
    early = held.but(attempt_age_seconds=3000.0).world()
    assert starts.after_all_fenced(early, world.gang.spec).hold_until == at(5600)


class TestWhatWasListedBeforeTheyWereProvedDead:
    """It does not count: they may have saved since then."""

    def outwaited(self, *views: LauncherView, **changes: Any) -> Scene:
        """A gang that is ready but for this; its unfenced workers have just been proved dead."""
        record = after_loss(trains(fence_file=True, silent=60.0))
        here = Scene(a_job(nodes=3, **changes), seconds=2000.0).fleet(6)
        settled = [incident.model_copy(update={"settled": True}) for incident in record.incidents]
        here.record = record.model_copy(update={"incidents": settled})
        here.pods()
        for member, view in zip(record.members, views or [idle(2, listing_round=0)] * 3, strict=True):
            here.launchers[here.uid(member.index, member.incarnation)] = view
        return here.but(proved_dead=frozenset(g.pod_uid for g in record.unfenced_workers), listing_age_seconds=1.0)

    def after(self, here: Scene, *views: LauncherView) -> Scene:
        """The same once that is on record."""
        (action,) = decide(here.world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        here.record = action.spec
        for member, view in zip(here.record.members, views, strict=False):
            here.launchers[here.uid(member.index, member.incarnation)] = view
        return here

    def test_that_comes_on_record_before_the_go_and_nothing_else_changes(self) -> None:
        here = self.outwaited()
        before, after = here.record, self.after(here).record
        assert before is not None
        assert after == before.model_copy(update={"unfenced_workers": [], "listing_round": 1})

    @pytest.mark.parametrize("alive", range(3))
    def test_it_does_not_while_any_one_of_them_may_live(self, alive: int) -> None:
        here = self.outwaited()
        assert here.record is not None
        dead = frozenset(
            unfenced_worker.pod_uid
            for place, unfenced_worker in enumerate(here.record.unfenced_workers)
            if place != alive
        )
        assert not decide(here.but(proved_dead=dead).world(), SETTINGS).actions

    def test_launchers_are_told_to_list_anew(self) -> None:
        here = self.after(self.outwaited())
        name, uid = here.world().names[0], here.uid(0, here.record.members[0].incarnation if here.record else 0)
        assert directive_for(here.job, here.world().gang, name, uid, lambda _: None).listing_round == 1

    @pytest.mark.parametrize(
        ("told", "starts"),
        [
            pytest.param([1, 1, 1], True, id="all have"),
            pytest.param([1, 0, 1], False, id="one has not"),
            pytest.param([0, 0, 0], False, id="nobody has"),
        ],
    )
    def test_the_go_waits_until_all_have(self, told: list[int], starts: bool) -> None:
        here = self.after(self.outwaited(), *[idle(2, listing_round=listing) for listing in told])
        plan = decide(here.world(), SETTINGS)
        assert bool(plan.commits) is starts
        if not starts:
            assert plan.status is not None
            assert any("to list the checkpoints" in condition.message for condition in plan.status.conditions)

    def test_who_lists_anew_has_all_the_time_for_it_however_old_the_attempt_is(self) -> None:
        here = self.after(
            self.outwaited(), idle(2, listing_round=1), idle(2, listing_round=0), idle(2, listing_round=0)
        )
        here.seconds = 5000.0
        new, old = here.but(listing_age_seconds=1.0).world(), here.but(listing_age_seconds=700.0).world()
        assert failures.find(new) == []
        assert decide(new, SETTINGS).status.state == "Recovering"  # type: ignore[union-attr]
        assert {failure.kind for failure in failures.find(old)} == {Kind.LISTING_STUCK}

    def test_the_next_attempt_counts_anew(self) -> None:
        here = self.after(self.outwaited())
        world = here.world()
        assert world.gang is not None
        assert moves.with_members_moved(world, world.gang.spec, [0], "Because").listing_round == 0

    def test_without_a_directory_nobody_lists(self) -> None:
        (action,) = decide(self.outwaited(checkpoint={}).world(), SETTINGS).actions
        assert isinstance(action, CommitGang)
        assert action.spec.start is not None


@pytest.mark.parametrize(("ready", "gone"), [(False, True), (True, False)])
def test_a_pod_is_given_up_only_where_its_node_is_seen_to_be_away(ready: bool, gone: bool) -> None:
    """The control plane has to see that."""
    here = Scene(a_job()).fleet(6).gang().pods().node("n1", ready=ready).lease("n1", WHOLE_GANG_SECONDS)
    world = here.world()
    assert is_pod_given_up(world, world.pods[world.names[1]]) is gone
