"""Moves directories out of the way that a trainer could take for its newest checkpoint, and that are none.

What a save that was cut short has left has a higher number than the checkpoint that a start goes on from. A trainer
that looks for its newest itself takes that one. Where the job asks for it such directories are moved, never deleted,
into one directory beside them whose name begins with a dot, so that neither scanners nor frameworks look into it.

Nothing may write into the directory meanwhile: whoever calls has to know that no rank is alive, and that none will
start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import stat
from typing import Callable, List, Optional, Set, Tuple

from muster.node.checkpoint.find import TOO_MANY_FILES, Finder, Found, Look
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY
from muster.node.checkpoint.listing import no_sign
from muster.node.checkpoint.verdict import Verdict
from muster.protocol.checkpoint_names import above, absolute, order_candidates, step_in_name
from muster.protocol.checkpoints import Branch

NAME = ".muster-incomplete"
MAX_EXAMINED = 32  # at one start, those of the highest steps
_MAX_NAMES = 8  # told of
_MAX_SUFFIX = 1000
_NUMBER = re.compile(r"[0-9]+")


@dataclasses.dataclass(frozen=True)
class Moved:
    """What was done.

    Attributes:
        names: of the directories that were moved.
        error: why not all was done that should have been, "" = all was.
    """

    names: Tuple[str, ...]
    error: str = ""

    @property
    def words(self) -> str:
        """For people, "" where nothing was moved."""
        if not self.names:
            return ""
        more = len(self.names) - _MAX_NAMES
        told = ", ".join(ascii(name)[1:-1] for name in self.names[:_MAX_NAMES])
        return "%s%s moved to %s" % (told, " and %d more" % more if more > 0 else "", NAME)


def misleading(names: List[str], chosen: str) -> List[str]:
    """Of these names those that are called as the chosen checkpoint is, with a higher step; the highest first.

    Args:
        chosen: the name of the checkpoint that is gone on from. Numbers may differ, and nothing else: what lies beside
            the checkpoints (logs, exports) is called otherwise.
    """
    step = step_in_name(chosen)
    if step is None:
        return []
    found = [name for name in order_candidates(names) if _shape(name) == _shape(chosen)]
    return [name for name in found if (step_in_name(name) or 0) > step]


def _shape(name: str) -> str:
    """The same for names that differ by numbers only."""
    return _NUMBER.sub("0", name)


def move_aside(
    directory: str,
    path: str,
    branch: Optional[Branch] = None,
    sign: Callable[[], None] = no_sign,
    finder_of: Callable[..., Finder] = Finder,
) -> Moved:
    """Move what is not complete, or of a history that does not count, and has a higher step than the checkpoint at
    `path`.

    What cannot be seen whole, and weights without an optimizer, stay. Done again it moves what is left: each directory
    is moved by one rename, within one file system.

    Args:
        directory: spec.checkpoint.directory.
        branch: which history counts; None: all do.
        sign: called now and then, as a sign of life.
    """
    if above(absolute(path)) != absolute(directory):
        return Moved(())
    moved: List[str] = []
    try:
        here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = misleading(_directories(here, sign), os.path.basename(absolute(path)))
            parts = {_shape(name) for name in _parts(path, sign)} if names else set()
            for name in names[:MAX_EXAMINED]:
                if _is_misleading(os.path.join(directory, name), parts, branch, sign, finder_of):
                    moved += [name] if _move(here, name) else []
        finally:
            os.close(here)
    except (OSError, ValueError) as error:
        return Moved(tuple(moved), str(error) or type(error).__name__)
    left = len(names) - MAX_EXAMINED
    return Moved(tuple(moved), "%d more were not looked at" % left if left > 0 else "")


def _directories(here: int, sign: Callable[[], None]) -> List[str]:
    """Names of the directories there, links left out."""
    found = []
    with os.scandir(here) as entries:
        for entry in entries:
            sign()
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
    return found


def _parts(path: str, sign: Callable[[], None]) -> List[str]:
    """Names of the directories in a checkpoint, which are parts of it."""
    try:
        here = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except NotADirectoryError:  # a single file
        return []
    try:
        return _directories(here, sign)
    finally:
        os.close(here)


def _is_misleading(
    path: str, parts: Set[str], branch: Optional[Branch], sign: Callable[[], None], finder_of: Callable[..., Finder]
) -> bool:
    """Whether no complete checkpoint is in it.

    Args:
        parts: what the checkpoint that is gone on from has in it is called: the same in this one is a part, whole or
            not, and no checkpoint by itself.
    """

    def counts(one: str) -> bool:
        return one == path or _shape(os.path.basename(one)) not in parts

    judged: List[Verdict] = []
    finder = finder_of(path, sign, judged.append)
    found = Found((), done=False)
    for found in finder.look(Look()):  # noqa: B007 - the last answer
        sign()
    verdicts = [verdict for verdict in judged if counts(verdict.path)]
    if found.note or any(verdict.problem.startswith((WEIGHTS_ONLY, TOO_MANY_FILES)) for verdict in verdicts):
        return False
    complete = [one for one in found.checkpoints if counts(one.path)]
    if complete:
        return branch is not None and not any(branch.has(*one.stamp) for one in complete)
    # One that was not judged torn for good could not be read, or changes while it is looked at.
    return {one.path for one in found.torn if counts(one.path)} <= {
        verdict.path for verdict in verdicts if verdict.problem
    }


def _move(here: int, name: str) -> bool:
    """By one rename, to a name that is free. False: it is gone, or no directory any more.

    Raises:
        OSError: it cannot be moved.
    """
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            return False
    except FileNotFoundError:
        return False
    with contextlib.suppress(FileExistsError):
        os.mkdir(NAME, dir_fd=here)
    there = os.open(NAME, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
    try:
        os.rename(name, _free_name(there, name), src_dir_fd=here, dst_dir_fd=there)
        for changed in (there, here):
            with contextlib.suppress(OSError):  # not every file system can do that with a directory
                os.fsync(changed)
    finally:
        os.close(there)
    return True


def _free_name(there: int, name: str) -> str:
    """A rename onto an empty directory would replace it."""
    for suffix in ("", *(".%d" % number for number in range(1, _MAX_SUFFIX))):
        if _is_free(there, name + suffix):
            return name + suffix
    raise OSError(errno.EEXIST, "%d directories of this name lie there already" % _MAX_SUFFIX, name)


def _is_free(there: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=there, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False
