"""Hundreds of jobs that are refused for hours, and how often the API server is asked about them."""

import pytest
from tests.unit.clock import Clock
from tests.unit.controller.conftest import Scene
from tests.unit.controller.refusals import FOR_GOOD, QUOTA, jobs_ask_less_and_less

from muster.kube.errors import ApiError


@pytest.mark.parametrize("refused", [FOR_GOOD, QUOTA], ids=["for good", "for a while"])
async def test_hundreds_of_refused_jobs_ask_the_api_server_less_and_less(refused: ApiError, clock: Clock) -> None:
    await jobs_ask_less_and_less(Scene(clock), refused, 400)
