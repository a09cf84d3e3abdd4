"""What a fault is, and what a kind of fault."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

RESOURCES = ("gangs", "pods", "trainingjobs", "leases", "")
FOR_EVER = 1e9
FOR_GOOD = 2e9
Undo = Callable[[], None]
T = TypeVar("T")


class MissedError(Exception):
    """There is nothing now that a fault could hit."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds into the life.
        kind: which; see `simulate.faults.KINDS`.
        job: name of the job that it is about, "" for none. Kinds that hit nodes then hit those on which it runs.
        number: of a worker, a node or whatever else the kind counts; beyond the last it begins anew.
        count: how many neighbours of it are hit as well: the next nodes, the next workers.
        seconds: how long it lasts, where it lasts; FOR_EVER is until the end of the trouble, and
            FOR_GOOD beyond it: one node that is broken can be done without.
        amount: how much of it: seconds of lag, an HTTP status, a step of a clock.
    """

    at: float
    kind: str
    job: str = ""
    number: int = 0
    count: int = 1
    seconds: float = 0.0
    amount: float = 0.0

    def hit(self, things: Sequence[T]) -> list[T]:
        """Those of these that it hits: as many as it counts from its number on, and after the last the first."""
        return [things[(self.number + n) % len(things)] for n in range(min(self.count, len(things)))]

    def hit_replicas(self, leader_first: Sequence[T]) -> Sequence[T]:
        """The same of the operator's replicas: the leader and some more, or all."""
        return leader_first[: max(1, self.count)] if self.number % 3 else leader_first

    @property
    def resource(self) -> str:
        """What of the API server it is about; "" is everything."""
        return RESOURCES[self.number % len(RESOURCES)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        does: makes it in a life; returns what ends it, None where nothing is left to end.
        seconds: between which its duration is drawn; (0, 0): it is over at once.
        amounts: one of which is drawn.
        of_job: whether it is always about a job.
        of_nodes: whether it hits nodes, and so can be about those of a job.
        on_cluster: whether it can be made on the real local cluster, and how; "" if not.
        spares_program: whatever follows from it, the program that trains is not to blame for it.
        spares_training: while it lasts every attempt trains on.
        lingers_seconds: for how long what follows from it lasts beyond it.
    """

    does: Callable[[Any, Fault], Undo | None]
    seconds: tuple[float, float] = (0.0, 0.0)
    amounts: tuple[float, ...] = (0.0,)
    of_job: bool = False
    of_nodes: bool = False
    on_cluster: str = ""
    spares_program: bool = False
    spares_training: bool = False
    lingers_seconds: float = 0.0
