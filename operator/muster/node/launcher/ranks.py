"""The rank processes of one attempt: start, output, progress, end.

Tests: tests/unit/launcher/test_running.py, tests/unit/launcher/test_starting.py.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import threading
from typing import Callable, Container, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from muster.node.checkpoint.listing import THIS_MACHINE
from muster.node.launcher import first_failure
from muster.node.launcher.environment import CHECKPOINT_DIRECTORY, RankFiles, rank_environment
from muster.node.launcher.log import write_line_at_once
from muster.node.launcher.matcher import Printed
from muster.node.launcher.memory_watch import MemoryWatch
from muster.node.launcher.progress import ProgressFile, ReportedCorruption
from muster.node.launcher.snapshot import RankSnapshot
from muster.node.launcher.stack_reader import StackReader
from muster.node.launcher.stepclock import StepClock
from muster.protocol.expansion import expanded, resolved, with_identity
from muster.protocol.messages import MAX_TAIL_CHARS, Directive, readable
from muster.protocol.rank_lines import TERMINAL
from muster.protocol.resuming import BY_NAME, link, pointer, tracker
from muster.protocol.starters import starter_of_all

_CHUNK_BYTES = 64 * 1024
_MAX_LINE_BYTES = 64 * 1024  # of a line that is matched
_IDLE_FLUSH_SECONDS = 0.2
_MAX_POINTER_BYTES = 4096
_DRAIN_SECONDS = 0.2  # how long the end of a rank waits for the rest of its output, and for the steps in it
# In the last lines of a rank that ended with code 0: it may have failed, and a shell hides that.
_TRACEBACK = (b"Traceback (most recent call last)", b'  File "', b"ChildFailedError")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as a shell reports them


class Output:
    """Passes one output stream of a rank through, whole lines at a time, and keeps the rank's last lines and steps.

    The thread reads only as fast as it can write. When nothing reads the container's log, the rank blocks, as it would
    without a launcher, and no memory is used.
    """

    def __init__(self, source: int, target: int, rank: "Rank") -> None:
        self._source = source
        self._target = target
        self._rank = rank
        self._line = b""  # the beginning of the line that is still being written
        self.last = first_failure.LastBytes()
        self._is_waiting = False  # for more, with all that came before passed on
        self._thread = threading.Thread(target=self._pump, name="output", daemon=True)
        self._thread.start()

    def is_drained(self) -> bool:
        """Whether the stream has ended and everything is written."""
        return not self._thread.is_alive()

    def is_quiet(self) -> bool:
        """Whether all that was printed so far has been read; only of use while nothing more is printed."""
        if self.is_drained():
            return True
        is_empty = not _readable(self._source, 0.0)
        return is_empty and self._is_waiting  # in this order: what was there before is read by now

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of the stream, but no longer than `timeout_seconds`."""
        self._thread.join(max(0.0, timeout_seconds))

    def _pump(self) -> None:
        pending = b""
        try:
            while True:
                self._is_waiting = True
                while not _readable(self._source, _IDLE_FLUSH_SECONDS if pending else None):
                    pending = self._pass_on(pending)  # a progress bar or a prompt without a line end
                self._is_waiting = False
                data = os.read(self._source, _CHUNK_BYTES)
                if not data:
                    break
                pending += data
                end = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
                if len(pending) - end > _CHUNK_BYTES:
                    end = len(pending)
                if end:
                    self._pass_on(pending[:end])
                    pending = pending[end:]
        finally:
            self._pass_on(pending)
            os.close(self._source)

    def _pass_on(self, data: bytes) -> bytes:
        if data:
            *lines, self._line = (self._line + data).replace(b"\r", b"\n").split(b"\n")
            self._line = self._line[-_MAX_LINE_BYTES:]
            self.last.add(data)
            self._rank.note_output(data, lines)
            write_line_at_once(self._target, data)
        return b""


def _readable(descriptor: int, timeout_seconds: Optional[float]) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_seconds is None else timeout_seconds * 1000))


