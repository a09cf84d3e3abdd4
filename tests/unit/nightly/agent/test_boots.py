"""What an agent makes of a boot, after everything that the boot before may have left."""

from typing import Any

import pytest
from tests.unit.agent.boots import (
    MISSED_PORTS,
    NO_COUNT,
    WITH_EIGHT_GPUS,
    WITHOUT_MORE_GPUS,
    WORN_GPUS,
    assert_that_a_port_is_missed,
    assert_that_no_gpu_is_missed,
    assert_that_the_first_word_tells_of_a_worn_gpu,
    assert_that_the_first_word_tells_of_the_missing_gpu,
    assert_that_the_next_boot_knows_of_eight_gpus,
)


@pytest.mark.parametrize("before", WITH_EIGHT_GPUS)
def test_a_gpu_that_is_missing_after_a_boot_is_told_with_the_first_word(
    node: Any, run: Any, before: dict[str, Any]
) -> None:
    assert_that_the_first_word_tells_of_the_missing_gpu(node, run, before)


@pytest.mark.parametrize("before", WITHOUT_MORE_GPUS)
def test_a_machine_that_never_had_more_misses_nothing(node: Any, run: Any, before: dict[str, Any]) -> None:
    assert_that_no_gpu_is_missed(node, run, before)


@pytest.mark.parametrize(("faults", "kind"), WORN_GPUS)
def test_the_first_word_after_a_boot_tells_of_memory_and_fabric(
    node: Any, run: Any, faults: list[str], kind: str
) -> None:
    assert_that_the_first_word_tells_of_a_worn_gpu(node, run, faults, kind)


@pytest.mark.parametrize(("before", "missed"), MISSED_PORTS)
def test_a_port_that_does_not_come_up_after_a_boot_is_missed(
    node: Any, run: Any, before: dict[str, Any], missed: bool
) -> None:
    assert_that_a_port_is_missed(node, run, before, missed)


@pytest.mark.parametrize("faults", NO_COUNT)
def test_what_one_boot_cannot_count_the_next_one_misses(node: Any, run: Any, faults: tuple[str, ...]) -> None:
    assert_that_the_next_boot_knows_of_eight_gpus(node, run, faults)
