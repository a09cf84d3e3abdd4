"""What JSON can hold and Python's encoder cannot write: placeholders in documents, put in once these are bytes.

A document with placeholders is a plain one, so that it can be kept in a file, made smaller and patched by the API
server.
"""

import re
from typing import Any

import msgspec

_MARK = "\u2020"
_PLACE = re.compile(rf'"{_MARK}(\w+):([^"{_MARK}]*){_MARK}"'.encode())


def nested(depth: int) -> str:
    """So many objects, each in the one before."""
    return f"{_MARK}nested:{depth}{_MARK}"


def literal(text: str) -> str:
    """JSON text as it stands, whether it is valid or not; without quotes and backslashes."""
    return f"{_MARK}literal:{text}{_MARK}"


def escaped(code: str) -> str:
    """Text of one escaped UTF-16 unit, e.g. half a pair."""
    return f"{_MARK}escaped:{code}{_MARK}"


def repeated(text: str, times: int) -> str:
    return f"{_MARK}repeated:{times} {text}{_MARK}"


def encode(document: Any) -> bytes:
    """JSON bytes, placeholders filled in."""
    data = msgspec.json.encode(document)
    return _PLACE.sub(_filled, data) if _MARK.encode() in data else data


def _filled(found: "re.Match[bytes]") -> bytes:
    kind, rest = found[1].decode(), found[2]
    match kind:
        case "nested":
            depth = int(rest)
            return b'{"a":' * depth + b"1" + b"}" * depth
        case "literal":
            return rest
        case "escaped":
            return b'"\\u%s"' % rest
        case "repeated":
            times, _, text = rest.partition(b" ")
            return b'"%s"' % (text * int(times))
    return found[0]
