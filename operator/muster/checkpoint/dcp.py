"""Reads which shards a PyTorch DCP `.metadata` needs, and how long each must be, without unpickling it.

`.metadata` is a pickle (torch/distributed/checkpoint/filesystem.py). Unpickling runs whatever code the file names, and
torch may not be installed here, so the opcodes are walked instead. Each tensor piece is a `_StorageInfo` whose state is
a dict with `relative_path`, `offset` and `length`; a shard is whole when it reaches the largest offset + length that
points into it.
"""

from __future__ import annotations

import pickletools
import re
from typing import Any, Dict, Optional

METADATA_NAME = ".metadata"
SHARD_NAME = re.compile(r"__\d+_\d+\.distcp\Z")

_STRINGS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_INTEGERS = frozenset(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_FIELDS = frozenset(("relative_path", "offset", "length"))


class MetadataError(ValueError):
    """The metadata cannot be read: torn, or not a pickle."""


def shard_sizes(metadata: bytes) -> Dict[str, int]:
    """Bytes that each shard must have at least, by its name relative to the checkpoint.

    A shard that is only named, without an offset and a length that could be read, must have one byte.

    Raises:
        MetadataError: not a whole pickle, or it names no shard.
    """
    sizes: Dict[str, int] = {}
    memo: Dict[Any, Any] = {}
    memoized = 0
    last: Any = None  # the value that the operation before put on the stack, None if unknown
    key: Optional[str] = None  # the field whose value comes next
    piece: Dict[str, Any] = {}
    try:
        for opcode, argument, _ in pickletools.genops(metadata):
            name = opcode.name
            if name == "MEMOIZE":
                memo[memoized] = last
                memoized += 1
                continue
            if name in _PUTS:
                memo[argument] = last
                continue
            if name in _STRINGS or name in _INTEGERS:
                last = argument
            elif name in _GETS:
                last = memo.get(argument)
            else:
                last = None
                continue
            if key is not None:
                piece[key] = last
                key = None
                if len(piece) == len(_FIELDS):
                    _note(sizes, piece)
                    piece = {}
            elif isinstance(last, str) and last in _FIELDS:
                key = last
            if isinstance(last, str) and SHARD_NAME.match(last):
                sizes.setdefault(last, 1)
    except Exception as error:
        # genops lets the errors of its readers through (ValueError, struct.error, IndexError, UnicodeDecodeError ...);
        # whatever it is, the file is not a whole pickle.
        raise MetadataError("not a whole pickle: %s" % error) from error
    if not sizes:
        raise MetadataError("it names no shard")
    return sizes


def _note(sizes: Dict[str, int], piece: Dict[str, Any]) -> None:
    path, offset, length = piece["relative_path"], piece["offset"], piece["length"]
    if isinstance(path, str) and isinstance(offset, int) and isinstance(length, int):
        sizes[path] = max(sizes.get(path, 1), offset + length)