class Rank:
    """One rank process, with its output and progress."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        local_rank: int,
        progress_path: str,
        keeps_lines: bool,
        clock: Callable[[], float],
        problem: Optional[OSError] = None,  # why it cannot even be tried
    ) -> None:
        self.rank = int(environment["RANK"])
        self.local_rank = local_rank
        self.clock = StepClock()
        self._now = clock
        self.heard_at = clock()  # when it last printed, or wrote of its progress
        self.printed = Printed(int(environment.get("MUSTER_RESUME_STEP") or 0))
        self._keeps_lines = keeps_lines
        self._progress = ProgressFile(progress_path)
        self._lock = threading.Lock()
        self._tail = b""
        self._exit_code: Optional[int] = None
        self._signal: Optional[int] = None
        self._ended_at: Optional[float] = None
        self._ended_by_launcher = False
        self._outputs: List[Output] = []
        self._starter = starter_of_all(command)
        self._first_failure: Tuple[int, Optional[first_failure.FirstFailure]] = (-1, None)
        self._printed_bytes = 0
        self._stack_reader: Optional[StackReader] = None
        self._is_aborted = False  # or a process below it
        self._is_stopped = False
        self._memory = MemoryWatch()
        self._memory_limit_bytes: Optional[int] = None
        self.pid = 0
        if problem is None:
            self._start(command, environment)
        else:
            self._cannot_start(command, problem)

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(out_read)
            os.close(err_read)
            self._cannot_start(command, error)
        else:
            self.pid = process.pid
            process.returncode = 0  # this launcher reaps by itself; Popen must never wait for the pid
            self._outputs = [Output(out_read, 1, self), Output(err_read, 2, self)]
        finally:
            os.close(out_write)
            os.close(err_write)

    def _cannot_start(self, command: Sequence[str], error: Exception) -> None:
        self._exit_code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        self._ended_at = self._now()
        self._tail = ("muster: cannot start %r: %s" % (command[0], error)).encode("utf-8", "replace")

    def note_output(self, data: bytes, lines: Sequence[bytes]) -> None:
        """Take in what the rank has printed; called by the output threads.

        Args:
            data: the bytes that were printed.
            lines: the lines that these bytes completed.
        """
        self.heard_at = self._now()
        with self._lock:
            self._tail = (self._tail + data[-2 * MAX_TAIL_CHARS :])[-2 * MAX_TAIL_CHARS :]
            self._printed_bytes += len(data)
        if self._keeps_lines:
            self.printed.put(lines)
        reader = self._stack_reader
        if reader is not None:
            reader.feed(lines)

    def begin_stack(self, reader: StackReader) -> None:
        """Hand what the rank prints from now on to a reader, too: it is about to print its stack, and to end by
        SIGABRT."""
        self._stack_reader, self._is_aborted = reader, True

    def end_stack(self) -> None:
        """Hand nothing more to the reader."""
        self._stack_reader = None

    def stop(self) -> None:
        """Ask the rank, and the processes of its group, to end: whatever it does from now on is the launcher's doing.

        torchrun passes the signal on to the processes that it has started, which have groups of their own.
        """
        if self.pid and not self.is_reaped:
            self._is_stopped = True
            with contextlib.suppress(OSError):  # gone meanwhile
                os.killpg(self.pid, signal.SIGTERM)

    @property
    def is_quiet(self) -> bool:
        """Whether all that the rank has printed has been read; only of use while it prints nothing more."""
        return all(output.is_quiet() for output in self._outputs)

    def note_exit(self, status: int, by_launcher: bool, asked: Container[int]) -> None:
        """Note that the process was reaped.

        Args:
            status: its wait status.
            by_launcher: whether the launcher had ended it.
            asked: the numbers of all requests that it could ever read.
        """
        self._ended_at = self._now()
        self._note_steps(self._progress.read_rest(asked))
        self._memory_limit_bytes = self._memory.limit_if_killed()
        if os.WIFSIGNALED(status):
            self._signal = os.WTERMSIG(status)
            aborted = self._is_aborted and self._signal == signal.SIGABRT
            self._ended_by_launcher = by_launcher and (aborted or self._signal == signal.SIGKILL)
        else:
            self._exit_code = os.WEXITSTATUS(status)
        self._ended_by_launcher |= by_launcher and self._is_stopped

    def update_progress(self, asked: Container[int]) -> None:
        """Take in new lines of the progress file and the steps found in the output; `asked` as of `note_exit`."""
        position = self._progress.position
        printed, written = self.printed.take_steps(), self._progress.read(asked)
        if self._progress.position != position:
            self.heard_at = self._now()
        # What it writes there goes before what is found in its output, and comes at another time.
        self._note_steps(written if self.has_progress_file else printed)

    def _note_steps(self, steps: Sequence[int]) -> None:
        now = self._now()
        for step in steps:
            self.clock.add_step(step, now)

    @property
    def corruption(self) -> Optional[ReportedCorruption]:
        """The fault that the rank has reported in its own results; None = none."""
        return self._progress.corruption

    @property
    def answered_request(self) -> int:
        """The highest number of a request that the rank says it follows; 0 = none."""
        return self._progress.answered

    @property
    def other_seconds(self) -> Mapping[str, float]:
        """The seconds of steps that did not go into computing, by name: as the progress file has them, else as
        printed."""
        return dict(self.printed.seconds, **self._progress.seconds)

    @property
    def progress_problem(self) -> str:
        """What is wrong with the lines in the rank's progress file, for people; "" if nothing is."""
        return self._progress.problem

    @property
    def preset(self) -> str:
        """The preset by which steps are read from the rank's output; "" where they are read in another way."""
        return "" if self.has_progress_file else self.printed.preset

    @property
    def has_progress_file(self) -> bool:
        """Whether the rank writes its steps into its progress file."""
        return self._progress.tells_steps

    @property
    def has_ended(self) -> bool:
        """Whether the process was reaped, and its last output had time to arrive and to be searched."""
        if self._ended_at is None:
            return False
        if self._now() - self._ended_at > _DRAIN_SECONDS:
            return True
        return all(output.is_drained() for output in self._outputs) and not self.printed.is_waiting

    def drain(self, until: float) -> None:
        """Wait for the rest of the output, until this moment of the monotonic clock at most."""
        for output in self._outputs:
            output.join(until - self._now())

    @property
    def is_reaped(self) -> bool:
        """Whether the process was reaped; its last output may not have been read yet."""
        return self._ended_at is not None

    def view(self) -> RankSnapshot:
        """The state to report of a rank that may be alive."""
        return self._view(alive=not self.has_ended)

    def last_view(self) -> RankSnapshot:
        """The state to report of a rank whose processes were all ended."""
        return self._view(alive=not self.is_reaped)

    def _view(self, *, alive: bool) -> RankSnapshot:
        failed = not alive and (self._exit_code != 0 or self._signal is not None)
        first = self._find_first_failure() if failed and self._signal is None else None
        with self._lock:
            is_told = failed or (not alive and any(mark in self._tail for mark in _TRACEBACK))
            tail = _readable_tail(self._tail) if is_told else ""
        if first is not None:
            tail = readable("\n".join(first.lines)[-MAX_TAIL_CHARS:])
        corruption = self.corruption or ReportedCorruption("")
        return RankSnapshot(
            rank=self.rank,
            local_rank=self.local_rank,
            alive=alive,
            exit_code=None if alive else self._exit_code,
            signal=None if alive else self._signal,
            ended_by_launcher=self._ended_by_launcher and not alive,
            exited_at=None if alive else self._ended_at,
            tail=tail,
            corruption=corruption.reason,
            found_at=corruption.found_at,
            last_good=corruption.last_good,
            starter=self._starter if failed else "",
            failed_rank=first.rank if first else None,
            failed_local_rank=first.local_rank if first else None,
            failed_exit_code=first.exit_code if first else None,
            failed_signal=first.signal if first else None,
            memory_limit_bytes=self._memory_limit_bytes if failed else None,
        )

    def _find_first_failure(self) -> Optional[first_failure.FirstFailure]:
        """Return the process that this one has started and that failed first, as it says at the end of its output."""
        with self._lock:
            printed = self._printed_bytes
        if self._first_failure[0] != printed:
            last = [output.last.get() for output in reversed(self._outputs)]  # errors before output
            self._first_failure = (printed, first_failure.find(last))
        return self._first_failure[1]


