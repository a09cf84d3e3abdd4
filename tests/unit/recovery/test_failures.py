"""What is seen to be wrong with an attempt, and what is not enough to say so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, an_incident, at, failed, idle, running

from muster.api.gang import FaultClass, Level
from muster.fencing.proofs import WHOLE_GANG_SECONDS
from muster.protocol.messages import EXITED, RECLAIMING, TERMINATING, RankReport
from muster.recovery.blame import culprit, fault_class
from muster.recovery.exits import LAST_LINES_CHARS, has_crashed, late_rank_failures, message_of
from muster.recovery.failure import Failure, Kind
from muster.recovery.failures import find
from muster.world.job import PodAges
from muster.world.views import LauncherView

SILENT = 25.0


def scene(**spec: object) -> Scene:
    return Scene(a_job(**spec)).fleet().gang().pods().all(running(1, step=7, step_age_seconds=SILENT))


def one(scene: Scene) -> Failure:
    (failure,) = find(scene.world())
    return failure


def shown(scene: Scene) -> str:
    """What people read of the one failure."""
    return message_of(scene.world(), one(scene))


def silent(**changes: object) -> object:
    return running(1, step=7, heard_age_seconds=SILENT, step_age_seconds=SILENT, **changes)


def test_nothing_is_wrong_while_everybody_runs() -> None:
    assert find(scene().world()) == []


@pytest.mark.parametrize(
    ("arrange", "kind", "level"),
    [
        pytest.param(lambda s: s.launcher(1, failed(1)), Kind.RANK_FAILED, Level.IN_PLACE, id="rank exits"),
        pytest.param(
            lambda s: s.launcher(1, failed(1, code=None, signal=9)), Kind.RANK_FAILED, Level.IN_PLACE, id="rank killed"
        ),
        pytest.param(lambda s: s.launcher(1, running(1, fenced=True)), Kind.FENCED, Level.IN_PLACE, id="fenced"),
        pytest.param(lambda s: s.pod(1, deleting=True), Kind.POD_DELETED, Level.POD, id="pod deleted"),
        pytest.param(
            lambda s: s.launcher(1, running(1, state=TERMINATING)),
            Kind.POD_DELETED,
            Level.POD,
            id="launcher says goodbye",
        ),
        pytest.param(lambda s: s.pod(1, uid="another"), Kind.POD_GONE, Level.POD, id="pod of that name is another"),
        pytest.param(
            lambda s: s.ended(1, "OOMKilled", 137), Kind.OUT_OF_MEMORY, Level.POD, id="container out of memory"
        ),
        pytest.param(lambda s: s.ended(1, reason="Error"), Kind.POD_ENDED, Level.POD, id="container ended"),
        pytest.param(lambda s: s.ended(1, "Unknown", 255), Kind.CONTAINER_LOST, Level.POD, id="gone after a reboot"),
        pytest.param(
            lambda s: s.ended(1, "ContainerStatusUnknown", 137), Kind.CONTAINER_LOST, Level.POD, id="kubelet lost track"
        ),
        pytest.param(
            lambda s: s.pod(1, phase="Failed", reason="Evicted", containers=()), Kind.EVICTED, Level.POD, id="evicted"
        ),
        pytest.param(
            lambda s: s.pod(1, phase="Failed", reason="OutOfnvidia.com/gpu", containers=()),
            Kind.POD_REJECTED,
            Level.REPLACE,
            id="kubelet rejects",
        ),
        pytest.param(
            lambda s: s.ended(1, "StartError", 128, 'exec: "python3": executable file not found in $PATH'),
            Kind.START_FAILED,
            Level.POD,
            id="no python3, runc",
        ),
        pytest.param(
            lambda s: s.ended(1, "StartError", 128, "executable file `python3` not found in $PATH: No such file"),
            Kind.START_FAILED,
            Level.POD,
            id="no python3, crun",
        ),
        pytest.param(
            lambda s: s.ended(1, "StartError", 128, 'error mounting "/data" to rootfs: no such file or directory'),
            Kind.POD_ENDED,
            Level.POD,
            id="a mount that fails says nothing about the image",
        ),
        pytest.param(
            lambda s: s.launcher(1, silent()).lease("n1", SILENT),
            Kind.NODE_UNREACHABLE,
            Level.REPLACE,
            id="silent launcher and node",
        ),
        pytest.param(
            lambda s: s.launcher(1, silent()).node("n1", ready=False),
            Kind.NODE_UNREACHABLE,
            Level.REPLACE,
            id="silent launcher and not ready",
        ),
        pytest.param(
            lambda s: s.launcher(1, silent()).launcher(0, running(1, 7, step_age_seconds=SILENT, silent_peers={1: 12})),
            Kind.NODE_UNREACHABLE,
            Level.REPLACE,
            id="silent launcher and a neighbour",
        ),
    ],
)
def test_each_failure_has_its_kind_and_level(arrange: Callable[[Scene], Scene], kind: Kind, level: Level) -> None:
    failure = one(arrange(scene()))
    assert (failure.kind, failure.level, failure.index, failure.node) == (kind, level, 1, "n1")


def test_a_node_that_is_deleted_takes_its_worker_along() -> None:
    here = scene()
    del here.nodes["n1"]
    assert (one(here).kind, one(here).level) == (Kind.NODE_GONE, Level.REPLACE)


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda s: s.launcher(1, silent()), id="only the launcher is silent"),
        pytest.param(lambda s: s.node("n1", ready=False).lease("n1", 100), id="only the node looks dead"),
        pytest.param(lambda s: s.launcher(0, running(1, 7, silent_peers={1: 99})), id="only a neighbour complains"),
        pytest.param(
            lambda s: (
                s.all(running(1, 7, step_age_seconds=SILENT))
                .launcher(1, silent())
                .launcher(0, running(1, 7, heard_age_seconds=12.0, step_age_seconds=SILENT, silent_peers={1: 12}))
            ),
            id="a neighbour that has fallen silent since it complained",
        ),
        pytest.param(
            lambda s: s.launcher(1, silent()).node("n1", ready=False).launcher(0, running(1, step=9)),
            id="a new step proves every rank alive",
        ),
        pytest.param(
            lambda s: s.all(silent()).node("n1", ready=False).silence(3, 4),
            id="most of the fleet is silent: wait longer",
        ),
        pytest.param(lambda s: s.launcher(1, failed(0)), id="the failure of an attempt that is over"),
        pytest.param(
            lambda s: s.launcher(1, running(1, ranks=(RankReport(0, 0, False, 1, None, True),))),
            id="a rank that the launcher itself ended",
        ),
    ],
)
def test_one_sign_alone_does_nothing(arrange: Callable[[Scene], Scene]) -> None:
    assert find(arrange(scene()).world()) == []


def test_a_step_proves_life_only_as_fresh_as_it_is() -> None:
    """The hub has aged what a view says: adding the silence once more would age it twice."""
    world = scene().launcher(1, silent()).node("n1", ready=False)
    for index in (0, 2):
        world.launcher(index, running(1, 8, heard_age_seconds=6.0, step_age_seconds=15.0))
    assert find(world.world()) == []


@pytest.mark.parametrize(("leader_age", "expected"), [(39.0, 0), (41.0, 1)])
def test_a_new_leader_must_have_waited_before_silence_means_anything(leader_age: float, expected: int) -> None:
    here = scene().node("n1", ready=False).but(leader_age_seconds=leader_age)
    del here.launchers[here.uid(1)]
    assert len(find(here.world())) == expected


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize(("lease_age", "ready", "expected"), [(SILENT, False, 1), (SILENT, True, 0), (5.0, False, 0)])
def test_a_node_that_dies_before_its_launcher_was_heard_is_noticed(
    lease_age: float, ready: bool, expected: int, phase: str
) -> None:
    """A late heartbeat alone says nothing: the start of a large gang can make them all late."""
    here = Scene(a_job()).fleet().gang(go=False).pods().all(idle(1))
    del here.launchers[here.uid(1)]
    here.pod(1, phase=phase, containers=()).node("n1", ready=ready).lease("n1", lease_age)
    assert [failure.kind for failure in find(here.world())] == [Kind.NODE_UNREACHABLE] * expected


class TestReclaim:
    def before_start(self) -> Scene:
        return Scene(a_job()).fleet().gang(2).gang(2, go=False).pods().all(idle(2))

    def test_too_slow_costs_the_pod(self) -> None:
        here = self.before_start().launcher(1, running(1, state=RECLAIMING))
        assert (one(here).kind, one(here).level) == (Kind.RECLAIM_SLOW, Level.POD)

    def test_a_launcher_that_has_just_come_up_is_not_slow(self) -> None:
        """Its image took longer than the deadline, and it has not yet seen its first directive."""
        assert find(self.before_start().launcher(1, idle(0)).world()) == []

    def test_one_that_is_heard_again_has_only_just_been_told(self) -> None:
        here = self.before_start().launcher(1, running(1, talking_age_seconds=2.0))
        assert find(here.world()) == []

    def test_a_new_leader_has_only_just_told_it(self) -> None:
        here = self.before_start().launcher(1, running(1)).but(leader_age_seconds=2.0)
        assert find(here.world()) == []

    def test_a_launcher_that_falls_silent_before_the_start_costs_its_pod(self) -> None:
        here = self.before_start().launcher(1, running(1, heard_age_seconds=70.0))
        here.seconds = 300.0
        assert here.record is not None
        members = [m.model_copy(update={"pod_uid": here.uid(i)}) for i, m in enumerate(here.record.members)]
        here.record = here.record.model_copy(update={"members": members})
        assert (one(here).kind, one(here).level) == (Kind.LAUNCHER_SILENT, Level.POD)

    def test_nor_whoever_is_not_the_first_to_be_heard_after_a_silence_of_all(self) -> None:
        """A leader was cut off from all launchers for a minute; the ranks have ended meanwhile."""
        done = running(1, state=EXITED)
        here = Scene(a_job()).fleet().gang().pods().all(replace(done, heard_age_seconds=70.0))
        here.seconds = 1000.0
        here.launcher(0, replace(done, talking_age_seconds=59.0))
        assert find(here.world()) == []
        here.launcher(0, replace(done, talking_age_seconds=61.0))
        assert {failure.kind for failure in find(here.world())} == {Kind.LAUNCHER_SILENT}

    def test_a_launcher_that_was_never_heard_is_waited_for(self) -> None:
        """A network policy in its way would stop its successor, too."""
        here = self.before_start()
        here.seconds = 1000.0
        del here.launchers[here.uid(1)]
        here.launchers.clear()
        assert find(here.world()) == []

    def test_but_not_once_another_of_its_gang_is_heard(self) -> None:
        here = self.before_start()
        here.seconds = 119.0
        del here.launchers[here.uid(1)]
        assert find(here.world()) == []
        here.seconds = 1000.0
        assert (one(here).kind, one(here).index) == (Kind.LAUNCHER_SILENT, 1)


class TestHang:
    def hung(self, limit: int = 30, age: float = 31.0, step: int | None = 7) -> Scene:
        progress = {"stepTimeoutSeconds": limit, "startTimeoutSeconds": limit}
        here = Scene(a_job(progress=progress)).fleet().gang().pods()
        started = age if step is None else 500.0
        return here.all(running(1, step, step_age_seconds=age if step else None, started_age_seconds=started))

    def test_no_step_for_too_long(self) -> None:
        failures = find(self.hung().world())
        assert {(failure.kind, failure.level) for failure in failures} == {(Kind.HANG, Level.IN_PLACE)}

    def test_no_first_step_for_too_long(self) -> None:
        failures = find(self.hung(step=None).world())
        assert {failure.kind for failure in failures} == {Kind.START_HANG}

    def test_the_slowest_worker_is_the_suspect(self) -> None:
        failure = one(self.hung().launcher(2, running(1, 6, step_age_seconds=33.0)))
        assert (failure.index, failure.message.endswith("; furthest behind: worker 2 on n2, step 6")) == (2, True)

    @pytest.mark.parametrize("printed", [{"stepPattern": "step=([0-9]+)"}, {}])
    def test_where_one_rank_prints_the_steps_of_all_nobody_is_the_suspect(self, printed: dict[str, str]) -> None:
        here = self.hung()
        here.job = a_job(progress={"stepTimeoutSeconds": 30, **printed})
        preset = {} if printed else {"progress_preset": "Megatron"}
        here.all(running(1, None, started_age_seconds=500.0))
        here.launcher(2, running(1, 7, step_age_seconds=31.0, **preset))
        failures = find(here.world())
        assert {(failure.kind, failure.unlocated) for failure in failures} == {(Kind.HANG, True)}
        assert len(failures) == len(here.world().worker_views)
        told = "; which rank hangs is not known: only worker 2 reports steps, the last was step 7"
        assert all(failure.message.endswith(told) for failure in failures)

    def test_where_one_worker_writes_the_steps_of_all_none_is_the_suspect(self) -> None:
        here = self.hung().all(running(1, None, started_age_seconds=500.0))
        here.launcher(2, running(1, 7, step_age_seconds=31.0))
        assert {failure.unlocated for failure in find(here.world())} == {True}
        assert len(find(here.world())) == len(here.world().worker_views)

    @pytest.mark.parametrize(
        ("step", "told"),
        [
            (7, "all 3 workers that report steps have finished step 7"),
            (None, "no worker has reported a step yet"),
        ],
    )
    def test_where_all_are_at_one_step_none_is_the_suspect(self, step: int | None, told: str) -> None:
        failures = find(self.hung(step=step).world())
        assert {failure.unlocated for failure in failures} == {True}
        assert failures[0].message.endswith(f"which rank hangs is not known: {told}")

    @pytest.mark.parametrize(("step", "told"), [(7, "step 7"), (None, "no step yet")])
    def test_a_gang_of_one_has_one_suspect_and_is_behind_none(self, step: int | None, told: str) -> None:
        limits = {"stepTimeoutSeconds": 30, "startTimeoutSeconds": 30}
        here = Scene(a_job(nodes=1, progress=limits)).fleet().gang().pods()
        age = 31.0 if step else None
        failure = one(here.all(running(1, step, step_age_seconds=age, started_age_seconds=31.0)))
        assert (failure.unlocated, failure.index) == (False, 0)
        assert failure.message.endswith(f" s (limit 30 s); worker 0 on n0 has finished {told}")

    def test_of_those_who_print_the_slowest_is_the_suspect(self) -> None:
        here = self.hung().all(running(1, None, started_age_seconds=500.0))
        for index, step in ((1, 7), (2, 6)):
            here.launcher(index, running(1, step, step_age_seconds=33.0, progress_preset="TorchTitan"))
        assert one(here).index == 2

    def test_who_has_written_no_step_is_the_suspect_where_others_have(self) -> None:
        here = self.hung().launcher(2, running(1, None, started_age_seconds=500.0))
        assert one(here).index == 2

    def test_without_a_limit_nothing_hangs(self) -> None:
        here = Scene(a_job()).fleet().gang().pods().all(running(1, 7, step_age_seconds=10000.0))
        assert find(here.world()) == []

    @pytest.mark.parametrize("step", [7, None])
    def test_steps_that_nobody_counts_are_no_hang(self, step: int | None) -> None:
        blind = running(1, step, started_age_seconds=500.0, progress_error="the pattern takes for ever")
        here = self.hung(step=step)
        assert find(here.all(blind).world()) == []
        failures = find(here.launcher(2, running(1, 7, step_age_seconds=40.0)).world())
        assert {(failure.index, failure.unlocated) for failure in failures} == {(0, True), (1, True), (2, True)}

    def test_silence_of_all_launchers_is_no_hang(self) -> None:
        """While the coordinator was away, steps went on untold."""
        here = self.hung(age=40.0)
        here.all(running(1, 7, heard_age_seconds=35.0, step_age_seconds=40.0))
        assert find(here.world()) == []

    @pytest.mark.parametrize("step", [7, None])
    def test_what_a_node_stood_still_is_no_hang(self, step: int | None) -> None:
        """All of them froze for most of the time, and are heard again before they have finished a step."""
        ages = {"step_age_seconds": 100.0 if step else None, "started_age_seconds": 100.0 if step is None else 500.0}
        here = self.hung(step=step)
        assert find(here.all(running(1, step, standstill_seconds=71.0, **ages)).world()) == []
        assert find(here.all(running(1, step, standstill_seconds=69.0, **ages)).world())

    def test_what_a_launcher_told_before_it_has_looked_again_is_no_hang(self) -> None:
        """The node is back, and its launcher's threads tell what was known before it froze."""
        here = self.hung()
        stale = {"step_age_seconds": 71.0, "heard_age_seconds": 0.5, "loop_age_seconds": 70.5}
        assert find(here.all(running(1, 7, talking_age_seconds=0.5, **stale)).world()) == []
        assert find(here.all(running(1, 7, talking_age_seconds=46.0, **stale)).world())
        assert find(here.all(running(1, 7, talking_age_seconds=500.0, **stale)).world())
        looked = {**stale, "loop_age_seconds": 0.5}
        assert find(here.all(running(1, 7, talking_age_seconds=1.0, **looked)).world())

    @pytest.mark.parametrize("step", [7, None])
    def test_who_fell_silent_with_the_last_step_is_looked_into_first(self, step: int | None) -> None:
        """Of three nodes two are frozen, and the third one's steps stand still with theirs."""
        here = self.hung(age=80.0, step=step)
        quiet = running(1, step, heard_age_seconds=78.0, step_age_seconds=80.0, started_age_seconds=80.0)
        assert find(here.launcher(0, quiet).world()) == []
        heard_since = running(1, step, heard_age_seconds=40.0, step_age_seconds=80.0, started_age_seconds=80.0)
        assert find(here.launcher(0, heard_since).world()), "the steps stood still before it fell silent"
        ended = (RankReport(0, 0, alive=False, exit_code=0, exited_age_seconds=100),)
        assert find(here.launcher(0, running(1, step, heard_age_seconds=78.0, ranks=ended)).world())

    def test_a_silence_that_nobody_finds_anything_behind_does_not_hide_it_for_ever(self) -> None:
        here = self.hung(age=329.0)
        quiet = running(1, 7, heard_age_seconds=327.0, step_age_seconds=329.0)
        assert find(here.launcher(0, quiet).world()) == []
        here.all(running(1, 7, step_age_seconds=331.0))
        assert find(here.launcher(0, running(1, 7, heard_age_seconds=329.0, step_age_seconds=331.0)).world())

    def test_who_has_not_looked_since_he_is_heard_again_is_waited_for(self) -> None:
        here = self.hung(age=80.0)
        stale = {"step_age_seconds": 80.0, "heard_age_seconds": 0.5, "loop_age_seconds": 79.0}
        assert find(here.launcher(0, running(1, 7, talking_age_seconds=0.5, **stale)).world()) == []
        assert find(here.launcher(0, running(1, 7, talking_age_seconds=46.0, **stale)).world())

    def test_a_worker_whose_rank_left_early_does_not_hide_it(self) -> None:
        done = (RankReport(0, 0, alive=False, exit_code=0, exited_age_seconds=100),)
        here = self.hung().launcher(1, running(1, 7, step_age_seconds=33.0, ranks=done))
        assert find(here.world())

    def test_the_second_one_at_the_same_step_costs_the_pod(self) -> None:
        here = self.hung()
        assert here.record is not None
        before = an_incident(fault_class=FaultClass.UNKNOWN, reason=Kind.HANG, step=7)
        here.record = here.record.model_copy(update={"incidents": [before]})
        assert {failure.level for failure in find(here.world())} == {Level.POD}


