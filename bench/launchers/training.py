"""One job's training as its ranks would do it: in step, while every rank of one attempt is alive, and not otherwise.
Pure.

Nothing ticks: the step of a moment follows from the moment at which the last rank started and the one at which the
first rank ended, so that thousands of workers that make a step each second cost nothing between their reports.
"""

from collections.abc import Callable
from dataclasses import dataclass

from muster.protocol.messages import CheckpointReport

LISTED_CHECKPOINTS = 8
STARTED = "started"  # every worker of an attempt has started its ranks
ENDED = "ended"  # the last rank of an attempt is dead

# Told of STARTED and ENDED: which of them, the attempt, how many workers.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast everything goes that takes no processor here.

    Attributes:
        step_seconds: time of one training step.
        checkpoint_steps: a checkpoint is complete after each so many steps.
        scan_seconds: from going idle to the list of checkpoints (a real launcher starts a child for it).
        reclaim_seconds: how long ranks take to die.
    """

    step_seconds: float = 1.0
    checkpoint_steps: int = 60
    scan_seconds: float = 0.1
    reclaim_seconds: float = 0.02


class Training:
    """The ranks of one job, worker by worker; all times are readings of one monotonic clock.

    Attributes:
        directory: where checkpoints are; "" = there are none.
        attempt: the newest attempt of which a rank was started.
    """

    def __init__(self, pace: Pace, directory: str, tell: Tell) -> None:
        self.directory = directory
        self.attempt = 0
        self._pace = pace
        self._tell = tell
        self._started: set[str] = set()  # workers whose ranks were started in this attempt
        self._alive: set[str] = set()  # of these the ones with a rank that is alive
        self._first_step = 0
        self._together_since: float | None = None
        self._together_until: float | None = None
        self._newest_checkpoint = 0

    def start(self, worker: str, attempt: int, node_count: int, resume_step: int | None, now: float) -> None:
        """The ranks of one worker start."""
        if attempt != self.attempt:
            self._note_checkpoints(now)
            self.attempt, self._first_step = attempt, resume_step or 0
            self._started, self._alive = set(), set()
            self._together_since = self._together_until = None
        self._started.add(worker)
        self._alive.add(worker)
        if len(self._started) == node_count and self._together_since is None:
            self._together_since = now
            self._tell(STARTED, attempt, node_count)

    def stall(self, attempt: int, now: float) -> None:
        """A rank of this attempt is no longer there: nobody makes another step."""
        if attempt == self.attempt and self._together_until is None:
            self._together_until = now

    def end(self, worker: str, attempt: int, now: float) -> None:
        """No rank of this worker is alive any more."""
        self.stall(attempt, now)
        if attempt == self.attempt and worker in self._alive:
            self._alive.discard(worker)
            if not self._alive:
                self._tell(ENDED, attempt, len(self._started))

    def step(self, attempt: int, now: float) -> tuple[int, float] | None:
        """The newest finished step of an attempt and when that was; None before the first one."""
        if attempt != self.attempt or self._together_since is None:
            return None
        until = now if self._together_until is None else self._together_until
        steps = int((until - self._together_since) / self._pace.step_seconds)
        if steps <= 0:
            return None
        return self._first_step + steps, self._together_since + steps * self._pace.step_seconds

    def checkpoints(self, now: float) -> tuple[CheckpointReport, ...]:
        """The complete checkpoints, newest first; none without a directory."""
        if not self.directory:
            return ()
        self._note_checkpoints(now)
        steps = range(self._newest_checkpoint, 0, -self._pace.checkpoint_steps)[:LISTED_CHECKPOINTS]
        return tuple(CheckpointReport(step, f"{self.directory}/step-{step}") for step in steps)

    def _note_checkpoints(self, now: float) -> None:
        made = self.step(self.attempt, now)
        if made is not None:
            complete = made[0] - made[0] % self._pace.checkpoint_steps
            self._newest_checkpoint = max(self._newest_checkpoint, complete)
