"""What healthy figures are: of everybody's, in the long run, and of nobody's alone."""

import asyncio
import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.clock import Clock
from tests.unit.controller.conftest import Api
from tests.unit.waiting import until

from muster.api.fleetpolicy import FleetPolicy
from muster.controller import probe_thresholds, slices
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.controller.probe_thresholds import GROWING_SECONDS, PAUSE_SECONDS, LimitsKeeper, ProbeThresholds
from muster.coordinator.auth import Caller
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.hub import Hub
from muster.preflight import baselines
from muster.preflight.baselines import LEAST_NODES, Sample
from muster.protocol import checks
from muster.protocol.checks import CheckReport, FigureReport
from muster.world.checks import ProbeThreshold

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
H200, A10 = "NVIDIA H200 141GB HBM3e", "NVIDIA A10"


def report(sequence: int = 1, model: str = A10, **changes: Any) -> CheckReport:
    return CheckReport(sequence, state=checks.READY, model=model, library="nccl-2.28.9", version="1", **changes)


class Fleet:
    """Checkers that say what the test wants."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.hub = CheckerHub(clock)
        self.unused: list[str] = []
        self.thresholds = ProbeThresholds(self.hub, clock, lambda: NOW)
        self.cluster = Cluster(Api(clock), Hub(clock), Bus())  # type: ignore[arg-type]
        self.keeper = LimitsKeeper(self.thresholds, self.cluster, lambda _, message: self.unused.append(message))
        self._sequence = itertools.count(1)

    def say(self, node: str, *figures: FigureReport, model: str = A10) -> None:
        caller = Caller("muster-check", node, f"pod-{node}", node, "u", "muster-check")
        self.hub.record(caller, report(next(self._sequence), model, figures=figures))

    def all_say(self, figure: float, count: int = LEAST_NODES, namespace: str = "", **more: Any) -> None:
        for number in range(count):
            self.say(f"{namespace}{number}", figure_of(figure, namespace), **more)

    def set_limits(self, *limits: Mapping[str, Any]) -> None:
        meta = {"name": "default", "uid": "p", "resourceVersion": str(next(self._sequence))}
        spec = {"preflight": {"limits": limits}}
        self.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))

    def of(self, *reports: CheckReport) -> tuple[ProbeThreshold, ...]:
        return self.thresholds.thresholds_for(reports, self.cluster.policy().preflight)

    def known(self, model: str = A10) -> dict[tuple[str, str], ProbeThreshold]:
        return {(one.probe, one.transport): one for one in self.of(report(model=model))}


def figure_of(figure: float, namespace: str = "", probe: str = "host-to-device", **more: Any) -> FigureReport:
    return FigureReport(probe, figure, 10.0, "GB/s", namespace=namespace, **more)


@pytest.fixture
def fleet(clock: Clock) -> Fleet:
    return Fleet(clock)


async def test_a_young_history_says_nothing(fleet: Fleet) -> None:
    fleet.all_say(50.0, LEAST_NODES - 1)
    await fleet.thresholds.make()
    assert fleet.known() == {}
    fleet.say("one more", figure_of(50.0))
    await fleet.thresholds.make()
    found = fleet.known()["host-to-device", ""]
    assert (found.middle, found.floor, found.unit) == (50.0, 0.0, "GB/s")
    assert (found.model, found.library, found.version) == (A10, "nccl-2.28.9", "1")
    assert f"the history of {LEAST_NODES} nodes" in found.source


async def test_floors_hold_before_any_history_and_beside_it(fleet: Fleet) -> None:
    before = fleet.known(H200)
    assert {key: (one.middle, one.floor) for key, one in before.items()} == {
        ("gemm-bf16", ""): (None, 556.0),
        ("host-to-device", ""): (None, 48.0),
        ("all-reduce-node", "NVLink"): (None, 259.0),
    }
    fleet.all_say(55.0, model=H200)
    await fleet.thresholds.make()
    after = fleet.known(H200)
    assert after.keys() == before.keys()
    host = after["host-to-device", ""]
    assert (host.middle, host.floor, host.unit) == (55.0, 48.0, "GB/s")
    assert "azurehpc" in host.source
    assert fleet.known() == {}, "of another model nothing is known"


async def test_only_what_is_comparable_is_compared(fleet: Fleet) -> None:
    for number in range(LEAST_NODES):
        each = [figure_of(10.0 * (place + 1), probe="pair", transport=name) for place, name in enumerate(("IB", "TCP"))]
        fleet.say(f"n{number}", *each)
        fleet.say(f"h{number}", figure_of(99.0, probe="pair", transport="IB"), model=H200)
    await fleet.thresholds.make()
    assert {key: one.middle for key, one in fleet.known().items()} == {("pair", "IB"): 10.0, ("pair", "TCP"): 20.0}
    assert fleet.known(H200)["pair", "IB"].middle == 99.0
    both = fleet.of(report(), report(model=H200), report())
    assert len(both) == len(fleet.known()) + len(fleet.known(H200))


async def test_a_tenant_cannot_bend_what_counts_for_all(fleet: Fleet) -> None:
    fleet.all_say(50.0, 30)
    fleet.all_say(5.0, 300, namespace="tenant")
    await fleet.thresholds.make()
    assert fleet.known()["host-to-device", ""].middle == 50.0


async def test_how_old_a_figure_is_is_reckoned_from_when_it_came(
    fleet: Fleet, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Sample] = []
    monkeypatch.setattr(baselines, "baseline", lambda _key, samples: seen.extend(samples))
    fleet.all_say(50.0)
    clock.advance(5.0)
    await fleet.thresholds.make()
    assert {(NOW - sample.at).total_seconds() for sample in seen} == {15.0}
    assert all(sample.own for sample in seen)


async def test_they_are_made_anew_when_figures_have_changed_and_not_too_often(fleet: Fleet, clock: Clock) -> None:
    assert not fleet.thresholds.due()
    fleet.all_say(50.0)
    assert fleet.thresholds.due()
    await fleet.thresholds.make()
    clock.advance(10 * PAUSE_SECONDS)
    assert not fleet.thresholds.due(), "nothing has changed"
    fleet.say("0", figure_of(51.0))
    assert fleet.thresholds.due()
    await fleet.thresholds.make()
    clock.advance(PAUSE_SECONDS - 1.0)
    fleet.say("0", figure_of(52.0))
    assert not fleet.thresholds.due()
    fleet.say("new", figure_of(50.0))
    assert fleet.thresholds.due(), "more and more are heard"


async def test_it_keeps_them_up_to_date_by_itself(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_thresholds, "GROWING_SECONDS", 0.001)
    running = asyncio.create_task(fleet.thresholds.run())
    fleet.all_say(50.0)
    await until(fleet.known)
    assert GROWING_SECONDS < PAUSE_SECONDS
    running.cancel()


async def test_others_have_their_turn_while_they_are_made(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", -1.0)
    for number in range(200):
        fleet.say(f"n{number}", *[figure_of(50.0, probe=f"probe-{probe}") for probe in range(10)])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await fleet.thresholds.make()
    beside.cancel()
    assert turns > 10, "one for each key at least"
    assert len(fleet.known()) == 10


async def test_the_owners_limits_go_before_and_what_is_out_of_reach_is_told_once(fleet: Fleet) -> None:
    fleet.all_say(50.0)
    fleet.set_limits({"probe": "host-to-device", "minimum": "49"})
    await fleet.thresholds.make()
    found = fleet.known()["host-to-device", ""]
    assert (found.middle, found.floor, fleet.unused) == (None, 49.0, [])
    fleet.set_limits({"probe": "host-to-device", "minimum": "60"})
    assert len(fleet.unused) == 1, "the policy alone has changed"
    assert "Lower minimum" in fleet.unused[0]
    await fleet.thresholds.make()
    assert fleet.known()["host-to-device", ""].middle == 50.0
    assert len(fleet.unused) == 1


async def test_a_share_is_no_stricter_than_healthy_figures_vary(fleet: Fleet) -> None:
    for number in range(32):
        fleet.say(f"n{number}", figure_of(50.0 * (0.96, 0.99, 1.01, 1.04)[number % 4]))
    await fleet.thresholds.make()
    (before,) = fleet.known().values()
    fleet.set_limits({"probe": "host-to-device", "minimumPercent": 95})
    (found,) = fleet.known().values()
    assert before.ratio <= found.ratio < 0.95
    assert "Lower percent" in fleet.unused[-1]
