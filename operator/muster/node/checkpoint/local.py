"""Checkpoints on a node's own disk: which of them this node holds whole, and which attempt has saved them.

Such a checkpoint is worth something only where every node holds its share of the very same save. A disk keeps what was
there before: after going back the same step is saved anew, and a node may have had another rank. So each launcher keeps
a small file beside them, `.muster-<gang>`. It has a line for each attempt: since when, by this disk's own clock, and as
which share of the gang. The line is written while no rank is alive here, after the look. Whatever lies there by then
was saved earlier. Nothing of it is deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from muster.node.checkpoint.find import Finder, Found, ScanOptions
from muster.node.checkpoint.formats.base import Format
from muster.node.checkpoint.formats.table import FORMATS
from muster.node.checkpoint.listing import THIS_MACHINE, no_sign
from muster.node.checkpoint.untrusted_json import parse_json
from muster.protocol.checkpoints import MAX_LISTED

MAX_ERAS = 64
_MAX_FILE_BYTES = 64 * 1024


class Era(NamedTuple):
    """The begin of an attempt on this disk.

    Attributes:
        share: which part of the gang its ranks here were, as the coordinator calls it.
        began_ns: nanoseconds by the file system's clock; the attempt has saved nothing before.
    """

    attempt: int
    share: str
    began_ns: int


class LocalShare(NamedTuple):
    """A checkpoint of which this node holds its whole share."""

    step: int
    path: str
    attempt: int
    format: str


def list_local_shares(
    directory: str,
    gang: str,
    attempt: int,
    share: str,
    sign: Callable[[], None] = no_sign,
    formats: Sequence[Format] = FORMATS,
) -> Tuple[List[LocalShare], str]:
    """The checkpoints of which this node holds its share, the highest step first, and why the next attempt is not
    recorded.

    The text is "" where it is. No rank that writes there may be alive: so nothing has to be looked at twice.

    Args:
        directory: on this node's own disk.
        gang: name of the gang.
        attempt: the attempt that begins next; it is written down with its share.
        share: which part of the gang this node's ranks are, as the coordinator calls it.
        sign: called now and then, as a sign of life.
        formats: the formats that count there.

    Raises:
        OSError: the directory cannot be made or read.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, ".muster-" + gang)
    eras = [era for era in _eras(path) if era.attempt < attempt]
    answer = Found((), False)
    for answer in Finder(directory, sign, settle_seconds=0.0, formats=formats).scan(ScanOptions(limit=MAX_LISTED)):  # noqa: B007 - the last answer
        pass
    shares = []
    for checkpoint in answer.checkpoints:
        era = _era_of(eras, checkpoint.written_ns)
        if checkpoint.judged and era is not None and era.share == share:
            shares.append(LocalShare(checkpoint.step, checkpoint.path, era.attempt, checkpoint.format))
    try:
        _write(path, eras, attempt, share)
    except OSError as error:
        return shares, "%s cannot be written: %s" % (path, error.strerror or error)
    return shares, ""


def _era_of(eras: Sequence[Era], written_ns: int) -> Optional[Era]:
    """The attempt that had begun last when a checkpoint was written; None where no such attempt is known."""
    begun_eras = [era for era in eras if era.began_ns <= written_ns]
    return max(begun_eras, key=lambda era: (era.began_ns, era.attempt), default=None)


def _eras(path: str) -> List[Era]:
    """The attempts in the file at `path`; empty where the file is missing or incomplete: then no checkpoint there
    counts."""
    try:
        items = parse_json(THIS_MACHINE.part(path, 0, _MAX_FILE_BYTES))["eras"]
        return [Era(int(attempt), str(share), int(began_ns)) for attempt, share, began_ns in items]
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return []


def _write(path: str, eras: Sequence[Era], attempt: int, share: str) -> None:
    own = "%s.%s" % (path, os.urandom(8).hex())
    try:
        with open(own, "x", encoding="utf-8") as stream:  # never through a link: it may lead out of the directory
            era = Era(attempt, share, os.fstat(stream.fileno()).st_mtime_ns)
            json.dump({"eras": [*eras, era][-MAX_ERAS:]}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(own, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(own)
        raise
