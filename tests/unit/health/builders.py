"""Objects for tests of health, and a fleet that keeps nothing but what would be stored in the cluster."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec, HealthPolicy
from muster.api.nodehealth import (
    AgentStatus,
    Decision,
    Evidence,
    Finding,
    HumanDecision,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Severity,
)
from muster.health.assess import assess
from muster.health.breaker import rule
from muster.health.effects import Effect, effect
from muster.health.facts import NodeFacts
from muster.health.figures import Breaker
from muster.health.memory import MachineOffences
from muster.health.node_world import NodeWorld
from muster.health.rulings import Act, Ruling
from muster.health.situation import Situation, concerned
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.world.jobfailures import JobFailureReport
from muster.world.views import ConditionView, NodeView, Taint

NOW = datetime(2026, 11, 20, 9, 41, 7, tzinfo=UTC)
GPU = "GPU-5d2a3f0e-1111-2222-3333-444455556666"


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def budgets(window: int = 100, out: int = 100, domain: int = 100, others: int = 100) -> list[dict[str, Any]]:
    """`spec.health.budgets` in percent, divided as the default divides them: four fifths for what is not certain, three
    for one cause."""
    found: list[dict[str, Any]] = []
    for percent, more in ((window, {"windowSeconds": 600}), (out, {})):
        if percent < 100:
            found += [
                {"nodes": f"{percent}%", **more},
                {"nodes": f"{percent * 4 // 5}%", "reasons": ["UncertainFault"], **more},
                {"nodes": f"{percent * 3 // 5}%", "per": "Cause", **more},
            ]
    if domain < 100:
        found += [
            {"nodes": f"{domain}%", "per": "Domain"},
            {"nodes": f"{domain * 4 // 5}%", "per": "Domain", "reasons": ["UncertainFault"]},
        ]
    if others < 100:
        found.append({"nodes": f"{others}%", "reasons": ["RepairByOthers"]})
    return found


def rules(**health: Any) -> Rules:
    return Rules.from_policy(FleetPolicySpec(health=HealthPolicy.model_validate(health)))


def evidence(kind: str, code: int = 0, *, at: float = 0, last: float | None = None, **changes: Any) -> Evidence:
    values = {
        "kind": kind,
        "code": code,
        "subject": GPU,
        "first_seen": after(at),
        "last_seen": after(at if last is None else last),
        "boot_id": "boot-1",
    }
    return Evidence.model_validate(values | changes)


def agent(boot: str = "boot-1", **changes: Any) -> AgentStatus:
    values = {
        "version": "0.1.0",
        "boot_id": boot,
        "system_uuid": "4c4c4544-0051-3910-8053-b4c04f4d3333",
        "gpu_serials": [f"165212300{index}" for index in range(8)],
        "gpus": 8,
        "driver": "570.148.08",
    }
    return AgentStatus.model_validate(values | changes)


def healthy(name: str = "node-1", **changes: Any) -> NodeHealth:
    """What an agent that sees nothing bad has written."""
    return NodeHealth(metadata=ObjectMeta(name=name), status=NodeHealthStatus(agent=agent(**changes)))


def sick(*several: Evidence, health: NodeHealth | None = None) -> NodeHealth:
    """The same object with this evidence, and no other."""
    health = health or healthy()
    return health.model_copy(update={"status": health.status.model_copy(update={"evidence": list(several)})})


def decided(health: NodeHealth, decision: Decision | None, at: float = 0, reason: str = "looked at it") -> NodeHealth:
    human = HumanDecision(decision=decision, reason=reason, user="ann", time=after(at)) if decision else None
    return health.model_copy(update={"spec": NodeHealthSpec(override=human)})


def node(name: str = "node-1", **changes: Any) -> NodeView:
    values: dict[str, Any] = {"uid": f"uid-{name}", "resource_version": 1, "ready": True, "boot_id": "kubelet-boot"}
    return NodeView(name=name, **(values | changes))


def facts(name: str = "node-1", conditions: Iterable[ConditionView] = (), **changes: Any) -> NodeFacts:
    return NodeFacts(node(name, **changes), tuple(conditions))


def world(health: NodeHealth | None = None, *conditions: ConditionView, **changes: Any) -> NodeWorld:
    """What is known of a node after a minute."""
    known = {"facts": facts(conditions=conditions), "rules": rules(), "now": after(60)} | changes
    return NodeWorld(health=health or healthy(), **known)


def recorded(*findings: Finding, boot: str = "boot-1", **changes: Any) -> NodeHealth:
    """What is on record after a verdict with these findings."""
    status = healthy().status.model_copy(update={"findings": list(findings), "boot_id": boot, **changes})
    return healthy().model_copy(update={"status": status})


def finding(source: str, reason: str, severity: str = "Degraded", subject: str = "") -> Finding:
    return Finding(source=source, reason=reason, severity=Severity(severity), subject=subject, since=NOW)


def facts_of(manifest: Mapping[str, Any]) -> NodeFacts:
    """The view of a Node object as the API server has it."""
    meta, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
    conditions = tuple(
        ConditionView(
            c["type"],
            c["status"],
            c.get("reason", ""),
            c.get("message", ""),
            datetime.fromisoformat(c["lastTransitionTime"]) if "lastTransitionTime" in c else None,
        )
        for c in status.get("conditions", [])
    )

    def devices(amounts: Mapping[str, str]) -> dict[str, int]:
        return {name: int(amount) for name, amount in amounts.items() if "/" in name}

    return NodeFacts(
        node(
            meta["name"],
            labels=meta.get("labels", {}),
            taints=tuple(Taint(t["key"], t.get("value", ""), t["effect"]) for t in spec.get("taints", [])),
            unschedulable=spec.get("unschedulable", False),
            allocatable=devices(status.get("allocatable", {})),
        ),
        conditions,
        devices(status.get("capacity", {})),
    )


def written(health: NodeHealth, verdict: Verdict) -> NodeHealth:
    """The object as it is after the operator has written the verdict and the API server has stored it."""
    values = {
        "state": verdict.conclusion.state,
        "reason": verdict.conclusion.reason,
        "since": verdict.conclusion.since,
        "recommended_action": verdict.follow_up.recommended_action,
        "findings": list(verdict.conclusion.findings),
        "incidents": list(verdict.record.incidents),
        "offences": verdict.record.offences,
        "earlier_offences": list(verdict.record.earlier_offences),
        "maintenance": verdict.grounds.maintenance,
        "node_uid": verdict.record.node_uid,
        "boot_id": verdict.record.boot_id,
    }
    changed = health.model_copy(update={"status": health.status.model_copy(update=values)})
    if changed == health:
        return health
    return NodeHealth.model_validate(json.loads(json.dumps(changed.to_json())))


@dataclass
class Stored:
    """A fleet as the cluster stores it; a step is what any operator makes of it, also one that has just started."""

    rules: Rules
    healths: dict[str, NodeHealth]
    facts: dict[str, NodeFacts]
    domains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)
    words: dict[str, list[JobFailureReport]] = field(default_factory=dict)
    tainted: set[str] = field(default_factory=set)
    taken_at: list[tuple[datetime, str]] = field(default_factory=list)
    ahead: dict[datetime, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, count: int, rules: Rules, per_domain: int = 0) -> "Stored":
        names = [f"node-{index:04}" for index in range(count)]
        return cls(
            rules,
            {
                name: healthy(name, system_uuid=f"board-{name}", gpu_serials=[f"{name}-{gpu}" for gpu in range(2)])
                for name in names
            },
            {name: facts(name) for name in names},
            {name: ("block", f"rack-{i // per_domain}") for i, name in enumerate(names)} if per_domain else {},
        )

    def report(self, name: str, *several: Evidence) -> None:
        self.healths[name] = sick(*several, health=self.healths[name])

    def reboot(self, name: str, boot: str) -> None:
        status = self.healths[name].status
        agent = status.agent.model_copy(update={"boot_id": boot}) if status.agent else None
        changed = status.model_copy(update={"agent": agent, "evidence": []})
        self.healths[name] = self.healths[name].model_copy(update={"status": changed})

    def mark(self, name: str, *conditions: ConditionView) -> None:
        self.facts[name] = replace(self.facts[name], conditions=conditions)

    def rules_of(self, name: str) -> Rules:
        return self.rules.of_pool(self.pools.get(name, ""))

    def step(
        self, now: datetime, crash_before_taints: bool = False
    ) -> tuple[dict[str, Verdict], dict[str, Ruling], dict[str, Effect], Breaker]:
        records = [health.status for health in self.healths.values()]
        memory = MachineOffences(
            account for record in records for account in (record.offences, *record.earlier_offences)
        )
        verdicts = {
            name: assess(
                NodeWorld(
                    self.facts[name],
                    self.healths[name],
                    self.rules_of(name),
                    now,
                    memory=memory,
                    reports=self.words.get(name, []),
                )
            )
            for name in self.facts
        }
        gone = [i for name, health in self.healths.items() if name not in self.facts for i in health.status.incidents]
        situation = Situation(
            verdicts,
            self.tainted,
            self.domains,
            gone,
            self.pools,
            ahead=self.ahead,
            refused=self.refused,
            unreadable=self.unreadable,
        )
        rulings, breaker = rule(situation, self.rules, now)
        self._assert_the_rest_may_be_left_out(situation, rulings, breaker, now)
        for name, ruling in rulings.items():
            if ruling.charge:
                verdicts[name] = ruling.charged(verdicts[name], now)
                if ruling.act is Act.TAKE:
                    self.taken_at.append((now, name))
            self.healths[name] = written(self.healths[name], verdicts[name])
        effects = {name: effect(verdicts[name], rulings[name], self.rules_of(name).enforcement) for name in verdicts}
        if not crash_before_taints:
            self.tainted = {name for name, what in effects.items() if what.taint}
        return verdicts, rulings, effects, breaker

    def _assert_the_rest_may_be_left_out(
        self, situation: Situation, rulings: dict[str, Ruling], breaker: Breaker, now: datetime
    ) -> None:
        """A large fleet is not counted at each look: what is left out changes nothing."""
        few = {name: v for name, v in situation.verdicts.items() if concerned(v) or name in self.tainted}
        sizes = Counter((self.pools.get(name, ""), self.domains[name]) for name in self.facts if name in self.domains)
        pool_sizes = Counter(self.pools.get(name, "") for name in self.facts)
        situation = replace(situation, verdicts=few, pool_sizes=pool_sizes, sizes=sizes)
        found, same = rule(situation, self.rules, now)
        assert same == breaker
        assert found == {name: rulings[name] for name in few}
        assert all(rulings[name] == Ruling(Act.NOTHING) for name in rulings if name not in few)
