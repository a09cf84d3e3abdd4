"""Reads which shards a PyTorch DCP `.metadata` needs, and how long each must be, without unpickling it.

`.metadata` is a pickle (torch/distributed/checkpoint/filesystem.py). Unpickling runs whatever code the file names, and
torch may not be installed here, so the opcodes are walked instead. Each tensor piece is a `_StorageInfo` whose state is
a dict with `relative_path`, `offset` and `length`; a shard is whole when it reaches the largest offset + length that
points into it.

There are as many pieces as tensors times ranks, and some forty opcodes for each. What says nothing about shards is
passed over by a regular expression that knows how long each opcode is, and counts what is memoized on the way: a string
is written once and referred to by that count.
"""

from __future__ import annotations

import functools
import io
import pickletools
import re
from typing import Any, Callable, Dict, List, Optional, Pattern, Sequence, Tuple, Union

from muster.protocol.messages import MAX_NUMBER

METADATA_NAME = ".metadata"
FLASH_TRACKER = "../dlrover_latest.txt"  # beside what DLRover saves from memory, FSDP's shards among it
SHARD_NAME = re.compile(r"__\d+_\d+\.distcp\Z")

_FIELDS = ("relative_path", "offset", "length")
_RELEVANT = re.compile(rb"__\d|(?:relative_path|offset|length)\Z")
_STRINGS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_INTEGERS = frozenset(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"))
_DECIMALS = frozenset(("INT", "LONG"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_INTEGER = rb"(K.|M..|J.{4}|\x8a(?:\x05.{5}|\x04.{4}|\x06.{6}|\x07.{7}))"
_SHORT_STRING, _LONG, _SIGNED = 0x8C, 0x8A, b"J\x8a"
_MEMOIZE = rb"\x94"
_NOT_PASSED = _PUTS | {"BINGET", "LONG_BINGET", "MEMOIZE", "STOP"}
_MEMOIZED_AT_ONCE = 24  # in one match, which has a group for each
_PASSED_AT_ONCE = 6
_TURNS_BETWEEN_SIGNS = 16384
_MAX_COPIES = 256  # of the names of fields: what looks for them is made anew for each
_MAX_DECIMALS = 32
_OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}


class MetadataError(ValueError):
    """The metadata of a DCP checkpoint cannot be read: the file is incomplete, or no pickle."""


def shard_sizes(metadata: bytes, sign: Callable[[], None] = lambda: None) -> Dict[str, int]:
    """The least size in bytes of each shard, by the shard's name relative to the checkpoint.

    A shard that is only named, without an offset and a length that could be read, must have one byte.

    Args:
        metadata: content of the `.metadata` file.
        sign: called now and then, as a sign of life.

    Raises:
        MetadataError: the content is no whole pickle, or names no shard.
    """
    walk = _Walk(metadata)
    try:
        while walk.read_opcodes(_TURNS_BETWEEN_SIGNS):
            sign()
    except MetadataError:
        raise
    except Exception as error:
        # The readers of pickletools let all kinds of errors through (ValueError, struct.error, IndexError,
        # UnicodeDecodeError ...); whatever it is, the file is not a whole pickle. Their texts repeat what is in the
        # file.
        raise MetadataError("not a whole pickle") from error
    if not walk.sizes:
        raise MetadataError("it names no shard")
    return walk.sizes


class _Walk:
    """The position of the reading in the pickle, and the shards found so far."""

    def __init__(self, metadata: bytes) -> None:
        self.sizes: Dict[str, int] = {}
        self._data = metadata
        self._stream = io.BytesIO(metadata)
        self._position = 0
        self._memoized = 0
        self._copies = 0
        self._gets: Dict[bytes, str] = {}  # the opcode that refers to a memoized string, with its argument
        self._last: Union[str, int, None] = None  # what the opcode before put on the stack, None if it does not matter
        self._key: Optional[str] = None  # the field whose value comes next
        self._piece: Dict[str, Any] = {}
        self._path_gets: Tuple[bytes, ...] = ()  # those that refer to the name of the first field
        self._passed = _passed(())
        self._contiguous_piece: Optional[Pattern[bytes]] = None

    def read_opcodes(self, count: int) -> bool:
        """Read at most `count` opcodes or matches further; returns whether there is more to read."""
        while count > 0:
            if not self._piece and self._key is None and self._last is None:
                count = self._pass(count)
            if not self._step():
                return False
            count -= 1
        return True

    def _pass(self, count: int) -> int:
        """Skip opcodes that say nothing about shards, and note whole pieces on the way; returns how many turns are
        left."""
        data, position, memoized = self._data, self._position, self._memoized
        passed, piece, gets, sizes = self._passed, self._contiguous_piece, self._gets, self.sizes
        while count > 0:
            count -= 1
            match = passed.match(data, position)
            if match is not None:
                position = match.end()
                memoized += match.lastindex or 0
                if match.lastindex == _MEMOIZED_AT_ONCE:
                    continue
            if data[position] == _SHORT_STRING:
                end = position + 2 + data[position + 1]
                if end < len(data) and not _RELEVANT.match(data, position + 2, end):
                    position = end
                    continue
            match = piece.match(data, position) if piece is not None else None
            if match is None:
                break
            if match[2] is None:
                path = gets.get(match[1])
            elif match[2][0] == len(match[3]):  # a shard that is named for the first time
                path = match[3].decode()
                gets[b"j" + memoized.to_bytes(4, "little")] = path  # a pickler that memoizes so refers to it
                if memoized < 256:
                    gets[b"h%c" % memoized] = path
                memoized += 1
            else:
                path = None
            if path is None:
                break
            position = match.end()
            end = integer_of(match[4]) + integer_of(match[5])
            if end > sizes.get(path, 0):
                sizes[path] = max(end, 1)
        self._position, self._memoized = position, memoized
        return count

    def _step(self) -> bool:
        """Read one opcode; returns False if it was the last."""
        opcode = _OPCODES[self._data[self._position]]
        start, argument = self._position, None
        self._position += 1
        if opcode.name in _DECIMALS and self._data.find(b"\n", self._position, self._position + _MAX_DECIMALS) < 0:
            raise MetadataError("a number of more than %d digits" % _MAX_DECIMALS)
        if opcode.arg is not None:
            self._stream.seek(self._position)
            argument = opcode.arg.reader(self._stream)
            self._position = self._stream.tell()
        self._execute(opcode.name, argument, self._data[start : self._position])
        return opcode.name != "STOP"

    def _execute(self, name: str, argument: Any, code: bytes) -> None:
        if name == "FRAME":  # begins anywhere, even between a field's name and its value
            return
        if name == "MEMOIZE" or name in _PUTS:
            self._memoize(self._memoized if name == "MEMOIZE" else int(argument))
            self._last = None
            return
        if name in _STRINGS or name in _INTEGERS:
            self._last = argument
        elif name in _GETS:
            self._last = self._gets.get(code)
        else:
            self._last = None
        if self._key is not None:
            self._piece[self._key] = self._last
            self._key = None
            if len(self._piece) == len(_FIELDS):
                self._note(*(self._piece[field] for field in _FIELDS))
                self._piece = {}
        elif isinstance(self._last, str) and self._last in _FIELDS[: len(_FIELDS) if self._piece else 1]:
            self._key = self._last
        if isinstance(self._last, str) and SHARD_NAME.match(self._last):
            self.sizes.setdefault(self._last, 1)

    def _memoize(self, place: int) -> None:
        self._memoized += 1
        if not isinstance(self._last, str):
            return
        gets = _gets(place)
        self._gets.update(dict.fromkeys(gets, self._last))
        if self._last == _FIELDS[0]:
            self._path_gets += tuple(gets[:2])
            self._passed = _passed(self._path_gets)
        if self._last in _FIELDS:
            self._copies += 1
            if self._copies > _MAX_COPIES:
                raise MetadataError("it names %s more than %d times" % (self._last, _MAX_COPIES))
            self._contiguous_piece = _contiguous_piece(self._gets)

    def _note(self, path: Any, offset: Any, length: Any) -> None:
        end = offset + length if isinstance(offset, int) and isinstance(length, int) else 1
        if not isinstance(path, str):
            raise MetadataError("a piece without the name of its shard")
        if end > MAX_NUMBER:
            raise MetadataError("a shard of more than %d bytes" % MAX_NUMBER)
        if end > self.sizes.get(path, 0):
            self.sizes[path] = max(end, 1)


def _gets(place: int) -> List[bytes]:
    """The opcodes that refer to the string memoized at this place, each with its argument."""
    opcodes = [b"j" + place.to_bytes(4, "little"), b"g%d\n" % place]
    return [b"h%c" % place, *opcodes] if place < 256 else opcodes


@functools.lru_cache(maxsize=64)
def _passed(stops: Tuple[bytes, ...]) -> Pattern[bytes]:
    """A pattern of opcodes with arguments of a fixed length, except `stops`; one group matches for each that
    memoizes."""
    by_length: Dict[int, bytes] = {}
    for opcode in pickletools.opcodes:
        length = 0 if opcode.arg is None else opcode.arg.n
        if length >= 0 and opcode.name not in _NOT_PASSED:
            by_length[length] = by_length.get(length, b"") + re.escape(opcode.code.encode("latin-1"))
    kinds = [b"[%s].{%d}" % (codes, length) for length, codes in sorted(by_length.items()) if length]
    kinds += [b"%s%s" % (_except(stops, code), get) for code, get in ((b"h", b"h."), (b"j", b"j.{4}"))]
    alone = b"[%s]*" % by_length[0]
    some = alone + _up_to(_PASSED_AT_ONCE, b"(?:%s)%s" % (b"|".join(kinds), alone))
    return re.compile(some + _up_to(_MEMOIZED_AT_ONCE, b"(%s)%s" % (_MEMOIZE, some)), re.DOTALL)


def _except(stops: Sequence[bytes], code: bytes) -> bytes:
    return b"".join(b"(?!%s)" % re.escape(stop) for stop in stops if stop.startswith(code))


def _up_to(count: int, pattern: bytes) -> bytes:
    """A pattern for at most `count` matches of `pattern`. It is nested, because the engine takes much longer over a
    repeat."""
    return b"(?:%s%s|)" % (pattern, _up_to(count - 1, pattern)) if count else b""


def _contiguous_piece(gets: Dict[bytes, str]) -> Optional[Pattern[bytes]]:
    """A pattern for the three fields of a tensor piece in a row; None while their names were not memoized.

    Each field's name is a reference. The shard's name is a reference, or spelled out and memoized.

    Args:
        gets: memoized strings, by the opcode that refers to them.
    """
    names = [[re.escape(get) for get, name in gets.items() if name == field] for field in _FIELDS]
    if not all(names):
        return None
    path, offset, length = (b"(?:%s)" % b"|".join(name) for name in names)
    shard = rb"(h.|j.{4}|\x8c(.)(__\d+_\d+\.distcp)" + _MEMOIZE + rb")"
    return re.compile(path + shard + offset + _INTEGER + length + _INTEGER, re.DOTALL)


def integer_of(code: bytes) -> int:
    """The value of an opcode that puts an integer on the stack."""
    kind = code[0]
    return int.from_bytes(code[2 if kind == _LONG else 1 :], "little", signed=kind in _SIGNED)
