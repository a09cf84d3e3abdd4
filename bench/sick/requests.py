"""What the operator has asked of the API server, and what it says of its nodes, from the text of its /metrics. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_REQUESTS = re.compile(r"^muster_api_requests_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_NODES = re.compile(r'^muster_nodes\{state="(?P<state>\w+)"\} (?P<value>\S+)$', re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset(("POST", "PUT", "PATCH", "DELETE"))
# Its own lease, and what is asked with POST and writes nothing.
_NOT_WRITES = frozenset(("leases", "tokenreviews", "subjectaccessreviews"))


def requests_made(metrics: str) -> dict[str, int]:
    """Answered requests since the operator's start by `VERB resource`; watches and its lease are left out."""
    made = all_requests(metrics).items()
    return {
        key: count for key, count in made if not key.startswith("WATCH ") and key.partition(" ")[2] not in _NOT_WRITES
    }


def all_requests(metrics: str) -> dict[str, int]:
    """Answered requests since the operator's start by `VERB resource`, whatever they are for."""
    counts: dict[str, int] = {}
    for line in _REQUESTS.finditer(metrics):
        labels = dict(_LABEL.findall(line["labels"]))
        key = f"{labels['verb']} {labels['resource']}"
        counts[key] = counts.get(key, 0) + int(float(line["value"]))
    return counts


def writes(requests: Mapping[str, int]) -> int:
    """How many of them write."""
    return sum(count for key, count in requests.items() if key.partition(" ")[0] in _WRITES)


def nodes_by_verdict(metrics: str) -> dict[str, int]:
    """How many nodes have which verdict, as the operator counts them."""
    return {line["state"]: int(float(line["value"])) for line in _NODES.finditer(metrics)}
