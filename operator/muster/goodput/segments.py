"""Keep the steps that count in the order in which they were made: add a segment, or take back work beyond a step.
Pure.

Tests: tests/unit/goodput/test_account.py.
"""

from datetime import datetime, timedelta

from muster.api.goodput import MAX_STEP, MAX_STRETCHES, Account, Bucket, Segment, added

MILLISECOND = timedelta(milliseconds=1)


def with_first_checkpoint(account: Account, step: int | None, now: datetime) -> Account:
    """Note when the job's first own checkpoint was known: a complete one, of a step that this job has made. None: no
    complete one is known.
    """
    is_own = step is not None and any(segment.after_step < step <= segment.step for segment in account.segments)
    if account.first_checkpoint_milliseconds is not None or not is_own:
        return account
    return account.model_copy(
        update={"first_checkpoint_milliseconds": max((now - account.creation_time) // MILLISECOND, 0)}
    )


def cut_after(account: Account, step: int) -> tuple[Account, int]:
    """Take back the steps after the one from which the training resumes.

    Returns:
        the account, and how many milliseconds of it were lost.
    """
    top = account.segments[-1].step if account.segments else step
    if top <= step:
        return account, 0
    kept, lost, gpu_lost, lost_steps = [], dict[str, int](), dict[str, int](), 0
    for stretch in account.segments:
        if stretch.step <= step:
            kept.append(stretch)
            continue
        beyond, all_of_them = stretch.step - max(stretch.after_step, step), max(stretch.step - stretch.after_step, 1)
        undone = {name: amount * beyond // all_of_them for name, amount in stretch.milliseconds.items()}
        lost, gpu_lost, lost_steps = added(lost, undone), added(gpu_lost, undone, stretch.gpus), lost_steps + beyond
        if stretch.after_step < step:
            rest = {"step": step, "milliseconds": added(stretch.milliseconds, undone, -1)}
            kept.append(stretch.model_copy(update=rest))
    changes = {
        "milliseconds": _move_to_lost(account.milliseconds, lost),
        "gpu_milliseconds": _move_to_lost(account.gpu_milliseconds, gpu_lost),
        "segments": kept,
        "lost_steps": min(account.lost_steps + lost_steps, MAX_STEP),
    }
    return account.model_copy(update=changes), sum(lost.values())


def _move_to_lost(amounts: dict[str, int], lost: dict[str, int]) -> dict[str, int]:
    """Move amounts to lost work; never more than there is, should the record have been edited."""
    moved_amounts = {name: min(amount, amounts.get(name, 0)) for name, amount in lost.items()}
    return added(added(amounts, moved_amounts, -1), {Bucket.LOST_WORK: sum(moved_amounts.values())})


def with_segment(account: Account, made: Segment) -> Account:
    """Append a segment; beyond the limit the two oldest become one.

    The merged one is treated as contiguous, with one step time and number of GPUs. Steps between the two may have been
    taken back, with a checkpoint of them used all the same.
    """
    stretches = [*account.segments, made]
    if len(stretches) > MAX_STRETCHES:
        first, second, *others = stretches
        both = added(first.milliseconds, second.milliseconds)
        after = second.after_step - (first.step - first.after_step)
        stretches = [second.model_copy(update={"after_step": after, "milliseconds": both}), *others]
    return account.model_copy(update={"segments": stretches})
