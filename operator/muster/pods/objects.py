"""Reads lists of a pod template, which may have any shape before the API server has checked it. Pure.

Tests: tests/unit/status/test_template.py.
"""

from collections.abc import Mapping
from typing import Any


def objects(of: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in the list of this name; empty where it is no list.

    Args:
        of: an object of a pod template, of any shape.
        name: of the list.
    """
    several = of.get(name)
    return [item for item in several if isinstance(item, dict)] if isinstance(several, list) else []
