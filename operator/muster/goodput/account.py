"""Split the time since the last write of a job's account into buckets whenever the attempt changes. Pure.

An attempt has two phases, before and after its start. At the end of each phase all of it is split at once: by the
record, which says what was going on, and by ages that launchers and checkers report by their own clocks. What these do
not prove is `unknown`. Nothing is ever taken out of the sum, and only what the leader's clock shows is put in. So the
sum is the wall clock, whichever replica leads and whatever any clock does (docs/decisions/0025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile

from muster.api.gang import FaultClass, GangIncident, GangSpec
from muster.api.goodput import (
    LONGEST_MILLISECONDS,
    MAX_COUNT,
    MAX_NODE_GPUS,
    MAX_STEP,
    MOST_AHEAD_SECONDS,
    TOLD,
    Account,
    AttemptProgress,
    Bucket,
    Goodput,
    Segment,
    added,
)
from muster.api.trainingjob import RESUMED, SUSPENDED, Condition, ConditionStatus, LaunchMode
from muster.goodput.evidence import (
    burn_in_milliseconds,
    current_evidence,
    measured_tflops,
    milliseconds,
    milliseconds_ago,
    reclaim_milliseconds,
)
from muster.goodput.fingerprint import with_fingerprint, with_library
from muster.goodput.opened import ONE_CHANGE
from muster.goodput.segments import MILLISECOND, cut_after, with_first_checkpoint, with_segment
from muster.recovery.exits import last_step_of
from muster.recovery.failure import Kind
from muster.world.job import JobWorld

# Ranks start when their launcher receives the start directive, which a change of the leader may delay.
STARTED_WITHIN_MILLISECONDS = 120_000
# A program that reports no steps is taken to be starting for so long.
UNSEEN_MILLISECONDS = 600_000
# Two clocks of one process may differ by this when a machine is busy.
CLOCKS_AGREE_MILLISECONDS = 2_000
# The API server tells its time to the second, and not in this moment.
SERVER_AGREES_SECONDS = 5.0
# Two leaders' clocks may differ by this: each is known to a second or two.
LEADERS_AGREE_SECONDS = 10.0
# After so many step times without a step, work has stopped, whatever ended it.
STEPS_UNDER_WAY = 2
# The next write of the status reports a suspension.
TOLD_WITHIN_MILLISECONDS = 30_000


@dataclass(frozen=True)
class Split:
    """The split of one phase into buckets, in milliseconds.

    Attributes:
        made: the steps of the phase, if there were any.
        seen: the evidence for these steps.
        taken_back: earlier work that these steps repeated.
        base: the step after which the first of them was made.
        gone_back: milliseconds of these steps that the program itself has taken back.
        lost_steps: number of these steps that the program itself has taken back.
    """

    amounts: dict[str, int] = field(default_factory=dict)
    made: Segment | None = None
    seen: AttemptProgress | None = None
    taken_back: int = 0
    base: int = 0
    gone_back: int = 0
    lost_steps: int = 0


def with_account(world: JobWorld, spec: GangSpec) -> GangSpec:
    """Return the next record, which is about to be committed, with its account: the phase that ends with it is counted,
    or its progress so far is noted.
    """
    record = world.gang.spec if world.gang else None
    if record is not None and record.attempt == spec.attempt and (record.start is None) == (spec.start is None):
        return _noted(world, record, spec)
    fault = _new_fault(record, spec)
    account, split = close_account(world, fault=fault)
    if record is not None and record.start is not None:
        account = account.model_copy(update={"has_run": True})
    incidents = _with_offset(record, spec.incidents, account_offset(world, account))
    if record is not None and record.account is not None and split.made is not None and split.seen is not None:
        incidents = resumed(incidents, record, split.seen, split.taken_back, account_offset(world, account))
    if fault is not None:
        lost = split.amounts.get(Bucket.LOST_WORK, 0) - split.gone_back if split.seen is not None else None
        incidents[-1] = incidents[-1].model_copy(update={"lost_milliseconds": lost})
        failures, failed_starts = account.failures + 1, account.failed_starts + (split.seen is None)
        changes = {"failures": min(failures, MAX_COUNT), "failed_starts": min(failed_starts, MAX_COUNT)}
        account = account.model_copy(update=changes)
    if spec.start is not None and record is not None:
        account = _with_steps_made_again(world, record, account)
    if (
        spec.start is not None and spec.start.resume is not None
    ):  # without fields, its first step shows where the program resumes
        account = with_first_checkpoint(account, spec.start.resume.step, account_now(world, account))
        account, taken_back = cut_after(account, spec.start.resume.step)
        if record is not None and record.incidents and record.incidents[-1].resumed_step is None:
            incidents[-1] = _with_undone_work(incidents[-1], taken_back)
    if spec.start is not None:
        account = _measured(world, spec, with_fingerprint(world, account, spec.attempt))
    return spec.model_copy(update={"account": account, "incidents": incidents})


def _with_offset(record: GangSpec | None, incidents: Sequence[GangIncident], offset: timedelta) -> list[GangIncident]:
    """Return the incidents; a new one gets the lead of the account's clock over the clock of the incident's times."""
    recorded = {(incident.attempt, incident.time) for incident in record.incidents} if record is not None else set()
    return [
        incident
        if not offset or (incident.attempt, incident.time) in recorded
        else incident.model_copy(update={"account_offset_milliseconds": offset // MILLISECOND})
        for incident in incidents
    ]


def _measured(world: JobWorld, spec: GangSpec, account: Account) -> Account:
    """Return the account with the speed that the burn-in measured; without a report and on the same nodes, the old
    one."""
    tflops = measured_tflops(world, spec)
    if tflops is None and not any(member.is_replacement for member in spec.members):
        return account
    return account.model_copy(update={"measured_tflops": tflops})


def _with_steps_made_again(world: JobWorld, record: GangSpec, account: Account) -> Account:
    """Add the steps made after the last report that was known when Muster acted on the failure.

    The time of these steps is counted already, in buckets for time of unknown use.
    """
    since = list(takewhile(lambda incident: incident.resumed_step is None, reversed(record.incidents)))
    if not since or not account.segments:  # the first of these incidents ended what ran last
        return account
    top, last = account.segments[-1].step, last_step_of(world, record, since[-1].attempt)
    if last is None or last <= top:
        return account
    return with_segment(account, Segment(after_step=top, step=last, gpus=held_gpus(world, record)))


def _noted(world: JobWorld, record: GangSpec, spec: GangSpec) -> GangSpec:
    account = record.account
    if account is None or record.start is None:
        return spec
    progress, _ = _evidence(world, record, account, _elapsed(account, account_now(world, account)))
    return spec.model_copy(update={"account": account.model_copy(update={"progress": progress})})


def close_account(
    world: JobWorld, *, fault: GangIncident | None = None, ended: bool = False, only_steps: bool = False
) -> tuple[Account, Split]:
    """Return the account with all time that has passed, and how that time was split.

    Args:
        world: the state of the job.
        fault: the failure that ended the attempt, if one did.
        ended: the ranks have done their work.
        only_steps: count the time up to the newest step of the attempt and no further; without a step count nothing.
    """
    record = world.gang.spec if world.gang else None
    account = (record.account if record else None) or _new_account(world)
    elapsed = _elapsed(account, account_now(world, account))
    if only_steps:
        split = _split_until_step(world, record, account, elapsed)
    else:
        split = _split(world, record, account, elapsed, fault, ended=ended)
    account = account.model_copy(
        update={
            "counted_until": account.counted_until + sum(split.amounts.values()) * MILLISECOND,
            "milliseconds": added(account.milliseconds, split.amounts),
            "gpu_milliseconds": added(account.gpu_milliseconds, split.amounts, held_gpus(world, record)),
            "first_checkpoint_milliseconds": _first_checkpoint(world, record, account),
            "has_steps": account.has_steps or split.made is not None,
            "reported_buckets": sorted(
                {
                    *account.reported_buckets,
                    *(bucket for bucket in TOLD if split.seen and bucket in split.seen.reported_milliseconds),
                }
            ),
            **_with_energy(account, split.seen),
            "progress": None,
        }
    )
    if record is not None and record.start is not None:
        account = with_library(world, account, record.attempt)
    if split.made is not None:
        account, taken_back = cut_after(account, split.base)
        account, _ = cut_after(account, split.made.after_step)  # the program has gone back further than it was started
        account = account.model_copy(update={"lost_steps": min(account.lost_steps + split.lost_steps, MAX_STEP)})
        account, split = with_segment(account, split.made), replace(split, taken_back=taken_back)
    return account, split


def _with_energy(account: Account, seen: AttemptProgress | None) -> dict[str, int]:
    """Return the account's fields of energy, with what accelerators have used in this attempt so far."""
    if seen is None:
        return {}
    time = account.metered_gpu_milliseconds + seen.metered_gpu_milliseconds
    return {
        "joules": min(account.joules + seen.joules, LONGEST_MILLISECONDS),
        "metered_gpu_milliseconds": min(time, LONGEST_MILLISECONDS),
    }


