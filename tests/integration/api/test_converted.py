"""What `kubectl muster convert` makes is what an API server takes, the rules in CEL included."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.cli.convert import as_document
from muster.convert.documents import converted

MANIFESTS = Path(__file__).parents[2] / "unit" / "convert" / "manifests"
JOBS = [
    pytest.param(result.job, id=path.stem)
    for path in sorted(MANIFESTS.iterdir())
    for result in converted(list(yaml.safe_load_all(path.read_text())))
    if result and result.job
]


@pytest.mark.parametrize("job", JOBS)
def test_a_converted_job_is_accepted(job: dict[str, Any], kubectl: Callable[..., Any]) -> None:
    metadata = {name: value for name, value in job["metadata"].items() if name != "namespace"}
    printed = as_document({**job, "metadata": metadata})
    found = kubectl("apply", "--validate=strict", "--dry-run=server", "-f", "-", stdin=printed)
    assert found.returncode == 0, found.stderr
