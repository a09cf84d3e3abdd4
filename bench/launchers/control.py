"""The commands that a bench sends, one JSON object a line, checked here so that a typing error is told and not
ignored."""

import json
from dataclasses import dataclass, field


class CommandError(ValueError):
    """A line that is no command; says why."""


@dataclass(frozen=True, slots=True)
class FailRanks:
    """The first rank of each of these pods ends by itself; with code 0 all of them do."""

    pods: tuple[str, ...]
    exit_code: int = 1


@dataclass(frozen=True, slots=True)
class Silence:
    """Everything on a node, or in these pods, ends at once and says nothing: a power cut."""

    node: str = ""
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restore:
    """The node has power again: what begins there from now on lives."""

    node: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Print what this process has done and costs."""


Command = FailRanks | Silence | Restore | Statistics
_FORMS = (
    'use {"fail_ranks": [PODS], "exit_code": 1}, {"silence_node": NODE}, {"silence_pods": [PODS]}, '
    '{"restore_node": NODE} or {"statistics": true}'
)


@dataclass(slots=True)
class _Fields:
    """The members of one object, each to be taken once."""

    members: dict[str, object] = field(default_factory=dict)

    def names(self, key: str) -> tuple[str, ...]:
        value = self.members.pop(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise CommandError(f"{key}: a list of names is expected, not {value!r}")
        return tuple(value)

    def name(self, key: str) -> str:
        value = self.members.pop(key)
        if not isinstance(value, str) or not value:
            raise CommandError(f"{key}: a name is expected, not {value!r}")
        return value


def parse(line: str) -> Command:
    """One command.

    Raises:
        CommandError: not JSON, or none of the forms.
    """
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CommandError(f"not JSON: {error}; {_FORMS}") from error
    if not isinstance(document, dict):
        raise CommandError(_FORMS)
    fields = _Fields(dict(document))
    command: Command
    if "fail_ranks" in document:
        pods, exit_code = fields.names("fail_ranks"), fields.members.pop("exit_code", 1)
        if not isinstance(exit_code, int) or isinstance(exit_code, bool) or not 0 <= exit_code <= 255:
            raise CommandError(f"exit_code: 0 to 255 is expected, not {exit_code!r}")
        command = FailRanks(pods, exit_code)
    elif "silence_node" in document:
        command = Silence(node=fields.name("silence_node"))
    elif "restore_node" in document:
        command = Restore(fields.name("restore_node"))
    elif "silence_pods" in document:
        command = Silence(pods=fields.names("silence_pods"))
    elif fields.members.pop("statistics", None) is True:
        command = Statistics()
    else:
        raise CommandError(_FORMS)
    if fields.members:
        raise CommandError(f"unknown: {', '.join(sorted(fields.members))}; {_FORMS}")
    return command
