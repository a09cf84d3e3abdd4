"""Ranks and launchers of a job as this machine's kernel knows them: they are found also while no API server answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.jobs import SHARED

_LAUNCHER = b"/muster/run.pyz"


@dataclass(frozen=True)
class Worker:
    """The processes of one worker's container; pids are this machine's.

    Attributes:
        pod: its name, by which workers are ordered.
        launcher: the container's first process.
        rank: None where no rank runs now.
    """

    pod: str
    node: str
    launcher: int
    rank: int | None


def workers_of(job: str) -> list[Worker]:
    """All workers of a job whose container runs, in the order of their names."""
    ranks: dict[str, int] = {}
    launchers: dict[str, tuple[int, str]] = {}
    for pid, pod, node, is_launcher in _processes(job):
        if is_launcher:
            launchers[pod] = min(launchers.get(pod, (pid, node)), (pid, node))
        else:
            # Its children, and what it left behind, were started later.
            ranks[pod] = min(ranks.get(pod, pid), pid, key=_started)
    return [Worker(pod, node, pid, ranks.get(pod)) for pod, (pid, node) in sorted(launchers.items())]


def _processes(job: str) -> Iterator[tuple[int, str, str, bool]]:
    argument = f"{SHARED}/{job}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if argument not in words:
                continue
            pairs = (pair.partition(b"=") for pair in (folder / "environ").read_bytes().split(b"\0"))
            environment = {name: value.decode(errors="replace") for name, _, value in pairs}
        except OSError:  # it has ended
            continue
        pod = environment.get(b"HOSTNAME", "")
        if pod:
            yield int(folder.name), pod, environment.get(b"NODE_NAME", ""), _LAUNCHER in words


def _started(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 1 << 62
