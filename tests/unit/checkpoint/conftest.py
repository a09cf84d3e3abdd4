"""Real DCP checkpoints, copied so that a test may tear them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.node.checkpoint import find

DATA = Path(__file__).parent / "data"
WRITTEN_NS = 1_700_000_000_000_000_000


@pytest.fixture(params=["torch-2.4", "torch-2.6", "torch-2.15"])
def dcp(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """`<directory>/step-40`, whole; the shards one second older than the metadata."""
    target = tmp_path / "checkpoints" / "step-40"
    shutil.copytree(DATA / f"{request.param}-step-40", target)
    for path in target.iterdir():
        age_ns = 0 if path.name == ".metadata" else 1_000_000_000
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS - age_ns))
    return target


@pytest.fixture
def cut() -> Callable[[Path, int], None]:
    """Shorten a file without touching its modification time."""

    def shorten(path: Path, by_bytes: int) -> None:
        status = path.stat()
        os.truncate(path, status.st_size - by_bytes)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    return shorten


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no atomic marker counts at the first look; tests of that have a clock of their own."""
    monkeypatch.setattr(find, "SETTLE_SECONDS", 0.0)
