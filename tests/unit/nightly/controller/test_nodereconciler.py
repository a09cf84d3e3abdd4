"""Hours of what comes and goes at a node, and how seldom the keeper of node health writes."""

from tests.unit.controller.health_stage import (
    clocked_stage,
    comes_and_goes_ten_times_an_hour,
    stage_with_a_policy,
    what_another_system_says_is_few_writes,
)


async def test_what_the_agent_says_and_takes_back_is_written_ten_times_an_hour() -> None:
    """What it says changes nothing."""
    await comes_and_goes_ten_times_an_hour(clocked_stage(), "the agent")


async def test_what_another_system_says_while_the_breaker_holds_nodes_is_few_writes() -> None:
    await what_another_system_says_is_few_writes(stage_with_a_policy(), held=True, minutes=60)
