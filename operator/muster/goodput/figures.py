"""Compute the published figures of an account. Pure.

ETTR is the productive time of all time in which the job was to run, waiting included: "Revisiting Reliability in
Large-Scale Machine Learning Research Clusters" (HPCA 2025, arXiv 2410.21680). Productive is time in steps that count; a
save that stops the training is not.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.api.goodput import MAX_STEP, PRODUCTIVE, Account, AttemptProgress, Bucket, Goodput, added
from muster.goodput.segments import cut_after

NOTHING_SAVED = -1
"""Stands for no checkpoint: it is below every step."""
LEAST_UNKNOWN_SHARE = 0.01
"""A smaller share of unknown time is not reported beside the figures that it limits."""


@dataclass(frozen=True, slots=True)
class KeptWork:
    """How much of a job's work is known to be kept: up to its newest complete checkpoint, or all once it has succeeded.

    Attributes:
        is_known: whether the job names a directory with its checkpoints.
        step: its newest complete checkpoint; None: none is known.
        ended: the job has ended, or is gone.
        succeeded: because its ranks have done their work.
    """

    is_known: bool
    step: int | None = None
    ended: bool = False
    succeeded: bool = False


def settle_account(account: Account, kept: KeptWork) -> tuple[Account, int]:
    """Return the account, and the milliseconds lost by the job's end: steps after the last complete checkpoint.

    A job that has succeeded, or still runs, loses none.
    """
    is_lost = kept.ended and kept.is_known and not kept.succeeded
    return _without_unsaved(account, kept) if is_lost else (account, 0)


def _without_unsaved(account: Account, kept: KeptWork) -> tuple[Account, int]:
    return cut_after(account, NOTHING_SAVED if kept.step is None else kept.step)


def give_up_unsaved(goodput: Goodput) -> Goodput:
    """Count unsaved work as lost, for a job that vanished before its end was counted.

    Only the sum of that time is known, so it is taken off the buckets of the steps, and off the steps, in proportion.
    """
    unsaved, productive = goodput.unsaved_seconds or 0, goodput.amount(*PRODUCTIVE)
    if not unsaved or not productive:
        return goodput.model_copy(update={"unsaved_seconds": None})
    unsaved = min(unsaved, productive)

    def lost(amounts: Mapping[str, int]) -> dict[str, int]:
        lost_amounts = {name: amounts.get(name, 0) * unsaved // productive for name in PRODUCTIVE}
        return added(added(amounts, lost_amounts, -1), {Bucket.LOST_WORK: sum(lost_amounts.values())})

    seconds = lost(goodput.seconds)
    steps = None if goodput.steps is None else goodput.steps * (productive - unsaved) // productive
    lost_steps = 0 if goodput.steps is None or steps is None else goodput.steps - steps
    return goodput.model_copy(
        update={
            "seconds": seconds,
            "gpu_seconds": lost(goodput.gpu_seconds),
            **ettr_fields(seconds, is_known=not goodput.progress_unknown),
            "steps": steps,
            "lost_steps": min(goodput.lost_steps + lost_steps, MAX_STEP),
            "unsaved_seconds": None,
            "lost_at_end_seconds": unsaved,
        }
    )


def progress_share(accounts: Iterable[tuple[Mapping[str, int], bool]]) -> float | None:
    """Return the share of steps that count in the sum of accounts by bucket; None where nothing is known.

    Args:
        accounts: each with whether its progress is unknown; such a one is left out.
    """
    whole = part = 0
    for amounts, is_unknown in accounts:
        if not is_unknown:
            whole += sum(amounts.values())
            part += sum(amounts.get(bucket, 0) for bucket in PRODUCTIVE)
    return part / whole if whole else None


def ettr_at_most(goodput: Goodput) -> float | None:
    """Return the ETTR if all unknown time were in steps that count.

    None where no ETTR is published, or too little time is unknown for a difference.
    """
    unknown = goodput.amount(Bucket.UNKNOWN)
    wanted = goodput.wall_seconds - goodput.amount(Bucket.SUSPENDED)
    if goodput.ettr_permille is None or unknown < LEAST_UNKNOWN_SHARE * wanted or not unknown:
        return None
    return (goodput.amount(*PRODUCTIVE) + unknown) / wanted


def figures(account: Account, seen: AttemptProgress | None, previous: Goodput | None, kept: KeptWork) -> Goodput:
    """Compute the figures of an account.

    Args:
        account: loses what no complete checkpoint holds where the job has ended without success.
        seen: how far the ranks of the current attempt have come, where they run.
        previous: what was published last; its values stay where nothing shows them between two attempts.
        kept: the work that checkpoints hold.
    """
    if (
        previous is not None and previous.creation_time != account.creation_time
    ):  # another job's, or from before a record was created again
        previous = None
    account, lost_at_end = settle_account(account, kept)
    productive = account.amount(*PRODUCTIVE)
    is_timed = productive > 0 or not account.segments
    is_known = is_timed and (kept.is_known or kept.succeeded)
    unsaved = _without_unsaved(account, kept)[1] // 1000 if kept.is_known and not kept.ended else None
    seconds, first = rounded_seconds(account.milliseconds), account.first_checkpoint_milliseconds
    step, slow = (seen.step_milliseconds, seen.step_p90_milliseconds) if seen else (0, 0)
    interval = seen.checkpoint_steps if seen else 0
    stall = _stall(seen) if seen else None
    return Goodput(
        creation_time=account.creation_time,
        counted_until=account.counted_until,
        seconds=seconds,
        gpu_seconds=rounded_seconds(account.gpu_milliseconds),
        **ettr_fields(seconds, is_known=is_known),
        unsaved_seconds=unsaved,
        lost_at_end_seconds=lost_at_end // 1000,
        progress_unknown=not is_known,
        failures=account.failures,
        failed_starts=account.failed_starts,
        steps=_steps(account) if is_timed else None,
        reported_buckets=account.reported_buckets,
        lost_steps=account.lost_steps,
        first_checkpoint_seconds=first // 1000 if first is not None else None,
        step_milliseconds=step or (previous.step_milliseconds if previous else None),
        step_stride=max(seen.step_stride, 1) if seen and step else previous.step_stride if previous else 1,
        # It belongs to the median beside it: an attempt that has just begun has none yet.
        step_p90_milliseconds=slow or (previous.step_p90_milliseconds if previous and not step else None),
        checkpoint_steps=interval or (previous.checkpoint_steps if previous else None),
        checkpoint_stall_milliseconds=stall
        if stall is not None
        else previous.checkpoint_stall_milliseconds
        if previous
        else None,
        gpu_model=previous.gpu_model if previous else "",
        fingerprints=account.fingerprints,
        measured_tflops=account.measured_tflops,
        joules=account.joules,
        metered_gpu_seconds=account.metered_gpu_milliseconds // 1000,
        clock_ahead_seconds=account.clock_ahead_seconds or 0,
        progress=seen,
    )


def gpus_while_running(goodput: Goodput, asked: int) -> float:
    """Return the mean number of accelerators that the job has held while its ranks ran, or the number that it has asked
    for where they never did.
    """
    ran = (*PRODUCTIVE, Bucket.CHECKPOINT_STALL, Bucket.LOST_WORK, Bucket.UNDETECTED)
    seconds = goodput.amount(*ran)
    return sum(goodput.gpu_seconds.get(bucket, 0) for bucket in ran) / seconds if seconds else asked


def rounded_seconds(amounts: Mapping[str, int]) -> dict[str, int]:
    """Round milliseconds to seconds without changing their sum: the largest remainders are rounded up."""
    floors = {name: amount // 1000 for name, amount in amounts.items()}
    missing = sum(amounts.values()) // 1000 - sum(floors.values())
    for name in sorted(amounts, key=lambda name: (-(amounts[name] % 1000), name))[:missing]:
        floors[name] += 1
    return {name: seconds for name, seconds in sorted(floors.items()) if seconds}


def ettr_fields(seconds: Mapping[str, int], *, is_known: bool) -> dict[str, int | None]:
    """Return the fields with the ETTR: of the whole seconds that are published, so that each reader gets the same."""
    productive = sum(seconds.get(bucket, 0) for bucket in PRODUCTIVE)
    wanted = sum(seconds.values()) - seconds.get(Bucket.SUSPENDED, 0)
    after_queue = wanted - seconds.get(Bucket.QUEUED, 0)
    return {
        "ettr_permille": permille(productive / wanted) if is_known and wanted else None,
        "ettr_after_queue_permille": permille(productive / after_queue) if is_known and after_queue else None,
    }


def permille(share: float) -> int:
    """Round a share to thousandths, as every figure and every text does."""
    return math.floor(share * 1000 + 0.5)


def thousandth(figure: int | None) -> float | None:
    """Return a figure that is kept in thousandths (of the whole, of a second) in its unit; None: unknown."""
    return None if figure is None else figure / 1000


def _steps(account: Account) -> int:
    """Count the steps that count, for rates: the few after the last report before a failure have no time and are left
    out."""
    counted = (segment.step - segment.after_step for segment in account.segments if sum(segment.milliseconds.values()))
    return min(sum(max(steps, 0) for steps in counted), MAX_STEP)


def _stall(seen: AttemptProgress) -> int | None:
    """Return how long one save stops the training; None without a save, or without a report or measurement of it."""
    if seen.measured_saves:
        return seen.reported_milliseconds.get(Bucket.CHECKPOINT_STALL, 0) // seen.measured_saves
    reported = seen.reported_milliseconds.get(Bucket.CHECKPOINT_STALL)
    interval = seen.checkpoint_steps
    saves = (
        seen.made // interval - max(seen.first_step - 1, 0) // interval if interval else 0
    )  # at multiples of it, wherever it resumed
    return reported // saves if reported is not None and saves > 0 else None
