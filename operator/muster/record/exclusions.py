"""The nodes that a gang avoids for a while. Pure.

Tests: tests/unit/record/test_incidents.py, tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from muster.api.gang import GangSpec
from muster.world.job import JobWorld

EXCLUSION = timedelta(minutes=10)
# Of a node that was proved bad; others learn it from its NodeHealth.
FAILED_EXCLUSION = timedelta(hours=24)
# So soon a node with a failure is taken again when there is no other.
RETRY_EXCLUDED = timedelta(minutes=1)


def with_excluded(record: GangSpec, nodes: Iterable[str], until: datetime) -> GangSpec:
    """Return the record that excludes these nodes until the given time."""
    return record.model_copy(update={"excluded_nodes": {**record.excluded_nodes, **dict.fromkeys(nodes, until)}})


def without_excluded(record: GangSpec, nodes: Collection[str]) -> GangSpec:
    """Return the record that does not exclude these nodes."""
    excluded = {node: until for node, until in record.excluded_nodes.items() if node not in nodes}
    return record.model_copy(update={"excluded_nodes": excluded})


def without_past_exclusions(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record without exclusions whose time is over."""
    excluded = {node: until for node, until in record.excluded_nodes.items() if until > world.now}
    return record.model_copy(update={"excluded_nodes": excluded})


def with_firm_exclusions(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record with only those nodes excluded that must not be used, even where there are no others.

    These are nodes with a failure less than a minute ago, and nodes that failed the burn-in in the same boot. A
    recorded time may be of another leader's clock, so one that lies ahead is judged by its distance from now.
    """
    excluded = record.excluded_nodes.items()
    recent = {node: until for node, until in excluded if abs(until - EXCLUSION - world.now) < RETRY_EXCLUDED}
    for failure in record.burn_in.failures if record.burn_in else ():
        node = world.fleet.nodes.get(failure.node)
        if node and node.boot_id == failure.boot and abs(world.now - failure.time) < FAILED_EXCLUSION:
            recent[failure.node] = failure.time + FAILED_EXCLUSION
    return record.model_copy(update={"excluded_nodes": recent})
