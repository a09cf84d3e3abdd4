"""Who counts what the fleet's accelerators do: read once, written now and then, and never in the way of anything
else."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from muster.api.fleethours import CONFIG_MAP, KEY, FleetHours
from muster.api.fleetpolicy import FleetPolicySpec
from muster.controller.fleethours import WRITE_SECONDS, FleetHoursKeeper
from muster.goodput.fleethours import hours_between
from muster.kube.errors import Forbidden, LeadershipLost, NotFound, Unreachable
from muster.world.views import NodeView

from .conftest import NOW

PATH = f"/api/v1/namespaces/muster-system/configmaps/{CONFIG_MAP}"
GPU = "nvidia.com/gpu"


def unreadable(name: str) -> float | None:
    return REGISTRY.get_sample_value("muster_history_unreadable", {"configmap": name})


class Server:
    """One ConfigMap."""

    def __init__(self) -> None:
        self.kept: Any = None
        self.writes = 0
        self.error: Exception | None = None

    async def get(self, path: str) -> bytes:
        assert path == PATH
        if self.error is not None:
            raise self.error
        if self.kept is None:
            raise NotFound(404, "NotFound", "none")
        return json.dumps(self.kept).encode()

    async def patch(self, path: str, body: Any, *_: Any) -> bytes:
        assert path == PATH
        self.writes += 1
        if self.error is not None:
            raise self.error
        self.kept = body
        return b"{}"

    @property
    def hours(self) -> FleetHours:
        return FleetHours.model_validate_json(self.kept["data"][KEY])


class Process:
    """One operator that leads."""

    def __init__(self, scene: Any, server: Server, history: dict[str, Any] | None = None) -> None:
        self.cluster, self.clock = scene.cluster, scene.clock
        self.cluster._policy = FleetPolicySpec.model_validate({"history": history or {}})
        self.reserved: set[str] = set()
        self.told: list[tuple[str, str]] = []
        self.keeper = FleetHoursKeeper(
            server,  # type: ignore[arg-type]
            self.cluster,
            lambda: self.reserved,
            "muster-system",
            lambda reason, message: self.told.append((reason, message)),
            scene.clock,
            self.wall,
        )

    def wall(self) -> datetime:
        return NOW + timedelta(seconds=self.clock())

    def nodes(self, *names: str) -> None:
        for name in names:
            self.cluster.fleet.put_node(NodeView(name, name, 1, ready=True, capacity={GPU: 8}, allocatable={GPU: 7}))


@pytest.fixture
def server() -> Server:
    return Server()


async def test_free_and_reserved_hours_are_counted_and_outlive_the_leader(scene: Any, server: Server) -> None:
    one = Process(scene, server)
    one.nodes("a", "b")
    one.cluster.fleet.put_node(NodeView("cpu", "cpu", 1, ready=True))
    await one.keeper._read()
    await one.keeper._add_hours()
    one.clock.advance(WRITE_SECONDS)
    one.reserved = {"b"}
    await one.keeper._add_hours()
    assert hours_between(server.hours, None) == {"free": 16 * 300_000}
    one.clock.advance(30)
    await one.keeper._add_hours()  # not written: the process ends
    two = Process(scene, server)
    two.reserved = {"b"}
    one.clock.advance(30)
    await two.keeper._read()
    await two.keeper._add_hours()
    two.clock.advance(WRITE_SECONDS)
    await two.keeper._add_hours()
    # What was not written is not observed, but for the two seconds that clocks may differ by.
    assert hours_between(server.hours, None) == {
        "free": 16 * 300_000 + 8 * 302_000,
        "reserved": 8 * 302_000,
        "notObserved": 16 * 58_000,
    }


async def test_states_of_a_later_version_count_as_excluded_and_are_written_back(scene: Any, server: Server) -> None:
    spans = {"2025-12-31T05": {"held": 7, "excluded": 10, "leased": 20, "cooling": 3}, "2025-12-30": {"leased": 5}}
    spans["2025-12-29"] = {"held": 9}
    server.kept = {"data": {KEY: json.dumps({"until": "2025-12-31T06:00:00Z", "gpus": 0, "spans": spans})}}
    one = Process(scene, server)
    await one.keeper._read()
    await one.keeper._add_hours()
    assert server.hours.spans == {
        "2025-12-29": {"held": 9},
        "2025-12-30": {"leased": 5},
        "2025-12-31": {"held": 7, "excluded": 10, "leased": 20, "cooling": 3},
    }
    assert hours_between(server.hours, None) == {"held": 16, "excluded": 38}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"until": "now"}',
        '{"until": "2026-01-01T00:00:00Z", "gpus": -1, "spans": {}}',
        '{"until": "2026-01-01T00:00:00Z", "gpus": 1, "spans": {"2026-01-01": {"leased": "much"}}}',
    ],
)
async def test_hours_of_another_form_are_reported_and_not_written_over(scene: Any, server: Server, text: str) -> None:
    server.kept = kept = {"data": {KEY: text}}
    one = Process(scene, server)
    one.nodes("a")
    for _ in range(3):
        await one.keeper._read()
        await one.keeper._add_hours()
        one.clock.advance(WRITE_SECONDS)
    assert (server.kept, server.writes) == (kept, 0)
    (reason, words), *again = one.told
    assert reason == "HistoryUnreadable"
    assert f"ConfigMap muster-system/{CONFIG_MAP} cannot be read" in words
    assert "Run the version of Muster that wrote it, or delete the ConfigMap" in words
    assert again == [one.told[0]], "every ten minutes"
    assert unreadable(CONFIG_MAP) == 1
    server.kept = None  # deleted
    await one.keeper._read()
    assert unreadable(CONFIG_MAP) == 0
    await one.keeper._add_hours()
    assert server.hours.spans == {}


async def test_what_cannot_be_read_is_asked_for_again_and_not_written_over(scene: Any, server: Server) -> None:
    one = Process(scene, server)
    for error in (Unreachable(0, "Unreachable", "away"), Forbidden(403, "Forbidden", "no right")):
        server.error = error
        await one.keeper._read()
        one.clock.advance(WRITE_SECONDS)
        await one.keeper._add_hours()
    assert not server.writes


async def test_what_cannot_be_written_is_written_later_and_who_leads_no_more_stops(scene: Any, server: Server) -> None:
    one = Process(scene, server)
    one.nodes("a")
    await one.keeper._read()
    server.error = Unreachable(0, "Unreachable", "away")
    await one.keeper._add_hours()
    assert server.kept is None
    one.clock.advance(WRITE_SECONDS)
    server.error = None
    await one.keeper._add_hours()
    assert hours_between(server.hours, None) == {"free": 8 * 300_000}
    one.clock.advance(WRITE_SECONDS)
    server.error = LeadershipLost("another leads")
    with pytest.raises(LeadershipLost):
        await one.keeper.run()


async def test_a_history_that_is_switched_off_writes_nothing(scene: Any, server: Server) -> None:
    one = Process(scene, server, {"maxJobs": 0})
    one.nodes("a")
    await one.keeper._read()
    await one.keeper._add_hours()
    assert not server.writes
