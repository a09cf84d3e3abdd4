"""The records themselves: what a start needs, whom it has to outwait, and what one failure leaves for the next."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.builders import (
    SETTINGS,
    Scene,
    a_job,
    an_incident,
    an_unfenced_worker,
    at,
    failed,
    idle,
    in_queue,
    opened,
    running,
)

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import FaultClass, GangSpec, Level, Member, Proof, Resume
from muster.checkpoints.resume import NOT_VISIBLE_SECONDS, Missing
from muster.lifecycle import moves, repair
from muster.lifecycle.plan import CommitGang, CreatePod, DeletePod
from muster.lifecycle.step import decide
from muster.protocol.messages import IDLE, RECLAIMING, RankReport, StackReport
from muster.record import attempts, evacuation, exclusions, incidents
from muster.recovery import budgets, failures
from muster.world.job import JobWorld, PodAges, TemplateVerdict, VerdictKind
from muster.world.queuedecision import NotPlaced, Placed


def waiting(**changes: object) -> Scene:
    """Attempt 2, everybody idle, nothing missing for its start."""
    return Scene(a_job()).fleet().gang(2, go=False, **changes).pods().all(idle(2))


def start(scene: Scene) -> GangSpec | Missing:
    return opened(scene.world())


def recover(world: JobWorld) -> GangSpec:
    assert world.gang is not None
    return repair.after_failures(world, world.gang.spec, failures.find(world))


def test_with_nothing_missing_the_go_is_given() -> None:
    record = start(waiting())
    assert isinstance(record, GangSpec)
    assert record.start is not None
    assert record.start.master_address == "10.0.0.1"
    assert [member.pod_uid for member in record.members] == ["pod-0-1", "pod-1-1", "pod-2-1"]


def test_with_the_go_it_is_kept_where_the_ranks_of_a_hang_stood() -> None:
    """Launchers forget it when they start the next ranks, be the blame final by then or not."""
    hang = an_incident(1, reason="StepTimeout", message="no step", settled=True)
    scene = waiting(incidents=[hang])
    stacks = (StackReport(0, "/code/data.py:12 in load"),)
    record = start(scene.launcher(0, replace(idle(2), stacks=stacks, stacks_attempt=1)))
    assert isinstance(record, GangSpec)
    (incident,) = record.incidents
    assert [group.stack for group in incident.stacks] == ["/code/data.py:12 in load"]
    assert (incident.message, incident.resumed_step) == ("no step; rank 0 (worker 0) stood at data.py:12 in load", 0)


@pytest.mark.parametrize(
    ("arrange", "words"),
    [
        pytest.param(lambda s: s.pod(1, phase="Pending"), "pod of worker 1", id="a pod that does not run"),
        pytest.param(
            lambda s: s.launcher(1, idle(1)), "worker 1 on n1 to end its old ranks", id="idle, but before the Wait"
        ),
        pytest.param(lambda s: s.launcher(1, running(1)), "worker 1 on n1 to end its old ranks", id="old ranks alive"),
        pytest.param(
            lambda s: s.launcher(1, idle(2, heard_age_seconds=16)),
            "launcher of worker 1 on n1 to report",
            id="an old report",
        ),
        pytest.param(
            lambda s: s.launcher(1, idle(2, scanned=False)), "worker 1 on n1 to list", id="checkpoints not listed since"
        ),
        pytest.param(
            lambda s: s.launcher(1, idle(2, scanned=False, checkpoint_error="stalled")), "stalled", id="a listing error"
        ),
    ],
)
def test_what_a_start_waits_for(arrange: object, words: str) -> None:
    missing = start(arrange(waiting()))  # type: ignore[operator]
    assert isinstance(missing, Missing)
    assert words in missing.message


def test_it_resumes_from_what_is_complete_for_everybody() -> None:
    here = waiting().all(idle(2, checkpoints=((9, "/checkpoints/9"), (6, "/checkpoints/6"))))
    record = start(here.launcher(2, idle(2, checkpoints=((6, "/checkpoints/6"), (3, "/checkpoints/3")))))
    assert isinstance(record, Missing), "one of them does not see the newest"
    record = start(here.launcher(2, idle(2, checkpoints=((9, "/checkpoints/9"), (3, "/checkpoints/3")))))
    assert isinstance(record, GangSpec)
    assert record.start is not None
    assert record.start.resume is not None
    assert (record.start.resume.step, record.start.resume.path) == (9, "/checkpoints/9")


class TestUnfencedWorkers:
    """A pod that was dropped while its ranks may have been alive."""

    @pytest.mark.parametrize(
        ("fenced_in", "view", "dead", "starts"),
        [
            pytest.param(5, None, False, False, id="its fence may not have ended it yet"),
            pytest.param(-1, None, False, True, id="its fence has ended it"),
            pytest.param(5, None, True, True, id="proved dead"),
            pytest.param(-1, running(1, heard_age_seconds=1.0), False, False, id="but it is heard with a rank alive"),
            pytest.param(-1, running(1, heard_age_seconds=30.0), False, True, id="heard long before"),
            pytest.param(-1, idle(1), False, True, id="heard without a rank"),
        ],
    )
    def test_the_next_start_outwaits_it(self, fenced_in: float, view: object, dead: bool, starts: bool) -> None:
        here = waiting(unfenced_workers=[an_unfenced_worker("old", fenced_in)])
        if view is not None:
            here.launchers["old"] = view  # type: ignore[assignment]
        if dead:
            here.but(proved_dead=frozenset({"old"}))
        assert isinstance(start(here), GangSpec) == starts

    @pytest.mark.parametrize(("state", "fenced"), [(RECLAIMING, False), (IDLE, True)])
    def test_of_a_hang_stay_on_record_until_the_other_ranks_print_their_stacks(self, state: str, fenced: bool) -> None:
        """What the last of them print is compared with what it has printed."""
        hang = an_incident(1, reason="StepTimeout", settled=True)
        here = waiting(unfenced_workers=[an_unfenced_worker("old", -1)], incidents=[hang])
        assert here.record is not None
        members = [member.model_copy(update={"pod_uid": here.uid(member.index)}) for member in here.record.members]
        here.record = here.record.model_copy(update={"members": members})
        here.launcher(2, running(1, 7, state=state)).but(attempt_age_seconds=1.0)
        committed = [action.spec for action in decide(here.world(), SETTINGS).actions if isinstance(action, CommitGang)]
        assert [spec.unfenced_workers for spec in committed] == ([[]] if fenced else [])

    def test_a_fence_is_as_long_as_its_record_says(self) -> None:
        unfenced_worker = an_unfenced_worker("old", -1).model_copy(update={"fence_seconds": 60})
        here = waiting(unfenced_workers=[unfenced_worker])
        here.launchers["old"] = running(1, heard_age_seconds=30.0)
        assert isinstance(start(here), Missing)

    def lost(self) -> Scene:
        here = Scene(a_job()).fleet().gang().pods().all(running(1, 7, step_age_seconds=60, fence_seconds=45.0))
        return here.node("n1", ready=False)

    def test_the_fence_counts_from_its_last_word(self) -> None:
        here = self.lost().launcher(1, running(1, 7, heard_age_seconds=30, step_age_seconds=60, fence_seconds=45.0))
        here.launcher(0, running(1, 7, step_age_seconds=40, fence_seconds=45.0, silent_peers={1: 35.0}))
        (unfenced_worker,) = recover(here.world()).unfenced_workers
        assert (unfenced_worker.pod_uid, unfenced_worker.fenced_time) == ("pod-1-1", at(100 + 45 + 2 - 30))
        assert unfenced_worker.fence_seconds == 45

    def test_but_not_before_its_neighbours_lost_it(self) -> None:
        here = self.lost().launcher(1, running(1, 7, heard_age_seconds=45, step_age_seconds=60, fence_seconds=45.0))
        here.launcher(0, running(1, 7, step_age_seconds=40, fence_seconds=45.0, silent_peers={1: 12.0}))
        (unfenced_worker,) = recover(here.world()).unfenced_workers
        assert unfenced_worker.fenced_time == at(100 + 45 + 2 - 12)

    def test_one_that_this_leader_never_heard_has_the_fence_of_the_others(self) -> None:
        here = self.lost().launcher(0, running(1, 7, step_age_seconds=40, fence_seconds=45.0, silent_peers={1: 12.0}))
        del here.launchers["pod-1-1"]
        (unfenced_worker,) = recover(here.world()).unfenced_workers
        assert unfenced_worker.fenced_time == at(100 + 45 + 2)

    def test_missed_by_nobody_are_fenced_from_the_moment_another_goes_on(self) -> None:
        here = self.lost().launcher(1, running(1, 7, heard_age_seconds=45, step_age_seconds=60))
        here.all(running(1, 7, step_age_seconds=60)).launcher(
            1, running(1, 7, heard_age_seconds=45, step_age_seconds=60)
        )
        record = recover(here.world())
        (unfenced_worker,) = record.unfenced_workers
        assert unfenced_worker.proof is Proof.DEATH

        def after(seconds: float) -> GangSpec | Missing:
            later = Scene(a_job(), seconds=200.0).fleet()
            later.record = record
            later.pods().all(idle(2, attempt_age_seconds=seconds))
            later.launchers |= {"pod-1-1": running(1, 7, heard_age_seconds=145.0), "pod-1-2": idle(2)}
            return start(later)

        waits = after(16.9)
        assert isinstance(waits, Missing)
        assert "the other workers have gone on" in waits.message
        assert isinstance(after(17.1), GangSpec)

    def test_a_pod_that_never_got_a_go_leaves_none(self) -> None:
        here = Scene(a_job()).fleet().gang(go=False).pods().all(idle(1)).pod(1, deleting=True)
        assert recover(here.world()).unfenced_workers == []


def test_what_was_won_counts_before_what_was_lost() -> None:
    here = Scene(a_job()).fleet().gang(resume=5).pods().all(running(1, 12, checkpoints=((10, "/c/10"),)))
    record = recover(here.launcher(1, failed(1)).world())
    assert record.checkpoint is not None
    assert record.checkpoint.step == 10
    assert record.incidents[-1].step == 12


def test_a_failure_before_the_first_step_stands_at_the_resume_step() -> None:
    here = Scene(a_job()).fleet().gang(resume=5).pods().all(running(1))
    assert recover(here.launcher(1, failed(1)).world()).incidents[-1].step == 5


@pytest.mark.parametrize(
    ("reported", "attempt", "step"), [(105, 1, 105), (None, 1, 101), (90, 1, 101), (105, 7, 101), (2**60, 1, 2**53 - 1)]
)
def test_a_step_that_was_reported_after_the_failure_counts_for_the_restart_budgets(
    reported: int | None, attempt: int, step: int
) -> None:
    """A checkpoint has to lie beyond it before the failure is refunded. Attempt 2 failed before its start."""
    ended = [an_incident(1, step=101, trained=True), an_incident(2, step=None)]
    scene = Scene(a_job()).fleet().gang(3, go=False, incidents=ended).pods()
    record = start(scene.all(idle(3, previous_attempt=attempt, previous_step=reported)))
    assert isinstance(record, GangSpec)
    assert [incident.step for incident in record.incidents] == [step, None]
    for saved, restarts in ((step, 1), (step + 1, 0)):
        later = record.model_copy(update={"checkpoint": Resume.model_construct(step=saved, path="/checkpoints/x")})
        assert budgets.application_restarts(later, record.time) == restarts


def test_a_later_step_counts_as_made_again_before_a_new_branch_lowers_it() -> None:
    job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": "40"})
    scene = Scene(job).fleet().gang(2, go=False, incidents=[an_incident(1, step=101)]).pods()
    saved = ((40, "/checkpoints/40"), (100, "/checkpoints/100"))
    record = start(scene.all(idle(2, previous_attempt=1, previous_step=105, checkpoints=saved, stamps="")))
    assert isinstance(record, GangSpec), record
    (incident,) = record.incidents
    assert (incident.step, incident.resumed_step, incident.lost_steps) == (40, 40, 65)


def test_a_back_off_outlives_the_wait_for_a_node() -> None:
    until = at(260.0)
    here = Scene(a_job()).fleet(4).gang(2, go=False, hold_until=until).pods()
    assert here.record is not None
    lost = here.record.members[1].model_copy(update={"node": "", "incarnation": 2})
    here.record = here.record.model_copy(update={"members": [here.record.members[0], lost, here.record.members[2]]})
    world = in_queue(here.world())[0]
    record = moves.with_queued_nodes(world, here.record)
    assert isinstance(record, GangSpec)
    assert (record.members[1].node, record.hold_until) == ("n1", until)
    assert attempts.without_nodes(world, here.record).hold_until is None, "who suspends a job begins anew"


def test_nodes_that_were_promised_before_the_gang_took_one_of_them_are_not_taken() -> None:
    here = Scene(a_job()).fleet(4).gang(2, go=False).pods()
    assert here.record is not None
    lost = here.record.members[1].model_copy(update={"node": "", "incarnation": 2})
    here.record = here.record.model_copy(update={"members": [here.record.members[0], lost, here.record.members[2]]})
    kept = here.record.members[0].node
    world = in_queue(here.world())[0]
    assert world.queue_decision is not None
    of_old = replace(world, queue_decision=replace(world.queue_decision, answer=Placed((kept,))))
    assert moves.with_queued_nodes(of_old, here.record) is None


def test_several_losses_are_one_attempt() -> None:
    here = Scene(a_job()).fleet(5).gang().pods().all(running(1, 7))
    record = recover(here.pod(0, deleting=True).ended(1, "OOMKilled", 137).launcher(2, failed(1)).world())
    assert (record.attempt, record.level) == (2, Level.POD)
    assert [member.incarnation for member in record.members] == [2, 2, 1]


def test_a_lost_pod_on_a_cordoned_node_moves() -> None:
    here = Scene(a_job()).fleet().gang().pods().all(running(1, 7)).pod(1, deleting=True).node("n1", unschedulable=True)
    record = recover(here.world())
    moved = Member(index=1, rank=1, node="n3", incarnation=2, is_replacement=True)
    assert (record.level, record.members[1]) == (Level.REPLACE, moved)
    assert [member.is_replacement for member in record.members] == [False, True, False]
    assert [(count.level, count.domains) for count in record.topology] == [("block", 1), ("rack", 2)]


def test_a_new_pod_waits_for_the_old_one_on_its_node_whoever_that_was() -> None:
    here = waiting()
    assert here.record is not None
    nodes = ("n1", "n0")
    moved = [Member(index=i, rank=i, node=node, incarnation=2) for i, node in enumerate(nodes)]
    here.record = here.record.model_copy(update={"members": [*moved, here.record.members[2]]})
    here.pod(1, deleting=True)
    actions = decide(here.world(), SETTINGS).actions
    created = [a.manifest["metadata"]["name"] for a in actions if isinstance(a, CreatePod)]
    assert created == []
    assert [a.uid for a in actions if isinstance(a, DeletePod)] == ["pod-0-1"]


def test_a_job_whose_record_is_gone_waits_until_its_old_pods_have_ended() -> None:
    here = Scene(a_job()).fleet().gang().pods()
    here.record = None
    plan = decide(here.world(), SETTINGS)
    assert {type(action) for action in plan.actions} == {DeletePod}
    here.but(proved_dead=frozenset(pod.uid for pod in here.pod_views.values()))
    assert any(isinstance(action, CommitGang) for action in decide(here.world(), SETTINGS).actions)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("QuotaExceeded", "Pending"),
        ("StepPatternNotTested", "Pending"),
        ("Invalid", "Stalled"),
        ("PodSecurity", "Stalled"),
        ("InvalidStepPattern", "Stalled"),
    ],
)
def test_a_refused_template(reason: str, state: str) -> None:
    verdict = TemplateVerdict(VerdictKind.REFUSED, 1, reason, "no")
    plan = decide(Scene(a_job()).fleet().but(template_verdict=verdict).world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == (state, reason)
    assert plan.wake_in_seconds is not None


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}, "CommandMissing", "command"),
        ({"placement": {"required": "pod"}}, "UnknownTopologyLevel", "block, rack"),
        ({"launch": {"workerContainer": "other"}}, "UnknownContainer", "'other'"),
    ],
)
def test_what_can_never_start_says_what_to_do(spec: dict[str, object], reason: str, words: str) -> None:
    plan = decide(Scene(a_job(**spec)).fleet().world(), SETTINGS)
    assert plan.status is not None
    stalled = next(c for c in plan.status.conditions if c.type == "Stalled")
    assert (plan.status.state, stalled.reason) == ("Stalled", reason)
    assert words in stalled.message
    assert plan.announcements[0].warning


def test_a_job_with_more_nodes_than_the_policy_lets_one_have_is_stalled() -> None:
    scene = Scene(a_job(nodes=3)).fleet()
    scene.fleet_changes["policy"] = FleetPolicySpec.model_validate({"jobLimits": {"nodes": 2}})
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == ("Stalled", "TooManyNodes")


def test_the_blame_goes_to_the_culprit_that_is_heard_of_late() -> None:
    victim = an_incident(1, reason="RankFailed", rank=0, index=0, exit_code=1)
    scene = Scene(a_job()).fleet().gang(2, incidents=[victim]).pods().all(running(2, step=3))
    culprit = RankReport(rank=1, local_rank=0, alive=False, exit_code=7, tail="told to fail", exited_age_seconds=9.0)
    scene.launcher(1, running(2, step=3, rank=1, previous_attempt=1, previous_ranks=(culprit,)))
    world = scene.world()
    assert world.gang is not None
    record = incidents.with_incidents_settled(world, world.gang)
    assert record is not None
    (incident,) = record.incidents
    assert (incident.rank, incident.index, incident.exit_code, incident.settled) == (1, 1, 7, True)
    assert "told to fail" in incident.message


@pytest.mark.parametrize("fenced", [True, False])
def test_who_fell_because_others_had_been_fenced_is_not_the_program(fenced: bool) -> None:
    """The new leader has heard of the one who lost its fellows before it heard of them."""
    victim = an_incident(1, FaultClass.UNKNOWN, reason="RankFailed", rank=2, index=2, exit_code=1)
    scene = Scene(a_job()).fleet().gang(2, incidents=[victim]).pods().all(running(2, step=3))
    gone = (fallen(0, "", ended_by_launcher=True),)
    scene.launcher(0, running(2, step=3, previous_attempt=1, previous_ranks=gone, previous_fenced=fenced))
    lost = (fallen(2, "RuntimeError: Connection closed by peer"),)
    scene.launcher(2, running(2, step=3, rank=2, previous_attempt=1, previous_ranks=lost))
    world = scene.world()
    assert world.gang is not None
    (incident,) = incidents.with_incidents_settled(world, world.gang).incidents
    assert incident.fault_class is (FaultClass.INFRASTRUCTURE if fenced else FaultClass.UNKNOWN)
    assert ("worker 0 had lost contact with Muster" in incident.message) is fenced


def test_who_fell_by_himself_pays_although_others_were_fenced_afterwards() -> None:
    seen = an_incident(1, reason="RankFailed", rank=2, index=2, exit_code=1)
    scene = Scene(a_job()).fleet().gang(2, incidents=[seen]).pods().all(running(2, step=3))
    gone = (fallen(0, "", ended_by_launcher=True),)
    scene.launcher(0, running(2, step=3, previous_attempt=1, previous_ranks=gone, previous_fenced=True))
    scene.launcher(2, running(2, step=3, rank=2, previous_attempt=1, previous_ranks=(fallen(2),)))
    world = scene.world()
    assert world.gang is not None
    assert incidents.with_incidents_settled(world, world.gang).incidents[0].fault_class is FaultClass.APPLICATION


def fallen(rank: int, tail: str = "ValueError", **changes: object) -> RankReport:
    return RankReport(rank=rank, local_rank=0, alive=False, exit_code=1, tail=tail, exited_age_seconds=9.0, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "others"),
    [
        pytest.param({}, 0, id="nobody is heard"),
        pytest.param({0: [fallen(0)]}, 0, id="one alone"),
        pytest.param({0: [fallen(0), fallen(1)]}, 0, id="one worker's ranks"),
        pytest.param({0: [fallen(0)], 1: [fallen(1, "Connection reset by peer")]}, 0, id="and who missed it"),
        pytest.param({0: [fallen(0)], 1: [fallen(1, ended_by_launcher=True)]}, 0, id="and who was ended"),
        pytest.param({0: [fallen(0)], 1: [fallen(1)], 2: [fallen(2)]}, 2, id="everybody"),
    ],
)
def test_it_is_written_down_how_many_failed_by_themselves(ranks: dict[int, list[RankReport]], others: int) -> None:
    seen = an_incident(1, reason="RankFailed", rank=0, index=0, exit_code=1, other_workers=0)
    scene = Scene(a_job()).fleet().gang(2, incidents=[seen]).pods().all(running(2, step=3))
    for index, several in ranks.items():
        scene.launcher(index, running(2, step=3, rank=index, previous_attempt=1, previous_ranks=tuple(several)))
    world = scene.world()
    assert world.gang is not None
    (incident,) = incidents.with_incidents_settled(world, world.gang).incidents
    assert (incident.node, incident.other_workers, incident.settled) == ("n0", others, True)


def test_of_a_lone_worker_its_ranks_are_counted() -> None:
    seen = an_incident(1, reason="RankFailed", rank=0, index=0, exit_code=1, other_workers=0)
    scene = Scene(a_job(nodes=1)).fleet().gang(2, incidents=[seen]).pods().all(running(2, step=3))
    several = tuple(fallen(rank) for rank in range(8))
    world = scene.launcher(0, running(2, step=3, previous_attempt=1, previous_ranks=several)).world()
    assert world.gang is not None
    (incident,) = incidents.with_incidents_settled(world, world.gang).incidents
    assert incident.other_workers == 7


@pytest.mark.parametrize(("fall", "others"), [([1], 0), ([0, 1, 2], 2)], ids=["one", "all"])
def test_who_fails_with_the_culprit_is_counted_at_once(fall: list[int], others: int) -> None:
    scene = Scene(a_job()).fleet().gang(1).pods().all(running(1, step=3))
    for index in fall:
        scene.launcher(index, failed(1))
    plan = decide(scene.world(), SETTINGS)
    (commit,) = [action for action in plan.actions if isinstance(action, CommitGang)]
    assert commit.spec.incidents[-1].other_workers == others


OWN = 'Traceback (most recent call last):\n  File "/train.py", line 8, in main\n    f()\nValueError: bad data\n'


def test_it_is_recorded_whether_an_own_exception_ended_the_culprit() -> None:
    record = recover(
        Scene(a_job()).fleet().gang().pods().all(running(1, 7)).launcher(1, failed(1, 1, tail=OWN)).world()
    )
    assert (record.incidents[-1].own_exception, record.incidents[-1].fault_class) == (True, FaultClass.APPLICATION)
    later = Scene(a_job()).fleet().all(running(2, 3))
    later.record = record
    later.pods()
    first = fallen(0, "RuntimeError: CUDA error: unspecified launch failure")
    later.launcher(0, running(2, 3, previous_attempt=1, previous_ranks=(first,)))
    second = fallen(1, OWN)
    world = later.launcher(1, running(2, 3, 1, previous_attempt=1, previous_ranks=(second,))).world()
    assert world.gang is not None
    (incident,) = incidents.with_incidents_settled(replace(world, now=at(200.0)), world.gang).incidents
    assert (incident.index, incident.own_exception) == (0, False)


@pytest.mark.parametrize(("nodes", "others"), [(1, None), (3, 0)])
def test_a_hang_of_the_only_worker_is_compared_with_no_other(nodes: int, others: int | None) -> None:
    here = Scene(a_job(nodes=nodes, progress={"stepTimeoutSeconds": 30})).fleet().gang().pods()
    here.all(running(1, 7, step_age_seconds=31.0)).launcher(0, running(1, 6, step_age_seconds=33.0))
    (incident,) = recover(here.world()).incidents
    assert (incident.reason, incident.node, incident.other_workers) == ("StepTimeout", "n0", others)


def test_a_node_with_a_failure_is_taken_again_when_there_is_no_other() -> None:
    def placed(seconds_since_failure: float) -> object:
        until = at(100.0 - seconds_since_failure) + exclusions.EXCLUSION
        scene = Scene(a_job()).fleet(3).gang(2, go=False, excluded_nodes={"n2": until})
        scene.record = scene.record.model_copy(
            update={"members": [*scene.record.members[:2], Member(index=2, rank=2, incarnation=2)]}
        )
        world = scene.pods().world()
        assert world.gang is not None
        return moves.with_queued_nodes(world, world.gang.spec)

    assert isinstance(placed(5.0), NotPlaced)
    record = placed(90.0)
    assert isinstance(record, GangSpec)
    assert record.members[2].node == "n2"
    assert isinstance(placed(-3600.0), GangSpec), "by a clock that was ahead: it may have been at any time"


def test_a_known_checkpoint_that_a_worker_does_not_see_holds_the_start_for_a_while() -> None:
    seen = ((40, "/checkpoints/40"),)
    known = Resume(step=40, path="/checkpoints/40")

    def after(seconds: float) -> GangSpec | Missing:
        scene = waiting(checkpoint=known, counted_until=at(100.0 - seconds)).all(idle(2, checkpoints=seen))
        for index in range(3):  # a listing older than this attempt is none
            scene.launcher(index, idle(2, checkpoints=seen if index != 1 else (), scanned_age_seconds=seconds))
        return start(scene)

    held = after(5.0)
    assert isinstance(held, Missing)
    assert held.reason == "CheckpointNotVisible"
    assert "worker 1 on n1 does not see checkpoint 40 (/checkpoints/40)" in held.message
    assert not held.stalled
    stalled = after(NOT_VISIBLE_SECONDS + 1)
    assert isinstance(stalled, Missing)
    assert stalled.stalled
    assert "set spec.checkpoint.resumeFrom to Scratch" in stalled.message


def test_more_nodes_to_leave_push_the_deadline_of_an_evacuation_back_for_nobody() -> None:
    scene = Scene(a_job()).fleet(6).gang().pods().all(running(1, step=7))
    world = scene.world()
    assert world.gang is not None
    first = evacuation.with_evacuation_begun(
        world, world.gang.spec, "NodeCordoned", ["n1"], world.now + timedelta(minutes=10)
    )
    scene.record, scene.seconds = first, 200.0
    later = scene.world()
    second = evacuation.with_evacuation_begun(
        later, first, "NodeCordoned", ["n1", "n2"], later.now + timedelta(minutes=10)
    )
    assert first.evacuation is not None
    assert second.evacuation is not None
    assert second.evacuation.nodes == ["n1", "n2"]
    assert (second.evacuation.deadline, second.evacuation.after_step) == (
        first.evacuation.deadline,
        first.evacuation.after_step,
    )


def test_a_decision_asks_for_each_worker_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 2,000 workers a decision that walks all of them for each of them would take longer than the lease lasts."""
    asked = 0
    look_up = JobWorld._pod

    def counted(world: JobWorld, name: str, member: Member) -> object:
        nonlocal asked
        asked += 1
        return look_up(world, name, member)

    monkeypatch.setattr(JobWorld, "_pod", counted)

    def lookups(workers: int, seconds_silent: float) -> int:
        nonlocal asked
        view = running(1, step=7, heard_age_seconds=seconds_silent, step_age_seconds=seconds_silent)
        scene = Scene(a_job(nodes=workers)).fleet(workers).gang().pods().all(view)
        world = scene.world()
        asked = 0
        decide(world, SETTINGS)
        return asked

    for silent in (0.5, 30.0, 400.0):
        assert lookups(400, silent) <= 2.5 * lookups(200, silent)


