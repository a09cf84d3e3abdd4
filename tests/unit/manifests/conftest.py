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
def base() -> list[dict[str, Any]]:
    """Every object of manifests/base, in the order of its Kustomization."""
    return objects_of(ROOT / "manifests" / "base")


@pytest.fixture(scope="session")
def deployment(base: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in base if item["kind"] == "Deployment")
    return found
