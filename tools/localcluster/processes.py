"""Children that never outlive their parent, also when it is SIGKILLed: no test run leaves a server behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localcluster.errors import LocalClusterError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

# The kernel sends the death signal when the THREAD that made the child ends, so one thread that lives as long as this
# process makes all children, whichever thread asks.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="localcluster-spawner")


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, output appended to `log`; it dies with this process."""
    return _SPAWNER.submit(_spawn, command, log, environment, folder, pass_fds).result()


def _spawn(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None,
    folder: Path | None,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),  # two system calls, nothing that could deadlock after a fork
            env=None if environment is None else dict(environment),
            cwd=folder,
            pass_fds=pass_fds,
        )


def _die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before the request was in place; then nobody would send the signal.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def run(command: Sequence[str]) -> str:
    """Run a short `command` that dies with this process, and return its output; it must succeed."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=_die_with(os.getpid()))
    if answer.returncode != 0:
        shown = " ".join(command[:6])
        raise LocalClusterError(f"`{shown} ...` failed: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer.stdout


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL and wait."""
    process.kill()
    process.wait()


def log_tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no output)"
