"""Strange versions of documents and bytes: types changed, parts lost, repeated, nested, moved, taken from elsewhere.

Most mutations keep the type of what they change: what a schema refuses at once meets no decision. What an API server
guarantees of every object, whatever stored it, is kept: metadata have their types, and specs and states of built-in
kinds are objects.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from fuzz import wire

MOST_MUTATIONS = 6
MOST_BYTES = 1_000_000  # an API server keeps no larger object

NUMBERS: Sequence[int | float] = (
    *(0, 1, -1, 2, 3, 7, 64, 127, 255, 4095, 4096, 65535, 65536, 10**6, -(10**6)),
    *(2**31 - 1, 2**31, -(2**31), 2**53 - 1, 2**53, 10**18, 2**63 - 1, -(2**63)),
    *(0.5, -0.0, 1e-300, 1e300, 1.5e9, 253402300800),
)
TIMES = (
    *(
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00Z",
        "2199-12-31T23:59:59Z",
        "2200-01-01T00:00:00Z",
    ),
    *(
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59.999999Z",
        "2026-01-01T00:00:00+14:00",
        "2026-01-01T00:01:00.5-12:00",
    ),
    *("2025-12-31T23:00:00Z", "2026-01-01T00:02:00Z", "2026-01-01T03:00:00Z", "2027-01-01T00:00:00Z"),
)
NO_TIMES = (
    "2026-01-01T00:00:00",
    "2026-02-30T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01",
    "10000-01-01T00:00:00Z",
)
QUANTITIES = (
    *(
        "0",
        "1",
        "-1",
        "8",
        "1.5",
        "100m",
        "1n",
        "-0.5",
        "9E",
        "1e3",
        "1e300",
        "1E999",
        "9223372036854775807",
        "1Ki",
        "7Zi",
    ),
    *("0.0000000001", "abc", "1 ", "+5", "1e-9", ".5", "5.", "9" * 60, "NaN", "inf", "0x10", "1e99999999", "١٢"),
)
TEXTS = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "n0",
        "f0",
        "f1",
        "a",
        "main",
        "default",
        "*",
        ".*",
        "/",
        "//",
        "/a/../b",
        "../../etc/passwd",
    ),
    *(
        "%s%n",
        "{}",
        "{0.__class__}",
        "\x00",
        "\x1b[31m",
        "\u202e\u2066",
        "😀" * 40,
        "e\u0301" * 30,
        "ÿ",
        "١٢",
        "²",
        "line\nline\r\n",
    ),
    *("a" * 64, "a" * 254, "None", "null", "true", "NaN", "Scratch", "/ckpt/a/5", "18446744073709551616", "9" * 63),
    *(
        "Plain",
        "Managed",
        "Succeeded",
        "Failed",
        "Running",
        "Pending",
        "True",
        "False",
        "Unknown",
        "Never",
        "Always",
        "Exists",
    ),
    *(
        "In",
        "NotIn",
        "Gt",
        "Lt",
        "DoesNotExist",
        "NoExecute",
        "Death",
        "FenceFile",
        "Fence",
        "R0",
        "R2",
        "R4",
        "Idle",
        "Terminating",
    ),
    *(
        "(a+)+$",
        "(",
        "step=(\\d+)",
        "(?P<n>x)",
        "[\\U0010ffff-]",
        "(" * 200 + ")" * 200,
        "((a{1,99}){1,99}){1,99}",
        "\\N{DIGIT ONE}",
    ),
    *(
        "trainer-0",
        "muster.dev/unhealthy",
        "nvidia.com/gpu",
        "kubernetes.io/hostname",
        "metadata.name",
        "cpu",
        "b0",
        "block",
    ),
    *("ephemeral", "muster", "system-node-critical", "batch", "1e400", "200:1700000000000000000,100:", ",,,:::", "-:-"),
    *(wire.repeated("x", 5000), wire.repeated("ab ", 60_000), wire.repeated("1", 4400)),
)
LITERALS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "1" * 5000,
    "01",
    "1.",
    "-",
    "nul",
    "tru",
    "",
    "[",
    "}",
    "1e-400",
    "0.1e1",
)
HALVES = ("d800", "dfff", "udc00", "0000")
_LABEL = re.compile(r"[^A-Za-z0-9._-]")
_SHAPED = frozenset({"metadata", "spec", "status"})


def mutated(
    document: Any, chance: Random, others: Sequence[Any] = (), *, builtin: bool = False, raw: bool = False
) -> Any:
    """A strange version of a document.

    Args:
        others: documents of the kind to take parts from.
        builtin: the API server knows its fields: spec and status stay objects, a pod's node a text, and nothing nests
            deep.
        raw: it is no object of the API server: anything goes, invalid JSON, too.
    """
    found = copy.deepcopy(document)
    for _ in range(min(1 + int(chance.expovariate(0.7)), MOST_MUTATIONS)):
        found = _once(found, chance, others, builtin, raw)
    return found


def _once(document: Any, chance: Random, others: Sequence[Any], builtin: bool, raw: bool) -> Any:
    places = [place for place in _places(document) if raw or _is_free(place, builtin)]
    if not places:
        return document
    # Deep places are many; the fields that most is made of are few.
    place = min(chance.sample(places, min(len(places), chance.choice((1, 1, 2, 4)))), key=len)
    parent = _at(document, place[:-1])
    key, value = place[-1], parent[place[-1]]
    if not raw and place[0] == "metadata":
        _of_metadata(parent, key, place, chance)
        return document
    draw = chance.random()
    if draw < 0.55:
        parent[key] = _alike(value, chance)
    elif draw < 0.70 and others:
        _splice(document, place, chance.choice(others))
    elif draw < 0.80:
        _lose(parent, key)
    elif draw < 0.86:
        parent[key] = copy.deepcopy(_at(document, chance.choice(places)))
    else:
        parent[key] = _anything(chance, raw, deepest=50 if builtin else 9000)
    return document


def _places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document[:64])
    for key, value in items:
        yield (*at, key)
        yield from _places(value, (*at, key))


def _at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def _is_free(place: tuple[Any, ...], builtin: bool) -> bool:
    """Whether something else may be there in an object that an API server has."""
    if place[0] in ("apiVersion", "kind") or place == ("metadata",):
        return False
    if place[0] == "metadata":
        return place[1] in _OF_METADATA
    return not (builtin and (place[-1] == "nodeName" or (len(place) == 1 and place[0] in _SHAPED)))


def _numbers_label(chance: Random) -> str:
    return chance.choice(("0", "1", "2", "00", "-1", "1.5", "4095", "9" * 63, "a", ""))


_OF_METADATA: Mapping[str, Callable[[Random], Any]] = {
    "labels": lambda chance: (
        _LABEL.sub("", str(chance.choice(TEXTS)))[:63] if chance.random() < 0.5 else _numbers_label(chance)
    ),
    "annotations": lambda chance: chance.choice(TEXTS),
    "generation": lambda chance: chance.choice((0, 1, 2, 2**31, 2**63 - 1)),
    "creationTimestamp": lambda chance: chance.choice((None, *TIMES[:8])),
    "deletionTimestamp": lambda chance: chance.choice((None, *TIMES[:8])),
    "deletionGracePeriodSeconds": lambda chance: chance.choice((0, 1, -1, 2**63 - 1)),
    "ownerReferences": lambda chance: chance.choice(([], [{"uid": ""}], [{"uid": "x", "controller": True}] * 3)),
    "finalizers": lambda chance: chance.choice(([], ["example.org/held"], ["a"] * 50)),
}


def _of_metadata(parent: Any, key: Any, place: tuple[Any, ...], chance: Random) -> None:
    """What an API server may hold in metadata: of the right type, and labels of the right letters."""
    name = place[1]
    if name in ("labels", "annotations") and len(place) == 2:
        parent[key] = {} if chance.random() < 0.3 else {**parent[key], "example.org/x": _OF_METADATA[name](chance)}
    elif name == "ownerReferences" and len(place) > 3:
        parent[key] = chance.random() < 0.5 if key in ("controller", "blockOwnerDeletion") else chance.choice(TEXTS)
    elif len(place) == 3 and (chance.random() < 0.3 or name in ("ownerReferences", "finalizers")):
        del parent[key]
    elif len(place) == 2 or name in ("labels", "annotations"):
        parent[key] = _OF_METADATA[name](chance)


def _alike(value: Any, chance: Random) -> Any:
    """Something else of the type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return _number_like(value, chance)
        case str():
            return _text_like(value, chance)
        case list():
            return _list_like(value, chance)
        case dict():
            return _object_like(value, chance)
    return _anything(chance)


