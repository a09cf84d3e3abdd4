"""The examples are what an API server takes, the rules in CEL included."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[3] / "examples"
JOBS = [
    pytest.param(document, id=f"{path.parent.name} {document['metadata']['name']}")
    for path in sorted([*EXAMPLES.glob("*/trainingjob.yaml"), *(EXAMPLES / "reference").glob("*.yaml")])
    for document in yaml.safe_load_all(path.read_text())
    if document["kind"] in ("TrainingJob", "FleetPolicy")
]


def test_there_are_some() -> None:
    assert len(JOBS) >= 5


@pytest.mark.parametrize("job", JOBS)
def test_an_example_is_accepted(job: dict[str, Any], refusal: Callable[..., str]) -> None:
    metadata = {name: value for name, value in job["metadata"].items() if name != "namespace"}
    assert refusal({**job, "metadata": metadata}) == ""
