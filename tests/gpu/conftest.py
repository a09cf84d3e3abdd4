"""Says in one line that these tests need an NVIDIA driver, instead of failing one after the other."""

from pathlib import Path

import pytest
from tests.unit.launcher.conftest import archive, authority, coordinator, launch  # noqa: F401 # fixtures

CONTROL = Path("/dev/nvidiactl")


def pytest_sessionstart() -> None:
    if not CONTROL.exists():
        pytest.exit(f"make test-gpu needs a machine with an NVIDIA driver: there is no {CONTROL}", returncode=1)
