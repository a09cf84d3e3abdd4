"""The kept releases read what this version leaves behind: the way back, and half an upgrade."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from skew import record
from skew.kept import RELEASES, NoHistoryError, Release

ROOT = Path(__file__).resolve().parents[4]
# Written as a whole by the operator (docs/decisions/0087).
RECORDS = ("gangs", "nodehealths", "endedjobs", "configmaps")


@pytest.fixture(scope="module")
def of_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this version leaves behind."""
    file = tmp_path_factory.mktemp("skew") / "now.json"
    subprocess.run([sys.executable, record.__file__, str(file)], cwd=ROOT, env=_environment(), check=True)
    return file


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tools'}", "PYTHONHASHSEED": "0"}


@pytest.mark.parametrize("release", RELEASES, ids=lambda it: it.version)
def test_a_release_reads_what_this_version_has_written(release: Release, of_now: Path) -> None:
    try:
        found = json.loads(release.run("read", of_now))
    except NoHistoryError as error:
        pytest.skip(str(error))
    assert [text for text in found if not text.endswith("is lost")] == []
    if "class RecordedModel" in (release.tree() / "operator/muster/api/base.py").read_text():
        assert [text for text in found if text.startswith(RECORDS)] == [], "it writes them back"
