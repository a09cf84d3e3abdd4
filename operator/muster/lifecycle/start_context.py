"""What each gate of a start is given."""

from dataclasses import dataclass

from muster.api.gang import GangSpec
from muster.pods.worker_pod import WorkerSettings
from muster.world.job import JobWorld


@dataclass(frozen=True, slots=True)
class StartContext:
    """A gang whose ranks have not started.

    Attributes:
        world: the state of the job.
        spec: its record.
        settings: for the manifests of its pods.
    """

    world: JobWorld
    spec: GangSpec
    settings: WorkerSettings
