"""The two ways to run ranks, and all that a job's life owes to the difference. Pure."""

from typing import Protocol

from muster.api.gang import GangSpec, Ghost, Level
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.lifecycle.managed import Managed
from muster.lifecycle.plain import Plain
from muster.world.job import JobWorld, Seat
from muster.world.views import PodView


class Mode(Protocol):
    """Who starts ranks, who tells of them, and how their end is known.

    Attributes:
        least_level: of what mends a failure.
        starts_with_pods: a pod's creation is the start of its ranks, so that there is no barrier.
        needs_command: the command of the template has to be known.
    """

    least_level: Level
    starts_with_pods: bool
    needs_command: bool

    def has_succeeded(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether every rank has ended well."""

    def awaits_evidence(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether a worker may yet tell how it came to a failure."""

    def leaves_at_the_end(self, world: JobWorld, pod: PodView) -> bool:
        """Whether a pod of a job that has ended goes by itself."""

    def ghost(self, world: JobWorld, record: GangSpec, seat: Seat) -> Ghost | None:
        """The pod of a member that is left behind; None where no rank of it can be alive."""

    def known(self, world: JobWorld, ghost: Ghost) -> Ghost:
        """A ghost of before, with what is known by now."""

    def is_ended(self, world: JobWorld, ghost: Ghost) -> bool:
        """Whether no rank of it can be alive though nobody has seen its end: by its kubelet, by itself, or by the limit."""

    def waited_for(self, world: JobWorld, ghost: Ghost) -> str:
        """What that takes, in words."""


_MODES: dict[LaunchMode, Mode] = {LaunchMode.MANAGED: Managed(), LaunchMode.PLAIN: Plain()}


def mode_of(job: TrainingJob) -> Mode:
    """How this job's ranks are run."""
    return _MODES[job.spec.launch.mode]