def resumed(
    incidents: Sequence[GangIncident],
    record: GangSpec,
    progress: AttemptProgress,
    taken_back: int = 0,
    offset: timedelta = timedelta(0),
) -> list[GangIncident]:
    """Set the time of the first step after the last incident that a start has followed.

    The time stays unknown where clocks contradict each other: the leader that recorded the start was hours behind the
    one that saw the failure.

    Args:
        incidents: of the job, in order.
        record: of the attempt that made this step.
        progress: of the current attempt.
        taken_back: milliseconds of work that the program repeats, as only its first step showed.
        offset: lead of the account's clock over this leader's, which has most likely recorded the start.
    """
    last = len(incidents) - 1
    while last >= 0 and incidents[last].resumed_step is None:  # no start has followed
        last -= 1
    if last < 0 or incidents[last].resumed_time is not None:
        return list(incidents)
    at = _resumed_at(incidents[last], record, progress, offset)
    back = _with_undone_work(incidents[last].model_copy(update={"resumed_time": at}), taken_back)
    return [*incidents[:last], back, *incidents[last + 1 :]]


def _resumed_at(
    incident: GangIncident, record: GangSpec, progress: AttemptProgress, offset: timedelta
) -> datetime | None:
    """Return when the first step after the incident was finished, by the clock of its other times.

    None where the clock of the start was behind what had been reported.
    """
    if record.start is None or record.account is None:
        return None
    latest = record.start.time + offset + CLOCKS_AGREE_MILLISECONDS * MILLISECOND
    own = incident.account_offset_milliseconds * MILLISECOND
    if max(record.account.counted_until, incident.time + own) > latest:
        return None
    at = record.account.counted_until + progress.first_step_milliseconds * MILLISECOND - own
    return max(at, incident.time)


