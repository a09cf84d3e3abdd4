"""Many mutations of objects that the API server stores: each stays readable as far as is guaranteed."""

from typing import Any

import pytest
from tests.unit.fuzz.readable import SAMPLES, stays_readable


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_every_object_has_stays_readable(sample: dict[str, Any]) -> None:
    stays_readable(sample, 300)
