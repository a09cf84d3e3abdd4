"""GPUs that are dead without saying so, and what only looks so: each error, line and model."""

from typing import Any

import pytest
from tests.unit.agent.dead_gpus import (
    INIT_FAILED,
    assert_that_a_line_is_history,
    assert_that_a_node_without_gpus_is_quiet,
    assert_that_errors_alone_are_fatal,
    assert_that_lost_links_are_told,
    assert_that_no_link_is_missed,
    assert_that_nvml_that_had_worked_is_missed,
    assert_that_saving_power_is_no_fault,
)


@pytest.mark.parametrize(
    "fault", ["gpu_fails=999@gpu1", "gpu_fails=17@gpu1"], ids=["unknown error", "operating system"]
)
def test_a_gpu_that_answers_only_errors_while_others_answer(fault: str, node: Any, run: Any) -> None:
    assert_that_errors_alone_are_fatal(fault, node, run)


@pytest.mark.parametrize("code", [999, 9, 12])
def test_nvml_that_had_worked_in_this_boot_does_not_start_any_more(code: int, node: Any, run: Any) -> None:
    assert_that_nvml_that_had_worked_is_missed(code, node, run)


@pytest.mark.parametrize("code", [999, 9])
def test_a_node_that_never_had_gpus_is_quiet(code: int, node: Any, run: Any) -> None:
    assert_that_a_node_without_gpus_is_quiet(code, node, run)


@pytest.mark.parametrize("line", [INIT_FAILED, "6,1,1000,-;NVRM: GPU 0000:11:00.0: GPU has fallen off the bus."])
def test_a_line_about_a_gpu_that_answers_is_history(line: str, node: Any, run: Any) -> None:
    assert_that_a_line_is_history(line, node, run)


@pytest.mark.parametrize("left", [14, 0])
def test_all_gpus_lose_links_at_once(left: int, node: Any, run: Any) -> None:
    assert_that_lost_links_are_told(left, node, run)


@pytest.mark.parametrize(
    "faults",
    [
        ("nvlink_down=4", "model=1"),
        ("nvlink_down=6", "model=2"),
        ("nvlink_down=18", "gpus=1"),
        ("nvlink_down=4", "mig=1"),
    ],
    ids=["H200 NVL: bridged at will", "GH200: wired at will", "none of a single H200", "MIG"],
)
def test_links_that_may_be_missing(faults: tuple[str, ...], node: Any, run: Any) -> None:
    assert_that_no_link_is_missed(faults, node, run)


@pytest.mark.parametrize("idle", ["throttle=1", "performance_state=8"])
def test_an_idle_gpu_saves_power(idle: str, node: Any, run: Any) -> None:
    assert_that_saving_power_is_no_fault(idle, node, run)
