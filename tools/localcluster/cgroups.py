"""A node's part of the control group tree, on hosts with version 1 (one tree per controller) and version 2."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from localcluster.errors import LocalClusterError
from localcluster.patience import PATIENCE_SECONDS

_ROOT = Path("/sys/fs/cgroup")
# The kubelet refuses a group that lacks any of these which the host has.
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
_POLL_SECONDS = 0.02
# In microseconds; the kernel takes no quota below a millisecond.
_PERIOD, _LEAST_QUOTA = 10_000, 1_000
# What a group has of busy processors by itself, and the most: a node is to have as much as a process beside it, and not
# all nodes of a cluster together.
_WEIGHTS = {"cpu.shares": (1024, 262_144), "cpu.weight": (100, 10_000)}


def is_version_2() -> bool:
    return (_ROOT / "cgroup.controllers").exists()


def _hierarchies() -> Iterator[Path]:
    """The mount point of every tree; on version 1, trees that several names link to count once."""
    if is_version_2():
        yield _ROOT
        return
    for folder in sorted(_ROOT.iterdir()):
        if folder.is_dir() and not folder.is_symlink() and (folder / "cgroup.procs").exists():
            yield folder


def make(cluster: str, node: str) -> None:
    """Make the node's groups in every tree, with the resources of the parent."""
    for hierarchy in _hierarchies():
        parent = hierarchy
        for part in (cluster, node):
            if is_version_2():
                _enable_controllers(parent)
            parent /= part
            parent.mkdir(exist_ok=True)
            _inherit_cpuset(parent)
        _weigh(hierarchy / cluster)


def _enable_controllers(folder: Path) -> None:
    available = set((folder / "cgroup.controllers").read_text().split())
    enabled = set((folder / "cgroup.subtree_control").read_text().split())
    for controller in _V2_CONTROLLERS:
        if controller in available - enabled:
            try:
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                raise LocalClusterError(
                    f"cannot pass the controller {controller} on from {folder}: {error.strerror}. Where processes live "
                    "in that very group, as in many containers, move them into a group below it and run again."
                ) from error


def _inherit_cpuset(folder: Path) -> None:
    # On version 1 a new cpuset is empty and nothing can run in it.
    for name in ("cpuset.cpus", "cpuset.mems"):
        here, above = folder / name, folder.parent / name
        if not is_version_2() and here.exists() and not here.read_text().strip():
            here.write_text(above.read_text())


def _weigh(top: Path) -> None:
    """Give the cluster as many shares as it has nodes."""
    nodes = sum(path.is_dir() for path in top.iterdir())
    for name, (each, most) in _WEIGHTS.items():
        if (top / name).exists():
            (top / name).write_text(str(min(nodes * each, most)))


def remove(cluster: str, node: str = "") -> None:
    """Remove the node's groups (the whole cluster's without `node`); waits for dying processes to leave them."""
    end = time.monotonic() + PATIENCE_SECONDS
    for hierarchy in _hierarchies():
        top = hierarchy / cluster / node
        while top.exists() and not _try_remove(top):
            if time.monotonic() > end:
                pids = [pid for procs in top.rglob("cgroup.procs") for pid in procs.read_text().split()]
                raise LocalClusterError(
                    f"cannot remove {top}: processes {pids} are still in it; end them and run again"
                )
            time.sleep(_POLL_SECONDS)


def _try_remove(top: Path) -> bool:
    folders = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
    for folder in [*folders, top]:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def known(prefix: str) -> set[str]:
    """Names of top groups that start with `prefix`."""
    return {path.name for hierarchy in _hierarchies() for path in hierarchy.glob(f"{prefix}*") if path.is_dir()}


def pids_below(cluster: str, node: str, folder_name: str) -> list[int]:
    """Process ids, as this process sees them, in the group `folder_name` anywhere below the node's, and below it."""
    for hierarchy in _hierarchies():
        for folder in (hierarchy / cluster / node).rglob(folder_name):
            procs = [folder / "cgroup.procs", *folder.rglob("*/cgroup.procs")]
            pids = sorted({int(pid) for file in procs for pid in file.read_text().split()})
            if pids:
                return pids
    return []


def limit_cpu(cluster: str, node: str, processors: float | None) -> None:
    """Let all containers of a node together have so much of a processor; None: as much as there is.

    It is shared out every 10 ms: over a longer time short work would run at full speed, which a slow processor's does
        not.
    """
    quota = None if processors is None else max(_LEAST_QUOTA, round(processors * _PERIOD))
    if is_version_2():
        (_ROOT / cluster / node / "cpu.max").write_text(f"{'max' if quota is None else quota} {_PERIOD}")
        return
    folder = _ROOT / "cpu" / cluster / node
    (folder / "cpu.cfs_period_us").write_text(str(_PERIOD))
    (folder / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))


def frozen_group_of(pid: int) -> Path | None:
    """The file by which the container of this process is frozen and thawed (`set_frozen`); None: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in lines:
        _, names, path = line.split(":", 2)
        if is_version_2() and not names:
            return Path(f"{_ROOT}{path}/cgroup.freeze")
        if "freezer" in names.split(","):
            return Path(f"{_ROOT}/freezer{path}/freezer.state")
    return None


def freeze_below(cluster: str, node: str) -> None:
    """Let nothing run in any container of a node."""
    folder, file = _freezer_of(cluster, node)
    set_frozen(folder / file, True)


def thaw_below(cluster: str, node: str) -> None:
    """Let everything on a node run again that `set_frozen` or `freeze_below` stopped."""
    folder, file = _freezer_of(cluster, node)
    for found in folder.rglob(file):
        set_frozen(found, False)


def _freezer_of(cluster: str, node: str) -> tuple[Path, str]:
    """The node's group, and the file by which it and those below it are frozen."""
    if is_version_2():
        return _ROOT / cluster / node, "cgroup.freeze"
    return _ROOT / "freezer" / cluster / node, "freezer.state"


def set_frozen(file: Path, value: bool) -> None:
    """Let nothing in this group run, or all of it again; a group that is gone has nothing to run."""
    text = str(int(value)) if file.name == "cgroup.freeze" else ("FROZEN" if value else "THAWED")
    with contextlib.suppress(FileNotFoundError):
        file.write_text(text)
