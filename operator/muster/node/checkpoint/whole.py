"""Whether single files are whole, as far as their own form tells: PyTorch's `torch.save` and `.safetensors`.

`torch.save` writes a zip archive from its beginning to its end, and what makes it one stands at the end. A
`.safetensors` file begins with a header that says how long the rest is. Nothing is unpickled: of the values in an
archive only those are read whose key stands before them as a string.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import functools
import io
import re
import struct
from typing import Optional, Sequence, Set, Tuple

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import integer_of
from muster.node.checkpoint.listing import StorageError
from muster.node.checkpoint.untrusted_json import MAX_BYTES, parse_json
from muster.protocol.messages import MAX_NUMBER

_END = struct.Struct("<4s4H2LH")  # of a zip archive: the last 22 bytes, as torch writes no comment
_END_MAGIC, _DIRECTORY_MAGIC = b"PK\x05\x06", b"PK\x01\x02"
ARCHIVE_MAGIC = b"PK\x03\x04"
_LOCAL = struct.Struct("<26x2H")
_ELSEWHERE = 0xFFFFFFFF  # the archive is too long for these fields
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch.save until 1.5: the pickle of its magic number
_MAX_DIRECTORY_BYTES = 32 * 1024 * 1024  # of an archive: zipfile makes twenty times that of it
_MAX_PICKLE_BYTES = 256 * 1024 * 1024
_PICKLE = re.compile(rb"\x80[\x02-\x05]")  # the protocols that say so at the beginning
_PICKLE_END = b"."
_READ_BYTES, _READ_PLACES = 4096, 16  # of a file that begins with zeros, spread over all of it
UNLIKE_OTHERS = "unlike the files beside it, "
ARCHIVES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")  # what frameworks call what torch.save wrote
_FORMED = (".pt", ".pth", ".ckpt", ".npz")
_ARCHIVE, _LEGACY_FORM, _ZEROS, _OTHER = "archive", "legacy archive", "zeros", ""
_WHOLE_PICKLE, _CUT_PICKLE, _LONG_PICKLE = "pickle", "pickle, then zeros", "pickle, then something else"
_MEMOIZED = rb"(?:q.|r.{4}|\x94)?"
_INTEGER = rb"(?:K.|M..|J.{4}|\x8a\x05.{5}|\x8a\x06.{6})"
_VALUE = rb"(%s|N)" % _INTEGER
_TRUE = rb"\x88"
_LIST = rb"\]%s((?:%s)a|\((?:%s)+e)" % (_MEMOIZED, _INTEGER, _INTEGER)


def file_problem(candidate: Candidate, name: str) -> str:
    """Why a file is not whole; "" = it is, or its form does not show it.

    Raises:
        OSError: the file cannot be read.
    """
    if name.endswith(".safetensors"):
        return candidate.remembered(name, _safetensors_problem)
    if name.endswith(ARCHIVES):
        return candidate.remembered(name, archive_problem)
    return "" if candidate.files[name].size_bytes else "%s is empty" % name


def _safetensors_problem(candidate: Candidate, name: str) -> str:
    size = candidate.files[name].size_bytes
    start = candidate.part(name, 0, 8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= MAX_BYTES:
        return "%s has no header" % name
    try:
        header = parse_json(candidate.part(name, 8, length))
        ends = [_natural(item["data_offsets"][1]) for key, item in header.items() if key != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "%s has a header that is cut short" % name
    needed = 8 + length + max(ends, default=0)
    return "" if size >= needed else "%s has %d bytes, %d are needed" % (name, size, needed)


def _natural(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
        raise ValueError("a whole number is expected")
    return value


def archive_problem(candidate: Candidate, name: str) -> str:
    """Why what torch.save wrote is not whole, whatever the file is called; "" = it is.

    Raises:
        OSError: the file cannot be read.
    """
    size = candidate.files[name].size_bytes
    start = candidate.part(name, 0, len(_LEGACY))
    if start == _LEGACY:
        return ""  # nothing in it tells its length
    if not start.startswith(ARCHIVE_MAGIC):
        return "%s is empty" % name if not start else "%s does not begin as torch.save begins" % name
    end = candidate.part(name, max(0, size - _END.size), _END.size)
    if len(end) < _END.size or not end.startswith(_END_MAGIC):
        return "%s is cut short: its archive has no end" % name
    offset = _END.unpack(end)[6]
    if offset != _ELSEWHERE and candidate.part(name, offset, 4) != _DIRECTORY_MAGIC:
        return "%s is incomplete: its archive has no directory" % name
    return ""


def own_file_problem(candidate: Candidate, name: str) -> str:
    """Why a file that a program wrote in a form of its own is not whole; "" = nothing shows that it is not.

    A zip archive, as torch and numpy write them, has an end; what else is called `.pt` need not be one. So the files
    beside it show what the program writes under such names.

    Raises:
        OSError: the file cannot be read.
    """
    if name.endswith(".safetensors"):
        return candidate.remembered(name, _safetensors_problem)
    if not candidate.files[name].size_bytes:
        return "%s is empty" % name
    form = candidate.remembered(name, _form)
    if form == _ARCHIVE:
        return candidate.remembered(name, archive_problem)
    if form == _ZEROS:
        return "%s has only zeros" % name
    if form == _OTHER and name.endswith(_FORMED):
        other = _sibling_of(candidate, (_ARCHIVE, _LEGACY_FORM, _WHOLE_PICKLE, _LONG_PICKLE))
        if other:
            text = "%s begins neither as an archive of torch or numpy nor as a pickle, and %s does"
            return UNLIKE_OTHERS + text % (name, other)
    if form == _CUT_PICKLE:
        other = _sibling_of(candidate, (_WHOLE_PICKLE,))
        if other:
            return UNLIKE_OTHERS + "%s begins as a pickle and ends in zeros, and %s ends as one" % (name, other)
    return ""


def _form(candidate: Candidate, name: str) -> str:
    """The form of a file by a few of its bytes, wherever its end matters for that, too."""
    size = candidate.files[name].size_bytes
    start = candidate.part(name, 0, _READ_BYTES)
    if start.startswith(ARCHIVE_MAGIC):
        return _ARCHIVE
    if start.startswith(_LEGACY):
        return _LEGACY_FORM  # tensors follow, which may end in zeros
    if _PICKLE.match(start):
        end = candidate.part(name, max(0, size - _READ_BYTES), _READ_BYTES)
        if end.endswith(_PICKLE_END):
            return _WHOLE_PICKLE
        return _LONG_PICKLE if end.strip(b"\0") else _CUT_PICKLE
    return _OTHER if start.strip(b"\0") or not _is_zeros(candidate, name, size) else _ZEROS


def _is_zeros(candidate: Candidate, name: str, size: int) -> bool:
    """Whether a file has only zeros wherever it is read: at its beginning, its end, and at some places between."""
    last = max(0, size - _READ_BYTES)
    places = sorted({last * number // (_READ_PLACES - 1) for number in range(_READ_PLACES)}, reverse=True)
    return not any(candidate.part(name, place, _READ_BYTES).strip(b"\0") for place in places)


def _sibling_of(candidate: Candidate, forms: Sequence[str]) -> str:
    """The first file of these forms among those that the same pattern matches; "" = there is none."""
    return next((other for other in candidate.siblings() if _form_beside(candidate, other) in forms), "")


def _form_beside(candidate: Candidate, name: str) -> str:
    """The form of another file; "" where it is gone or cannot be read, which shows nothing."""
    try:
        return candidate.remembered(name, _form) if candidate.has_file(name) else _OTHER
    except StorageError:
        raise
    except (OSError, ValueError):
        return _OTHER


class Pickled:
    """A pickle whose values are looked up without unpickling it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def mentions(self, word: str) -> bool:
        """Whether this text is in the pickle anywhere."""
        return word.encode() in self._data

    def number(self, key: str) -> Optional[int]:
        """The whole number that is written right behind a key; None where there is none."""
        value = self._value(key)
        return integer_of(value) if value[1:] else None

    def numbers(self, key: str) -> Tuple[int, ...]:
        """The whole numbers in the list that is written right behind a key; empty where there is none."""
        match = re.search(_string(key) + _MEMOIZED + _LIST, self._data, re.DOTALL)
        return tuple(map(integer_of, re.findall(_INTEGER, match[1], re.DOTALL))) if match else ()

    def has(self, key: str) -> bool:
        """Whether this whole text is in the pickle, as a key or a value."""
        return re.search(_string(key), self._data) is not None

    def found(self, pattern: bytes) -> "Set[bytes]":
        """The first group of a pattern wherever the pattern matches from the beginning of a text on."""
        texts = re.finditer(rb"(?:X.{3}\x00|\x8c.)(?=%s)" % pattern, self._data, re.DOTALL)
        return {match[1] for match in texts}

    def texts(self, start: bytes) -> "Set[bytes]":
        """The whole texts that begin so."""
        matches = re.finditer(rb"(?:X(.{3}\x00)|\x8c(.))(?=%s)" % re.escape(start), self._data, re.DOTALL)
        ends = ((match.end(), int.from_bytes(match[1] or match[2], "little")) for match in matches)
        return {self._data[end : end + length] for end, length in ends}

    def is_none(self, key: str) -> bool:
        """Whether None is written right behind a key."""
        return self._value(key) == b"N"

    def is_true(self, key: str) -> bool:
        """Whether True is written right behind a key."""
        return re.search(_string(key) + _MEMOIZED + _TRUE, self._data, re.DOTALL) is not None

    def _value(self, key: str) -> bytes:
        match = re.search(_string(key) + _MEMOIZED + _VALUE, self._data, re.DOTALL)
        return match[1] if match else b""


