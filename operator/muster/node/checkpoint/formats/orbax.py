"""Orbax, and MaxText with it: `N/` or `prefix_N/`, renamed from a temporary name, or ended by `commit_success.txt`.

orbax/checkpoint/_src/path/atomicity.py, `finalize`: `_CHECKPOINT_METADATA` is told the time of the commit before
either. Each item is a directory with `_METADATA`, or, where it is none of arrays, with `metadata`. The arrays lie in
one database (OCDBT), or, without it, each in a directory of its own in the form of zarr.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
import struct
from typing import List

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import Format, Words, json_object

# tensorstore/kvstore/ocdbt/format/manifest.h: of other versions nothing is known.
_MANIFEST_HEAD, _MANIFEST_MAGIC = struct.Struct("<4sQ"), b"\x0c\xdb\x3a\x2a"
COMMITTED = "commit_success.txt"
STEP_METADATA = "_CHECKPOINT_METADATA"
_ARRAYS = re.compile(r"((?:(?!ocdbt\.process)[^/]+/)?)(?:_METADATA|d/.+|ocdbt\.process_\d+/.+)\Z")

# What an array has of its own, by which zarr finds it: of the driver zarr, and of zarr3. Arrays whose names have
# slashes lie deeper than the listing goes, and in this file older ones are together.
_OF_ZARR = (".zarray", "zarr.json")
_SLASH = re.compile(rb"'[^'\"]*/[^'\"]*'")
_TOGETHER = "checkpoint"
_IS_ARRAY = re.compile(rb'"skip_deserialize"\s*:\s*false')


def _problem(candidate: Candidate) -> str:
    if candidate.in_store:
        problem = _store_problem(candidate)
        if problem:
            return problem
    if STEP_METADATA in candidate.files:
        metadata = json_object(candidate, STEP_METADATA)
        if not metadata.get("commit_timestamp_nsecs") and COMMITTED not in candidate.files:
            return "%s records no commit" % STEP_METADATA
        handlers = metadata.get("item_handlers")
        items = {name.partition("/")[0] for name in (*candidate.files, *candidate.deeper) if "/" in name}
        for item in handlers if isinstance(handlers, dict) else ():
            if item not in items:
                return "its item %s does not exist" % item
    for prefix in _arrays(candidate):
        for name in (prefix + "_METADATA", prefix + "manifest.ocdbt"):
            if name not in candidate.files:
                return "%s does not exist" % name
            if not candidate.files[name].size_bytes:
                return "%s is empty" % name
        if not candidate.remembered(prefix + "manifest.ocdbt", _is_complete_save):
            return "%smanifest.ocdbt is cut short" % prefix
        if not any(name.startswith(prefix) and "/d/" in "/" + name for name in candidate.files):
            return "the files that %smanifest.ocdbt leads to are gone" % prefix
    without = next((name for name in sorted(candidate.files) if _lacks_arrays(candidate, name)), "")
    if without:
        return "there are no arrays beside %s, which names them" % without
    if not any("/" in name or name == "_METADATA" for name in candidate.files):
        return "there are no arrays"
    return ""


def _temporary(name: str) -> str:
    """The temporary name from which Orbax renames a checkpoint (atomicity_types.py, TMP_DIR_SUFFIX)."""
    return "../%s.orbax-checkpoint-tmp" % name


def _store_problem(candidate: Candidate) -> str:
    """Why a checkpoint in an object store is not complete; "" = it is.

    There a rename is a copy of one file after the other, the commit file among them.
    """
    if COMMITTED not in candidate.files:
        return "%s does not exist, and in a store no directory is renamed at once" % COMMITTED
    if _temporary(candidate.name) in candidate.files:
        return "%s is still there" % _temporary(candidate.name)[3:]
    later = candidate.later_than(COMMITTED)
    return "%s is newer than %s" % (later[0], COMMITTED) if later else ""


def _is_complete_save(candidate: Candidate, name: str) -> bool:
    """Whether a manifest has the length that it gives: a magic number, its length, and what it names."""
    head = candidate.part(name, 0, _MANIFEST_HEAD.size)
    if len(head) < _MANIFEST_HEAD.size:
        return False
    magic, length = _MANIFEST_HEAD.unpack(head)
    return bool(magic != _MANIFEST_MAGIC or length == candidate.files[name].size_bytes)


def _lacks_arrays(candidate: Candidate, name: str) -> bool:
    """Whether a file tells of arrays, and beside it is neither a database of them nor a single one."""
    place, _, last = name.rpartition("/")
    prefix = place + "/" if place else ""
    if last != "_METADATA" or "/" in place or prefix in _arrays(candidate) or prefix + _TOGETHER in candidate.files:
        return False
    inside = (other for other in candidate.files if other.startswith(prefix))
    return not any(other.endswith(_OF_ZARR) for other in inside) and candidate.remembered(name, _lists_arrays)


def _lists_arrays(candidate: Candidate, name: str) -> bool:
    document = candidate.document(name)
    return _IS_ARRAY.search(document) is not None and _SLASH.search(document) is None


def _arrays(candidate: Candidate) -> List[str]:
    """The directories of arrays in OCDBT, each with a slash at its end; "" = the checkpoint itself."""
    prefixes = {match[1] for match in map(_ARRAYS.match, candidate.files) if match}
    return sorted(
        prefix
        for prefix in prefixes
        if any(
            name.startswith((prefix + "d/", prefix + "ocdbt.", prefix + "manifest.ocdbt")) for name in candidate.files
        )
    )


ORBAX = Format(
    "Orbax",
    Words(
        written_by="Orbax, MaxText",
        place="`500/`, `prefix_500/`",
        step="the last whole number in the name",
        complete=(
            "renamed from its temporary name, or `commit_success.txt` is there. Each item is there, and in each of "
            "arrays `_METADATA` and `manifest.ocdbt`, or, without OCDBT, an array of zarr. The arrays' own files are "
            "not looked at. In an object store `commit_success.txt` has to be there, as the last"
        ),
    ),
    (STEP_METADATA, COMMITTED, "default/_METADATA", "items/_METADATA", "_METADATA"),
    _problem,
    beside=_temporary,
    is_open=True,
)
