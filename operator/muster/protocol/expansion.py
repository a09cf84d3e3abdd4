"""References to Muster's own variables, `$(NAME)`, in the command and in variables: resolved at each start, by the
rules of Kubernetes.

The kubelet cannot do it: rank and master are known only when an attempt starts, and are others in the next one. All
other references are the kubelet's. It alone knows which variables are the container's and which the image's, which it
leaves as they are written; and it resolves nothing in what Secrets and ConfigMaps say. Source of the rules: Kubernetes
API, Container.command and EnvVar.value.
"""

from __future__ import annotations

import json
import re
from typing import Dict, Iterable, List, Mapping, Match, Sequence, Tuple

from muster.protocol.contract import IDENTITY

REFERRING = "MUSTER_REFERRING"  # the variables whose own text refers to Muster's, as JSON
# What the launcher knows: those, and one that it sets unless the container does.
_OURS = IDENTITY | {"PET_NPROC_PER_NODE"}
_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^)]*)\))")
# From the first of the dollar signs on: by how many there are it is a reference, or an escaped one.
_OUR_REFERENCE = re.compile(r"(?<!\$)(\$+)\((%s)\)" % "|".join(sorted(_OURS)))


def resolved(words: Sequence[str], environment: Mapping[str, str]) -> List[str]:
    """Words that no kubelet has seen, with all references resolved: `$$` is a dollar sign, and a name that is not known
    stays."""

    def value(found: Match[str]) -> str:
        return "$" if found.group("dollar") else environment.get(found.group("name"), found.group())

    return [_REFERENCE.sub(value, word) for word in words]


def expanded(command: Sequence[str], environment: Mapping[str, str]) -> List[str]:
    """The command, as the kubelet has left it, with the references that the pod kept from it (`kept`)."""
    return [_with_ours(word, environment) for word in command]


def with_identity(environment: Dict[str, str]) -> Dict[str, str]:
    """The same for the container's variables, of which the pod says in one of them (REFERRING) which have such
    references."""
    names = json.loads(environment.get(REFERRING) or "[]")
    found = {name: _with_ours(environment[name], environment) for name in names if name in environment}
    return {**environment, **found}


def _with_ours(text: str, environment: Mapping[str, str]) -> str:
    def value(found: Match[str]) -> str:
        dollars, name = len(found.group(1)), found.group(2)
        known = dollars % 2 and name in environment
        return "$" * (dollars // 2) + (environment[name] if known else "$" * (dollars % 2) + "(%s)" % name)

    return _OUR_REFERENCE.sub(value, text) if "$(" in text else text


def kept(text: str) -> str:
    """A text for the pod, of which the kubelet makes the text again where it refers to Muster's own variables: it might
    know such a name itself, from a Service for one, and gives back one $ for two.
    """
    return _OUR_REFERENCE.sub(lambda found: "%s(%s)" % (found.group(1) * 2, found.group(2)), text)


def referring(variables: Iterable[Tuple[str, str]]) -> List[str]:
    """The names of those variables, as they are written and in this order, that refer to Muster's, also by way of one
    before them."""
    found: List[str] = []
    for name, text in variables:
        if "$(" in text:
            names = {each.group("name") for each in _REFERENCE.finditer(text)}
            if _OUR_REFERENCE.search(text) or not names.isdisjoint(found):
                found.append(name)
    return found
