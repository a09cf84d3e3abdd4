"""Resolve references to Muster's variables, `$(NAME)`, in command and variables at each start, by Kubernetes' rules.

The kubelet cannot do it: rank and master are known only when an attempt starts, and differ in the next one. All other
references are the kubelet's. It alone knows which variables are the container's and which the image's, which it leaves
unresolved; and it resolves nothing in the values of Secrets and ConfigMaps. Source of the rules: Kubernetes API,
Container.command and EnvVar.value.
"""

from __future__ import annotations

import json
import re
from typing import Dict, Iterable, List, Mapping, Match, Sequence, Tuple

from muster.protocol.contract import IDENTITY

REFERRING = "MUSTER_REFERRING"  # the variables with references to Muster's, as JSON
# The launcher's own variables: those, and one that it sets unless the container does.
_OURS = IDENTITY | {"PET_NPROC_PER_NODE"}
_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^)]*)\))")
# From the first of the dollar signs on: their number decides whether it is a reference, or an escaped one.
_OUR_REFERENCE = re.compile(r"(?<!\$)(\$+)\((%s)\)" % "|".join(sorted(_OURS)))


def resolved(words: Sequence[str], environment: Mapping[str, str]) -> List[str]:
    """Resolve all references in words that no kubelet has processed: `$$` is a dollar sign, and unknown names stay."""

    def value(match: Match[str]) -> str:
        return "$" if match.group("dollar") else environment.get(match.group("name"), match.group())

    return [_REFERENCE.sub(value, word) for word in words]


def expanded(command: Sequence[str], environment: Mapping[str, str]) -> List[str]:
    """Resolve those references in the command that the pod kept from the kubelet (`kept`)."""
    return [_with_ours(word, environment) for word in command]


def with_identity(environment: Dict[str, str]) -> Dict[str, str]:
    """Resolve references in the container's variables that the pod lists in REFERRING."""
    names = json.loads(environment.get(REFERRING) or "[]")
    variables = {name: _with_ours(environment[name], environment) for name in names if name in environment}
    return {**environment, **variables}


def _with_ours(text: str, environment: Mapping[str, str]) -> str:
    def value(match: Match[str]) -> str:
        dollars, name = len(match.group(1)), match.group(2)
        is_known = dollars % 2 and name in environment
        return "$" * (dollars // 2) + (environment[name] if is_known else "$" * (dollars % 2) + "(%s)" % name)

    return _OUR_REFERENCE.sub(value, text) if "$(" in text else text


def kept(text: str) -> str:
    """Escape a text's references to Muster's variables, so that the kubelet restores the text.

    The kubelet might know such a name itself, for example from a Service, and makes one $ of two.
    """
    return _OUR_REFERENCE.sub(lambda match: "%s(%s)" % (match.group(1) * 2, match.group(2)), text)


def referring(variables: Iterable[Tuple[str, str]]) -> List[str]:
    """Return the names of the variables that refer to Muster's, in this order, also through an earlier variable."""
    referrers: List[str] = []
    for name, text in variables:
        if "$(" in text:
            names = {match.group("name") for match in _REFERENCE.finditer(text)}
            if _OUR_REFERENCE.search(text) or not names.isdisjoint(referrers):
                referrers.append(name)
    return referrers
