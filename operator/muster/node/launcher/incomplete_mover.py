"""Has directories moved aside that could be taken for newer checkpoints: by a child, since storage may hang for ever.

Only while no rank of the gang can be alive, and by one worker, as the coordinator's order says; the start of the ranks
waits for the answer. So it is told as done only once no child is left that could still move anything.
"""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, Optional

from muster.node.launcher.child_task import ChildOrder, ChildTask
from muster.node.launcher.children import Child, converse
from muster.protocol.messages import WAIT, Directive

DEADLINE_SECONDS = 60.0  # without a sign of life


class IncompleteMover:
    """Has a child move checkpoints aside by the coordinator's order, without ever waiting for the child.

    Used from the supervisor's thread only.

    Attributes:
        attempt: the newest attempt for which the move was finished or given up; 0 = none yet.
        words: what was moved for that attempt, for people; "" = nothing.
        error: why not everything could be moved; "" = everything was.
    """

    def __init__(self, directory: str, converse: Callable[..., Child] = converse) -> None:
        self.attempt = 0
        self.words = ""
        self.error = ""
        self._errand = ChildTask("--set-aside", directory, converse, DEADLINE_SECONDS)

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return self._errand.pids

    @property
    def descriptor(self) -> Optional[int]:
        """The file descriptor to wait on for the child's answer; None while there is none to wait for."""
        return self._errand.descriptor

    def poll(self, now: float, ended: Dict[int, int], directive: Optional[Directive]) -> None:
        """Start the child that the directive asks for, read its answer, and kill it when it gives no sign of life.

        Args:
            now: seconds of the monotonic clock.
            ended: exit statuses of reaped child processes, by pid.
            directive: the directive that counts now; None: there is none, or old ranks are alive.
        """
        if not self._errand.poll(now, ended, _ordered(directive)):
            return
        answer, error = self._errand.answer, self._errand.error
        if answer is not None:
            self.words, self.error = str(answer.get("moved", "")), str(answer["error"])
        elif error:
            self.words, self.error = "", "nothing was moved aside: %s" % error
        else:
            self.words, self.error = "", "moving directories aside was given up: does the file system answer?"
        self.attempt = self._errand.done[0] if self._errand.done else 0

    def stop(self) -> None:
        """Kill the child that moves checkpoints aside, because the launcher exits."""
        self._errand.stop()


def _ordered(directive: Optional[Directive]) -> Optional[ChildOrder]:
    if directive is None or directive.kind != WAIT or not directive.move_incomplete_beyond:
        return None
    branch = None
    if directive.branch_step is not None:
        branch = (directive.branch_step, directive.excluded_checkpoints or "", bool(directive.branch_frozen))
    return ChildOrder((directive.attempt,), {"path": directive.move_incomplete_beyond, "branch": branch})
