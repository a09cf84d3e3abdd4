"""Problems of the maintenance windows become Events of the FleetPolicy: each once, until it had gone."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.maintenance import MaintenancePolicy
from muster.controller.windows import TOLD_AT_ONCE, WindowKeeper
from muster.kube.decode import Undecodable

from .conftest import NOW


class Setup:
    """A keeper of windows over a FleetPolicy that a test changes, and the Events that it emits."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fleet = SimpleNamespace(policy=FleetPolicySpec(), in_scope=list)
        self.stored: Any = SimpleNamespace(metadata=SimpleNamespace(uid="policy-uid"))
        policies = SimpleNamespace(store={("", "default"): self.stored})
        cluster: Any = SimpleNamespace(fleet=self.fleet, policies=policies)
        self.policies = policies
        self.keeper = WindowKeeper(cluster, self, lambda: (), wall_clock=lambda: NOW)  # type: ignore[arg-type]

    def record(self, about: Any, _kind: str, reason: str, message: str) -> None:
        assert (about.kind, about.name, about.uid, reason) == (
            "FleetPolicy",
            "default",
            "policy-uid",
            "MaintenanceWindow",
        )
        self.events.append(message)

    async def check(self, *backwards: str) -> list[str]:
        """The Events of one check with these windows, each of which ends before it starts."""
        windows = [
            {
                "name": name,
                "startTime": NOW + timedelta(hours=2),
                "endTime": NOW + timedelta(hours=1),
                "nodes": {"names": ["node-1"]},
            }
            for name in backwards
        ]
        maintenance = MaintenancePolicy.model_validate({"windows": windows})
        self.fleet.policy = FleetPolicySpec(maintenance=maintenance)
        self.events.clear()
        await self.keeper.check_windows()
        return list(self.events)


async def test_a_problem_is_reported_once_and_again_after_it_had_gone() -> None:
    setup = Setup()
    (message,) = await setup.check("rack-7")
    assert message.startswith("spec.maintenance.windows[rack-7].endTime is not after its startTime")
    assert await setup.check("rack-7") == []
    assert len(await setup.check("rack-7", "rack-8")) == 1
    assert await setup.check() == []
    assert len(await setup.check("rack-7")) == 1


async def test_of_many_problems_the_rest_is_reported_later() -> None:
    setup = Setup()
    names = [f"rack-{number}" for number in range(TOLD_AT_ONCE + 3)]
    assert [len(await setup.check(*names)) for _ in range(3)] == [TOLD_AT_ONCE, 3, 0]


async def test_nothing_is_reported_before_the_policy_is_known() -> None:
    setup = Setup()
    setup.policies.store.clear()
    assert await setup.check("rack-7") == []
    setup.policies.store["", "default"] = setup.stored
    assert len(await setup.check("rack-7")) == 1


async def test_what_was_reported_stays_reported_while_the_policy_is_away_or_cannot_be_read() -> None:
    setup = Setup()
    assert len(await setup.check("rack-7")) == 1
    for away in (None, Undecodable("", "default", "u", 1, 1, "spec: bad")):
        setup.policies.store.pop(("", "default"), None)
        if away is not None:
            setup.policies.store["", "default"] = away
        assert await setup.check() == []
    setup.policies.store["", "default"] = setup.stored
    assert await setup.check("rack-7") == []
