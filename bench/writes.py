"""How many writes the API server has served, by its own count."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_VERBS = frozenset(("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"))
# Leases are the nodes' heartbeats. The others are asked with POST and write nothing.
_NOT_WRITES = frozenset(
    (
        "leases",
        "serviceaccounts/token",
        "tokenreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
    )
)


def write_counts(metrics: str) -> dict[str, int]:
    """Writes since the API server's start by `VERB resource`, from the text of its /metrics."""
    counts: dict[str, int] = {}
    for line in _LINE.finditer(metrics):
        labels = dict(_LABEL.findall(line["labels"]))
        resource = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
        if labels["verb"] in _VERBS and resource not in _NOT_WRITES and not labels.get("dry_run"):
            key = f"{labels['verb']} {resource}"
            counts[key] = counts.get(key, 0) + int(float(line["value"]))
    return counts


def writes_between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was added, without what was not written at all."""
    added = {key: count - before.get(key, 0) for key, count in after.items()}
    return {key: count for key, count in sorted(added.items()) if count}
