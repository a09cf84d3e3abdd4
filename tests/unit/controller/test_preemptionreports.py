"""A listed class by which no job preempts is an Event of the FleetPolicy, once until it has gone."""

import asyncio
from typing import Any

import pytest
from tests.unit.waiting import until

from muster.controller import preemptionreports
from muster.controller.preemptionreports import PreemptionReports
from muster.kube.decode import PriorityClass


class Setup:
    """A FleetPolicy that lists class urgent, and what is reported of it."""

    def __init__(self, scene: Any) -> None:
        self.classes = scene.cluster.priorities.store
        self.reported: list[str] = []
        self.reports = PreemptionReports(scene.cluster, self.record)
        listed = [{"name": "urgent", "namespaces": ["ns"]}]
        scene.apply_policy({"queueing": {"preemption": {"priorityClasses": listed}}}, version=60)

    def record(self, reason: str, message: str) -> None:
        assert reason == "PreemptionWithoutEffect"
        self.reported.append(message)

    def report(self) -> list[str]:
        """What is reported now."""
        self.reported.clear()
        self.reports.report_changes()
        return list(self.reported)


@pytest.fixture
def setup(scene: Any) -> Setup:
    return Setup(scene)


def urgent(version: int, *, preempts: bool = True) -> PriorityClass:
    return PriorityClass("urgent", 1000, False, version, preempts)


def test_a_class_that_does_not_exist_is_reported_until_it_does(setup: Setup) -> None:
    (message,) = setup.report()
    assert "lists PriorityClass urgent, which does not exist" in message
    assert "To change that, create it" in message
    assert setup.report() == []
    setup.classes.assume(urgent(100))
    assert setup.report() == []
    setup.classes.assume_deleted(("", "urgent"), "urgent")
    assert setup.report() == [message]


def test_a_class_that_never_preempts_is_reported_until_it_does(setup: Setup) -> None:
    setup.classes.assume(urgent(100, preempts=False))
    (message,) = setup.report()
    assert "which has preemptionPolicy Never" in message
    setup.classes.assume(urgent(101))
    assert setup.report() == []
    setup.classes.assume(urgent(102, preempts=False))
    assert setup.report() == [message]


async def test_a_report_that_fails_is_tried_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        monkeypatch.setattr(setup.reports, "_report", setup.record)
        raise RuntimeError("no")

    monkeypatch.setattr(preemptionreports, "PERIOD_SECONDS", 0.001)
    monkeypatch.setattr(setup.reports, "_report", fails)
    running = asyncio.create_task(setup.reports.run())
    await until(lambda: setup.reported)
    running.cancel()
