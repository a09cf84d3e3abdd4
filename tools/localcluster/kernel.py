"""Mounts and process facts that the standard library does not offer on Python 3.11."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError

_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_BIND = 4096
_MS_REC = 16384
_MS_SHARED = 1 << 20


def _mount(source: str, target: Path, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, str(target), kind)]
    if _LIBC.mount(*encoded, ctypes.c_ulong(flags), None if data is None else data.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount {source} on {target}: {os.strerror(error)}")


def mount_tmpfs(target: Path) -> None:
    _mount("tmpfs", target, "tmpfs", 0, "mode=755")


def bind(source: Path | int, target: Path) -> None:
    """Make `source`, a path or an open file or folder, visible at `target`."""
    _mount(f"/proc/self/fd/{source}" if isinstance(source, int) else str(source), target, None, _MS_BIND)


def share_mounts(target: Path) -> None:
    """Let later mounts below `target` appear in mount namespaces made from this one, as on a machine's own root."""
    _mount("none", target, None, _MS_REC | _MS_SHARED)


def ip_batch(*lines: str) -> None:
    """Run `ip` commands in the current network namespace; the first failure ends them."""
    command = ["ip", "-batch", "-"]
    answer = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise LocalClusterError(f"`ip` failed: {answer.stderr.strip()} in:\n" + "\n".join(lines))


@dataclass(frozen=True)
class Process:
    """One process as this process sees it; `namespace_pids` are its ids from here inwards."""

    pid: int
    command: tuple[str, ...]
    namespace_pids: tuple[int, ...]


def read_process(pid: int) -> Process | None:
    """Facts about one process, or None when it is gone or a zombie."""
    folder = Path("/proc") / str(pid)
    try:
        command = folder.joinpath("cmdline").read_bytes()
        status = folder.joinpath("status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not command:
        return None
    inner = next((line for line in status.splitlines() if line.startswith("NSpid:")), f"NSpid: {pid}")
    arguments = tuple(part.decode(errors="replace") for part in command.rstrip(b"\0").split(b"\0"))
    return Process(pid, arguments, tuple(map(int, inner.split()[1:])))


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            yield int(folder.name), folder.joinpath("environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def processes_with_environment(name: str, value: str) -> Iterator[Process]:
    """All living processes that were started with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    for pid, environment in _environments():
        if wanted in environment:
            process = read_process(pid)
            if process is not None:
                yield process


def environment_values(name: str) -> set[str]:
    """All values that the variable has in the environment of any process."""
    start = f"{name}=".encode()
    return {
        entry.removeprefix(start).decode()
        for _, environment in _environments()
        for entry in environment
        if entry.startswith(start)
    }