@pytest.mark.parametrize(
    ("end", "tail", "is_for_memory"),
    [
        ({"exit_code": None, "signal": 9}, "step 5", True),
        ({"exit_code": 137}, "step 5", True),
        ({"failed_rank": 3, "failed_signal": 9}, "RuntimeError: Connection closed by peer", True),
        ({}, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", True),
        ({}, "ValueError: no", False),
        ({"exit_code": None, "signal": 15}, "step 5", False),
        ({"exit_code": 143}, "step 5", False),
        ({"failed_rank": 3, "failed_signal": 11}, "step 5", False),
    ],
)
def test_a_rank_that_is_killed_for_its_memory_is_no_fault_of_its_node(
    end: dict[str, int | None], tail: str, is_for_memory: bool
) -> None:
    def found(limit: int | None) -> Failure:
        dead = RankReport(1, 0, False, 1, exited_age_seconds=0.2, tail=tail, memory_limit_bytes=limit)
        world = scene().launcher(1, running(1, state=EXITED, ranks=(replace(dead, **end),))).world()
        world.fleet.set_node_fault("n1", "XID 79")
        (failure,) = find(world)
        return failure

    assert (found(None).kind, found(None).node_fault) == (Kind.RANK_FAILED, "XID 79")
    failure = found(8 * 2**30)
    assert (failure.kind is Kind.OUT_OF_MEMORY) is is_for_memory
    assert (": its container reached its memory limit of 8.0 GiB. Give" in failure.message) is is_for_memory
    assert (failure.level is Level.IN_PLACE) is is_for_memory
    assert (fault_class(failure) is FaultClass.APPLICATION) is is_for_memory


def test_the_message_of_a_failed_rank_tells_how_it_ended_and_its_last_lines() -> None:
    here = scene().launcher(1, failed(1, rank=5, code=3, tail="Traceback\n  File x\nValueError: the loss is NaN\n"))
    assert one(here).message == "rank 5 exited with code 3"
    assert shown(here).startswith("rank 5 exited with code 3; its last lines: Traceback | File x")
    assert shown(here).endswith("ValueError: the loss is NaN")


def test_an_exception_stands_before_what_was_printed_behind_it() -> None:
    raised = "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out"
    behind = [f"I0320 20:56:05 grain_pool.py:40{number}] Grain pool is exiting, {'x' * 100}" for number in range(6)]
    here = scene().launcher(1, failed(1, rank=5, code=1, tail="\n".join(["Traceback", raised, *behind])))
    assert shown(here).startswith(f"rank 5 exited with code 1; its last lines: {raised} | …")
    assert shown(here).endswith(behind[-1])
    assert len(shown(here).partition("last lines: ")[2]) == LAST_LINES_CHARS


@pytest.mark.parametrize(
    ("raised", "by_signal", "own"),
    [
        ("ValueError: bad data", None, True),
        ("RuntimeError: CUDA error: unspecified launch failure", None, False),
        ("ValueError: bad data", 6, False),
    ],
)
def test_own_exceptions_of_the_program_are_those_that_no_node_can_cause(
    raised: str, by_signal: int | None, own: bool
) -> None:
    tail = f'Traceback (most recent call last):\n  File "/code/train.py", line 88, in main\n    f()\n{raised}\n'
    code = 1 if by_signal is None else None
    assert one(scene().launcher(1, failed(1, code=code, signal=by_signal, tail=tail))).own_exception is own


@pytest.mark.parametrize(
    ("named", "message", "rank", "exit_code", "by_signal"),
    [
        ({}, "torchrun on worker 1 exited with code 1", None, 1, None),
        ({"failed_local_rank": 1, "failed_exit_code": 2}, "local rank 1 (worker 1) exited with code 2", None, 2, None),
        ({"failed_rank": 3, "failed_exit_code": 2}, "rank 3 (worker 1) exited with code 2", 3, 2, None),
        ({"failed_rank": 3, "failed_signal": 11}, "rank 3 (worker 1) was ended by SIGSEGV", 3, None, 11),
    ],
)
def test_a_rank_has_the_number_that_the_program_which_started_it_gives(
    named: dict[str, int], message: str, rank: int | None, exit_code: int | None, by_signal: int | None
) -> None:
    found = one(scene().launcher(1, starts_ranks(named)))
    assert (found.message, found.index) == (message, 1)
    assert (found.rank, found.exit_code, found.signal) == (rank, exit_code, by_signal)


@pytest.mark.parametrize(
    ("named", "victim", "killed"),
    [
        ({}, True, False),
        ({"failed_rank": 3, "failed_exit_code": 1}, True, False),
        ({"failed_rank": 3, "failed_signal": 9}, False, True),
        ({"failed_rank": 3, "failed_exit_code": 137}, False, True),
        ({"failed_rank": 3, "failed_signal": 11}, False, False),
        ({"failed_rank": 3, "failed_signal": 6}, True, False),
    ],
)
def test_how_the_named_process_ended_says_whether_it_was_killed_or_a_victim(
    named: dict[str, int], victim: bool, killed: bool
) -> None:
    found = one(scene().launcher(1, starts_ranks(named, "RuntimeError: Connection closed by peer")))
    assert (found.victim, found.killed) == (victim, killed)
    assert bool(found.printed) is (named.get("failed_signal") != 9), "what others printed does not say why"


def starts_ranks(named: dict[str, int], tail: str = "ValueError: no") -> LauncherView:
    """A launcher whose torchrun has failed, with the process that it names as the first that did."""
    dead = RankReport(1, 0, alive=False, exit_code=1, exited_age_seconds=0.2, tail=tail, starter="torchrun", **named)
    return running(1, rank=1, state=EXITED, ranks=(dead,))


def test_the_last_lines_of_a_rank_and_of_a_container_show_no_secrets() -> None:
    container = {
        "name": "main",
        "image": "i",
        "command": ["train"],
        "env": [{"name": "DB_PASSWORD", "value": "hunter2hunter2"}, {"name": "DATA", "value": "/data/pile"}],
    }
    tail = "Bearer abcdefabcdefabcdef\n/data/pile: hunter2hunter2 was refused"
    here = scene(template={"spec": {"containers": [container]}}).launcher(1, failed(1, tail=tail))
    assert shown(here).endswith("Bearer <redacted> | /data/pile: <redacted> was refused")
    ended = scene(template={"spec": {"containers": [container]}}).ended(1, message=tail)
    assert shown(ended).endswith("Bearer <redacted> | /data/pile: <redacted> was refused")


def test_an_exit_has_the_age_that_its_view_says() -> None:
    here = scene().launcher(1, failed(1, age=2.0, heard_age_seconds=1.5))
    assert one(here).age_seconds == 2.0


def test_plain_mode_looks_at_pods_and_nodes_alone() -> None:
    job = a_job(launch={"mode": "Plain"}, checkpoint={})
    here = Scene(job).fleet().gang().pods()
    assert find(here.world()) == []
    assert find(here.pod(0, phase="Succeeded").world()) == []
    assert one(here.ended(1)).kind is Kind.POD_ENDED
    here.pod_views = {name: replace(pod, phase="Running", containers=()) for name, pod in here.pod_views.items()}
    here.node("n2", ready=False).lease("n2", SILENT)
    assert find(here.world()) == [], "silence proves nothing"
    limited = a_job(launch={"mode": "Plain"}, checkpoint={}, recovery={"unfencedTimeoutSeconds": 60})
    here.job = limited
    assert find(here.lease("n2", 59.0).world()) == []
    assert one(here.lease("n2", 60.0)).kind is Kind.NODE_UNREACHABLE


def test_a_predecessor_that_does_not_end_makes_its_successor_move() -> None:
    here = Scene(a_job()).fleet().gang(2, go=False).pods().all(idle(2))
    assert here.record is not None
    members = [here.record.members[0], here.record.members[1].model_copy(update={"incarnation": 2})]
    here.record = here.record.model_copy(update={"members": [*members, here.record.members[2]]})
    here.pod(1, deleting=True).aged(1, PodAges(100.0, 100.0, 31.0))
    assert (one(here).kind, one(here).level) == (Kind.POD_STUCK, Level.REPLACE)


def test_a_successor_that_stays_pending_behind_it_moves_as_well() -> None:
    """Its ranks are proved dead, but the node's accelerators are not given back."""
    here = Scene(a_job()).fleet().gang(2, go=False).pods().all(idle(2))
    assert here.record is not None
    members = [here.record.members[0], here.record.members[1].model_copy(update={"incarnation": 2})]
    here.record = here.record.model_copy(update={"members": [*members, here.record.members[2]]})
    here.pod(1, deleting=True).aged(1, PodAges(100.0, 100.0, 31.0)).pod(1, 2, phase="Pending", node="n1")
    assert (one(here).kind, one(here).index) == (Kind.POD_STUCK, 1)


def test_a_gang_of_which_nobody_is_heard_is_given_longer() -> None:
    def everybody_silent(seconds: float) -> Scene:
        view = running(1, step=7, heard_age_seconds=seconds, step_age_seconds=seconds)
        cut_off = Scene(a_job()).fleet().gang().pods().all(view)
        return cut_off.lease("n0", seconds).lease("n1", seconds).lease("n2", seconds)

    assert find(everybody_silent(WHOLE_GANG_SECONDS - 1).world()) == []
    found = find(everybody_silent(WHOLE_GANG_SECONDS + 1).world())
    assert {failure.kind for failure in found} == {Kind.NODE_UNREACHABLE}
    assert len(found) == 3


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_killed_rank_of_a_worker_goes_before_those_that_end_with_it(order: tuple[int, ...]) -> None:
    ranks = (
        RankReport(
            rank=0, local_rank=0, alive=False, exit_code=1, tail="ConnectionError: peer closed", exited_age_seconds=3.0
        ),
        RankReport(rank=1, local_rank=0, alive=False, exit_code=1, tail="", exited_age_seconds=2.1),
        RankReport(rank=2, local_rank=0, alive=False, signal=9, exited_age_seconds=2.0),
    )
    here = Scene(a_job()).fleet().gang().pods().all(running(1))
    here.launcher(0, replace(running(1), ranks=tuple(ranks[place] for place in order)))
    (failure,) = find(here.world())
    assert (failure.rank, failure.killed, failure.victim) == (2, True, False)


def test_the_ranks_of_an_attempt_that_is_over_are_told_of_afterwards() -> None:
    ended = RankReport(rank=1, local_rank=0, alive=False, exit_code=7, tail="the culprit", exited_age_seconds=2.0)
    lost = RankReport(
        rank=0, local_rank=0, alive=False, exit_code=1, tail="Connection closed by peer", exited_age_seconds=2.0
    )
    told = Scene(a_job()).fleet().gang(attempt=2).pods().all(idle(2))
    told = told.launcher(0, replace(idle(2), previous_attempt=1, previous_ranks=(lost,)))
    told = told.launcher(1, replace(idle(2), previous_attempt=1, previous_ranks=(ended,)))
    world = told.world()
    assert world.gang is not None
    found = late_rank_failures(world, 1)
    assert [(failure.rank, failure.victim) for failure in found] == [(0, True), (1, False)]
    assert late_rank_failures(world, 2) == []


def test_widespread_silence_is_waited_out_but_not_for_ever() -> None:
    def one_of_many(seconds: float) -> Scene:
        gone = running(1, step=7, heard_age_seconds=seconds, step_age_seconds=seconds)
        everybody = scene().all(running(1, step=7, step_age_seconds=seconds)).launcher(1, gone)
        return everybody.lease("n1", seconds).node("n1", ready=False).silence(30, 40)

    assert find(one_of_many(WHOLE_GANG_SECONDS - 1).world()) == []
    assert one(one_of_many(WHOLE_GANG_SECONDS + 1)).kind is Kind.NODE_UNREACHABLE


def test_a_pod_that_was_deleted_is_that_also_when_only_its_end_is_seen() -> None:
    assert one(scene().ended(1, code=143, deleting=True)).kind is Kind.POD_DELETED
    assert one(scene().ended(1, "OOMKilled", 137, deleting=True)).kind is Kind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("before", "now", "has_rebooted"),
    [
        ("boot-1", "boot-2", True),
        ("boot-1", "boot-1", False),
        pytest.param("boot", "boot-1", False, id="the record keeps its beginning"),
        pytest.param("", "boot-2", False, id="not known before"),
        pytest.param("boot-1", "", False, id="not known now"),
    ],
)
def test_a_reboot_is_said_only_where_the_boot_id_is_new(before: str, now: str, has_rebooted: bool) -> None:
    here = scene().ended(1, "Unknown", 255).node("n1", boot_id=now)
    assert here.record is not None
    members = [member.model_copy(update={"boot_id": before}) for member in here.record.members]
    here.record = here.record.model_copy(update={"members": members})
    assert ("node n1 has rebooted" in one(here).message) is has_rebooted
    assert ("node n1 does not know how it ended" in one(here).message) is not has_rebooted


