"""A plugin of pytest that puts the defect back that MUSTER_DEFECT names, once the tests have been collected."""

import os

import pytest
from tests.unit.nightly.simulate.defects import DEFECTS

VARIABLE = "MUSTER_DEFECT"


def pytest_collection_finish() -> None:
    DEFECTS[os.environ[VARIABLE]](pytest.MonkeyPatch())
