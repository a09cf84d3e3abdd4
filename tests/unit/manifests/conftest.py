"""The manifests as files: what is in them without any cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def base() -> list[dict[str, Any]]:
    """Every object of manifests/base, in the order of its Kustomization."""
    folder = ROOT / "manifests" / "base"
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [document for name in names for document in yaml.safe_load_all((folder / name).read_text()) if document]


@pytest.fixture(scope="session")
def deployment(base: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in base if item["kind"] == "Deployment")
    return found
