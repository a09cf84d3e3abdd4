"""The gate does not play a story whose defect a small test shows: with the defect put back, that test fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.nightly.simulate import put_back
from tests.unit.simulate.test_stories import SHOWN_BY

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("story", SHOWN_BY)
def test_a_small_test_shows_the_defect(story: str) -> None:
    file, _, test = SHOWN_BY[story].partition("::")
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"tests/unit/{file}", "-k", test]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), put_back.VARIABLE: story}

    def code(*options: str) -> int:
        run = subprocess.run([*command, *options], cwd=ROOT, env=environment, capture_output=True, check=False)
        return run.returncode

    assert code() == pytest.ExitCode.OK
    assert code("-p", put_back.__name__) == pytest.ExitCode.TESTS_FAILED
