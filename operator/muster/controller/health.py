"""Evaluates every node again whenever something about it changes, and acts: record, exclude, taint, report.

Observe, decide, act: what is known of nodes is gathered and evaluated here, one node at a time. `muster.health.orders`
decides about all of them at once, which is pure; `nodeacts` puts that into force.

The cost of a look grows with what has changed and what is out of use, not with the fleet. It does not wait for the
writes of the look before. A node with writes under way is looked at again when they are done, if it has changed
meanwhile.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Gauge

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Gang
from muster.api.nodehealth import CheckResult, NodeHealth, NodeHealthStatus, RecommendedAction, VerdictState
from muster.api.repairrequest import Machine, RepairAction
from muster.controller.agents import AgentSilences
from muster.controller.cluster import AGENT_NAMESPACE, Cluster
from muster.controller.equipment import Equipment
from muster.controller.forgetting import PERIOD_SECONDS, Forgetting
from muster.controller.keptnodes import KeptNodes
from muster.controller.nodeacts import TAINT_KEY, NodeActs
from muster.controller.nodefitness import NodeFitness
from muster.controller.nodemarks import NodeMarks
from muster.controller.nodereports import NodeReports
from muster.controller.offenders import Offenders
from muster.controller.slices import Slices
from muster.health.ahead import FutureTimes
from muster.health.assess import assess
from muster.health.effects import Effect, exclusion_of
from muster.health.engine import Engine
from muster.health.facts import NodeFacts
from muster.health.figures import BreakerState
from muster.health.fitness import Decided
from muster.health.job_failures import LASTS, JobFailureReports, JobRecord, TestRequests
from muster.health.memory import identity, same_machine
from muster.health.node_world import FailedBurnIn, NodeWorld
from muster.health.orders import Circumstances, Order
from muster.health.repairs import NOT_READ, Case, RepairStatus, Stage, is_held
from muster.health.signs import JOBS, REPAIR
from muster.health.silence import AVOID_SECONDS
from muster.health.sources import Rules
from muster.health.verdict import Verdict, node_fault
from muster.health.verdict_index import is_tainted
from muster.kube.client import Client
from muster.kube.decode import Undecodable
from muster.kube.errors import ApiError, LeadershipLost, ServerError, Unreachable
from muster.kube.events import EventRecorder
from muster.lifecycle.burnin_view import NEW_LEADER_SECONDS
from muster.preflight.upkeep import Finding
from muster.recovery.followed import comparable_facts, failures_that_followed, qualified_job_name
from muster.world.jobfailures import JobFailureReport
from muster.world.views import NodeView

NODES_AT_ONCE = 32
# Nodes become unhealthy many at a time: they are judged together, so that the budget sees them together.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 2.0
CLOCK_CHECK_SECONDS = 30.0
# A clock that has jumped ahead has everything faded: a quarantine ends only when that was so for so long by another
# clock.
SURE_SECONDS = 3600.0
TESTS = "tests"  # of idle nodes, among the uids of jobs

log = structlog.get_logger()
_nodes = Gauge("muster_nodes", "Nodes by verdict; `Unknown` are those without any report.", ["state"])
_findings = Gauge("muster_node_findings", "Nodes with a finding that counts against them, by its reason.", ["reason"])
_observed = Gauge(
    "muster_node_observed_findings",
    "Nodes with a finding that would count against them if the FleetPolicy did not only observe it, by its reason.",
    ["reason"],
)
_breaker = Gauge(
    "muster_breaker_open", "1 while the budget keeps Muster from taking at least one unhealthy node out of use."
)
_held = Gauge("muster_breaker_held_nodes", "Unhealthy nodes that the budget does not let Muster take out of use yet.")
_held_yields = Gauge(
    "muster_breaker_held_repairs",
    "Nodes that other systems claim to repair, where the budget ignores the claim: too many of a pool at once.",
)
_held_of_pool = Gauge(
    "muster_breaker_pool_held_nodes",
    "Unhealthy nodes in a pool of like nodes that the budget does not let Muster take out of use yet.",
    ["pool"],
)
_contradictions = Gauge(
    "muster_health_policy_problems", "Contradictions in the FleetPolicy's health; the log names them."
)
# Reasons come from tables, but rules of a policy can name their own: no more series than that.
MAX_REASONS = 100


@dataclass(frozen=True, slots=True)
class _Doing:
    """The writes under way for a node, and what will be in force after them."""

    task: asyncio.Task[None]
    effect: Effect


class HealthKeeper:
    """Keeps verdicts, exclusions and taints in line with what is known of the nodes.

    Args:
        fitness: shows the decisions to jobs.
        agent_namespace: where the nodes' agents run, for messages.
        agent_silence_seconds: how long an agent may be silent before its node takes no new jobs.
        deep_pass_age_seconds: returns the seconds since a node last passed a burn-in of the deepest profile; None where
            no such pass holds.
        pass_age_seconds: returns the seconds since a node last passed its burn-in; None where no pass of it holds.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        events: EventRecorder,
        fitness: NodeFitness,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        pass_age_seconds: Callable[[str], float | None] = lambda _node: None,
        agent_namespace: str = AGENT_NAMESPACE,
        agent_silence_seconds: float = AVOID_SECONDS,
        deep_pass_age_seconds: Callable[[str], float | None] = lambda _node: None,
    ) -> None:
        self._cluster = cluster
        self._pass_age_seconds = pass_age_seconds
        self._deep_pass_age_seconds = deep_pass_age_seconds
        self._fitness = fitness
        self._clock = clock
        self._wall_clock = wall_clock
        self._engine = Engine()
        self.kept = KeptNodes()
        self._stirred = asyncio.Event()
        self._room = asyncio.Semaphore(NODES_AT_ONCE)
        self._doing: dict[str, _Doing] = {}
        self._resting: set[str] = set()  # nodes of which something failed just now
        self._failure: BaseException | None = None
        self._ahead = FutureTimes()
        self._faded: dict[str, float] = {}  # nodes whose quarantine would be over -> since when that is seen
        self._offenders = Offenders(lambda: cluster.policy().health.quarantine.half_life_seconds, wall_clock)
        self._burned: dict[str, dict[str, list[FailedBurnIn]]] = {}  # node -> uid of a job, or TESTS -> what it failed
        self._job_words = JobFailureReports()
        self._test_requests = TestRequests()
        self._leads_since: float | None = None
        self._other_since: dict[str, datetime] = {}  # nodes that another machine has become, or that were gone -> when
        self._results: dict[str, CheckResult] = {}  # of requested tests, until they are written
        self._repairs: Mapping[str, RepairStatus] | None = None  # None: requests have not been read yet
        self._policy: FleetPolicySpec | None = None
        self._rules = Rules.from_policy(FleetPolicySpec())
        self._reasons: set[str] = set()
        self._observed: set[str] = set()
        self._pools: set[str] = set()
        self._node_reports = NodeReports(cluster, events)
        self._acts = NodeActs(client, cluster, events, self._health, lambda name: self._mark_dirty([name]), clock)
        self._marks = NodeMarks(client, cluster, events, clock, wall_clock)
        self._forgetting = Forgetting(client, cluster, clock)
        self._agents = AgentSilences(
            cluster,
            agent_namespace,
            client.answers.attended_seconds,
            cluster.agents.last_contact_age_seconds,
            self._engine.node_index,
            self._stirred.set,
            agent_silence_seconds,
        )
        self._equipment = Equipment(cluster, client.answers.attended_seconds, self._stirred.set)
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._health_changed)
        cluster.gangs.store.subscribe(self._gang_changed)
        cluster.gangs.store.subscribe(self._note_job_failures)
        cluster.policies.store.subscribe(lambda _old, _new: self.everything())

    def everything(self) -> None:
        """Have every node looked at again."""
        self._engine.forget_echoes()
        self._mark_dirty(self._cluster.fleet.nodes)

    async def begin(self) -> None:
        """Judge all nodes, before a new leader gives any to a job: a fault that could not be recorded is on no record.

        The writes that follow are begun, and not waited for.
        """
        self._leads_since = self._clock()
        self.everything()
        await self._note_changes()

    async def run(self) -> None:
        """Evaluate nodes and act until cancelled; to be run by the leader.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        if self._leads_since is None:  # `begin` was not called
            self._leads_since = self._clock()
            self.everything()
        forgetting = asyncio.create_task(self._forget(), name="forgetting machines that are gone")
        marking = asyncio.create_task(self._mark(), name="conditions of nodes")
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._stirred.wait()
                await asyncio.sleep(GATHER_SECONDS)
                self._stirred.clear()
                if self._failure is not None:
                    raise self._failure
                await self._note_changes()
        finally:
            forgetting.cancel()
            marking.cancel()
            for doing in self._doing.values():
                doing.task.cancel()

    async def _note_changes(self) -> None:
        try:
            await self.evaluate()
        except Exception:  # what is in force stays; whatever it was is met again, or is over
            log.exception("nodes not judged", nodes=len(self._engine.dirty))
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._stirred.set)

    async def _mark(self) -> None:
        try:
            await self._marks.run()
        except LeadershipLost as error:
            self._failure = error
            self._stirred.set()

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            self._forget_reports(self._wall_clock())
            try:
                if not self._cluster.policy_unknown:  # how long an account lasts the policy says
                    await self._forgetting.forget_some(self._rules, self._wall_clock())
            except LeadershipLost as error:
                self._failure = error
                self._stirred.set()
                return
            except Exception:
                log.exception("records of machines that are gone not looked at")

    def _mark_dirty(self, nodes: Iterable[str]) -> None:
        self._engine.mark_dirty(nodes)
        self._stirred.set()

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        assert node is not None
        self._engine.node_index.set_node(node.name, new, self._cluster.fleet)
        if old is None or new is None or _agent_facts(old) != _agent_facts(new):
            self._agents.note(node.name)
        if old is None or new is None:
            self._forgetting.note(node.name)
        if old is not None and (new is None or old.uid != new.uid):
            self._other_since[node.name] = self._wall_clock()
        if old is None or new is None or _facts(old) != _facts(new):
            self._mark_dirty([node.name])
        elif is_tainted(old) != is_tainted(new):
            outcome = self._acts.in_force.get(node.name)
            if outcome is None or outcome.effect.taint != is_tainted(new):
                self._mark_dirty([node.name])  # it was not we who did it

    def _health_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        name = value.name if isinstance(value, Undecodable) else value.metadata.name
        if old is None or new is None:
            self._forgetting.note(name)
        if not isinstance(new, Undecodable):  # an account that cannot be read is not one that is settled
            self._engine.note_record(name, new.status if new else None)
            self._offenders.set_account(name, new.status.offences if new else None)
        if isinstance(old, NodeHealth) and isinstance(new, NodeHealth) and _is_another(old, new):
            self._other_since[name] = self._wall_clock()
        self._agents.note(name)
        status = new.status if isinstance(new, NodeHealth) else None
        self._engine.note_echo(name, is_echo=self._acts.is_echo(name, status))
        self._mark_dirty([name])

    def open_since(self, name: str) -> datetime | None:
        """The time since when a node is out of use, or since its last repair ended; None for a node in use."""
        verdict = self._engine.verdict_index.verdicts.get(name)
        incident = verdict.open_incident if verdict else None
        if incident is None:
            return None
        return max(incident.time, incident.repair_ended_time or incident.time)

    def out(self) -> list[str]:
        """The names of the nodes that are out of use, by their last verdict."""
        return [name for name in self._engine.verdict_index.concerned if self._engine.verdict_index.verdicts[name].out]

    def verdicts(self) -> Collection[Verdict]:
        """The newest verdicts of all nodes."""
        return self._engine.verdict_index.verdicts.values()

    def repair_case(self, name: str) -> Case | None:
        """The facts about a node for the decision whether to request a repair; None while they are not known."""
        health, verdict = self._health(name), self._engine.verdict_index.verdicts.get(name)
        in_force = self._acts.in_force.get(name)
        if health is None or verdict is None or in_force is None or name in self._doing:
            return None
        incident = verdict.open_incident
        if not verdict.out or incident is None:
            return Case(name, None, held=is_held(health.status.findings))
        ours = (
            incident.taken_out_time is not None
            and in_force.effect.avoid
            and not (verdict.grounds.cordoned or verdict.grounds.in_charge)
        )
        agent, repair = health.status.agent, verdict.follow_up.repair
        return Case(
            name,
            incident.time,
            RepairAction(repair.value) if ours and repair is not RecommendedAction.NONE else None,
            verdict.conclusion.reason,
            verdict.conclusion.message,
            verdict.conclusion.findings,
            verdict.record.node_uid,
            Machine()
            if agent is None
            else Machine(
                system_uuid=agent.system_uuid,
                gpu_model=agent.gpu_model,
                gpu_serials=agent.gpu_serials,
                boot_id=agent.boot_id,
            ),
            is_held(health.status.findings),
            self._cluster.is_empty(name),
        )

    def note_repairs(self, words: Mapping[str, RepairStatus]) -> None:
        """Take in all requests for repairs as they are now, by node, those included that are about to be made."""
        before, self._repairs = self._repairs, dict(words)
        if before is None:
            changed = self._with_repairs_on_record() | words.keys()
        else:
            changed = {name for name in before.keys() | words.keys() if before.get(name) != words.get(name)}
        if changed:
            self._mark_dirty(changed)

    def knows_of_repairs(self) -> bool:
        """Whether there are requests for repairs, or any node's record has one."""
        return bool(self._with_repairs_on_record() if self._repairs is None else self._repairs)

    def _with_repairs_on_record(self) -> set[str]:
        return {
            health.metadata.name
            for health in self._cluster.healths.store.values()
            if isinstance(health, NodeHealth) and _has_repair(health.status)
        }

    def is_repaired(self, name: str) -> bool:
        """Whether a repair of the node may be under way, or may begin in a moment, as far as is known."""
        verdict = self._engine.verdict_index.verdicts.get(name)
        if verdict is not None and verdict.grounds.maintenance is not None:
            return True
        word = self._repairs.get(name) if self._repairs is not None else None
        return word is not None and word.stage is Stage.IN_PROGRESS

    def heard(self, name: str) -> None:
        """Have a node evaluated again whose checker has news: it may have passed the test that it was waiting for."""
        verdict = self._engine.verdict_index.verdicts.get(name)
        if verdict is not None and (
            VerdictState.VALIDATING in (verdict.conclusion.state, verdict.conclusion.own)
            or verdict.follow_up.followed is not None
        ):
            self._mark_dirty([name])

    def tested(self, finding: Finding) -> None:
        """Take in the result of a test on a node that no gang has."""
        now = self._wall_clock()
        health = self._health(finding.node)
        node = self._cluster.fleet.nodes.get(finding.node)
        boot = health.status.agent.boot_id if health and health.status.agent else ""
        boot = boot or (node.boot_id if node else "")
        words = [FailedBurnIn(boot, fail.probe, f"test of the node: {fail.message}", now) for fail in finding.fails]
        self._note_reports(finding.node, TESTS, words)
        if finding.check_request is not None:
            self._results[finding.node] = finding.result(finding.check_request, now)
        self._mark_dirty([finding.node])

    def _note_reports(self, node: str, owner: str, words: list[FailedBurnIn]) -> None:
        of_node = self._burned.setdefault(node, {})
        of_node.pop(owner, None)
        if words:
            of_node[owner] = words
        if not of_node:
            del self._burned[node]

    def _gang_changed(self, old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        """Take in which nodes have failed a gang's burn-in."""
        if isinstance(new, Undecodable):
            return
        before, after = _failures_in(old), _failures_in(new)
        if before == after:
            return
        uid = (new or old).spec.job_uid  # type: ignore[union-attr] # one of them has failures, so it is a Gang
        for node in before.keys() | after.keys():
            self._note_reports(node, uid, after.get(node, []))
        self._mark_dirty(after)

    def _note_job_failures(self, old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        """Take in what a gang's record reports of the node on which the job's failures recurred.

        Once the record is gone, the report counts until it has faded.
        """
        if not isinstance(new, Gang) or (isinstance(old, Gang) and comparable_facts(old) == comparable_facts(new)):
            return
        node, reports = failures_that_followed(new)
        record = JobRecord(new.metadata.namespace, qualified_job_name(new), new.spec.job_uid, node, reports)
        self._mark_dirty(self._job_words.replace_record(record))

    def _forget_reports(self, now: datetime) -> None:
        self._job_words.forget(now)
        for name in [name for name, moment in self._other_since.items() if now - moment >= LASTS]:
            del self._other_since[name]

    def _reports_outdated_until(self, name: str, now: datetime) -> datetime | None:
        """The time up to which jobs' reports about a node do not count any more; None = all of them count.

        It is when the node last passed a thorough test, or when another machine took its name.
        """
        age = self._deep_pass_age_seconds(name)
        moments = (None if age is None else now - timedelta(seconds=age), self._other_since.get(name))
        return max((moment for moment in moments if moment is not None), default=None)

    def _failure_reports(self, name: str, health: NodeHealth, now: datetime) -> list[JobFailureReport]:
        """The reports of jobs' failures about a node.

        A new leader may not have heard yet which tests the node has passed since. As long as that is so, the result is
        empty unless the node's record already has a finding from such reports.
        """
        words = self._job_words.failures_on(name, len(self._cluster.fleet.nodes), now)
        if not words or not self._rules.validates or self._leads_since is None:
            return words
        left = NEW_LEADER_SECONDS - (self._clock() - self._leads_since)
        if left <= 0 or any(finding.source == JOBS for finding in health.status.findings):
            return words
        self._engine.wake_at(name, now + timedelta(seconds=left))
        return []

    def _pause(self) -> float | None:
        """The seconds until a node is due by time alone; None = never."""
        moments = self._engine.moments()
        if self._rules.windows.is_pending(self._wall_clock()):
            # Windows are of the wall clock, and waiting is not: one that is set forward is noticed in time.
            moments.append(self._wall_clock() + timedelta(seconds=CLOCK_CHECK_SECONDS))
        pauses = [self._agents.next_seconds(), self._equipment.next_seconds()]
        if moments:
            pauses.append(max((min(moments) - self._wall_clock()).total_seconds(), 0.0))
        return min((pause for pause in pauses if pause is not None), default=None)

    async def evaluate(self) -> None:
        """Evaluate the nodes that have changed or are due, decide about all of them, and begin to put that into
        force."""
        now = self._wall_clock()
        self._apply_policy()
        self._engine.mark_dirty(self._agents.changed(self._rules.budgets.window_limit))
        self._engine.mark_dirty(self._equipment.changed() & self._cluster.fleet.nodes.keys())
        judged = await self._observe(now)
        circumstances = Circumstances(
            self._cluster.fleet.nodes.keys(),
            self._acts.in_force,
            {name: doing.effect for name, doing in self._doing.items()},
            self._cluster.policy_unknown,
            self._ahead.ages_of_future_times(self._times_taken_out(), now, self._clock()),
        )
        orders = self._engine.decide(now, self._rules, judged, circumstances)
        self._measure()
        for order in orders:
            decided = Decided(exclusion_of(order.verdict, order.effect), node_fault(order.verdict))
            self._fitness.note_decision(order.name, decided)
            if order.name in self._doing:
                self._engine.mark_dirty([order.name])
            elif order.name not in self._resting and self._health(order.name) is not None:
                self._begin(order, now)  # nothing is done that cannot be recorded

    def _times_taken_out(self) -> Iterator[datetime]:
        """The times at which Muster has taken nodes out of use, as far as they may be charged to a budget."""
        for name in self._engine.verdict_index.concerned:
            yield from (
                i.taken_out_time
                for i in self._engine.verdict_index.verdicts[name].record.incidents
                if i.taken_out_time is not None
            )
        for name, incidents in self._engine.node_index.incidents.items():
            if name not in self._cluster.fleet.nodes:
                yield from (i.taken_out_time for i in incidents if i.taken_out_time is not None)

    async def _observe(self, now: datetime) -> set[str]:
        """Evaluate the nodes that have changed or are due; returns the names of those whose verdict now asks for
        something else."""
        judged, slices = set(), Slices(self._clock)
        for name in self._engine.due(now, self._doing.keys()):
            await slices.pause()
            before = self._engine.verdict_index.verdicts.get(name)
            if self._was_evaluated(name, now) and self._engine.differs(name, before):
                judged.add(name)
        return judged

    async def settled(self) -> None:
        """Wait until no writes are under way for any node."""
        while self._doing:
            await asyncio.wait([doing.task for doing in self._doing.values()])

    def _begin(self, order: Order, now: datetime) -> None:
        self._engine.begin(order)
        self.kept.note_order(order)
        task = asyncio.create_task(self._deal_with(order, now), name=f"health of {order.name}")
        self._doing[order.name] = _Doing(task, order.effect)
        task.add_done_callback(lambda task: self._done(order.name, task))

    async def _deal_with(self, order: Order, now: datetime) -> None:
        async with self._room:
            try:
                await self._acts.put_into_force(order, self._rules.enforcement, now)
            except (ServerError, Unreachable) as error:
                log.warning("whether a node was dealt with is not known", node=order.name, error=str(error))
                await self._acts.read_record(order.name)  # what was decided counts until then
                self._rest(order.name)
            except ApiError as error:
                log.warning("node not dealt with", node=order.name, error=str(error))
                self._rest(order.name)
            except LeadershipLost:
                raise
            except Exception as error:
                log.exception("node not dealt with", node=order.name)
                self._rest(order.name)
                self._node_reports.defect(order.name, error)

    def _rest(self, name: str) -> None:
        """Leave a node alone for a moment, because a write or an evaluation failed."""
        self._resting.add(name)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._rested, name)

    def _rested(self, name: str) -> None:
        self._resting.discard(name)
        self._mark_dirty([name])

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        del self._doing[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._stirred.set()
        if name in self._engine.dirty:
            self._stirred.set()

    def _apply_policy(self) -> None:
        self._node_reports.policy()
        policy = self._cluster.fleet.policy
        if policy != self._policy:
            self._policy, self._rules = policy, Rules.from_policy(policy)
            self._engine.node_index.rebuild(self._cluster.fleet)
            for name in self._cluster.fleet.nodes:  # which resource the accelerators are may have changed
                self._agents.note(name)
            self._equipment.ignore_ports(self._rules.ignored_ports)
            _contradictions.set(len(self._rules.problems))
            for problem in self._rules.problems:
                log.warning("the FleetPolicy contradicts itself", problem=problem)

    def _was_evaluated(self, name: str, now: datetime) -> bool:
        """Evaluate a node. Returns False where a defect of Muster prevented that: then its last verdict stands."""
        try:
            self._evaluate_node(name, now)
        except Exception as error:
            log.exception("node not judged", node=name)
            self._rest(name)
            self._node_reports.defect(name, error)
            return False
        return True

    def _evaluate_node(self, name: str, now: datetime) -> None:
        node, health = self._cluster.fleet.nodes.get(name), self._health(name)
        if node is not None and health is None:
            self._node_reports.record(name)  # which clears no node
            return
        self._node_reports.readable(name)
        self._node_reports.refuted(name)
        if node is None or health is None:
            self._engine.set_verdict(name, None)
            self._acts.forget(name)
            self._marks.forget(name)
            self._faded.pop(name, None)
            self._mark_dirty(self._test_requests.set_request(name, None))
            return
        burned = [word for words in self._burned.get(name, {}).values() for word in words]
        age = self._pass_age_seconds(name) if self._rules.validates else None
        words = self._failure_reports(name, health, now)
        verdict = self.kept.assess_and_keep(
            assess,
            self._policy or FleetPolicySpec(),
            NodeWorld(
                NodeFacts.from_node(node),
                health,
                self._rules,
                now,
                memory=self._engine.memory,
                reports=words,
                burn_ins=burned,
                passed=None if age is None else now - timedelta(seconds=age),
                answered=self._reports_outdated_until(name, now) if words else None,
                silence=self._agents.contacts.silence_of(name),
                lack=self._equipment.lack_of(name),
                repair=NOT_READ if self._repairs is None else self._repairs.get(name),
                time_is_sure=self._unsure_seconds(name) <= 0,
            ),
        )
        if verdict.follow_up.faded:
            self._faded.setdefault(name, self._clock())
        else:
            self._faded.pop(name, None)
        result = self._results.get(name)
        if result is not None and (health.status.check is None or health.status.check.id != result.id):
            verdict = replace(verdict, record=replace(verdict.record, check=result))
        else:
            self._results.pop(name, None)
        verdict = self._with_test_if_allowed(name, verdict)
        self._engine.set_verdict(name, verdict)
        self._marks.want(name, verdict)
        if verdict.follow_up.faded and (left := self._unsure_seconds(name)) > 0:
            self._engine.wake_at(name, now + timedelta(seconds=left))

    def _unsure_seconds(self, name: str) -> float:
        """The seconds for which the wall clock is not yet trusted that the node's quarantine has faded."""
        since = self._faded.get(name)
        return SURE_SECONDS if since is None else SURE_SECONDS - (self._clock() - since)

    def _with_test_if_allowed(self, name: str, verdict: Verdict) -> Verdict:
        """Return the verdict, which wants a test of the node only if it is the node's turn: only a share of a pool is
        offered for a test at a time."""
        pool, follow_up = self._engine.node_index.pools.get(name, ""), verdict.follow_up
        wanted = pool if follow_up.wants_check else None
        self._mark_dirty(self._test_requests.set_request(name, wanted, follow_up.asked_by))
        if not follow_up.wants_check:
            return verdict
        most = self._rules.budgets.window_limit(self._engine.node_index.pool_sizes[pool])
        is_allowed = self._test_requests.may_be_tested(name, most)
        return replace(verdict, follow_up=replace(follow_up, wants_check=is_allowed))

    def _health(self, name: str) -> NodeHealth | None:
        """The node's record, an empty one where there is none; None for a record that cannot be read."""
        found = self._cluster.healths.store.get(("", name))
        if isinstance(found, Undecodable):
            return None
        return found or NodeHealth(metadata=ObjectMeta(name=name))

    def _measure(self) -> None:
        states, reasons = self._engine.verdict_index.states, self._engine.verdict_index.reasons
        for state in (*VerdictState, "Unknown"):
            _nodes.labels(str(state)).set(states.get(str(state), 0))
        publish_by_reason(_findings, self._reasons, reasons)
        publish_by_reason(_observed, self._observed, self._engine.verdict_index.observed)
        breaker = self._engine.breaker
        assert breaker is not None
        _breaker.set(breaker.state is not BreakerState.CLOSED)
        _held.set(breaker.held)
        _held_yields.set(sum(pool.held_yields for pool in breaker.pools))
        held = {pool.pool: pool.held + pool.held_yields for pool in breaker.pools}
        self._pools.update(pool for pool in held if held[pool])
        for pool in self._pools:
            _held_of_pool.labels(pool).set(held.get(pool, 0))
        self._node_reports.held(breaker)
        self._node_reports.silent(self._agents.contacts.silent_pools)


def publish_by_reason(gauge: Gauge, shown: set[str], counts: Mapping[str, int]) -> None:
    """Publish a number of nodes for each reason.

    Where there are too many reasons, one that no node has any more makes room for one that a node has: one agent whose
    reports name one reason after the other must not hide those of other nodes.

    Args:
        gauge: with the label `reason`.
        shown: the reasons that have a series; changed in place.
        counts: the number of nodes by reason.
    """
    for reason in sorted(reason for reason, count in counts.items() if count and reason not in shown):
        if len(shown) >= MAX_REASONS:
            idle = min((each for each in shown if not counts.get(each)), default=None)
            if idle is None:
                break
            shown.discard(idle)
            gauge.remove(idle)
        shown.add(reason)
    for reason in shown:
        gauge.labels(reason).set(counts.get(reason, 0))


def _failures_in(gang: Gang | Undecodable | None) -> dict[str, list[FailedBurnIn]]:
    """The reports of failed burn-ins in a gang's record, by node."""
    found: dict[str, list[FailedBurnIn]] = {}
    if not isinstance(gang, Gang) or gang.spec.burn_in is None:
        return found
    job = f"{gang.metadata.namespace}/{gang.metadata.name}"
    for failure in gang.spec.burn_in.failures:
        word = FailedBurnIn(failure.boot, failure.probe, f"burn-in: {failure.message}", failure.time, job)
        found.setdefault(failure.node, []).append(word)
    return found


def _has_repair(status: NodeHealthStatus) -> bool:
    """Whether a node's record has a repair that may not be over."""
    last = status.incidents[-1] if status.incidents else None
    was_repaired = last is not None and last.cleared_time is None and last.repair_ended_time is not None
    return was_repaired or any(each.source == REPAIR for each in status.findings)


def _is_another(old: NodeHealth, new: NodeHealth) -> bool:
    """Whether another machine has the node's name now; False where a machine's identity is not known."""
    if old.status.agent == new.status.agent:
        return False
    before, now = identity(old.status.agent), identity(new.status.agent)
    return bool(before and now) and not same_machine(before, now)


def _agent_facts(node: NodeView) -> tuple[Any, ...]:
    """The facts about a node that matter to whether its agent is missed."""
    return node.ready, node.boot_id, node.capacity


def _facts(node: NodeView) -> tuple[Any, ...]:
    """The facts about a node by which its health is evaluated, for comparison; Muster's own taint is none of them."""
    return (
        node.uid,
        node.labels,
        [taint for taint in node.taints if taint.key != TAINT_KEY],
        node.unschedulable,
        node.boot_id,
        node.allocatable,
        node.capacity,
        node.conditions,
        node.annotations,
        node.deleting,
    )
