"""The keeper of RepairRequests with the loop over nodes, over an API server that is played, and whole lives of a node
there."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.unit.controller.health_stage import ApiServer, Stage

from muster.api.installation import InstallationProfile
from muster.controller.repairs import RepairKeeper
from muster.health.repairs import LOOK_SECONDS
from muster.kube.errors import AlreadyExists, Conflict, NotFound, ServerError

KIND = "repairrequests"
REPAIRS = {"repair": {"actions": ["Inspect", "Reset", "Reboot"]}}


class WithRequests(ApiServer):
    """RepairRequests, too; nobody watches them. `meanwhile` happens once, while a deletion is on its way."""

    lists = 0

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None

    async def get(self, path: str, query: Any = None, *, most_bytes: int | None = None) -> bytes:
        if not path.endswith(f"/{KIND}"):
            return await super().get(path, query)
        self.lists += 1
        await self._called("LIST", KIND, KIND)
        items = [value for (kind, _), value in self.objects.items() if kind == KIND]
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    async def post(self, path: str, body: Any, query: Any = None, *, one_of_many: bool = False) -> bytes:
        if not path.endswith(f"/{KIND}"):
            return await super().post(path, body, query, one_of_many=one_of_many)
        name = body["metadata"]["name"]
        await self._called("POST", KIND, name)
        if (KIND, name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        return self.put(KIND, {**body, "metadata": {"name": name, "uid": f"request-{self.version}"}}, show=False)

    async def delete(self, path: str, body: Any) -> bytes:
        if f"/{KIND}/" not in path:
            return await super().delete(path, body)
        name = path.split("/")[-1]
        await self._called("DELETE", KIND, name)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if (KIND, name) not in self.objects:
            raise NotFound(404, "NotFound", "it is gone")
        metadata = self.objects[KIND, name]["metadata"]
        if {key: metadata[key] for key in ("uid", "resourceVersion")} != body["preconditions"]:
            raise Conflict(409, "Conflict", "it has changed")
        del self.objects[KIND, name]
        return b"{}"


class Shop(Stage):
    """The keeper and the loop, somebody who repairs, and time."""

    api: WithRequests

    def __init__(
        self, api: WithRequests | None = None, profile: InstallationProfile = InstallationProfile.JOBS
    ) -> None:
        super().__init__(api or WithRequests(), profile)
        self.repairs = RepairKeeper(
            self.api,  # type: ignore[arg-type]
            self.cluster,
            self.nodes.reconciler,
            self.nodes.worlds,
            self.told,  # type: ignore[arg-type]
            lambda: self.now.timestamp(),
        )
        self.policy(**REPAIRS)

    def restarted(self, profile: InstallationProfile = InstallationProfile.JOBS) -> "Shop":
        """Another process leads; it knows what is stored, and no more."""
        other = Shop(self.api, profile)
        other.now = self.now
        for (kind, _), value in list(self.api.objects.items()):
            if kind != KIND:
                other._show(kind, json.dumps(value).encode())
        return other

    async def turn(self, times: int = 3, seconds: float = 10) -> None:
        for _ in range(times):
            self.pass_by(seconds)
            await self.repairs.reconcile()
            await self.look()

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def request(self, name: str = "a") -> dict[str, Any] | None:
        return self.api.objects.get((KIND, name))

    def becomes(self, phase: str, message: str = "", name: str = "a") -> None:
        """Whoever repairs writes this."""
        found = self.request(name)
        assert found is not None
        self.api.put(KIND, {**found, "status": {"phase": phase, "message": message}}, show=False)

    def reasons(self, name: str = "a") -> list[str]:
        return [each["reason"] for each in self.status(name).get("findings", []) if each["source"] == "repair"]

    def state(self, name: str = "a") -> str:
        return str(self.status(name)["state"])

    async def asked(self) -> None:
        """Until the request is there."""
        self.say("a", 79)
        await self.look()
        await self.turn()
        assert self.request() is not None


def is_out(shop: Shop) -> bool:
    return shop.status("a").get("state") in {"Degraded", "Unhealthy", "Quarantined", "Validating"}


class Life:
    """One node's life, of whatever anybody may do in whatever order; what must never be is looked at after each
    step."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.shop.add("a")
        self.boot = 1

    async def sick(self) -> None:
        self.shop.say("a", 79, boot=f"boot-{self.boot}")

    async def well(self) -> None:
        self.boot += 1
        self.shop.say("a", boot=f"boot-{self.boot}")

    async def taken_on(self) -> None:
        if self.shop.request() and self.phase() in ("", "Failed"):
            self.shop.becomes("InProgress")

    async def done(self) -> None:
        if self.phase() == "InProgress":
            self.shop.becomes("Done")

    async def failed(self) -> None:
        if self.phase() == "InProgress":
            self.shop.becomes("Failed")

    async def deleted(self) -> None:
        self.shop.api.objects.pop((KIND, "a"), None)

    async def restarted(self) -> None:
        wanted = self.shop.cluster.policy().health.repair.actions
        self.shop = self.shop.restarted()
        if not wanted:
            self.shop.policy()
        await self.shop.look()  # before it has read any request

    async def taken_on_meanwhile(self) -> None:
        def now() -> None:
            if self.phase() == "":
                self.shop.becomes("InProgress")

        self.shop.api.meanwhile = now

    async def policy_off(self) -> None:
        self.shop.policy()

    async def policy_on(self) -> None:
        self.shop.policy(**REPAIRS)

    async def observes(self) -> None:
        self.shop.policy(enforcement="Observe", **REPAIRS)

    async def used(self) -> None:
        if self.shop.cluster.fleet.exclusion("a") is None:
            self.shop.cluster.fleet.occupy("a job", "uid-of-a-job", frozenset({"a"}))

    async def left(self) -> None:
        self.shop.cluster.fleet.occupy("a job", "uid-of-a-job", frozenset())

    async def refused(self) -> None:
        self.shop.api.fails["a"] = [ServerError(500, "", "no")]

    async def looked_at(self) -> None:
        await self.turn(10)

    async def long_time(self) -> None:
        await self.turn(LOOK_SECONDS)

    async def turn(self, seconds: float) -> None:
        shop = self.shop
        before, was = self.phase(), shop.reasons() if ("nodehealths", "a") in shop.api.objects else []
        wanted = shop.repairs._is_wanted()
        posts = shop.api.count("POST", KIND)
        shop.pass_by(seconds)
        if wanted:
            await shop.repairs.reconcile()
        elif shop.repairs._words is None:
            shop.repairs._report_statuses({})
        shop.rested("a")
        await shop.look()
        shop.rested("a")
        await shop.look()
        if shop.api.count("POST", KIND) > posts:
            assert {"RepairRequested", "RepairInProgress"} & set(was)
            assert not shop.cluster.fleet.holders("a")
        if wanted and before == "InProgress" and not shop.api.fails.get("a"):
            assert self.phase() == "InProgress"
            assert is_out(shop)
            assert "RepairInProgress" in shop.reasons()
            assert shop.cluster.fleet.exclusion("a") is not None

    def phase(self) -> str:
        request = self.shop.request()
        return str(request.get("status", {}).get("phase", "")) if request else ""

    async def ends_well(self) -> None:
        """Nothing is left behind once the machine is well and everybody has done his part."""
        self.shop.api.fails.clear()
        self.shop.api.meanwhile = lambda: None
        await self.left()
        await self.well()
        await self.turn(10)
        if self.phase() == "InProgress":
            self.shop.becomes("Done")
        elif self.phase() == "Failed":
            await self.deleted()
        for _ in range(5):
            await self.turn(LOOK_SECONDS)
        assert self.shop.request() is None
        assert self.shop.state() == "Healthy"
        assert self.shop.reasons() == []
        assert self.shop.tainted() == set()


STEPS = (
    sorted(name for name in vars(Life) if not name.startswith("_") and name not in ("turn", "phase", "ends_well"))
    + ["looked_at"] * 12
    + ["taken_on"] * 3
    + ["policy_on"] * 3
    + ["left"] * 2
)


def live_through(steps: list[str]) -> None:
    """Let these steps happen one after the other; no job is or comes where a repair is in progress, and all of it
    ends."""

    async def lived() -> None:
        life = Life()
        await life.sick()
        await life.turn(10)
        for step in steps:
            await getattr(life, step)()
            assert life.phase() != "InProgress" or is_out(life.shop)
        await life.ends_well()

    asyncio.run(lived())