def test_a_container_without_memory_is_said_with_what_to_do() -> None:
    message = one(scene().ended(1, "OOMKilled", 137)).message
    assert "(OOMKilled): the kernel killed it for its memory. Give the container more memory" in message


def test_a_pod_that_does_not_start_where_others_do_moves() -> None:
    def pending(minutes: float, others: str = "Running") -> Scene:
        here = Scene(a_job()).fleet().gang(go=False).pods().all(idle(1))
        here.pod(0, phase=others).pod(2, phase=others)
        return here.pod(1, phase="Pending", containers=(), created=at(100.0 - 60 * minutes))

    assert find(pending(14).world()) == []
    failure = one(pending(16))
    assert (failure.kind, failure.level) == (Kind.POD_START_TIMEOUT, Level.REPLACE)
    assert find(pending(16, others="Pending").world()) == []


class TestAnExceptionBeforeADeletion:
    """The operator could not write for a while: it hears of both at once."""

    OWN = RankReport(
        rank=1, local_rank=0, alive=False, exit_code=1, tail="ValueError: loss is nan", exited_age_seconds=20.0
    )
    LOST = RankReport(
        rank=1, local_rank=0, alive=False, exit_code=1, tail="Connection closed by peer", exited_age_seconds=20.0
    )

    @pytest.mark.parametrize(("rank", "reason"), [(OWN, Kind.RANK_FAILED), (LOST, Kind.POD_DELETED)])
    def test_in_the_pod_that_is_deleted(self, rank: RankReport, reason: Kind) -> None:
        failure = one(scene().launcher(1, replace(running(1), state=TERMINATING, ranks=(rank,))))
        assert (failure.kind, failure.level) == (reason, Level.POD)
        assert ("ValueError" in failure.printed) is (reason is Kind.RANK_FAILED)

    @pytest.mark.parametrize(("attempt", "reason"), [(1, Kind.RANK_FAILED), (2, Kind.POD_DELETED)])
    def test_only_in_the_attempt_that_runs(self, attempt: int, reason: Kind) -> None:
        here = scene().all(running(attempt, step=7)).launcher(1, replace(running(1), ranks=(self.OWN,)))
        here.pod(1, deleting=True)
        assert here.record is not None
        here.record = here.record.model_copy(update={"attempt": attempt})
        assert one(here).kind is reason

    @pytest.mark.parametrize(
        ("rank", "ages", "reason"),
        [
            pytest.param(OWN, PodAges(100.0, 90.0, 3.0), Kind.RANK_FAILED, id="seen to be deleted later"),
            pytest.param(OWN, PodAges(100.0, 90.0, 19.5), Kind.POD_DELETED, id="in the same moment"),
            pytest.param(OWN, PodAges(3.0, 3.0, 3.0), Kind.POD_DELETED, id="never seen but on its way out"),
            pytest.param(LOST, PodAges(100.0, 90.0, 3.0), Kind.POD_DELETED, id="over a lost peer"),
        ],
    )
    def test_in_another_pod(self, rank: RankReport, ages: PodAges, reason: Kind) -> None:
        here = scene().launcher(1, replace(running(1), ranks=(rank,)))
        here.ended(0, code=143, deleting=True).aged(0, ages)
        assert culprit(find(here.world())).kind is reason


LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"


@pytest.mark.parametrize(
    ("end", "crashed"),
    [
        ({"exit_code": 0}, False),
        ({"exit_code": 3, "tail": "step 7"}, False),
        ({"exit_code": 1, "tail": "OSError: [Errno 28] No space left on device"}, True),
        ({"exit_code": 1, "tail": LOST}, False),
        ({"exit_code": 143, "tail": "ValueError: no"}, False),
        ({"exit_code": 139}, True),
        ({"signal": 15}, False),
        ({"signal": 9}, True),
        ({"exit_code": 1, "failed_exit_code": 143, "tail": "ValueError: no"}, False),
        ({"exit_code": 1, "failed_signal": 11}, True),
        ({"exit_code": 1, "failed_exit_code": 1, "tail": "ValueError: no"}, True),
    ],
)
def test_a_rank_that_has_not_chosen_its_end_has_crashed(end: dict[str, Any], crashed: bool) -> None:
    assert has_crashed(RankReport(0, 0, alive=False, **end)) is crashed
