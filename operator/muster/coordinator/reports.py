"""Reports decoded fast: thousands of launchers and checkers send one each every few seconds, and the protocol's own
decoder is Python.

It runs on whatever Python a user's image has and names what is wrong, at 0.1 to 0.3 ms for a report. Here msgspec
checks types and limits, in a twentieth of that; what it does not take, the protocol's decoder refuses by name, so both
accept the same (but for the encoding of text in fields that are not read). What a report is stands in one place, the
protocol's dataclasses: all that is here is made from them.

The longest report that a launcher may send, wrong in its last part, costs the loop less than 10 ms: so
few are the parts. A checker, which is Muster's own, has parts of parts.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from muster.protocol import checks, messages
from muster.protocol.checkpoints import kind_in_text
from muster.protocol.checks import CheckReport
from muster.protocol.messages import Limit, Report

MAX_ADDRESSES = 16384  # that are known to be addresses

T = TypeVar("T")
_Make = Callable[[Any], Any]


def decode_report(data: bytes) -> Report:
    """Parse a launcher's report.

    Raises:
        ProtocolError: as muster.protocol.messages.decode_report does, for the same bytes.
    """
    return _with_error_kinds(_reports.decode(data, messages.decode_report))


def _with_error_kinds(report: Report) -> Report:
    """The report with the kinds of its store's errors filled in: launchers of commit 8a74c8e put the kind into the
    text."""
    kind = report.checkpoint_error_kind or kind_in_text(report.checkpoint_error)
    elsewhere = report.other_directory_error_kind or kind_in_text(report.other_directory_error)
    if (kind, elsewhere) == (report.checkpoint_error_kind, report.other_directory_error_kind):
        return report
    return dataclasses.replace(report, checkpoint_error_kind=kind, other_directory_error_kind=elsewhere)


def decode_check_report(data: bytes) -> CheckReport:
    """Parse a checker's report.

    Raises:
        ProtocolError: as muster.protocol.checks.decode_check_report does, for the same bytes.
    """
    return _check_reports.decode(data, checks.decode_check_report)


class _Decoder(Generic[T]):
    """Decodes one kind of message with msgspec."""

    def __init__(self, kind: type[T]) -> None:
        struct, self._make = _schema(kind)
        self._decoder = msgspec.json.Decoder(struct)

    def decode(self, data: bytes, slowly: Callable[[bytes], T]) -> T:
        """The decoded message. The protocol's own decoder, `slowly`, is asked for bytes that msgspec refuses or may
        have misread, and names what is wrong.
        """
        if b"\\ud" in data or b"\\uD" in data:  # perhaps half a pair, which msgspec lets pass and no object may have
            return slowly(data)
        try:
            message: T = self._make(self._decoder.decode(data))
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return slowly(data)
        return message


def _schema(kind: Any) -> tuple[Any, _Make]:
    """The type that msgspec decodes for a message or a part of one, and the function that makes the dataclass of it."""
    limits, hints = messages.limits(kind), get_type_hints(kind)
    fields: list[Any] = []
    parts: list[tuple[str, _Make]] = []
    names: list[str] = []  # fields with a text that is not for people
    for field in dataclasses.fields(kind):
        hint, make = _field(hints[field.name], limits.get(field.name))
        if make is not None:
            parts.append((field.name, make))
        elif str in (hints[field.name], *get_args(hints[field.name])):
            names.append(field.name)
        required = field.default is dataclasses.MISSING
        fields.append((field.name, hint) if required else (field.name, hint, field.default))
    struct = msgspec.defstruct("_" + kind.__name__, fields, rename="camel", gc=False)
    return struct, _maker(kind, parts, names)


def _field(hint: Any, limit: Limit | None) -> tuple[Any, _Make | None]:
    """The type with its limit that msgspec decodes for a field, and the function that makes its value; None =
    unchanged."""
    if get_origin(hint) is Union:  # Optional
        inner, make = _field(get_args(hint)[0], limit)
        return inner | None, make
    make = None
    if get_origin(hint) is tuple:
        part, make_part = _schema(get_args(hint)[0])
        hint = tuple[part, ...]  # type: ignore[valid-type]
        make = functools.partial(_each, make_part)
    if limit is None:
        return hint, make
    if limit.for_people:
        return hint, lambda text: messages.readable(text[-int(limit.most) :])
    if limit.is_address:
        return hint, _address
    if hint in (int, float):
        return Annotated[hint, msgspec.Meta(ge=hint(limit.least), le=hint(limit.most))], make
    return Annotated[hint, msgspec.Meta(min_length=int(limit.least), max_length=int(limit.most))], make


@functools.lru_cache(maxsize=MAX_ADDRESSES)
def _address(text: str) -> str:
    if not messages.is_address(text):
        raise ValueError("no IP address")  # the protocol's own decoder names the field
    return text


def _each(make: _Make, items: Any) -> tuple[Any, ...]:
    return tuple([make(item) for item in items])


def _maker(kind: Any, parts: list[tuple[str, _Make]], names: list[str]) -> _Make:
    names_of = operator.attrgetter(*names) if names else tuple

    def make(value: Any) -> Any:
        if names and not all(map(str.isprintable, filter(None, names_of(value)))):
            raise ValueError("a name may have control characters")  # the protocol's own decoder says so, or not
        values = msgspec.structs.asdict(value)
        for name, part in parts:
            if values[name]:  # nothing has to be done to what is empty
                values[name] = part(values[name])
        made = object.__new__(kind)  # a frozen object is made field by field, which takes several times as long
        vars(made).update(values)
        return made

    return make


_reports = _Decoder(Report)
_check_reports = _Decoder(CheckReport)
