"""How files of integration tests are spread over pytest's processes.

Each process starts a control plane when a test first asks for one, and keeps it to the end. A start takes six seconds
of CPU, and an idle API server takes two percent of a core. Thus a process runs the files of one control plane for as
long as there are any, and takes others only then. Those of `monitoring` need none.

The queue has the files with the most tests first. That would leave those for the end whose one or two tests are whole
lives of an installation or an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_APART = frozenset({"controller", "install", "monitoring"})
_LONG = frozenset(
    f"test_{name}.py" for name in ("crash_points", "metrics", "profiles", "replicas", "rights", "uninstall")
)


def control_plane_of(file: str) -> str:
    """The folder whose control plane the tests of a file use, if any; "" = the one of all other folders."""
    return next((part for part in PurePosixPath(file).parts if part in _APART), "")


def next_file(waiting: Iterable[str], newest: str | None, others: Collection[str]) -> str:
    """The file that a process takes.

    Args:
        waiting: files, the first at the head of the queue.
        newest: the control plane of the file that the process took last; None = it took none yet.
        others: the control planes of the other processes' files.
    """

    def rank(file: str) -> tuple[bool, bool, bool]:
        control_plane = control_plane_of(file)
        return control_plane != newest, control_plane in others, PurePosixPath(file).name not in _LONG

    return min(waiting, key=rank)


class ByControlPlane(LoadFileScheduling):
    """Hands whole files to processes, as `--dist loadfile` does, in the order of `next_file`."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        own = [control_plane_of(file) for file in self.assigned_work.get(node, ())]
        theirs = [files for process, files in self.assigned_work.items() if process is not node]
        others = {control_plane_of(file) for files in theirs for file in files}
        self.workqueue.move_to_end(next_file(self.workqueue, own[-1] if own else None, others), last=False)
        super()._assign_work_unit(node)