def test_an_evacuation_waits_for_a_checkpoint_of_what_was_done_until_it_began() -> None:
    world = (
        Scene(a_job()).fleet().gang(checkpoint=Resume(step=40, path="/c/40")).pods().all(running(1, step=57)).world()
    )
    assert world.gang is not None
    begun = evacuation.with_evacuation_begun(world, world.gang.spec, "Suspended", [], world.now + timedelta(minutes=10))
    assert begun.evacuation is not None
    assert begun.evacuation.after_step == 56


class TestTogether:
    """Workers that fail one after the other by one cause."""

    def lost(
        self, *indexes: int, seconds: float = 100.0, seen_seconds: float = 100.0, go: bool = True, **changes: Any
    ) -> GangSpec:
        """The record after workers 0 and then these were lost, at this second; the first went at second 100.

        Their pods have been seen for so long.
        """
        scene = Scene(a_job(nodes=4)).fleet(6).gang(go=go).pods().all(running(1, step=7) if go else idle(1))
        first = recover(scene.ended(0).world())
        members = [
            member.model_copy(update=changes) if index in indexes else member
            for index, member in enumerate(first.members)
        ]
        scene.record, scene.seconds = first.model_copy(update={"members": members}), seconds
        for index in indexes:
            scene.ended(index).aged(index, PodAges(there=seen_seconds))
        return recover(scene.world())

    def test_those_that_follow_at_once_are_part_of_the_same_incident(self) -> None:
        spec = self.lost(1, 2, seconds=103.0)
        (incident,) = spec.incidents
        assert (spec.attempt, incident.attempt, incident.resumed_step) == (3, 1, None)
        assert "; then container main of pod" in incident.message
        assert "(and 1 more worker)" in incident.message
        assert spec.hold_until is None

    def test_one_that_follows_later_has_its_own(self) -> None:
        assert len(self.lost(1, seconds=111.0).incidents) == 2

    @pytest.mark.parametrize("go", [True, False])
    def test_a_new_pod_that_fails_has_its_own(self, *, go: bool) -> None:
        assert len(self.lost(1, seconds=103.0, seen_seconds=2.0, go=go, pod_uid="").incidents) == 2

    def test_before_the_first_start_those_that_follow_at_once_are_part_of_it_too(self) -> None:
        (incident,) = self.lost(1, seconds=103.0, go=False).incidents
        assert "; then container main of pod" in incident.message

    def test_a_pod_replaced_before_the_incident_is_no_new_one(self) -> None:
        """It was replaced since the last start."""
        assert len(self.lost(1, seconds=103.0, pod_uid="").incidents) == 1

    def test_when_the_clock_has_gone_back_a_pod_that_no_start_names_counts_as_new(self) -> None:
        assert len(self.lost(1, seconds=90.0, go=False).incidents) == 2