def _number_like(value: float, chance: Random) -> float:
    draw = chance.random()
    if draw < 0.4:
        return value + chance.choice((1, -1, 10, -10, 1000))
    if draw < 0.5:
        return -value
    found = chance.choice(NUMBERS)
    return int(max(min(found, 2**63 - 1), -(2**63))) if isinstance(value, int) else float(found)


def _text_like(text: str, chance: Random) -> str:
    if re.match(r"\d{4}-\d\d-\d\dT", text):
        return chance.choice(TIMES) if chance.random() < 0.9 else chance.choice(NO_TIMES)
    if re.fullmatch(r"[0-9.]+[a-zA-Z]{0,2}", text):
        return chance.choice(QUANTITIES)
    match chance.randrange(6):
        case 0:
            return text + chance.choice(TEXTS[:40])
        case 1:
            return text[: chance.randrange(len(text) + 1)]
        case 2:
            return text.swapcase()
        case _:
            return chance.choice(TEXTS)


def _list_like(values: list[Any], chance: Random) -> list[Any]:
    match chance.randrange(6):
        case 0:
            return []
        case 1:
            return [*values, *values]
        case 2:
            return values[::-1]
        case 3:
            return values[1:]
        case 4 if values:
            return [copy.deepcopy(value) for value in values for _ in range(chance.choice((2, 20, 300)))][:2000]
    return [*values, _anything(chance)]


