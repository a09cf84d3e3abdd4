"""The machine as the supervisor sees it: clock, signals, processes and shared memory behind one thin port.

Tests: tests/unit/launcher/test_ending.py.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set

from muster.node.launcher import requests
from muster.node.launcher.environment import CHECKPOINT_DIRECTORY, OWN_SHARED_MEMORY, RankFiles
from muster.node.launcher.ranks import Rank, Starting, rank_starts
from muster.node.launcher.reclaim import MARK, Leftover, Reclaim, reap, remove_shared_memory, send, shared_memory
from muster.node.launcher.stacks import StackDump
from muster.node.launcher.trainers import find_trainers, has_signal
from muster.protocol.exit_signals import exit_signal_of
from muster.protocol.messages import Directive
from muster.protocol.resuming import added
from muster.protocol.starters import starter_of_all

_USERS = "/etc/passwd"
# Where Python's getpass.getuser looks before it asks for the uid's name.
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
_KEPT_ATTEMPTS = 3  # directories of attempts, with the traces that ranks dumped


class Wakeup:
    """A pipe that ends the supervisor's wait; signal handlers write into it, and so do other threads."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)

    def take_signals(self, handlers: Mapping[int, Callable[[], None]]) -> None:
        """Have these signals wake the loop from now on; to be called from the main thread.

        Args:
            handlers: what to call upon each signal, by signal number.
        """
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number, handler in handlers.items():
            signal.signal(number, lambda _number, _frame, handler=handler: handler())  # type: ignore[misc]

    def __call__(self) -> None:
        """End the supervisor's wait."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:  # full: it will wake anyway
            return

    def clear(self) -> None:
        """Discard the wake-ups so far."""
        try:
            while os.read(self.descriptor, 4096):
                pass
        except BlockingIOError:
            return


def user_name(inherited: Mapping[str, str], uid: int, users: str) -> Dict[str, str]:
    """The variables that give a name to a uid that the image does not know, as OpenShift has one for each namespace.
    `users` is the path of the image's passwd file. No name service is asked, because that may hang.

    Without a name getpass.getuser raises, which torch.compile calls for the name of its cache.
    """
    if any(inherited.get(name) for name in _NAMES):
        return {}
    try:
        with open(users, encoding="utf-8", errors="replace") as lines:
            has_name = any(line.split(":")[2:3] == [str(uid)] for line in lines)
    except OSError:
        has_name = False
    return {} if has_name else {"USER": str(uid)}


class Host:
    """What the supervisor needs of the operating system; a simulator has one of its own."""

    tick_seconds = 0.2  # how often to read progress files: nothing notifies of what is written there

    def __init__(
        self,
        command: Sequence[str],
        resume_argument: Sequence[str],
        inherited: Mapping[str, str],
        directory: str,
        subreaper: bool,
        wake: Wakeup,
    ) -> None:
        self._command = command
        self.starter = starter_of_all(command)  # the program that starts the processes that train; "" = none is known
        self._exit_signal = exit_signal_of(command)
        self._resume_argument = resume_argument
        self._mark = "%d-%d" % (os.getpid(), time.monotonic_ns())
        self._inherited = dict(inherited, **{MARK: self._mark}, **user_name(inherited, os.getuid(), _USERS))
        self._owns_shared_memory = bool(inherited.get(OWN_SHARED_MEMORY))
        self._directory = directory
        self._subreaper = subreaper
        self.wake = wake

    def now(self) -> float:
        """The seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, descriptors: Sequence[Optional[int]], timeout_seconds: float) -> Set[int]:
        """Wait until a descriptor is readable, `wake` is called, a signal comes, or the time is over. Descriptors that
        are None are skipped.

        Returns the descriptors that are readable.
        """
        poller = select.poll()
        for descriptor in (self.wake.descriptor, *descriptors):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(max(0.0, timeout_seconds) * 1000)}
        self.wake.clear()
        return ready

    def pause(self, seconds: float) -> None:
        """Sleep for this many seconds, whatever happens."""
        time.sleep(seconds)

    def reap(self) -> Dict[int, int]:
        """Reap the children that have ended: their wait statuses by pid."""
        return reap()

    def start_ranks(self, directive: Directive, keeps_lines: bool) -> Starting:
        """Begin to start the local ranks of an attempt.

        Args:
            directive: the directive to run the attempt.
            keeps_lines: whether to keep what the ranks print, because steps are looked for in it.
        """
        old = self._attempt_directory(directive.attempt - _KEPT_ATTEMPTS)
        threading.Thread(target=_remove, args=(old,), name="tidy", daemon=True).start()
        directory = self._attempt_directory(directive.attempt)
        resuming = self._resuming(directive)
        starts = rank_starts(
            command=self._command,
            resume_arguments=resuming,
            container_variables=self._inherited,
            directive=directive,
            attempt_directory=directory,
            keeps_lines=keeps_lines,
            clock=self.now,
        )
        return Starting(starts, self.wake)

    def _resuming(self, directive: Directive) -> List[str]:
        """The arguments, at the end of an attempt's command, that name the checkpoint to resume from."""
        name, path = directive.resume_preset or "", directive.resume_path
        by_preset = added(name, self._command, path, self._inherited.get(CHECKPOINT_DIRECTORY, "")).words
        return [*(self._resume_argument if path else ()), *by_preset]

    def put_request(self, attempt: int, text: str) -> None:
        """Show the ranks of an attempt what they are asked for; "" = nothing.

        Raises:
            OSError: the file cannot be written or removed.
        """
        requests.write_request(RankFiles.within(self._attempt_directory(attempt), 0).requests, text)

    def ask_by_signal(self, ranks: Sequence[Rank]) -> bool:
        """Send the signal upon which these ranks save and end together, where the command says that they do.

        Only to processes that train and that handle it: any other would end by it, and torchrun would end all.

        Returns:
            whether one has got it: that is enough.
        """
        if self._exit_signal is None:
            return False
        number = self._exit_signal
        trainers, _ = find_trainers(ranks, lambda pid: has_signal(pid, "SigCgt", number))
        asked = [
            trainer.process
            for trainer in trainers
            if has_signal(trainer.process.pid, "SigCgt", number)
            and (not self.starter or b"TORCHELASTIC_RUN_ID" in trainer.environment)
        ]
        for process in asked:
            send(process, number)
        return bool(asked)

    def stop(self, ranks: Sequence[Rank]) -> None:
        """Send SIGTERM to the processes that were started for these ranks, and to those of their process groups."""
        for rank in ranks:
            rank.stop()

    def reclaim(self) -> Reclaim:
        """Begin to end all processes that the ranks have left."""
        return Reclaim(self._mark, self._subreaper)

    def dump_stacks(self, ranks: Sequence[Rank]) -> StackDump:
        """Begin to have these ranks print their stacks; they are to be ended after that."""
        return StackDump(ranks, self.now())

    def shared_memory(self) -> FrozenSet[Leftover]:
        """The files in /dev/shm now; empty where it is not the container's own."""
        return shared_memory() if self._owns_shared_memory else frozenset()

    def remove_shared_memory(self, kept: FrozenSet[Leftover]) -> None:
        """Remove the files in /dev/shm that are not in `kept`, unless another process may have made them."""
        if self._owns_shared_memory:
            remove_shared_memory(kept)

    def _attempt_directory(self, attempt: int) -> str:
        return os.path.join(self._directory, "attempt-%d" % attempt)


def _remove(directory: str) -> None:
    """Remove a directory with all that is in it, where there is one."""
    if os.path.isdir(directory):
        import shutil  # late: the first attempts have nothing to remove

        shutil.rmtree(directory, ignore_errors=True)