def _readable_tail(data: bytes) -> str:
    return readable(TERMINAL.sub("", data.decode("utf-8", "replace"))[-MAX_TAIL_CHARS:])


class Starting:
    """Starts ranks one after the other in a thread, so that a program on stalled storage holds up nothing else.

    Attributes:
        ranks: the ranks that are up, or that cannot be started; in order.
        is_over: whether no more ranks will come up.
    """

    def __init__(self, starts: Iterable[Callable[[], Rank]], wake: Callable[[], None]) -> None:
        self.ranks: Tuple[Rank, ...] = ()
        self.is_over = False
        self._is_stopped = False
        self._starts = starts
        self._wake = wake
        threading.Thread(target=self._run, name="start", daemon=True).start()

    def stop(self) -> None:
        """Start no more ranks; the one that is being started may still come up."""
        self._is_stopped = True

    def _run(self) -> None:
        try:
            for start in self._starts:
                if self._is_stopped:
                    break
                self.ranks += (start(),)
                self._wake()
        finally:
            self.is_over = True
            self._wake()


def rank_starts(
    command: Sequence[str],
    resume_arguments: Sequence[str],
    container_variables: Mapping[str, str],
    directive: Directive,
    attempt_directory: str,
    keeps_lines: bool,
    clock: Callable[[], float],
) -> Iterator[Callable[[], Rank]]:
    """The functions that each start one local rank of an attempt; a rank that cannot be started counts as ended.
    `resume_arguments` are added at the command's end. With `keeps_lines` the ranks' output is kept, because steps are
    looked for in it. `clock` returns monotonic seconds.
    """
    for local_rank in range(directive.processes_per_node):
        yield functools.partial(
            _start,
            command=command,
            resume_arguments=resume_arguments,
            container_variables=container_variables,
            directive=directive,
            local_rank=local_rank,
            attempt_directory=attempt_directory,
            keeps_lines=keeps_lines,
            clock=clock,
        )


