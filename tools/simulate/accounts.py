"""What must hold of the accounts of all jobs, at each write: the sum is the wall clock, and no second is lost or
counted twice.

Looked at from outside: by what stands in the objects, and by the clock of the simulation.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from muster.api.goodput import Account, Bucket, Goodput
from simulate.apiserver import Object
from simulate.surroundings import Surroundings
from simulate.training import Trainer
from simulate.violation import Hold

# The creation of an object is told in whole seconds.
CREATED_WITHIN = timedelta(seconds=1)
RULE = "every second is in one bucket"
STEPS = "no step is told twice"


class Accounts:
    """Of all jobs that there are."""

    def __init__(self, around: Surroundings, trainers: Mapping[str, Trainer], hold: Hold) -> None:
        self._around = around
        self._trainers = trainers
        self._hold = hold

    def record_written(self, before: Object | None, after: Object) -> None:
        name, found = after["metadata"]["name"], after["spec"].get("account")
        if found is None:
            self._hold(RULE, before is None or "account" not in before["spec"], f"{name} has no account any more")
            return
        account = Account.model_validate(found)
        total, wall = sum(account.milliseconds.values()), account.counted_until - account.creation_time
        self._hold(RULE, timedelta(milliseconds=total) == wall, f"{name}: {total} ms are in buckets of {wall}")
        self._inspect(name, account.milliseconds, account.creation_time, account.counted_until)
        counted = sum(each.step - each.after_step for each in account.segments if each.milliseconds)
        told, made = counted + account.lost_steps, self._trainers[after["spec"]["jobUid"]].made
        self._hold(STEPS, told <= made, f"{name}: {counted} steps count and {account.lost_steps} are lost, of {made}")
        if before is None or before["spec"].get("account") is None:
            return
        earlier = Account.model_validate(before["spec"]["account"])
        same = earlier.creation_time == account.creation_time and earlier.counted_until <= account.counted_until
        self._hold(
            RULE,
            same,
            f"{name}: {earlier.creation_time} to {earlier.counted_until} has become {account.creation_time} to "
            f"{account.counted_until}",
        )
        for bucket in (Bucket.QUEUED, Bucket.LOST_WORK, Bucket.UNKNOWN, Bucket.SUSPENDED, Bucket.UNDETECTED):
            had, has = earlier.milliseconds.get(bucket, 0), account.milliseconds.get(bucket, 0)
            self._hold(RULE, had <= has, f"{name}: {bucket} has gone back from {had} to {has} ms")
        only_noted = (
            earlier.counted_until == account.counted_until and after["spec"]["attempt"] == before["spec"]["attempt"]
        )
        if only_noted and before["spec"].get("start") == after["spec"].get("start"):
            self._hold(RULE, earlier.milliseconds == account.milliseconds, f"{name}: counted twice within an attempt")

    def job_written(self, before: Object | None, after: Object) -> None:
        had, has = _goodput_of(before), _goodput_of(after)
        name = after["metadata"]["name"]
        if has is None:
            self._hold(RULE, had is None, f"{name} tells nothing of its time any more")
            return
        wall = (has.counted_until - has.creation_time) // timedelta(seconds=1)
        self._hold(RULE, has.wall_seconds == wall, f"{name} tells of {has.wall_seconds} s in {wall} s")
        self._inspect(name, has.seconds, has.creation_time, has.counted_until)
        if had is not None and had.creation_time == has.creation_time:
            self._hold(
                RULE,
                had.counted_until <= has.counted_until,
                f"{name}: what is told has shrunk, {had.counted_until} is now {has.counted_until}",
            )

    def _inspect(self, name: str, amounts: Mapping[str, int], begun: datetime, time: datetime) -> None:
        self._hold(RULE, all(amount > 0 for amount in amounts.values()), f"{name}: {amounts}")
        self._hold(RULE, set(amounts) <= set(Bucket), f"{name}: {sorted(amounts)}")
        now = self._around.wall_clock()
        if not self._around.clock_has_stepped:
            self._hold(RULE, time <= now + CREATED_WITHIN, f"{name}: {time} is counted at {now}, from {begun}")


def _goodput_of(job: Object | None) -> Goodput | None:
    found: Any = ((job or {}).get("status") or {}).get("goodput")
    return None if found is None else Goodput.model_validate(found)
