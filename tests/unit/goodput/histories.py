"""Random histories of one job, with an operator that dies anywhere, leaders whose clocks differ, and launchers that
lie.

Whatever happens: all buckets together are the time that the account tells of, no bucket is negative, nothing that was
counted is taken back or counted twice, and no more is counted than the clocks have ever shown. Where all ranks but one
tell the truth the steps that count are exactly those that were made and not lost.
"""

import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import Scene, a_job, at, running

from muster.api.gang import AttemptStart, FaultClass, GangIncident, GangSpec, Level, Member, Resume
from muster.api.goodput import MAX_STRETCHES, PRODUCTIVE, Account, Goodput
from muster.goodput.account import MILLISECOND, with_account
from muster.goodput.status_goodput import goodput_of_status
from muster.recovery.failure import Kind
from muster.world.job import JobWorld
from muster.world.views import LauncherView

NODES = 3
STEP_SECONDS = 2.0
STARTS_IN = 7.0  # from the go to the first step's beginning
LARGEST_RECORD = 12_000

nonsense = st.sampled_from([None, 0.0, -1.0, 1e308, 1e-9, math.nan, math.inf, 3.0])
numbers = st.sampled_from([None, 0, 1, 7, 2**53 - 1])


@dataclass
class Job:
    """One job, and what its leader believes."""

    now: float = 0.0  # true time
    ahead: float = 0.0  # of this leader's clock
    leader_since: float = 0.0
    attempt_since: float = 0.0
    go_at: float | None = None
    begins_after: int = 0  # the step that the ranks go on from
    saved: int = 0
    record: GangSpec | None = None
    furthest: float = 0.0  # that any clock has shown
    lies: dict[str, Any] = field(default_factory=dict)
    liar: dict[str, Any] = field(default_factory=dict)  # what one of the ranks says otherwise than the others
    hears: bool = True
    kept: int = 0  # steps that were made and not lost
    back: int = 0  # steps of this attempt that the program has taken back by itself
    back_to: int | None = None
    lost: int = 0  # of all attempts
    job: Any = field(default_factory=lambda: a_job(nodes=NODES))

    def __post_init__(self) -> None:
        created = self.job.metadata.model_copy(update={"creation_timestamp": at(0)})
        self.job = self.job.model_copy(update={"metadata": created})

    @property
    def step(self) -> int | None:
        """The newest step of the ranks, that are there since their go."""
        if self.go_at is None:
            return None
        return self.begins_after + self.made - self.back if self.made > 0 else None

    @property
    def made(self) -> int:
        """Steps of this attempt, those included that the program has taken back: going back takes no time."""
        return math.floor((self.now - (self.go_at or 0.0) - STARTS_IN) / STEP_SECONDS)

    def world(self) -> JobWorld:
        scene = Scene(self.job, seconds=self.now + self.ahead).fleet(NODES)
        scene.record = self.record
        self.furthest = max(self.furthest, self.now + self.ahead)
        if self.record is not None and self.record.members:
            scene.pods()
            if self.hears:
                view = self._view()
                scene.all(view).launcher(1, replace(view, **self.liar))
        scene.but(
            leader_age_seconds=self.now - self.leader_since,
            attempt_age_seconds=self.now - max(self.attempt_since, self.leader_since),
            queue_decision=None,
        )
        return scene.world()

    def _view(self) -> LauncherView:
        assert self.record is not None
        step = self.step
        if self.go_at is None or step is None:
            view = running(self.record.attempt, None, started_age_seconds=self.now - (self.go_at or self.now))
        else:
            newest_at = self.go_at + STARTS_IN + self.made * STEP_SECONDS
            view = running(
                self.record.attempt,
                step,
                first_step=self.begins_after + 1,
                started_age_seconds=self.now - self.go_at,
                first_step_age_seconds=self.now - self.go_at - STARTS_IN - STEP_SECONDS,
                step_age_seconds=self.now - newest_at,
                step_seconds=STEP_SECONDS,
                step_stride=1,
                lost_steps=self.back,
                lost_seconds=self.back * STEP_SECONDS,
                lowest_restarted_step=self.back_to,
            )
        return replace(view, **self.lies)

    # What happens.

    def commit(self, **changes: Any) -> None:
        """Each decision is made twice: the operator may die before it has written what it had decided first."""
        base = self.record or GangSpec(
            job_uid="uid", attempt=1, time=at(0), level=Level.START, reason="Started", members=[]
        )
        spec = base.model_copy(update=changes)
        with_account(self.world(), spec)
        spec = GangSpec.model_validate(with_account(self.world(), spec).to_json())
        before, self.record = self.record, spec
        if before is None or before.attempt != spec.attempt:
            self.attempt_since = self.now
        self._check(before.account if before else None, spec)

    def _check(self, before: Account | None, spec: GangSpec) -> None:
        account = spec.account
        assert account is not None
        total = sum(account.milliseconds.values())
        assert total == (account.counted_until - account.creation_time) // MILLISECOND
        assert account.creation_time == at(0)
        assert account.counted_until <= at(self.furthest)
        assert len(account.segments) <= MAX_STRETCHES
        most = NODES * self.job.spec.gpus_per_node
        assert all(
            account.gpu_milliseconds.get(name, 0) <= amount * most for name, amount in account.milliseconds.items()
        )
        assert len(account.model_dump_json()) < LARGEST_RECORD
        if before is not None:
            assert account.counted_until >= before.counted_until

    def place(self) -> None:
        if self.record is None or not self.record.members:
            members = [Member(index=n, rank=n, node=f"n{n}") for n in range(NODES)]
            self.commit(
                attempt=self.record.attempt + 1 if self.record else 1, members=members, start=None, reason="Started"
            )

    def start(self, back: int) -> None:
        if self.record is None or not self.record.members or self.record.start is not None:
            return
        step = max(self.saved - back, 0)
        if step < self.kept and step:
            self.lost += self.kept - step
        if step:  # without a checkpoint its first step tells that all is begun anew
            self.kept = min(self.kept, step)
        incidents = [
            i.model_copy(update={"resumed_step": step}) if i.resumed_step is None else i for i in self.record.incidents
        ]
        where = Resume(step=step, path=f"/ckpt/{step}") if step else None
        go = AttemptStart(time=at(self.now + self.ahead), master_address="a", master_port=20001, resume=where)
        self.commit(start=go, incidents=incidents[-16:])
        self.go_at, self.begins_after = self.now, step
        self.back, self.back_to = 0, None

    def go_back(self, steps: int) -> None:
        """The program goes back by itself, to before its start at most."""
        step = self.step
        if step is None or steps >= step:
            return
        self.back += steps
        self.lost += steps
        self.back_to = min(step - steps, step - steps if self.back_to is None else self.back_to)

    def end(self, kind: str) -> None:
        """The attempt ends: by a failure, or as was planned."""
        if self.record is None or not self.record.members:
            return
        record, step = self.record, self.step
        incidents = list(record.incidents)
        if kind != "release":
            incidents.append(
                GangIncident(
                    attempt=record.attempt,
                    time=at(self.now + self.ahead),
                    fault_time=at(self.now + self.ahead - 1.0),
                    level=Level.IN_PLACE,
                    fault_class=FaultClass.PLANNED if kind == "leave" else FaultClass.APPLICATION,
                    reason=Kind.HANG if kind == "hang" else Kind.RANK_FAILED,
                )
            )
        if step is not None:
            self.lost += self.kept if self.begins_after == 0 else 0
            self.kept = step
            self.saved = max(step - step % 5, min(self.begins_after, step))
        members = [] if kind == "release" else record.members
        reason = "Suspended" if kind == "release" else "RankFailed"
        self.commit(attempt=record.attempt + 1, start=None, members=members, incidents=incidents[-16:], reason=reason)
        self.go_at = None

    def note(self) -> None:
        """Something else is written into the record."""
        if self.record is not None:
            self.commit(verifier_round=self.record.verifier_round + 1)

    def tell(self, *, ended: bool = False) -> Goodput | None:
        """People are told, and what they were told is never taken back."""
        world = self.world()
        before = self.job.status.goodput
        found = goodput_of_status(world, step=self.step, ended=ended, succeeded=ended)
        if found is not None:
            assert found.wall_seconds == (found.counted_until - found.creation_time) // timedelta(seconds=1)
            assert before is None or found.counted_until >= before.counted_until
            found = Goodput.model_validate(found.to_json())
        attempt = self.record.attempt if self.record else 0
        status = self.job.status.model_copy(update={"goodput": found, "step": self.step, "attempt": attempt})
        self.job = self.job.model_copy(update={"status": status})
        return found

    def change_leader(self, ahead: float) -> None:
        self.leader_since, self.ahead = self.now, ahead


events = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([0.001, 0.5, 3.0, 20.0, 400.0, 7200.0])),
    st.tuples(st.just("place"), st.none()),
    st.tuples(st.just("start"), st.sampled_from([0, 0, 5, 1000])),
    st.tuples(st.just("end"), st.sampled_from(["fault", "hang", "leave", "release"])),
    st.tuples(st.just("note"), st.none()),
    st.tuples(st.just("tell"), st.none()),
    st.tuples(st.just("back"), st.sampled_from([1, 3, 40])),
)
troubles = st.one_of(
    st.tuples(st.just("leader"), st.sampled_from([0.0, 3600.0, -3600.0, 18000.0, -0.7])),
    st.tuples(st.just("step"), st.sampled_from([3600.0, -3600.0, -86400.0, 0.3])),
    st.tuples(st.just("hears"), st.booleans()),
    st.tuples(
        st.just("lies"),
        st.fixed_dictionaries(
            {},
            optional={
                "step": numbers,
                "first_step": numbers,
                "step_seconds": nonsense,
                "step_age_seconds": nonsense,
                "started_age_seconds": nonsense,
                "first_step_age_seconds": nonsense,
                "input_wait_seconds": nonsense,
                "checkpoint_stall_seconds": nonsense,
                "attempt_age_seconds": st.sampled_from([0.0, 1e308, 5.0]),
            },
        ),
    ),
    st.tuples(st.just("liar"), st.fixed_dictionaries({}, optional={"step": numbers, "first_step": numbers})),
    st.tuples(st.just("truth"), st.none()),
)
# Nowhere near the others, or behind them: steps that go back without a restart, or stand still.
liars = st.tuples(st.just("liar"), st.fixed_dictionaries({"step": st.sampled_from([0, 1, 7, 10**7, 2**53 - 1, None])}))