def _with_undone_work(incident: GangIncident, taken_back: int) -> GangIncident:
    """Return the incident with more work that was taken back; unknown lost work stays unknown."""
    if not taken_back and incident.lost_milliseconds is None:
        return incident
    lost = min((incident.lost_milliseconds or 0) + taken_back, LONGEST_MILLISECONDS)
    return incident.model_copy(update={"lost_milliseconds": lost})


def _new_account(world: JobWorld) -> Account:
    """Begin an account at the job's creation, converted from the API server's clock to the leader's."""
    created = world.job.metadata.creation_timestamp or world.now
    begin = min(created + timedelta(seconds=ahead_seconds(world)), world.now)
    ahead = None if world.ahead_seconds is None else ahead_seconds(world)
    return Account(creation_time=begin, counted_until=begin, clock_ahead_seconds=ahead)


def ahead_seconds(world: JobWorld) -> int:
    """Return by how much the leader's clock is ahead of the API server's; 0 where they agree within the precision."""
    if world.ahead_seconds is None or abs(world.ahead_seconds) <= SERVER_AGREES_SECONDS:
        return 0
    return int(_bounded(world.ahead_seconds))


def _bounded(ahead: float) -> float:
    """Limit the seconds by which a clock is ahead, so that the time can be written."""
    return min(max(ahead, -MOST_AHEAD_SECONDS), MOST_AHEAD_SECONDS)


