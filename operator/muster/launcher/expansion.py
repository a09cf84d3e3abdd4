"""References to variables in the command, `$(NAME)`, as Kubernetes resolves them in a container's command and arguments.

The kubelet cannot do it: rank and master are known only when an attempt starts, and are others in the next one.
Source of the rules: Kubernetes API, Container.command.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Match, Sequence

from muster.protocol.contract import IDENTITY

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^)]*)\))")


def expanded(command: Sequence[str], environment: Mapping[str, str]) -> List[str]:
    """The command with its references resolved: `$$` is a dollar sign, and a name that is not known stays as it is written."""

    def value(found: Match[str]) -> str:
        return "$" if found.group("dollar") else environment.get(found.group("name"), found.group())

    return [_REFERENCE.sub(value, word) for word in command]


def with_identity(environment: Dict[str, str]) -> Dict[str, str]:
    """Resolve references to Muster's own variables in the container's others: the kubelet did not know them, and left them."""

    def value(found: Match[str]) -> str:
        name = found.group("name")
        return environment[name] if name in IDENTITY and name in environment else found.group()

    def resolved(name: str, text: str) -> str:
        return text if name in IDENTITY or "$(" not in text else _REFERENCE.sub(value, text)

    return {name: resolved(name, text) for name, text in environment.items()}