def _start(
    command: Sequence[str],
    resume_arguments: Sequence[str],
    container_variables: Mapping[str, str],
    directive: Directive,
    local_rank: int,
    attempt_directory: str,
    keeps_lines: bool,
    clock: Callable[[], float],
) -> Rank:
    files = RankFiles.within(attempt_directory, local_rank)
    problem = _create(files.progress) or _write_pointer(container_variables, directive)
    environment = with_identity(rank_environment(container_variables, directive, local_rank, files, command))
    rank_of = functools.partial(
        Rank,
        command=[*expanded(command, environment), *resolved(resume_arguments, environment)],
        environment=environment,
        local_rank=local_rank,
        progress_path=files.progress,
        keeps_lines=keeps_lines,
        clock=clock,
    )
    try:
        return rank_of(problem=problem)
    except OSError as error:  # no descriptor is left for its output
        return rank_of(problem=error)


def _write_pointer(container_variables: Mapping[str, str], directive: Directive) -> Optional[OSError]:
    """Have the framework's own pointer file name the checkpoint to resume from. Returns the error that prevented it, or
    None.

    It is done where the framework follows such a file, or would fail by an old one. Each node does so before its ranks
    start, so that no rank reads the old content. All nodes write the same.
    """
    directory = container_variables.get(CHECKPOINT_DIRECTORY, "")
    name = directive.resume_preset or ""
    preset = BY_NAME.get(name) if directory and directive.resume_path else None
    path, text = pointer(name, directive.resume_path, directory)
    try:
        if not path and preset is not None and preset.tracker:
            content = _read_pointer(os.path.join(directory, preset.tracker))
            path, text = tracker(name, directive.resume_path, directory, content)
        if path and _read_pointer(path) != text:
            _write(path, text, directive.node_rank)
        if preset is not None and preset.link:
            leads_to = _link_target(os.path.join(directory, preset.link))
            link_path = link(name, directive.resume_path, directory, leads_to)
            if link_path:
                _replace_link(link_path, os.path.basename(directive.resume_path), directive.node_rank)
    except OSError as error:
        return error
    return None


def _temporary_path(path: str, node_rank: int) -> str:
    """A temporary path beside `path` that no scanner takes for a checkpoint, and that no other node uses."""
    return os.path.join(os.path.dirname(path), ".muster-%s-%d" % (os.path.basename(path), node_rank))


def _write(path: str, text: str, node_rank: int) -> None:
    own = _temporary_path(path, node_rank)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(own)  # of a start that was cut short
    with open(own, "x", encoding="utf-8") as file:  # never through a link: it may lead out of the directory
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(own, path)


def _replace_link(path: str, to: str, node_rank: int) -> None:
    own = _temporary_path(path, node_rank)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(own)
    os.symlink(to, own)
    os.replace(own, path)


def _link_target(path: str) -> Optional[str]:
    """The target of a symbolic link; None where nothing, or something that is no link, is at the path."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.islink(path):
            return os.readlink(path)
    return None


def _read_pointer(path: str) -> Optional[str]:
    """The text of a pointer file, stripped; None where there is no file; "" for what is no regular file and is
    replaced."""
    try:
        return THIS_MACHINE.part(path, 0, _MAX_POINTER_BYTES).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except ValueError:  # to open a pipe waits for a writer
        return ""


def _create(path: str) -> Optional[OSError]:
    """Create an empty file in place of whatever an earlier rank has left there. Returns the error that prevented it, or
    None."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "xb"):
            return None
    except OSError as error:
        return error
