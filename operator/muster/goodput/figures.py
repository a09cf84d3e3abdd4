"""The figures of an account that people are told. Pure.

ETTR is the productive time of all time that the job was wanted to run, waiting included: "Revisiting Reliability in
Large-Scale Machine Learning Research Clusters" (HPCA 2025, arXiv 2410.21680). Productive is time in steps that count; a
save that stops the training is not.
"""

from collections.abc import Mapping

from muster.api.goodput import MAX_STEP, PRODUCTIVE, Account, Bucket, Goodput, Seen


def figures(account: Account, seen: Seen | None, before: Goodput | None = None) -> Goodput:
    """The figures.

    Args:
        seen: how far the ranks of the current attempt have come, where they run.
        before: what was told last; of it stays what cannot be seen between two attempts.
    """
    if before is not None and before.begun != account.begun:  # another job's, or from before a record was made anew
        before = None
    wall = sum(account.milliseconds.values())
    wanted = wall - account.amount(Bucket.SUSPENDED)
    productive = account.amount(*PRODUCTIVE)
    first = account.first_checkpoint_milliseconds
    step, slow = (seen.step_milliseconds, seen.step_p90_milliseconds) if seen else (0, 0)
    interval = seen.checkpoint_steps if seen else 0
    stall = _stall(seen) if seen else None
    return Goodput(
        begun=account.begun,
        time=account.time,
        seconds=whole_seconds(account.milliseconds),
        gpu_seconds=whole_seconds(account.gpu_milliseconds),
        ettr_permille=_permille(productive, wanted),
        ettr_after_queue_permille=_permille(productive, wanted - account.amount(Bucket.QUEUED)),
        failures=account.failures,
        failed_starts=account.failed_starts,
        steps=_steps(account),
        lost_steps=account.lost_steps,
        first_checkpoint_seconds=first // 1000 if first is not None else None,
        step_milliseconds=step or (before.step_milliseconds if before else None),
        # It belongs to the median beside it: of an attempt that has just begun there is none yet.
        step_p90_milliseconds=slow or (before.step_p90_milliseconds if before and not step else None),
        checkpoint_steps=interval or (before.checkpoint_steps if before else None),
        checkpoint_stall_milliseconds=stall
        if stall is not None
        else before.checkpoint_stall_milliseconds
        if before
        else None,
        gpu_model=before.gpu_model if before else "",
        fingerprints=account.fingerprints,
        measured_tflops=account.measured_tflops,
        joules=account.joules,
        metered_gpu_seconds=account.metered_gpu_milliseconds // 1000,
        seen=seen,
    )


def whole_seconds(amounts: Mapping[str, int]) -> dict[str, int]:
    """Milliseconds as seconds whose sum is that of all of them: those that lose most by it are rounded up."""
    floors = {name: amount // 1000 for name, amount in amounts.items()}
    missing = sum(amounts.values()) // 1000 - sum(floors.values())
    for name in sorted(amounts, key=lambda name: (-(amounts[name] % 1000), name))[:missing]:
        floors[name] += 1
    return {name: seconds for name, seconds in sorted(floors.items()) if seconds}


def _permille(part: int, whole: int) -> int | None:
    return part * 1000 // whole if whole > 0 else None


def _steps(account: Account) -> int:
    """Steps that count. The few that were made after the last report before a failure have no time, and are left out of rates."""
    counted = (each.step - each.after for each in account.stretches if sum(each.milliseconds.values()))
    return min(sum(max(each, 0) for each in counted), MAX_STEP)


def _stall(seen: Seen) -> int | None:
    """For how long one save stops the training; None where the program does not tell, or has not saved."""
    told = seen.told.get(Bucket.CHECKPOINT_STALL)
    each = seen.checkpoint_steps
    saves = (
        seen.made // each - max(seen.first_step - 1, 0) // each if each else 0
    )  # at multiples of it, wherever it went on
    return told // saves if told is not None and saves > 0 else None
