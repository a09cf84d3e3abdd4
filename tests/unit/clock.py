"""Clocks that tests move."""


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class StepClock(Clock):
    """A clock of the CPU that a thread uses: each reading moves it by one step, and no other process does."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self.step_seconds = step_seconds

    def __call__(self) -> float:
        self.advance(self.step_seconds)
        return self.now
