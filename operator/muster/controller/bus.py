"""Signals between the loops of the operator: the one that notices publishes, the one that acts subscribes.

Tests: tests/unit/controller/test_cluster.py.
"""

from collections.abc import Callable
from typing import Generic, TypeVarTuple

from muster.api.trainingjob import TrainingJob

Key = tuple[str, str]  # namespace and name

Ts = TypeVarTuple("Ts")


class Signal(Generic[*Ts]):
    """One kind of news. Who hears it must only enqueue: it is called synchronously, in the order of subscription."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[*Ts], None]] = []

    def subscribe(self, callback: Callable[[*Ts], None]) -> None:
        """Call `callback` with each piece of news from now on."""
        self._callbacks.append(callback)

    def publish(self, *news: *Ts) -> None:
        """Call each subscriber."""
        for callback in self._callbacks:
            callback(*news)


class Bus:
    """The news that loops of the operator wait for.

    Attributes:
        job_changed: something that a decision about the job of this key reads has changed.
        job_gone: a job is gone or going, while what is remembered of it is still there.
        nodes_freed: a node has become free, or has changed in another way that placement may care about.
        reservation_unused: a job, by namespace and uid, has held nodes for too long without a start, and has let go of
            them.
    """

    def __init__(self) -> None:
        self.job_changed = Signal[Key]()
        self.job_gone = Signal[TrainingJob]()
        self.nodes_freed = Signal[()]()
        self.reservation_unused = Signal[str, str]()
