"""The manifests as files: what is in them without any cluster."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.manifests.builders import objects_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def installed() -> list[dict[str, Any]]:
    """Every object of the default overlay."""
    return objects_of(ROOT / "manifests" / "overlays" / "default")


@pytest.fixture(scope="session")
def everything() -> list[dict[str, Any]]:
    """Every object of the overlay that has all parts."""
    return objects_of(ROOT / "manifests" / "overlays" / "jobs")


@pytest.fixture(scope="session")
def deployment(installed: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in installed if item["kind"] == "Deployment")
    return found