def test_nodes_lost_together_are_all_named_in_the_incident_and_the_event() -> None:
    scene = Scene(a_job(nodes=4)).fleet(8).gang().pods().all(running(1, step=7))
    del scene.nodes["n1"], scene.nodes["n3"]
    world = scene.world()
    named = "(and 1 more worker, on n3)"
    assert named in recover(world).incidents[-1].message
    (event,) = decide(world, SETTINGS).announcements
    assert named in event.note


def test_ranks_that_fail_together_name_no_nodes() -> None:
    scene = Scene(a_job(nodes=4)).fleet(8).gang().pods().all(running(1, step=7))
    scene.launcher(1, failed(1, rank=1)).launcher(3, failed(1, rank=3))
    assert "(and 1 more worker)" in recover(scene.world()).incidents[-1].message


def test_a_culprit_that_is_heard_later_gives_the_incident_its_reason_too() -> None:
    seen = an_incident(1, reason="RankFailed", rank=0, index=0, exit_code=1, other_workers=0)
    killed = RankReport(
        rank=1, local_rank=0, alive=False, signal=9, tail="", exited_age_seconds=12.0, memory_limit_bytes=2**30
    )
    scene = Scene(a_job()).fleet().gang(2, incidents=[seen]).pods().all(running(2, step=3))
    lost_peer = (fallen(0, "Connection reset by peer"),)
    scene.launcher(0, running(2, step=3, previous_attempt=1, previous_ranks=lost_peer))
    world = scene.launcher(1, running(2, step=3, rank=1, previous_attempt=1, previous_ranks=(killed,))).world()
    assert world.gang is not None
    (incident,) = incidents.with_incidents_settled(world, world.gang).incidents
    assert (incident.reason, incident.index, incident.fault_class) == ("OutOfMemory", 1, FaultClass.APPLICATION)


def test_a_gang_that_gets_nodes_again_keeps_all_its_unfenced_workers() -> None:
    """One whose fence is over may be heard again before the start: what counts as fenced now may not then."""
    fenced, alive = an_unfenced_worker("fenced", 900), an_unfenced_worker("alive", 900)
    scene = Scene(a_job()).fleet(6).gang(2, go=False, members=[], unfenced_workers=[fenced, alive])
    world = scene.but(lost={"fenced"}).world()
    placed = attempts.with_new_placement(world, Placed(("n0", "n1", "n2")), "Started")
    assert [worker.pod_uid for worker in placed.unfenced_workers] == ["fenced", "alive"]
