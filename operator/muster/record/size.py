"""The size of a record: etcd takes no larger one. Pure."""

import json

from muster.api.gang import GangSpec

# etcd takes 1.5 MiB in one request, of which some is the API server's own bookkeeping.
MAX_BYTES = 1_400_000
# Fewer cannot be too large: names have at most 253 characters.
SURELY_SMALL = 512
MAX_EXCLUDED = 512
FEW_INCIDENTS = 32


def within_etcd_limit(spec: GangSpec) -> GangSpec:
    """Return the record small enough for etcd: where necessary, the oldest incidents and excluded nodes are dropped."""
    if len(spec.excluded_nodes) > MAX_EXCLUDED:
        latest = sorted(spec.excluded_nodes.items(), key=lambda item: item[1])[-MAX_EXCLUDED:]
        spec = spec.model_copy(update={"excluded_nodes": dict(latest)})
    if len(spec.members) + len(spec.unfenced_workers) <= SURELY_SMALL or _bytes(spec) <= MAX_BYTES:
        return spec
    return spec.model_copy(update={"incidents": spec.incidents[-FEW_INCIDENTS:], "excluded_nodes": {}})


def _bytes(spec: GangSpec) -> int:
    return len(json.dumps(spec.to_json(), separators=(",", ":")))
