"""Room for the nodes' inotify instances, of which Linux gives each user 128 unless told otherwise.

A kubelet takes six, its containerd and kube-proxy one each. Where they run out a kubelet ends as it starts ("too many
open files"), and a containerd serves no kubelet, so that a node which was rebooted never comes back.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from localcluster.build import Say
from localcluster.layout import clusters_folder

SETTING = Path("/proc/sys/fs/inotify/max_user_instances")
OF_NODE = 10
SPARE = 64  # the control plane, and another cluster that starts meanwhile
RAISED = 1024
_LINK = "anon_inode:inotify"


def make_room(nodes: int, progress: Say, setting: Path = SETTING, remembered: Path | None = None) -> None:
    """Raise the limit where so many nodes would meet it; `give_back` sets it as it was."""
    limit, used = int(setting.read_text()), in_use()
    wanted = used + OF_NODE * nodes + SPARE
    if limit >= wanted:
        return
    raised = max(wanted, RAISED)
    try:
        setting.write_text(f"{raised}\n")
    except OSError as error:
        progress(
            f"fs.inotify.max_user_instances is {limit}, {used} are in use, and {nodes} nodes take about "
            f"{OF_NODE * nodes}: kubelets may not start. It cannot be raised from here ({error}); `sysctl -w "
            f"fs.inotify.max_user_instances={raised}`"
        )
        return
    note = remembered or _remembered()
    note.parent.mkdir(parents=True, exist_ok=True)
    try:
        with note.open("x") as file:
            file.write(f"{limit} {raised}\n")
    except FileExistsError:
        pass  # what was there before the first of them counts
    progress(f"fs.inotify.max_user_instances raised from {limit} to {raised} until the last cluster is down")


def give_back(setting: Path = SETTING, remembered: Path | None = None) -> None:
    """Set the limit as it was before, unless somebody else has changed it since."""
    note = remembered or _remembered()
    try:
        before, raised = note.read_text().split()
    except (FileNotFoundError, ValueError):
        return
    if setting.read_text().strip() == raised:
        setting.write_text(f"{before}\n")
    note.unlink(missing_ok=True)


def in_use() -> int:
    """The instances of all processes of this user."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid():
                found += instances_of(process)
        except OSError:
            continue  # it has ended meanwhile
    return found


def instances_of(process: Path) -> int:
    """Those of the process with this folder in /proc."""
    found = 0
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed meanwhile
            found += str(descriptor.readlink()) == _LINK
    return found


def _remembered() -> Path:
    return clusters_folder() / "inotify-limit"
