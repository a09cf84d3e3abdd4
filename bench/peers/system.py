"""What every system of the gang bench can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from bench.bed import Bed
from bench.figures import Subject

GANG = "gang"


class System(ABC):
    """One way to start and to recover a gang. `begin` on a bed comes first, `end` last; one gang at a time."""

    name: ClassVar[str]
    binding: str | None = None
    mode: str | None = None
    watches = False
    """Whether it has managers of its own that watch pods."""
    calm_seconds = 1.5
    """How long a gang is left alone before the next failure."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    def subject(self, case: str) -> Subject:
        """Whose row a case of this is."""
        return Subject(self.name, self.bed.size, case, self.binding, self.mode)

    def begin(self) -> None:
        """Install and start what the system needs."""

    def end(self) -> None:
        """Stop what `begin` started."""

    def prepare(self) -> None:
        """What may be done before the clock runs."""

    @abstractmethod
    def submit(self) -> None:
        """Ask for the gang: returns as soon as the request is answered."""

    @abstractmethod
    def remove(self) -> None:
        """Ask that the gang goes."""

    def replace(self, pods: Sequence[str]) -> None:
        """These pods failed: for a client that has to do it itself."""

    def managers(self) -> Mapping[str, int]:
        """Process ids of the system's own managers by name."""
        return {}

    def power_cut(self, node: str) -> None:
        """The node is dead: whatever plays the inside of its pods must know."""

    def trained(self, since: float, deadline_seconds: float) -> float | None:
        """When (time.time()) all ranks were started after `since`; `since` itself where pods have no inside."""
        del deadline_seconds
        return since

    def notes(self) -> Mapping[str, int | str]:
        """What else a reader of the row has to know."""
        return {}