@functools.lru_cache(maxsize=256)
def _string(key: str) -> bytes:
    """A pattern of the opcodes that put a text on the stack."""
    text = key.encode()
    lengths = re.escape(struct.pack("<I", len(text))), re.escape(struct.pack("<B", len(text)))
    return rb"(?:X%s|\x8c%s)%s" % (*lengths, re.escape(text))


def pickled(candidate: Candidate, name: str) -> Pickled:
    """The pickle that torch.save wrote, without the tensors. It may be long: callers keep what they have found, not
    this.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no archive of torch.save.
    """
    import zipfile  # late: most scans look into no archive, and each child that scans would load it

    try:
        with zipfile.ZipFile(_Stream(candidate, name)) as archive:
            member = next((item for item in archive.infolist() if item.filename.endswith("/data.pkl")), None)
    except (zipfile.BadZipFile, NotImplementedError, struct.error, EOFError, OverflowError) as error:
        raise ValueError("%s is incomplete: %s" % (name, error)) from error
    if member is None or member.compress_type != zipfile.ZIP_STORED or member.file_size > _MAX_PICKLE_BYTES:
        raise ValueError("%s was not written by torch.save" % name)
    # zipfile would also compare a checksum, which torch can be told not to write.
    local = candidate.part(name, member.header_offset, _LOCAL.size)
    if len(local) < _LOCAL.size:
        raise ValueError("%s is incomplete" % name)
    start = member.header_offset + _LOCAL.size + sum(_LOCAL.unpack(local))
    return Pickled(candidate.part(name, start, member.file_size))


class _Stream(io.RawIOBase):
    """A file of a candidate as zipfile needs it: read in the parts that are asked for."""

    def __init__(self, candidate: Candidate, name: str) -> None:
        super().__init__()
        self._candidate = candidate
        self._name = name
        self._size = candidate.files[name].size_bytes
        self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise ValueError("a negative position")
        self._position = position
        return position

    def read(self, size: Optional[int] = -1) -> bytes:
        length = self._size - self._position if size is None or size < 0 else size
        if length > _MAX_DIRECTORY_BYTES:
            raise ValueError("its directory is longer than %d bytes" % _MAX_DIRECTORY_BYTES)
        data = self._candidate.part(self._name, self._position, length)
        self._position += len(data)
        return data