def _object_like(value: dict[str, Any], chance: Random) -> dict[str, Any]:
    match chance.randrange(5):
        case 0:
            return {}
        case 1 if value:
            found = dict(value)
            found[chance.choice(TEXTS)] = found.pop(chance.choice(list(found)))
            return found
        case 2:
            return {**value, **{f"k{number}": "v" for number in range(chance.choice((2, 70, 1100)))}}
        case 3 if len(value) > 1:
            one, other = chance.sample(list(value), 2)
            return {**value, one: value[other], other: value[one]}
    return {**value, chance.choice(TEXTS): _anything(chance)}


def _anything(chance: Random, raw: bool = False, deepest: int = 50) -> Any:
    if raw and chance.random() < 0.3:
        return wire.literal(chance.choice(LITERALS)) if chance.random() < 0.6 else wire.escaped(chance.choice(HALVES))
    match chance.randrange(8):
        case 0:
            return None
        case 1:
            return chance.choice((True, False))
        case 2:
            return chance.choice(NUMBERS)
        case 3:
            return chance.choice(([], [None], [[]], [{}], {}, {"": ""}, [0] * 3000, {"a": {"b": {"c": []}}}))
        case 4:
            return wire.nested(min(chance.choice((50, 500, 1500, 9000)), deepest))
        case 5:
            return chance.choice(TIMES + NO_TIMES + QUANTITIES)
    return chance.choice(TEXTS)


def _lose(parent: Any, key: Any) -> None:
    del parent[key]


def _splice(document: Any, place: tuple[Any, ...], other: Any) -> None:
    """What stands at the same place, or under the same name, in another document."""
    try:
        value = _at(other, place)
    except (KeyError, IndexError, TypeError):
        same = [at for at in _places(other) if at[-1] == place[-1] and isinstance(place[-1], str)]
        if not same:
            return
        value = _at(other, same[0])
    _at(document, place[:-1])[place[-1]] = copy.deepcopy(value)


def mutated_bytes(data: bytes, chance: Random) -> bytes:
    """Bytes flipped, cut, doubled, moved, inserted."""
    found = bytearray(data)
    for _ in range(1 + int(chance.expovariate(0.5))):
        at = chance.randrange(len(found) + 1)
        length = chance.choice((1, 1, 1, 2, 4, 16, 200))
        match chance.randrange(7):
            case 0 if at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                del found[at : at + length]
            case 2:
                found[at:at] = found[at : at + length] * chance.choice((1, 2, 50))
            case 3:
                found[at:at] = chance.choice(_PIECES)
            case 4:
                found[at : at + length] = chance.randbytes(length)
            case 5:
                del found[at:]
            case 6:
                start = chance.randrange(len(found) + 1)
                found[at:at] = found[start : start + length]
    return bytes(found[:MOST_BYTES])


_PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"\x00",
        b"\xff\xfe",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b":",
        b" ",
        b"\t",
        b"/",
        b"?a=b",
        b"%00",
        b",",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Content-Length: +5\r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
        b" folded\r\n",
    ),
    *(
        b"Authorization: Bearer\r\n",
        b"Authorization: Basic eDp5\r\n",
        b"Host: \r\n",
        b"HTTP/0.9",
        b"HTTP/2.0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    *(
        b"A" * 20000,
        b"x: y\r\n" * 3000,
        b"\xd9\xa1",
        b"[[[[[[[[" * 300,
        b'{"a":' * 2000,
        b"NaN",
        b"1e999",
        b'"\\ud800"',
        b"null",
    ),
)
