"""Prometheus figures of jobs' saves: those of the newest save, and what concerns people.

Each job that has a checkpoint has a row of its own. Names of jobs are users' to choose, so only so many have one: the
others have none until one of these is deleted.
"""

from prometheus_client import Gauge

from muster.api.trainingjob import CheckpointSave, CheckpointTrouble, TrainingJobStatus

MAX_JOBS = 500
"""That have figures of their own."""

_JOB = ["namespace", "job_name"]
_bytes = Gauge("muster_checkpoint_bytes", "Size of a job's newest complete checkpoint.", _JOB)
_save = Gauge("muster_checkpoint_save_seconds", "Time from that checkpoint's first finished file to its last.", _JOB)
_stall = Gauge(
    "muster_checkpoint_stall_seconds", "Additional time of the steps around that save, beyond the usual.", _JOB
)
_durable = Gauge(
    "muster_checkpoint_durable_seconds", "Time from the end of that step until its checkpoint was seen complete.", _JOB
)
_free = Gauge(
    "muster_checkpoint_free_bytes", "Free space of that checkpoint's file system when it was seen complete.", _JOB
)
_concern = Gauge(
    "muster_checkpoint_concern", "1 where a job's checkpoints need attention for this reason.", [*_JOB, "reason"]
)

Key = tuple[str, str]


class SaveFigures:
    """Keeps the figures of jobs' saves. Only the event loop's thread may touch it."""

    def __init__(self) -> None:
        self._shown: set[Key] = set()

    def set_status(self, key: Key, status: TrainingJobStatus) -> None:
        """Take in the status that is published of a job from now on."""
        checkpoint = status.checkpoint
        if checkpoint is None or status.completion is not None or status.is_ejected:
            self.forget(key)
            return
        if key not in self._shown:
            if len(self._shown) >= MAX_JOBS:
                return
            self._shown.add(key)
        unknown = CheckpointSave(step=checkpoint.step)
        newest = next((save for save in checkpoint.saves if save.step == checkpoint.step), unknown)
        for gauge, figure in (
            (_bytes, newest.bytes),
            (_save, newest.save_seconds),
            (_stall, newest.stall_seconds),
            (_durable, newest.durable_seconds),
            (_free, newest.free_bytes),
        ):
            if figure is None:
                _remove(gauge, *key)
            else:
                gauge.labels(*key).set(figure)
        reasons = {concern.reason for concern in checkpoint.concerns}
        for reason in CheckpointTrouble:
            if reason in reasons:
                _concern.labels(*key, reason.value).set(1)
            else:
                _remove(_concern, *key, reason.value)

    def forget(self, key: Key) -> None:
        """Remove the rows of a job that is gone, has ended or was ejected."""
        if key not in self._shown:
            return
        self._shown.remove(key)
        for gauge in (_bytes, _save, _stall, _durable, _free):
            _remove(gauge, *key)
        for reason in CheckpointTrouble:
            _remove(_concern, *key, reason.value)


def _remove(gauge: Gauge, *labels: str) -> None:
    """Remove a row that may not be there."""
    try:
        gauge.remove(*labels)
    except KeyError:
        return