def happen(job: Job, kind: str, what: Any) -> None:
    match kind:
        case "pass":
            job.now += what
        case "place":
            job.place()
        case "start":
            job.start(what)
        case "end":
            job.end(what)
        case "back":
            job.go_back(what)
        case "note":
            job.note()
        case "tell":
            job.tell()
        case "leader":
            job.change_leader(what)
        case "step":
            job.ahead += what
        case "hears":
            job.hears = what
        case "lies":
            job.lies = what
        case "liar":
            job.liar = what
        case "truth":
            job.lies, job.liar, job.hears = {}, {}, True


histories = st.lists(st.one_of(events, troubles), max_size=60)
histories_with_a_liar = st.lists(
    st.one_of(events, events, liars, st.tuples(st.just("leader"), st.just(0.0))), max_size=60
)


def the_sum_is_the_wall_clock(history: list[tuple[str, Any]]) -> None:
    job = Job()
    for kind, what in [("place", None), ("start", 0), *history]:
        happen(job, kind, what)
    job.tell(ended=True)


def what_counts_are_the_steps_that_were_not_lost(history: list[tuple[str, Any]]) -> None:
    job = Job()
    for kind, what in [("place", None), ("start", 0), *history, ("end", "fault")]:
        happen(job, kind, what)
    assert job.record is not None
    account = job.record.account
    assert account is not None
    note(str(job.record.account))
    assert account.lost_steps == job.lost
    assert account.counted_until == at(job.now) or (not job.record.members and account.counted_until <= at(job.now))
    # A merge of old stretches may put the border between two steps elsewhere; each cut rounds down by a millisecond.
    assert abs(account.amount(*PRODUCTIVE) - job.kept * STEP_SECONDS * 1000) <= len(history) + 1
