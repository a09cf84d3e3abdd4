"""What is taken of the Kubernetes library, and what is left."""

import json
import subprocess
import sys
from pathlib import Path

from localcluster.patience import PATIENCE_SECONDS

OPERATOR = Path(__file__).resolve().parents[3] / "operator"


def test_the_client_loads_its_part_and_no_other() -> None:
    code = (
        "import json, sys, muster.kube.client; from muster.kube import library; library.part('client.rest'); "
        "library.part('config');print(json.dumps([n for n in sys.modules if n.split('.')[0] in ('kubernetes', "
        "'requests')]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=OPERATOR, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    loaded = set(json.loads(told.stdout))
    assert {"kubernetes.aio.client.rest", "kubernetes.aio.config.kube_config"} <= loaded
    assert {name for name in loaded if not name.startswith("kubernetes.aio")} == {"kubernetes"}
    assert not {"kubernetes.aio.dynamic", "kubernetes.aio.stream", "kubernetes.aio.watch"} & loaded
