"""What a process of Muster says where it cannot begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.patience import PATIENCE_SECONDS

OPERATOR = Path(__file__).resolve().parents[3] / "operator"


@pytest.mark.parametrize("module", ["muster", "muster.page"])
def test_without_credentials_it_ends_with_a_sentence(tmp_path: Path, module: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(OPERATOR)}
    environment |= {"KUBECONFIG": str(tmp_path / "config"), "MUSTER_PROFILE": "observe"}
    ended = subprocess.run(
        [sys.executable, "-m", module],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith(
        "no way to the API server: neither the token of a service account nor a kubeconfig can be used: "
    )
