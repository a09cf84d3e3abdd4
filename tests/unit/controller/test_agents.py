"""Nodes whose agent is dead or blind: what follows, after how long, and that it follows for no fleet at once."""

import json
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.unit.controller.health_stage import EVERYTHING, Stage, running
from tests.unit.health.builders import budgets
from tests.unit.waiting import until

from muster.api.fleetpolicy import FleetPolicy
from muster.api.nodehealth import Evacuate
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.controller.settings import Settings
from muster.coordinator.hub import Hub
from muster.health.silence import AGENT_SILENT
from muster.kube import decode

BOOT = "boot-1"


class Fleet(Stage):
    """Nodes with agents."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.use_clock()
        self.policy(budgets=budgets(window=10))

    def use_clock(self) -> None:
        self.nodes.worlds._agents._clock = lambda: self.seconds
        self.nodes.worlds._agents._blind_seconds = lambda: 0.0

    def node(
        self,
        name: str,
        *,
        ready: bool = True,
        boot: str = BOOT,
        capacity: dict[str, str] | None = None,
        **labels: str,
    ) -> None:
        said = [{"type": "Ready", "status": str(ready)}]
        status = {"conditions": said, "nodeInfo": {"bootID": boot}, "capacity": capacity or {}}
        self.api.put("nodes", {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {}, "status": status})

    def pod(self, node: str, ready: bool = True, uid: str = "", phase: str = "Running") -> None:
        uid = uid or f"agent-{node}"
        self.api.version += 1
        meta = {"namespace": "muster-agent", "name": uid, "uid": uid, "resourceVersion": str(self.api.version)}
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
        pod = {"metadata": meta, "spec": {"nodeName": node}, "status": status}
        self.cluster.agents.store.assume(decode.agent_pod(json.dumps(pod).encode()))

    def gone(self, node: str, uid: str = "") -> None:
        uid = uid or f"agent-{node}"
        self.cluster.agents.store.assume_deleted(("muster-agent", uid), uid)

    async def with_agents(self, count: int) -> list[str]:
        names = [f"n{number}" for number in range(count)]
        for name in names:
            self.node(name)
            self.say(name)
            self.pod(name)
        await self.look()
        self.api.calls.clear()
        return names

    async def after(self, seconds: float) -> None:
        self.seconds += seconds
        await self.look()

    def state(self, name: str) -> tuple[str, str]:
        status = self.status(name)
        return str(status.get("state") or ""), str(status.get("reason") or "")

    def writes(self) -> int:
        return len(self.api.calls)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


async def test_a_silent_agent_makes_its_node_suspect_and_later_avoided_and_jobs_stay(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    await fleet.after(119)
    assert fleet.writes() == 0
    await fleet.after(2)
    assert fleet.state("n0") == ("Suspect", AGENT_SILENT)
    assert fleet.cluster.fleet.exclusion("n0") is None
    await fleet.after(480)
    assert fleet.state("n0") == ("Degraded", AGENT_SILENT)
    exclusion = fleet.cluster.fleet.exclusion("n0")
    assert exclusion is not None
    assert exclusion.evacuate is Evacuate.NO
    assert fleet.tainted() == set()
    assert "running jobs stay" in fleet.status("n0")["effect"]
    assert "kubectl -n muster-agent get pods --field-selector spec.nodeName=n0" in fleet.status("n0")["message"]
    assert "offences" not in fleet.status("n0") or fleet.status("n0")["offences"].get("score") in (None, "0")
    before = fleet.writes()
    for _ in range(5):
        await fleet.after(3600)
    fleet.pod("n0", ready=False, phase="Failed")
    await fleet.after(1)
    assert fleet.writes() == before  # as long as nothing changes, nothing is written
    fleet.pod("n0")
    await fleet.after(1)
    assert fleet.state("n0") == ("Healthy", "")
    assert fleet.cluster.fleet.exclusion("n0") is None


async def test_nodes_with_accelerators_whose_agent_never_came_are_counted(fleet: Fleet) -> None:
    def unheard() -> float | None:
        return REGISTRY.get_sample_value("muster_nodes_without_agent")

    for name in ("n0", "n1", "n2"):
        fleet.node(name, capacity={"nvidia.com/gpu": "8"})
    fleet.node("cpu-only")
    await fleet.look()
    assert unheard() == 3
    fleet.say("n0")
    fleet.remove_node("n1")
    await fleet.look()
    assert unheard() == 1
    fleet.node("n2")
    await fleet.look()
    assert unheard() == 0
    fleet.node("n2", capacity={"amd.com/gpu": "8"})
    fleet.api.version += 1
    meta = {"name": "default", "uid": "policy", "resourceVersion": str(fleet.api.version)}
    spec = {"acceleratorResource": "amd.com/gpu"}
    fleet.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))
    await fleet.look()
    assert unheard() == 1


async def test_an_agent_that_is_gone_is_silent_where_it_has_spoken_in_this_boot(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.gone("n0")
    fleet.node("n1", boot="boot-2")  # booted, and no agent came
    fleet.gone("n1")
    await fleet.after(601)
    assert fleet.state("n0") == ("Degraded", AGENT_SILENT)
    assert fleet.cluster.fleet.exclusion("n1") is None


async def test_an_agent_that_does_not_begin_to_see_after_a_boot_is_silent(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.node("n0", boot="boot-2")
    fleet.pod("n0", ready=False)
    await fleet.after(601)
    assert fleet.state("n0") == ("Degraded", AGENT_SILENT)


async def test_where_no_agent_ever_spoke_nothing_is_known(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.node("bare")
    fleet.pod("bare", ready=False)
    fleet.node("barer")
    await fleet.after(3600)
    assert fleet.writes() == 0
    assert ("nodehealths", "bare") not in fleet.api.objects


async def test_a_roll_out_says_nothing(fleet: Fleet) -> None:
    names = await fleet.with_agents(20)
    for name in names:
        fleet.gone(name)
        await fleet.after(10)
        fleet.pod(name, ready=False, uid=f"new-{name}", phase="Pending")
        await fleet.after(300)  # the image is pulled
        fleet.pod(name, ready=False, uid=f"new-{name}")
        await fleet.after(60)
        fleet.pod(name, uid=f"new-{name}")
    await fleet.after(3600)
    assert fleet.writes() == 0
    assert fleet.told.policies == []


@pytest.mark.parametrize("share", [pytest.param(20, id="all"), pytest.param(3, id="more than a share")])
async def test_many_that_are_silent_at_once_take_no_fleet_out(fleet: Fleet, share: int) -> None:
    names = await fleet.with_agents(20)
    for name in names[:share]:
        fleet.gone(name)
    for _ in range(20):
        await fleet.after(60)
    assert fleet.writes() == 0
    assert all(fleet.cluster.fleet.exclusion(name) is None for name in names)
    assert fleet.told.policies == ["AgentsSilent"]
    for name in names[:share]:
        fleet.pod(name, uid="another-" + name)
    await fleet.after(1)
    assert fleet.told.policies == ["AgentsSilent", "AgentsRecovered"]


async def test_who_is_avoided_already_stays_so_when_all_fall_silent(fleet: Fleet) -> None:
    names = await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    await fleet.after(601)
    for name in names[1:]:
        fleet.gone(name)
    await fleet.after(601)
    assert fleet.state("n0") == ("Degraded", AGENT_SILENT)
    assert fleet.cluster.fleet.exclusion("n1") is None


async def test_of_a_pool_whose_agents_all_fall_silent_none_is_taken_out(fleet: Fleet) -> None:
    await fleet.with_agents(40)
    for name in ("gpu0", "gpu1", "gpu2"):  # less than a tenth of the fleet
        fleet.node(name, **{"nvidia.com/gpu.product": "H200"})
        fleet.say(name)
        fleet.pod(name, ready=False)
    await fleet.after(601)
    assert all(fleet.cluster.fleet.exclusion(name) is None for name in ("gpu0", "gpu1", "gpu2"))
    assert fleet.told.policies == ["AgentsSilent"]


async def test_while_a_node_is_not_ready_no_agent_is_to_blame(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.node("n0", ready=False)
    fleet.pod("n0", ready=False)
    await fleet.after(3600)
    assert fleet.state("n0")[1] != AGENT_SILENT
    fleet.node("n0")
    await fleet.after(60)
    fleet.pod("n0")
    await fleet.after(3600)
    assert fleet.state("n0") == ("Healthy", "")


async def test_a_node_that_falls_silent_itself_stays_avoided(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    await fleet.after(601)
    fleet.node("n0", ready=False)
    await fleet.after(60)
    fleet.node("n0")
    await fleet.after(60)
    assert fleet.state("n0") == ("Degraded", AGENT_SILENT)


async def test_a_new_leader_goes_on_where_the_old_one_was(fleet: Fleet) -> None:
    names = await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    await fleet.after(601)
    record = fleet.api.objects["nodehealths", "n0"]
    new = Fleet()
    for name in names:
        new.node(name)
        new.say(name)
        new.pod(name, ready=name != "n0")
    new.api.put("nodehealths", record)
    await new.after(0)
    exclusion = new.cluster.fleet.exclusion("n0")
    assert exclusion is not None
    assert exclusion.reason == AGENT_SILENT
    assert not [call for call in new.api.calls if call[2] == "n0"]


async def test_a_new_leader_that_finds_no_pods_of_agents_lets_nobody_back(fleet: Fleet) -> None:
    """All of them are gone, e.g. with their DaemonSet, and then the operator starts again."""
    names = await fleet.with_agents(20)
    fleet.gone("n0")
    await fleet.after(601)
    records = [fleet.api.objects["nodehealths", name] for name in names]
    new = Fleet()
    for name, record in zip(names, records, strict=True):
        new.node(name)
        new.api.put("nodehealths", record)
    for seconds in (0, 3600):
        await new.after(seconds)
        assert new.state("n0") == ("Degraded", AGENT_SILENT)
        assert new.cluster.fleet.exclusion("n0") is not None
        assert new.cluster.fleet.exclusion("n1") is None
    new.node("n0", boot="boot-2")  # and no agent comes after it
    await new.after(601)
    assert new.state("n0") == ("Degraded", AGENT_SILENT)
    new.pod("n0")
    await new.after(1)
    assert new.state("n0") == ("Healthy", "")


async def test_a_human_who_releases_it_is_obeyed_while_the_silence_lasts(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    await fleet.after(601)
    record = fleet.api.objects["nodehealths", "n0"]
    human = {"decision": "Release", "reason": "known", "user": "me", "time": fleet.now.isoformat()}
    fleet.api.put("nodehealths", {**record, "spec": {"override": human}})
    await fleet.after(601)
    assert fleet.cluster.fleet.exclusion("n0") is None


async def test_a_fault_beside_the_silence_weighs_as_it_does(fleet: Fleet) -> None:
    await fleet.with_agents(20)
    fleet.policy(budgets=EVERYTHING)
    fleet.say("n0", 79)
    fleet.pod("n0", ready=False)
    await fleet.after(601)
    exclusion = fleet.cluster.fleet.exclusion("n0")
    assert exclusion is not None
    assert exclusion.evacuate is Evacuate.NOW
    assert fleet.tainted() == {"n0"}


async def test_the_loop_wakes_by_itself(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    fleet.seconds = 119.0
    async with running(fleet, monkeypatch):
        await until(lambda: bool(fleet.nodes.worlds._agents.contacts.silence_of("n0")))
        fleet.seconds = 121.0
        await until(lambda: fleet.state("n0")[0] == "Suspect")


async def test_the_loop_wakes_for_a_pod_that_began_to_run_late(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.health.silence._SHORTEST_SECONDS", 0.001)
    await fleet.with_agents(20)
    fleet.pod("n0", ready=False, phase="Pending")
    fleet.seconds = 60.0
    await fleet.look()
    assert fleet.nodes.reconciler._pause() == pytest.approx(540.0)
    fleet.pod("n0", ready=False)
    assert fleet.nodes.queue.next_keys() == [("", "n0")]
    fleet.nodes.queue.done(("", "n0"))
    await fleet.look()
    assert fleet.nodes.reconciler._pause() == pytest.approx(120.0)


def test_a_pod_is_read_and_one_that_cannot_be_is_not_ready() -> None:
    raw: dict[str, Any] = {
        "metadata": {"namespace": "muster-agent", "name": "a", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    pod = decode.agent_pod(json.dumps(raw).encode())
    assert (pod.node, pod.ready, pod.starting) == ("n", True, False)
    raw["status"]["conditions"] = "?"
    assert not decode.bare_agent_pod(json.dumps(raw).encode()).ready


async def test_without_a_namespace_of_agents_no_pod_is_one(fleet: Fleet) -> None:
    """Whoever may create a namespace that nobody has installed would say there which agents are alive."""
    api: Any = fleet.api
    trusting, trusts_none = (
        Cluster(api, Hub(lambda: 0.0), Bus(), agent_namespace=namespace) for namespace in ("muster-agent", "")
    )
    read = {source.name for source in trusts_none.informers}
    assert {source.name for source in trusting.informers} - read == {"agent_pods"}
    assert Settings(launcher_image="it").agent_namespace == ""
    fleet.nodes.worlds._agents._namespace = ""
    await fleet.with_agents(20)
    fleet.pod("n0", ready=False)
    fleet.gone("n1")
    await fleet.after(3600)
    assert fleet.writes() == 0, "nobody is missed"
