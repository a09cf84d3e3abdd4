"""The record of a gang that leaves Muster on its user's request. Pure.

Tests: tests/unit/lifecycle/test_ejecting.py.
"""

from muster.api.gang import GangSpec


def with_gang_ejected(record: GangSpec) -> GangSpec:
    """Return the record of a gang about which nothing is decided any more."""
    return record.model_copy(update={"ejected": True})
