"""Moves directories out of the way that a trainer could take for its newest checkpoint though they are none.

A save that was cut short leaves a directory with a higher number than the checkpoint that a start resumes from. A
trainer that looks for its newest checkpoint by itself takes that directory. Where the job asks for it, such directories
are moved, never deleted, into one directory beside them. Its name begins with a dot, so that neither scanners nor
frameworks look into it. Single files are moved where they are checkpoints that do not count any more.

Nothing may write into the directory meanwhile. The caller has to know that no rank is alive, and that none will start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
from typing import Callable, List, Optional, Set, Tuple

from muster.node.checkpoint.find import TOO_MANY_FILES, Finder, Found, ScanOptions
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY
from muster.node.checkpoint.listing import no_sign
from muster.node.checkpoint.unrecognized import misleading, shape
from muster.node.checkpoint.verdict import Verdict
from muster.protocol.checkpoint_names import above, absolute, step_in_name
from muster.protocol.checkpoints import BranchFilter

NAME = ".muster-incomplete"
MAX_EXAMINED = 32  # at one start, those of the highest steps
_MAX_NAMES = 8  # told of
_MAX_SUFFIX = 1000


@dataclasses.dataclass(frozen=True)
class Moved:
    """The outcome of moving directories aside.

    Attributes:
        names: of the directories and files that were moved.
        error: why some could not be moved; "" = all were.
    """

    names: Tuple[str, ...]
    error: str = ""

    @property
    def summary(self) -> str:
        """A sentence for people about what was moved; "" where nothing was."""
        if not self.names:
            return ""
        more = len(self.names) - _MAX_NAMES
        names = ", ".join(ascii(name)[1:-1] for name in self.names[:_MAX_NAMES])
        return "%s%s moved to %s" % (names, " and %d more" % more if more > 0 else "", NAME)


def move_incomplete_beyond(
    directory: str,
    path: str,
    branch: Optional[BranchFilter] = None,
    sign: Callable[[], None] = no_sign,
    finder_of: Callable[..., Finder] = Finder,
) -> Moved:
    """Move directories with a higher step than the checkpoint at `path` aside, if incomplete or excluded from the
    branch; beside a single file, files that are excluded.

    What cannot be seen whole, and weights without an optimizer, stay. A second call moves what is left: each is moved
    by one rename, within one file system.

    Args:
        directory: spec.checkpoint.directory.
        path: the checkpoint to resume from.
        branch: the branch whose checkpoints count; None = all count.
        sign: called now and then, as a sign of life.
        finder_of: makes the finder of a directory.
    """
    if above(absolute(path)) != absolute(directory):
        return Moved(())
    moved: List[str] = []
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in _excluded_files(directory_fd, os.path.basename(absolute(path)), branch, sign):
                moved += [name] if _move(directory_fd, name) else []
            names = misleading(_entries(directory_fd, sign), os.path.basename(absolute(path)))
            parts = {shape(name) for name in _parts(path, sign)} if names else set()
            for name in names[:MAX_EXAMINED]:
                if _is_misleading(os.path.join(directory, name), parts, branch, sign, finder_of):
                    moved += [name] if _move(directory_fd, name) else []
        finally:
            os.close(directory_fd)
    except (OSError, ValueError) as error:
        return Moved(tuple(moved), str(error) or type(error).__name__)
    left = len(names) - MAX_EXAMINED
    return Moved(tuple(moved), "%d more were not looked at" % left if left > 0 else "")


def _entries(directory_fd: int, sign: Callable[[], None], are_files: bool = False) -> List[str]:
    """The names of the directories, or of the files, in an open directory, links left out."""
    names = []
    with os.scandir(directory_fd) as entries:
        for entry in entries:
            sign()
            if entry.is_file(follow_symlinks=False) if are_files else entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
    return names


def _excluded_files(
    directory_fd: int, chosen: str, branch: Optional[BranchFilter], sign: Callable[[], None]
) -> List[str]:
    """The names of single files like the chosen one that have a higher step and are excluded from the branch."""
    if branch is None or not stat.S_ISREG(os.stat(chosen, dir_fd=directory_fd).st_mode):
        return []
    names = misleading(_entries(directory_fd, sign, are_files=True), chosen)[:MAX_EXAMINED]
    times = {name: os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mtime_ns for name in names}
    return [name for name in names if not branch.has(step_in_name(name) or 0, times[name])]


def _parts(path: str, sign: Callable[[], None]) -> List[str]:
    """The names of the directories inside a checkpoint, which are its parts."""
    try:
        directory_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except NotADirectoryError:  # a single file
        return []
    try:
        return _entries(directory_fd, sign)
    finally:
        os.close(directory_fd)


def _is_misleading(
    path: str,
    parts: Set[str],
    branch: Optional[BranchFilter],
    sign: Callable[[], None],
    finder_of: Callable[..., Finder],
) -> bool:
    """Whether a directory contains no complete checkpoint that counts.

    Args:
        path: of the directory.
        parts: names of the directories inside the checkpoint to resume from. A directory of such a name is a part here,
            too, and no checkpoint by itself.
        branch: the branch whose checkpoints count; None = all count.
        sign: called now and then, as a sign of life.
        finder_of: makes the finder of a directory.
    """

    def counts(candidate_path: str) -> bool:
        return candidate_path == path or shape(os.path.basename(candidate_path)) not in parts

    judged: List[Verdict] = []
    finder = finder_of(path, sign, judged.append)
    answer = Found((), done=False)
    for answer in finder.scan(ScanOptions()):  # noqa: B007 - the last answer
        sign()
    verdicts = [verdict for verdict in judged if counts(verdict.path)]
    if answer.note or any(verdict.problem.startswith((WEIGHTS_ONLY, TOO_MANY_FILES)) for verdict in verdicts):
        return False
    complete = [checkpoint for checkpoint in answer.checkpoints if counts(checkpoint.path)]
    if complete:
        return branch is not None and not any(branch.has(*checkpoint.stamp) for checkpoint in complete)
    # One that was not judged incomplete for good could not be read, or changes while it is looked at.
    return {checkpoint.path for checkpoint in answer.incomplete if counts(checkpoint.path)} <= {
        verdict.path for verdict in verdicts if verdict.problem
    }


def _move(directory_fd: int, name: str) -> bool:
    """Rename a directory or file to a free name in the directory for moved ones. False: it is gone, or another thing.

    Raises:
        OSError: it cannot be moved.
    """
    try:
        mode = os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            return False
    except FileNotFoundError:
        return False
    with contextlib.suppress(FileExistsError):
        os.mkdir(NAME, dir_fd=directory_fd)
    moved_fd = os.open(NAME, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory_fd)
    try:
        os.rename(name, _free_name(moved_fd, name), src_dir_fd=directory_fd, dst_dir_fd=moved_fd)
        for changed in (moved_fd, directory_fd):
            with contextlib.suppress(OSError):  # not every file system can do that with a directory
                os.fsync(changed)
    finally:
        os.close(moved_fd)
    return True


def _free_name(moved_fd: int, name: str) -> str:
    """A name that nothing has in the directory `moved_fd`: a rename onto an empty directory would replace that."""
    for suffix in ("", *(".%d" % number for number in range(1, _MAX_SUFFIX))):
        if _is_free(moved_fd, name + suffix):
            return name + suffix
    raise OSError(errno.EEXIST, "%d directories of this name lie there already" % _MAX_SUFFIX, name)


def _is_free(moved_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=moved_fd, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False