def account_offset(world: JobWorld, account: Account) -> timedelta:
    """Return by how much the clock of the account is ahead of this leader's; 0 where that is unknown.

    An account goes by the clock of the leader that has begun it. Otherwise a change of leaders would add or lose time
    where one of them has a wrong clock.
    """
    if world.ahead_seconds is None or account.clock_ahead_seconds is None:
        return timedelta(0)
    seconds = account.clock_ahead_seconds - _bounded(world.ahead_seconds)
    return timedelta(0) if abs(seconds) <= LEADERS_AGREE_SECONDS else timedelta(seconds=seconds)


def account_now(world: JobWorld, account: Account) -> datetime:
    """Return the present by the clock of the account."""
    return world.now + account_offset(world, account)


def _elapsed(account: Account, now: datetime) -> int:
    """Return the milliseconds since the last count, by the account's clock; 0 while that clock has gone back."""
    return max((now - account.counted_until) // MILLISECOND, 0)


def held_gpus(world: JobWorld, record: GangSpec | None) -> int:
    """Count the accelerators that the job holds: all of its nodes, even those that it does not ask for.

    Where a node's number is unknown, what the job asks for counts.
    """
    asked = world.job.spec.gpus_per_node
    placed = [member for member in record.members if member.node] if record else []
    return sum(asked if member.gpus is None else member.gpus for member in placed)


def with_held_gpus(world: JobWorld, spec: GangSpec) -> GangSpec:
    """Note the accelerators of newly assigned nodes in the record: a node may be gone when they are counted."""
    previous_members = {m.index: m for m in world.gang.spec.members if m.gpus is not None} if world.gang else {}
    members = []
    for member in spec.members:
        previous = previous_members.get(member.index)
        gpus = (
            previous.gpus if previous is not None and previous.node == member.node else _node_gpus(world, member.node)
        )
        members.append(member if member.gpus == gpus else member.model_copy(update={"gpus": gpus}))
    return spec.model_copy(update={"members": members})


def _node_gpus(world: JobWorld, name: str) -> int | None:
    node = world.fleet.nodes.get(name)
    return None if node is None else min(node.accelerators(world.fleet.policy.accelerator_resource), MAX_NODE_GPUS)


def _new_fault(record: GangSpec | None, spec: GangSpec) -> GangIncident | None:
    """Return the failure that ends the attempt, if the next record has a new one."""
    if record is None or not spec.incidents:
        return None
    last = spec.incidents[-1]
    if last.fault_class is FaultClass.PLANNED or last.attempt != record.attempt or last.resumed_step is not None:
        return None
    recorded = record.incidents[-1] if record.incidents else None
    return None if recorded is not None and (recorded.attempt, recorded.time) == (last.attempt, last.time) else last


def _first_checkpoint(world: JobWorld, record: GangSpec | None, account: Account) -> int | None:
    if account.first_checkpoint_milliseconds is not None or record is None:
        return account.first_checkpoint_milliseconds
    published = world.job.status.goodput
    if (
        published is not None
        and published.first_checkpoint_seconds is not None
        and published.creation_time == account.creation_time
    ):
        return min(published.first_checkpoint_seconds * 1000, LONGEST_MILLISECONDS)
    if record.start is None:
        return None
    resume = record.start.resume.step if record.start.resume else 0
    views = (view for view in world.views.values() if view.attempt == record.attempt)
    if any(c.step > resume and c.verified and not c.incomplete for view in views for c in view.checkpoints):
        return max((account_now(world, account) - account.creation_time) // MILLISECOND, 0)
    return None


# How a phase is split.


def _split(
    world: JobWorld,
    record: GangSpec | None,
    account: Account,
    elapsed: int,
    fault: GangIncident | None,
    *,
    ended: bool,
) -> Split:
    anew = record is None and world.job.status.attempt > 0  # it was deleted by hand
    if anew or (record is not None and record.account is None):
        return Split(added({}, {Bucket.UNKNOWN: elapsed}))
    if record is None:
        return Split(_without_nodes(world, record, account, elapsed))
    if record.start is not None:
        return _with_hold(world, record, _split_run(world, record, account, elapsed, fault, ended=ended))
    borne_out = _confirmed_milliseconds(world, elapsed)
    rest = {Bucket.UNKNOWN: elapsed - borne_out}
    if not record.members:
        return Split(added(_without_nodes(world, record, account, borne_out), rest))
    if not all(member.node for member in record.members):
        return Split(added({_queue(account): borne_out}, rest))
    reclaim = reclaim_milliseconds(world, record, borne_out) if _watched(world) else 0
    tested = min(burn_in_milliseconds(world, record), borne_out - reclaim)
    split = {Bucket.RECLAIM: reclaim, Bucket.BURN_IN: tested, _start(account): borne_out - reclaim - tested}
    return Split(added(split, rest))


def _watched(world: JobWorld) -> bool:
    """Whether this leader has seen the attempt begin."""
    return world.attempt_age_seconds < world.leader_age_seconds


def _confirmed_milliseconds(world: JobWorld, elapsed: int) -> int:
    """Return how much of the elapsed time this leader has seen by a monotonic clock; all of it where it leads since
    later."""
    if not _watched(world):
        return elapsed
    return min(elapsed, milliseconds(world.attempt_age_seconds) + CLOCKS_AGREE_MILLISECONDS)


def _queue(account: Account) -> Bucket:
    return Bucket.REQUEUED if account.has_run else Bucket.QUEUED


def _start(account: Account) -> Bucket:
    return Bucket.RESTARTING if account.has_run else Bucket.STARTING


def open_bucket(record: GangSpec, goodput: Goodput, mode: LaunchMode) -> Bucket:
    """Return the bucket of the time since these figures, as far as it is known in the open phase; suspensions aside."""
    account = record.account or Account(creation_time=goodput.creation_time, counted_until=goodput.counted_until)
    if record.held_failure is not None and not record.held_failure.over:
        return Bucket.HELD
    if record.start is not None:
        return _start(account) if mode is LaunchMode.MANAGED and goodput.progress is None else Bucket.UNKNOWN
    placed = bool(record.members) and all(member.node for member in record.members)
    return _start(account) if placed else _queue(account)


def _without_nodes(world: JobWorld, record: GangSpec | None, account: Account, elapsed: int) -> dict[str, int]:
    """Split time without nodes into queue and suspension, by the job's condition: the record has no end of a
    suspension."""
    condition = suspended_condition(world)
    from_begin = record is not None and record.reason == SUSPENDED
    same = _since(world, account, condition, elapsed) if condition is not None else elapsed
    stopped, uncertain = 0, 0
    # Suspended from the beginning on, and yet only later: it was resumed in between. Or its spec has changed too often
    # for one suspension.
    several = from_begin if record is not None else world.job.metadata.generation > ONE_CHANGE
    if condition is not None and condition.status is ConditionStatus.TRUE:
        late = elapsed - same > TOLD_WITHIN_MILLISECONDS
        stopped = elapsed if from_begin and not late else same
        uncertain = elapsed - stopped if several and late else 0
    elif condition is not None and condition.reason == RESUMED and same < elapsed:
        # If it was queued before, the begin of the suspension is unknown.
        if from_begin or (record is None and not several):
            stopped = elapsed - same
        else:
            uncertain = elapsed - same
    elif from_begin and world.job.spec.suspend:
        stopped = elapsed
    queued = elapsed - stopped - uncertain
    return added({}, {Bucket.SUSPENDED: stopped, Bucket.UNKNOWN: uncertain, _queue(account): queued})


def suspended_condition(world: JobWorld) -> Condition | None:
    """Return the condition Suspended of the job as it is stored; None: it was not written yet."""
    return next((condition for condition in world.job.status.conditions if condition.type == SUSPENDED), None)


def _since(world: JobWorld, account: Account, condition: Condition, elapsed: int) -> int:
    """Return for how many of the elapsed milliseconds the condition Suspended has had its present status.

    The leader that wrote the condition has dated it, and its clock may differ from this leader's.
    """
    dated = world.job.status.goodput
    if dated is not None and dated.suspension_time is not None and dated.creation_time == account.creation_time:
        age = account_now(world, account) - dated.suspension_time
    else:
        age = world.now - condition.last_transition_time
    return min(max(age // MILLISECOND, 0), elapsed)


def _split_run(
    world: JobWorld,
    record: GangSpec,
    account: Account,
    elapsed: int,
    fault: GangIncident | None,
    *,
    ended: bool,
) -> Split:
    """Split the phase after the start."""
    progress, is_reported_now = _evidence(world, record, account, elapsed)
    broken = _fault_at(fault, elapsed)
    if progress is None:
        if ended:  # it has worked since an unknown time
            return Split(added({}, {Bucket.UNKNOWN: elapsed}))
        return Split(_without_a_step(world, record, account, broken, elapsed))
    split = _steps_in_buckets(world, record, account, progress)
    tail, interval = elapsed - progress.last_step_milliseconds, _interval(record, account, progress)
    if not is_reported_now:  # no launcher reports how it went on
        return _merge_splits(split, {Bucket.UNKNOWN: tail})
    if ended:
        return _merge_splits(split, {Bucket.FINISHING: tail})
    under_way = max(broken - progress.last_step_milliseconds, 0)
    if interval:
        under_way = min(under_way, STEPS_UNDER_WAY * interval)
    if fault is not None and fault.reason == Kind.HANG:
        under_way = min(under_way, interval)
    rest = Bucket.UNKNOWN if fault is None else Bucket.UNDETECTED
    return _merge_splits(split, {Bucket.LOST_WORK: under_way, rest: tail - under_way})


def _with_hold(world: JobWorld, record: GangSpec, split: Split) -> Split:
    """Return the split of a phase with the time for which its failure was held; no step was made in that time."""
    held = record.held_failure
    if held is None or held.over:
        return split
    left, amounts = max((world.now - held.since) // MILLISECOND, 0), split.amounts
    for bucket in (Bucket.UNDETECTED, Bucket.UNKNOWN, Bucket.STARTING, Bucket.RESTARTING):
        moved = min(amounts.get(bucket, 0), left)
        amounts, left = added(added(amounts, {bucket: moved}, -1), {Bucket.HELD: moved}), left - moved
    return replace(split, amounts=amounts)


def _merge_splits(split: Split, more: dict[Bucket, int]) -> Split:
    return replace(split, amounts=added(split.amounts, more))


def _split_until_step(world: JobWorld, record: GangSpec | None, account: Account, elapsed: int) -> Split:
    """Split the time from the start to the newest step."""
    if record is None or record.start is None or record.account is None:
        return Split()
    progress, _ = _evidence(world, record, account, elapsed)
    if progress is None:
        return Split()
    return _steps_in_buckets(world, record, account, progress)


def _without_a_step(world: JobWorld, record: GangSpec, account: Account, broken: int, elapsed: int) -> dict[str, int]:
    """Count time without a step as starting, where launchers report that there was none and the program reports
    steps."""
    views = [view for view in world.views.values() if view.attempt == record.attempt]
    no_step = bool(views) and all(view.step is None for view in views)
    if not no_step or not (account.has_steps or elapsed < UNSEEN_MILLISECONDS):
        return added({}, {Bucket.UNKNOWN: elapsed})
    lived = max(milliseconds(view.started_age_seconds) for view in views) + STARTED_WITHIN_MILLISECONDS
    late = max(elapsed - lived, 0)
    broken = max(broken - late, 0)
    split = {Bucket.UNKNOWN: late, _start(account): broken, Bucket.UNDETECTED: elapsed - late - broken}
    return added({}, split)


def _evidence(world: JobWorld, record: GangSpec, account: Account, elapsed: int) -> tuple[AttemptProgress | None, bool]:
    """Return how far the ranks have come, and whether a launcher reports it now.

    Without such a report the record or the last published status counts: whichever is newer.
    """
    now, status, last_known = current_evidence(world, record, elapsed), world.job.status, None
    if (
        status.goodput is not None
        and status.attempt == record.attempt
        and status.goodput.creation_time == account.creation_time
    ):
        last_known = status.goodput.progress
    if last_known is None or (account.progress is not None and account.progress.made > last_known.made):
        last_known = account.progress
    if now is None:
        return (None if last_known is None else _within(last_known, elapsed)), False
    # A launcher without ranks no longer reports what these have used.
    if last_known is not None and last_known.metered_gpu_milliseconds > now.metered_gpu_milliseconds:
        used = {"joules": last_known.joules, "metered_gpu_milliseconds": last_known.metered_gpu_milliseconds}
        now = now.model_copy(update=used)
    return now, True


def _within(progress: AttemptProgress, elapsed: int) -> AttemptProgress:
    """Limit the evidence to the elapsed time: the clock may have gone back since it was noted."""
    last = min(progress.last_step_milliseconds, elapsed)
    first = min(progress.first_step_milliseconds, last)
    return progress.model_copy(
        update={
            "last_step_milliseconds": last,
            "first_step_milliseconds": first,
            "start_milliseconds": min(progress.start_milliseconds, first),
        }
    )


def _base(record: GangSpec, account: Account, progress: AttemptProgress) -> int:
    """Return the step before the first one of this attempt: the program may have gone back further than its directive.

    A program without a step to resume from may have found a checkpoint itself. Its first line shows where it resumes if
    the distance of its lines is known, or if steps were made before. Otherwise it has begun with step 1 only if there
    was time for all steps since.
    """
    if record.start is not None and record.start.resume is not None:
        resume = record.start.resume.step
        return resume if progress.first_step > resume else max(progress.first_step - 1, 0)
    if account.segments or progress.step_stride:
        return max(progress.first_step - max(progress.step_stride, 1), 0)
    from_nothing = (
        progress.pace_milliseconds * progress.first_step
        <= progress.first_step_milliseconds - progress.start_milliseconds
    )
    return 0 if from_nothing else max(progress.first_step - 1, 0)


def _interval(record: GangSpec, account: Account, progress: AttemptProgress) -> int:
    """Return the milliseconds between two reported steps: a program may print only some of its steps."""
    return progress.pace_milliseconds * (
        progress.step_stride or max(progress.first_step - _base(record, account, progress), 1)
    )


def _steps_in_buckets(world: JobWorld, record: GangSpec, account: Account, progress: AttemptProgress) -> Split:
    """Return the steps of the attempt, and all time up to the newest one in buckets."""
    late = max(progress.start_milliseconds - STARTED_WITHIN_MILLISECONDS, 0)
    base = _base(record, account, progress)
    after = base if progress.lowest_restarted_step is None else min(base, progress.lowest_restarted_step)
    # The first line may end several steps where only some are printed; what the first took longer is start.
    early = min(
        progress.pace_milliseconds * max(progress.first_step - base, 0),
        progress.first_step_milliseconds - progress.start_milliseconds,
    )
    work = progress.last_step_milliseconds - progress.first_step_milliseconds + early
    # All of them, where it has gone back to before the first one.
    gone_back = min(progress.lost_milliseconds + (early if after < base else 0), work)
    amounts, rest = dict[str, int](), work - gone_back
    for bucket in TOLD:
        amounts[bucket] = min(progress.reported_milliseconds.get(bucket, 0), rest)
        rest -= amounts[bucket]
    amounts = added(amounts, {Bucket.COMPUTE: rest})
    made = Segment(
        after_step=after, step=max(progress.step, after + 1), gpus=held_gpus(world, record), milliseconds=amounts
    )
    begin = Bucket.UNKNOWN if _is_untimed(record, progress, base) else _start(account)
    others = added(
        {Bucket.LOST_WORK: gone_back, Bucket.UNKNOWN: late}, {begin: progress.last_step_milliseconds - work - late}
    )
    # Those that were made before this attempt are taken out of their stretches.
    lost_steps = max(progress.lost_steps - (base - after), 0)
    return Split(added(amounts, others), made, progress, base=base, gone_back=gone_back, lost_steps=lost_steps)


def _is_untimed(record: GangSpec, progress: AttemptProgress, base: int) -> bool:
    """Whether several steps lie before the only printed line, which has no pace: start and training cannot be told
    apart."""
    resume = record.start.resume if record.start is not None else None
    several = progress.step - base > 1 or (resume is None and not progress.step_stride and progress.step > 1)
    return several and not progress.pace_milliseconds


def _fault_at(fault: GangIncident | None, elapsed: int) -> int:
    """Return when the failure happened, in milliseconds of the phase; the end of the phase where that is not known."""
    if fault is None or fault.fault_time is None:
        return elapsed
    return milliseconds_ago(elapsed, (fault.time - fault.fault_time).total_seconds())
