"""The two ways to run ranks, and what a job's life owes to the difference. Pure.

How it is proved that ranks have ended differs, too: see `muster.fencing.survivors`.
"""

from typing import Protocol

from muster.api.gang import GangSpec, Level
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.protocol.messages import EXITED, IDLE
from muster.world.job import JobWorld
from muster.world.views import PodView


class Mode(Protocol):
    """Who starts ranks, and who tells of them.

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


class Managed:
    """Launchers start the ranks at the go, tell of them, and end them."""

    least_level = Level.IN_PLACE
    starts_with_pods = False
    needs_command = True

    def has_succeeded(self, world: JobWorld, record: GangSpec) -> bool:
        """By the word of every launcher, once those that see the checkpoints have listed them a last time."""
        return (
            record.start is not None
            and len(world.views) == len(record.members)
            and all(
                view.attempt == record.attempt
                and view.state == EXITED
                and not view.fenced
                and not view.lists_after_end
                and all(not rank.alive and rank.exit_code == 0 and not rank.corruption for rank in view.ranks)
                for view in world.views.values()
            )
        )

    def awaits_evidence(self, world: JobWorld, record: GangSpec) -> bool:
        """A worker of the last start has not answered since: it may yet turn out that its node was lost first."""
        views = [
            world.launchers.get(worker_view.pod.uid)
            for worker_view in world.worker_views
            if worker_view.member.pod_uid and worker_view.pod
        ]
        return any(view is None or (view.state, view.attempt) != (IDLE, record.attempt) for view in views)

    def leaves_at_the_end(self, world: JobWorld, pod: PodView) -> bool:
        """Its launcher exits when told so."""
        return True


class Plain:
    """Pods start their ranks themselves, and nobody tells of these."""

    least_level = Level.REBUILD  # the others would go on without the one that is replaced
    starts_with_pods = True
    needs_command = False

    def has_succeeded(self, world: JobWorld, record: GangSpec) -> bool:
        """By the containers that train."""
        return all(worker_view.over and worker_view.succeeded for worker_view in world.worker_views)

    def awaits_evidence(self, world: JobWorld, record: GangSpec) -> bool:
        """Nobody tells anything."""
        return False

    def leaves_at_the_end(self, world: JobWorld, pod: PodView) -> bool:
        """Nobody else tells those who still train; whoever has ended is about to be terminal, and keeps his log."""
        return world.is_dead(pod.uid)


_MODES: dict[LaunchMode, Mode] = {LaunchMode.MANAGED: Managed(), LaunchMode.PLAIN: Plain()}


def mode_of(job: TrainingJob) -> Mode:
    """How this job's ranks are run."""
    return _MODES[job.spec.launch.mode]
