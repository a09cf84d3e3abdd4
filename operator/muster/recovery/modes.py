"""The two ways to run ranks, and how the life of a job differs between them. Pure.

How it is proved that ranks have ended differs, too: see `muster.fencing.survivors`.

Tests: tests/unit/burnin/test_progress.py.
"""

from typing import Protocol

from muster.api.gang import GangSpec, Level
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.protocol.messages import EXITED, IDLE
from muster.world.job import JobWorld
from muster.world.views import PodView

_FROM_LEAST = (Level.START, Level.IN_PLACE, Level.POD, Level.REPLACE, Level.REBUILD)


def greater_level(level: Level, other: Level) -> Level:
    """Return the level of recovery that repairs more."""
    return max(level, other, key=_FROM_LEAST.index)


class Mode(Protocol):
    """What depends on who starts the ranks of a job: launchers (Managed) or the pods themselves (Plain).

    Attributes:
        least_level: the least level of recovery that repairs a failure.
        starts_with_pods: whether a new pod starts its ranks at once, so that there is no start barrier.
        needs_command: whether the template has to name the command.
    """

    least_level: Level
    starts_with_pods: bool
    needs_command: bool

    def has_succeeded(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether every rank of the job has ended successfully."""

    def awaits_evidence(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether a worker may still report what caused a failure."""

    def leaves_at_the_end(self, world: JobWorld, pod: PodView) -> bool:
        """Whether a pod ends by itself after its job has ended."""


class Managed:
    """Launchers start the ranks when the barrier opens, report about them, and end them."""

    least_level = Level.IN_PLACE
    starts_with_pods = False
    needs_command = True

    def has_succeeded(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether every launcher reports that its ranks exited with 0, and verifiers have listed the checkpoints after
        that."""
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
        """Whether a worker of the last start has not reported since: its node may turn out to have been lost first."""
        views = [
            world.launchers.get(worker_view.pod.uid)
            for worker_view in world.worker_views
            if worker_view.member.pod_uid and worker_view.pod
        ]
        return any(view is None or (view.state, view.attempt) != (IDLE, record.attempt) for view in views)

    def leaves_at_the_end(self, world: JobWorld, pod: PodView) -> bool:
        """Whether a pod ends by itself after its job has ended: always, because its launcher exits by its directive."""
        return True


class Plain:
    """Pods start their ranks themselves, and nothing reports about the ranks."""

    least_level = Level.REBUILD  # the others would go on without the one that is replaced
    starts_with_pods = True
    needs_command = False

    def has_succeeded(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether the container that trains has ended successfully in every pod."""
        return all(worker_view.over and worker_view.succeeded for worker_view in world.worker_views)

    def awaits_evidence(self, world: JobWorld, record: GangSpec) -> bool:
        """Whether a worker may still report what caused a failure: never, because nothing reports."""
        return False

    def leaves_at_the_end(self, world: JobWorld, pod: PodView) -> bool:
        """Whether a pod ends by itself after its job has ended: only one whose ranks have ended, which also keeps its
        log."""
        return world.is_dead(pod.uid)


_MODES: dict[LaunchMode, Mode] = {LaunchMode.MANAGED: Managed(), LaunchMode.PLAIN: Plain()}


def mode_of(job: TrainingJob) -> Mode:
    """Return the mode in which the job's ranks are run."""
    return _MODES[job.spec.launch.mode]
