"""The burn-in of a gang: which nodes are tested together, what the tests show, and which nodes have to leave. Pure.

Nothing of it is stored while it lasts. It follows from the checkers' reports alone. They hold a pass that still counts,
and the answers to this attempt's orders, which checkers keep while the orders stand in their directives. A new leader
hears the same and concludes the same. Only a failure is recorded (record.burned_out). At the start the record gets the
untested nodes and the result of the whole gang (record.burned_in).

A node on which a worker has trained in its present pod since the last fault is proven by that. After wrong results no
training proves anything, and all nodes are tested. Other nodes are tested by themselves first. Then they are tested in
pairs (muster.preflight.rounds) beside proven ones, and where no node is suspect all together.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from muster.api.gang import Examination, FaultClass, Gang, GangSpec
from muster.api.preflight import OnInconclusive, Profile, wanted
from muster.lifecycle import burnin_gang, corruption
from muster.lifecycle.burnin_absent import absence
from muster.lifecycle.burnin_gang import Measured
from muster.lifecycle.burnin_orders import CONTROL_ROUND, Orders, Pair, Told, pairs_that_can_begin, pass_of_pairs
from muster.lifecycle.modes import mode_of
from muster.lifecycle.plan import Announcement, CommitGang, Plan
from muster.lifecycle.resume import Missing
from muster.lifecycle.words import what_tests_show
from muster.placement.where import domain_path
from muster.preflight import local
from muster.preflight.evidence import Evidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import How, Limit, LocalOutcome, PairOutcome, Yardstick
from muster.preflight.outcomes import Member as Tested
from muster.preflight.unproved import control_pairs, without_unproved_failures
from muster.preflight.upkeep import SINGLE_NODE_PREFIXES
from muster.preflight.verdict import Fail, Outcome, Verdict, find_local_failures, reach_verdict, unfit
from muster.preflight.yardsticks import yardsticks
from muster.protocol.checks import NODE, READY, STARTING, CheckAnswer, CheckGrant, CheckOrder
from muster.protocol.messages import IDLE
from muster.protocol.profiles import PROFILES
from muster.recovery import holds
from muster.world.checks import NodeChecks
from muster.world.job import JobWorld, WorkerView

BURNING_IN = "BurningIn"
CHECKERS_MISSING = "CheckersMissing"
INCONCLUSIVE = "BurnInInconclusive"
# Checkers report at least this often; until then a new leader orders nothing.
NEW_LEADER_SECONDS = 15.0
# After this long the gang no longer waits for the checkers of passed nodes to confirm the pass.
ECHO_SECONDS = 60.0
# Where the gang has to wait for a repair, tests that gave no answer are repeated after this long.
AGAIN_SECONDS = 120.0
# After this long, beyond what two tests of a node may take, the gang waits no more.
INCONCLUSIVE_SECONDS = 1800.0
# Nodes that repeat the tests beside those that were slow, late or hung.
BESIDE = 2
_SAY_NOTHING = frozenset({How.ENVIRONMENT, How.LATE})


@dataclass(frozen=True, slots=True)
class BurnInState:
    """The state of a gang's burn-in now, and what follows from it.

    Attributes:
        missing: what the start waits for; None: for nothing.
        checks: by node, what its checker has to do.
        fails: nodes that are proved to be bad; they leave the gang.
        untested: nodes of which nothing is proved.
        message: why nothing is proved, or what else people should know (a slow uplink).
        measured: the result of the all-reduce of the whole gang; "" where there was none.
        is_odd: whether that result is in `message`, too, because the pairs have shown another one.
        is_wrong: whether the gang's all-reduce, or a pair of nodes that stay, gave wrong sums: then no node is proved
            good.
    """

    missing: Missing | None = None
    checks: Mapping[str, NodeChecks] = field(default_factory=dict)
    fails: tuple[Fail, ...] = ()
    untested: tuple[str, ...] = ()
    message: str = ""
    measured: str = ""
    is_odd: bool = False
    is_wrong: bool = False


def profile_of(world: JobWorld) -> Profile:
    """Return the profile of the job's burn-in."""
    return _requested_profile(world, world.gang.spec.least_profile if world.gang else Profile.DISABLED)


def _requested_profile(world: JobWorld, least: Profile = Profile.DISABLED) -> Profile:
    return wanted(world.job.spec.preflight, world.fleet.policy.preflight, least)


def patience_seconds(world: JobWorld) -> float:
    """Return for how many seconds a gang waits while its tests give no answer."""
    return INCONCLUSIVE_SECONDS + 2.0 * PROFILES[str(profile_of(world))].limit_seconds


def is_given_up(world: JobWorld, record: GangSpec, tested: BurnInState) -> bool:
    """Whether a gang has waited for too long for tests that give no answer."""
    inconclusive = tested.missing is not None and tested.missing.reason == INCONCLUSIVE
    return inconclusive and holds.free_seconds(world, record) >= patience_seconds(world)


def is_testing(world: JobWorld) -> bool:
    """Whether nodes are being tested because ranks reported wrong results: the job may not be to blame for these."""
    found = world.gang.spec.open_corruption if world.gang is not None else None
    if found is None or found.examination is not None:
        return False
    tested = burn_in_state(world)
    return tested is not None and tested.missing is not None


def with_test_results(world: JobWorld, record: GangSpec, *, ended: bool = False) -> tuple[GangSpec, Announcement]:
    """Return the record with what tests have shown about wrong results, and the Event that says so.

    Args:
        world: the state of the job; its record must hold such results.
        record: to be changed.
        ended: whether the job has ended, so that no start follows.
    """
    members = world.gang.spec.members if world.gang else []
    # Where a node has left that was not proved to give wrong results, those that stay cannot clear all.
    record = corruption.with_test_results(
        record, _test_results(burn_in_state(world), is_whole=not any(each.is_replacement for each in members))
    )
    assert record.corruption is not None
    note = (
        f"Muster has examined the nodes because of wrong results: {record.corruption.message}. "
        f"The tests show: {what_tests_show(record.corruption, ended=ended)}"
    )
    return record, Announcement("CorruptionExamined", note, warning=True)


def _test_results(tested: BurnInState | None, *, is_whole: bool) -> Examination:
    if tested is None or tested.missing is not None:
        return Examination.NOT_TESTED
    is_clear = is_whole and not tested.untested and not tested.is_wrong
    return Examination.NOTHING_FOUND if is_clear else Examination.INCONCLUSIVE


def burn_in_state(world: JobWorld) -> BurnInState | None:
    """Return the state of the gang's burn-in; None where nothing is to be tested. It is computed once for each
    decision."""
    return world.derived(_compute_state)


def with_checks(world: JobWorld, plan: Plan) -> Plan:
    """Return the plan with the checkers' tasks, as long as the attempt lasts that is tested.

    A job that is over has given its nodes back, whatever its record says: its checkers have no task.
    """
    ends = plan.status_report is not None and plan.status_report.completion is not None
    is_over = ends or world.job.status.completion is not None or world.job.metadata.deletion_timestamp is not None
    tested = burn_in_state(world) if world.gang is not None and world.gang.spec.start is None and not is_over else None
    if tested is None or world.gang is None:
        return plan
    for action in plan.actions:
        if isinstance(action, CommitGang) and (action.spec.attempt, action.spec.start) != (
            world.gang.spec.attempt,
            None,
        ):
            return plan
    return replace(plan, checks=tested.checks)


def _compute_state(world: JobWorld) -> BurnInState | None:
    gang, profile = world.gang, profile_of(world)
    if gang is None or profile is Profile.DISABLED or not all(member.node for member in gang.spec.members):
        return None
    if _requested_profile(world) is Profile.DISABLED and not world.checkers:
        # Only because results were found wrong; checkers may never have been installed.
        young = world.leader_age_seconds < NEW_LEADER_SECONDS
        return BurnInState(Missing(BURNING_IN, "burn-in: waiting for the checkers to report")) if young else None
    return _BurnIn(world, gang, profile).state()


class _BurnIn:
    def __init__(self, world: JobWorld, gang: Gang, profile: Profile) -> None:
        self.world, self.record, self.profile = world, gang.spec, profile
        self.checkers = {
            worker_view.member.node: view
            for worker_view in world.worker_views
            if (view := world.checkers.get(worker_view.member.node)) is not None and view.is_fresh
        }
        # With another profile it is another burn-in. While failed nodes are replaced one after the other it goes on: a
        # pass of an earlier attempt of it stands, however fresh a pass has to be.
        first = (gang.spec.burn_in.since_attempt if gang.spec.burn_in and tries(gang.spec) else 0) or gang.spec.attempt
        self.keys = [
            f"{world.uid}.{str(profile)[0].lower()}/{attempt}" for attempt in range(first, gang.spec.attempt + 1)
        ]
        self.orders = Orders(
            self.keys[-1],
            profile,
            self.checkers,
            {member.node: member.index for member in self.record.members},
            world.job.spec.gpus_per_node,
            world.job.metadata.namespace,
        )
        self.haunted = {unfenced_worker.node for unfenced_worker in self.record.unfenced_workers}
        # Left out is the worker that started so; its successor on the node is tested like any other.
        untested = self.record.burn_in.untested if self.record.burn_in else ()
        self.left_out = frozenset(untested) & {member.node for member in self.record.members if member.pod_uid}
        self.proven: list[WorkerView] = []  # workers whose nodes serve as partners
        self.subjects: list[WorkerView] = []
        self.not_owed: list[WorkerView] = []  # workers whose nodes a job without GPUs may not test
        for worker_view in world.worker_views:
            if self._is_kept_for_gpus(worker_view):
                self.not_owed.append(worker_view)
                continue
            # A node that has passed in this very burn-in stays a subject, or the plan of pairs would be another one.
            if (
                self._has_passed(worker_view)
                and self.orders.answer(worker_view.member.node, self.orders.node_id) is not None
            ):
                self.subjects.append(worker_view)
            elif not self._is_proven(worker_view):
                if worker_view.member.node not in self.left_out or self._suspected_seconds(worker_view) is not None:
                    self.subjects.append(worker_view)
            elif self._is_able(worker_view) and self._is_free(worker_view):
                self.proven.append(worker_view)
        self.unlike = self._unlike()
        self.proven = [worker_view for worker_view in self.proven if worker_view.member.node not in self.unlike]
        self.twice = self._nodes_to_retest()
        self.beside = self._nodes_retested_beside()

    def state(self) -> BurnInState:
        """Return the state of the burn-in, where nodes that the job may not test count as untested after wrong
        results."""
        found = self._state()
        if found.missing is not None or not self.not_owed or self.record.open_corruption is None:
            return found
        untested = sorted({*found.untested, *(worker_view.member.node for worker_view in self.not_owed)})
        words = "; ".join(part for part in (found.message, "a job without GPUs tests no node that has some") if part)
        return replace(found, untested=tuple(untested), message=words)

    def _state(self) -> BurnInState:
        if not self.subjects:
            return BurnInState()
        if all(self._has_passed(worker_view) for worker_view in self.subjects):
            return self._passed()
        if self._is_unheard():
            keep = NodeChecks(known=False)
            nodes = [worker_view.member.node for worker_view in self.world.worker_views]
            return BurnInState(
                Missing(BURNING_IN, "burn-in: waiting for the checkers to report"), dict.fromkeys(nodes, keep)
            )
        absent, waiting = self._without_checker()
        orders = self._node_orders(absent)
        found = self._timed(local.with_wrong_bits(list(self._local(absent)), self.world.checkers))
        # That a node cannot be paired is reported after what its own probes have found.
        subjects = {worker_view.member.node for worker_view in self.subjects}
        found += [each for node, each in sorted(self.unlike.items()) if node in subjects]
        told = self._pair_outcomes()
        if waiting:
            return BurnInState(
                Missing(CHECKERS_MISSING, waiting), self._node_checks(self._orders_by_node(orders, told))
            )
        missing = self._missing_of_nodes(absent, orders)
        if missing is not None:
            # Where a node has to be tested by itself again, the gang begins again after that.
            return BurnInState(missing, self._node_checks(self.orders.with_pairs(orders, told)))
        limits, found = local.with_limits(found, self.checkers, self.world.standards)
        all_members = self._members(())
        failed, broken = find_local_failures(all_members, found, limits)
        outcomes = [outcome for several in told.values() for outcome in several]
        fit = self._members(unfit(all_members, failed, broken, found).union(self.unlike))
        turn = pass_of_pairs(told)
        number, fresh = self.orders.round(fit, told, self._yardsticks(), self._transport(), turn)
        together = self._orders_by_node(orders, [*told, *fresh])
        if number is not None:
            text = f"burn-in {self.profile}: nodes in pairs, round {number}"
            return BurnInState(Missing(BURNING_IN, text), self._node_checks(together))
        verdict = self._verdict(outcomes, found, limits)
        # Partners by which alone a node would fail, and nodes that share its way.
        evidence = self._evidence(fit, outcomes)
        asked = [Pair(CONTROL_ROUND, *ends, turn) for ends in control_pairs(verdict, evidence)]
        unheard = [pair for pair in asked if not told.get(pair)]
        if unheard:
            text = f"burn-in {self.profile}: nodes that failed only with a suspect partner are tested with each other"
            together = self._orders_by_node(orders, {*told, *pairs_that_can_begin(unheard, ())})
            return BurnInState(Missing(BURNING_IN, text), self._node_checks(together))
        earlier = self.record.burn_in.failures if self.record.burn_in else ()
        left = [(failure.node, failure.probe) for failure in earlier]
        models = {node: view.report.model for node, view in self.checkers.items()}
        verdict = without_unproved_failures(verdict, evidence, found, models, left, len(self.record.members))
        broken_by = [outcome.message for outcome in found if outcome.how is How.ENVIRONMENT and outcome.message]
        if verdict.outcome is Outcome.PASS:
            gang = self._gang_orders(begins=True)
            together = self._orders_by_node(orders, told, gang)
            if any(self.orders.is_open(node, order) for node, order in gang.items()):
                text = f"burn-in {self.profile}: all-reduce of the whole gang"
                return BurnInState(Missing(BURNING_IN, text), self._node_checks(together))
        alone = subjects.intersection({fail.node for fail in failed}.union(broken, self.unlike))
        if again := self._pairs_again(verdict, alone, fit, told):
            together = self._orders_by_node(orders, again)
        return self._concluded(verdict, together, broken_by[:1], self._measured(outcomes), frozenset(alone))

    def _passed(self) -> BurnInState:
        """Return the state of a burn-in that all nodes have passed and whose checkers know it.

        The checkers keep their answers, because what was noticed is reported at the start.
        """
        told = self._pair_outcomes()
        outcomes = [outcome for several in told.values() for outcome in several]
        limits, found = local.with_limits(self._timed(self._local({})), self.checkers, self.world.standards)
        verdict, measured = self._verdict(outcomes, found, limits), self._measured(outcomes)
        orders = self._orders_by_node(
            {worker_view.member.node: self._of_node(worker_view.member.node) for worker_view in self.subjects}, told
        )
        kept = {
            node: NodeChecks(tuple(order for order in several if self.orders.answer(node, order.id)))
            for node, several in orders.items()
        }
        words = _notice_text(verdict, measured)
        return BurnInState(None, kept, message=words, **_of_the_gang(measured))

    def _verdict(
        self, outcomes: Sequence[PairOutcome], found: Sequence[LocalOutcome], limits: Mapping[str, Limit]
    ) -> Verdict:
        return _cached_verdict(
            self._members(()),
            tuple(merge_outcomes(outcomes)),
            tuple(found),
            self._yardsticks(),
            tuple(sorted(limits.items())),
            self._transport(),
            tuple(level.name for level in self.world.fleet.policy.topology.levels),
        )

    def _evidence(self, fit: tuple[Tested, ...], outcomes: Sequence[PairOutcome]) -> Evidence:
        return _cached_evidence(fit, tuple(merge_outcomes(outcomes)), self._yardsticks(), self._transport())

    def _missing_of_nodes(
        self, absent: Mapping[str, str], orders: Mapping[str, Sequence[CheckOrder]]
    ) -> Missing | None:
        """Return what is missing before nodes can be tested in pairs; None: nothing.

        Args:
            absent: by node that cannot be tested, why.
            orders: by node, the orders that test it by itself.
        """
        waited = {order.id for node, several in orders.items() for order in several if self.orders.is_open(node, order)}
        if waited:
            text = (
                f"each node by itself, {sum(worker_view.member.node in orders for worker_view in self.subjects)} of "
                "them"
            )
            again = sorted(self.twice.intersection(orders))
            if again and waited == {self.orders.again_id}:
                more = f" and {len(again) - 1} more" if again[1:] else ""
                beside = f", beside {', '.join(sorted(self.beside))}" if self.beside else ""
                text = f"slow, late or hung, and by itself once more: {again[0]}{more}{beside}"
            return Missing(BURNING_IN, f"burn-in {self.profile}: {text}")
        here = (worker_view for worker_view in self.subjects if worker_view.member.node not in absent)
        held = next((worker_view for worker_view in here if worker_view.member.node not in orders), None)
        return None if held is None else Missing(BURNING_IN, _held_text(held))

    # The nodes that take part

    def _unlike(self) -> dict[str, LocalOutcome]:
        """Return, by node, the outcome for nodes that cannot be tested with most others, through no fault of theirs.

        With another number of GPUs, or another library version during an update of checkers, an all-reduce hangs or
        breaks.
        """
        nodes = [worker_view.member.node for worker_view in (*self.subjects, *self.proven)]
        return local.unlike_nodes({node: self.checkers[node] for node in nodes if node in self.checkers})

    def _has_passed(self, worker_view: WorkerView) -> bool:
        """Whether the worker's node has passed this burn-in, and its checker knows it."""
        view = self.checkers.get(worker_view.member.node)
        return view is not None and view.knows(self.orders.key)

    def _suspected_seconds(self, worker_view: WorkerView) -> float | None:
        """Return for how many seconds the worker's node has been under suspicion; None: it is not.

        Suspicion begins with a hardware fault in this pod that no start has followed, or with wrong results of the
        gang. Failures of several owners' jobs before the worker came there begin it, too. The newest one counts.
        """
        since = [
            (self.world.now - incident.time).total_seconds()
            for incident in self.record.incidents
            if incident.fault_class is FaultClass.HARDWARE
            and incident.node == worker_view.member.node
            and not (worker_view.member.pod_uid and incident.resumed_step is not None)
        ]
        suspicion = self.world.fleet.suspicion_of(worker_view.member.node)
        if (
            suspicion is not None
            and suspicion.wants_check
            and suspicion.followed is not None
            and not worker_view.member.pod_uid
        ):
            since.append((self.world.now - suspicion.followed).total_seconds())
        open_corruption = self.record.open_corruption
        if open_corruption is not None:  # then neither training nor an earlier pass proves anything
            since.append((self.world.now - open_corruption.time).total_seconds())
        return min(since, default=None)

    def _is_kept_for_gpus(self, worker_view: WorkerView) -> bool:
        """Whether the node's checker sees GPUs though the job asks for none: then the job may not test the node.

        A test of its host proves nothing about the GPUs.
        """
        view = self.checkers.get(worker_view.member.node)
        return not self.world.job.spec.gpus_per_node and view is not None and view.report.gpus > 0

    def _is_proven(self, worker_view: WorkerView) -> bool:
        member, view = worker_view.member, self.checkers.get(worker_view.member.node)
        suspected = self._suspected_seconds(worker_view)
        if member.pod_uid and suspected is None and not mode_of(self.world.job).starts_with_pods:
            return True  # it has trained in this pod
        if view is None:
            return False
        oldest, alone = self._max_age(), len(self.record.members) == 1
        return any(
            (
                each.granted in self.keys
                or (
                    Profile.rank_of(each.profile) >= self.profile.rank
                    and each.age_seconds <= oldest
                    and each.gpus >= self.world.job.spec.gpus_per_node
                )
            )
            and (alone or not each.granted.startswith(SINGLE_NODE_PREFIXES))  # its links were not tested
            and (suspected is None or each.age_seconds < suspected)
            for each in view.report.passes
        )

    def _max_age(self) -> float:
        own = self.world.job.spec.preflight.max_age_seconds
        return float(self.world.fleet.policy.preflight.max_age_seconds if own is None else own)

    def _is_able(self, worker_view: WorkerView) -> bool:
        view = self.checkers.get(worker_view.member.node)
        return view is not None and view.report.state == READY

    def _is_free(self, worker_view: WorkerView) -> bool:
        """Whether the gang holds the node's accelerators and none of its ranks runs there, so that a test disturbs no
        program."""
        if worker_view.member.node in self.haunted:
            return False
        if mode_of(self.world.job).starts_with_pods:
            return worker_view.pod is None and worker_view.member.node not in self.world.holding
        if worker_view.pod is None or not worker_view.pod.node:
            return False
        launcher = worker_view.launcher
        if launcher is None:
            return not worker_view.member.pod_uid  # a pod that has trained here may have living ranks
        return launcher.attempt == 0 or (launcher.state, launcher.attempt) == (IDLE, self.record.attempt)

    def _is_unheard(self) -> bool:
        """Whether this leader is so new that checkers may have answers that it has not heard: then no test is ordered
        again."""
        if self.world.leader_age_seconds >= NEW_LEADER_SECONDS:
            return False
        # Partners, too: without them the plan would be another one, and they would be told to forget their answers.
        unheard = {worker_view.member.node for worker_view in self.world.worker_views} - self.checkers.keys()
        return bool(unheard - (self.left_out - {worker_view.member.node for worker_view in self.subjects}))

    def _without_checker(self) -> tuple[dict[str, str], str]:
        """Return, by node that cannot be tested, why; and why the burn-in still waits for a checker, "" if it does
        not."""
        absent: dict[str, str] = {}
        waiting = ""
        for worker_view in self.subjects:
            node, view = worker_view.member.node, self.checkers.get(worker_view.member.node)
            # An answer stands, whatever has become of the checker since; after a hang it has to import torch again.
            is_awaited = self._awaits_second_answer(node) and view is not None and view.report.state == STARTING
            has_answered = view is not None and view.answer(self.orders.node_id) is not None and not is_awaited
            if view is not None and (view.report.state == READY or has_answered):
                continue
            longest = min(self.world.leader_age_seconds, self.world.attempt_age_seconds)
            why, seconds = absence(node, self.world.checkers.get(node), longest)
            if seconds > 0.0:
                waiting = waiting or why
            else:
                absent[node] = why
        return absent, waiting

    # Each node by itself

    def _nodes_to_retest(self) -> frozenset[str]:
        """Return the nodes that are tested once more: those that were slow, late or hung, and gave no wrong result.

        Another program's load on the host, or a service that was down for a moment, is no fault of the node.
        """
        views = {
            node: view
            for worker_view in self.subjects
            if (view := self.world.checkers.get(node := worker_view.member.node))
        }
        overdue = {node for node in self.checkers if self.orders.is_overdue(node, self.orders.node_id, NODE)}
        first = {node: view.answer(self.orders.node_id) for node, view in views.items()}
        first = {node: answer for node, answer in first.items() if answer or node in overdue}
        told = [each for node, answer in first.items() for each in local.outcomes_of_answer(node, answer)]
        in_time = {node for node, answer in first.items() if local.ended_in_time(node, answer)}
        told = local.without_common_delays(
            local.with_wrong_bits(told, views), in_time.union(worker_view.member.node for worker_view in self.proven)
        )
        limits, told = local.with_limits(told, views, self.world.standards)
        failed, _ = find_local_failures([Tested(node) for node in first], told, limits)
        # What has begun goes on, whatever has become of the limits since.
        begun = {node for node in first if self._has_begun_again(node) and node not in in_time}
        return frozenset(
            begun.union(fail.node for fail in failed).difference(fail.node for fail in failed if fail.wrong)
        )

    def _has_begun_again(self, node: str) -> bool:
        """Whether the node's checker has the order of the second test, or has answered it."""
        view, again = self.world.checkers.get(node), self.orders.again_id
        return view is not None and (again in view.given or view.answer(again) is not None)

    def _nodes_retested_beside(self) -> frozenset[str]:
        """Return the nodes that repeat the tests together with those that were slow, late or hung.

        A cause that lies outside of the nodes makes all of them late.
        """
        begun = [
            node
            for worker_view in self.world.worker_views
            if self._has_begun_again(node := worker_view.member.node) and node not in self.twice
        ]
        if not any(self._awaits_second_answer(node) for node in self.twice):
            return frozenset(begun)
        proven = sorted(worker_view.member.node for worker_view in self.proven)
        in_time = sorted(
            worker_view.member.node
            for worker_view in self.subjects
            if worker_view.member.node not in self.twice and self._is_able(worker_view) and self._is_free(worker_view)
            if (answer := self.orders.answer(worker_view.member.node, self.orders.node_id))
            if local.ended_in_time(worker_view.member.node, answer)
        )
        return frozenset(list(dict.fromkeys([*begun, *proven, *in_time]))[: max(BESIDE, len(begun))])

    def _timed(self, outcomes: Iterable[LocalOutcome]) -> list[LocalOutcome]:
        """Return the outcomes, judged by the nodes that were tested once more beside the late ones and ended in
        time."""
        again = {node: self.orders.answer(node, self.orders.again_id) for node in self.beside}
        return local.without_common_delays(
            outcomes, [node for node, answer in again.items() if local.ended_in_time(node, answer)]
        )

    def _awaits_second_answer(self, node: str) -> bool:
        """Whether the answer to the node's second test is still missing."""
        return node in self.twice and self.orders.answer(node, self.orders.again_id) is None

    def _of_node(self, node: str) -> list[CheckOrder]:
        again = node in self.twice or node in self.beside
        return [self.orders.of_node(), *([self.orders.of_node(again=True)] if again else [])]

    def _node_orders(self, absent: Mapping[str, str]) -> dict[str, list[CheckOrder]]:
        found = {}
        for worker_view in self.subjects:
            node = worker_view.member.node
            is_able = node not in absent and self._is_able(worker_view)
            if self._answered(node) is None and not (is_able and self._is_free(worker_view)):
                continue
            # Until the node is free again its first answer does not count against it; orders not listed are forgotten.
            if is_able and self._awaits_second_answer(node) and not self._is_free(worker_view):
                continue
            found[node] = (
                self._of_node(node) if is_able or not self._awaits_second_answer(node) else [self.orders.of_node()]
            )
        # While others are tested again, what had no result before is tested with them, or it would be blamed alone.
        newest = min(
            (self._given_seconds(node) for node in found if How.RESULT not in self._local_results(node)), default=0.0
        )
        kept = {
            node: several
            for node, several in found.items()
            if How.NO_RESULT not in self._local_results(node) or self._given_seconds(node) - newest < AGAIN_SECONDS / 2
        }
        for node in self.beside - kept.keys():  # those that stand
            kept[node] = [self.orders.of_node(again=True)]
        return kept

    def _answered(self, node: str) -> CheckAnswer | None:
        """Return the answer of the node's checker to the test by itself, the second one where there were two; None:
        none.

        It counts however long ago the checker was last heard.
        """
        view = self.world.checkers.get(node)
        again = view.answer(self.orders.again_id) if view and node in self.twice else None
        return again or (view.answer(self.orders.node_id) if view else None)

    def _local(self, absent: Mapping[str, str]) -> Iterator[LocalOutcome]:
        for worker_view in self.subjects:
            node = worker_view.member.node
            if node in absent:
                yield LocalOutcome(node, local.CHECKER, How.ENVIRONMENT, message=absent[node])
                # What it has found stands, whatever has become of the checker since.
                yield from (
                    each for each in local.outcomes_of_answer(node, self._answered(node)) if each.how is How.RESULT
                )
            else:
                yield from local.outcomes_of_answer(node, self._answered(node))

    # Pairs

    def _members(self, out: Iterable[str]) -> tuple[Tested, ...]:
        """Return the nodes that take part in the pairs, without the given ones, sorted by name."""
        labels, left_out = self.world.fleet.policy.topology.labels, frozenset(out)
        found = []
        for worker_views, proven in ((self.subjects, False), (self.proven, True)):
            for worker_view in worker_views:
                if worker_view.member.node not in left_out and worker_view.node is not None:
                    path = domain_path(worker_view.node, labels)
                    known = path[: path.index("")] if "" in path else path
                    found.append(Tested(worker_view.member.node, known, proven=proven))
        return tuple(sorted(found, key=lambda member: member.name))

    def _yardsticks(self) -> tuple[Yardstick, ...]:
        reports = [view.report for view in self.checkers.values()]
        kinds = {(report.model, report.library, report.version) for report in reports}
        return yardsticks(self.world.standards, kinds, self._transport())

    def _transport(self) -> str:
        return self.world.fleet.policy.preflight.transport

    def _pair_outcomes(self) -> dict[Pair, list[PairOutcome]]:
        return self.orders.pair_outcomes(worker_view.member.node for worker_view in (*self.subjects, *self.proven))

    # The whole gang

    def _gang_orders(self, *, begins: bool = False) -> dict[str, CheckOrder]:
        worker_views = (*self.subjects, *self.proven)
        here = (
            worker_view.member.node
            for worker_view in worker_views
            if self._is_able(worker_view) and self._is_free(worker_view)
        )
        return burnin_gang.gang_orders_due(self.orders, here, begins=begins)

    def _orders_by_node(
        self,
        orders: Mapping[str, Sequence[CheckOrder]],
        pairs: Iterable[Pair],
        gang: Mapping[str, CheckOrder] | None = None,
    ) -> dict[str, list[CheckOrder]]:
        """Return all orders by node: those of the node itself, of its pairs, and of the whole gang where that has
        begun.

        Args:
            orders: by node, those that test it by itself.
            pairs: that are ordered.
            gang: by node, the order of the whole gang; None: as far as it has begun.
        """
        found = self.orders.with_pairs(orders, pairs)
        for node, order in (self._gang_orders() if gang is None else gang).items():
            found.setdefault(node, []).append(order)
        return found

    def _measured(self, outcomes: Iterable[PairOutcome]) -> Measured:
        told = list(outcomes)
        found = burnin_gang.gang_measurement(self.orders, told, self._transport())
        return replace(found, is_wrong=found.is_wrong or any(each.wrong for each in told))

    # What came of it

    def _concluded(
        self,
        verdict: Verdict,
        orders: Mapping[str, Sequence[CheckOrder]],
        broken_by: Sequence[str],
        measured: Measured,
        alone: frozenset[str],
    ) -> BurnInState:
        """Return the state of the burn-in once all tests are answered.

        Args:
            verdict: of all tests.
            orders: all orders, by node.
            broken_by: why tests could not be made, as messages.
            measured: the result of the all-reduce of the whole gang.
            alone: nodes that are not proved good by the tests of the node by itself.
        """
        shared = _notice_text(verdict, measured)
        # A partner that was proven before has not been tested: its pass stays as old as it is.
        subjects = {worker_view.member.node for worker_view in self.subjects}
        passed = [node for node in verdict.passed if node in subjects]
        checks = self._node_checks(orders, passed)
        if verdict.outcome is Outcome.PASS or verdict.failed:
            unaware = [node for node in passed if self._has_to_hear(node, orders)]
            if unaware:
                text = f"burn-in {self.profile}: {len(passed)} nodes have passed"
                return BurnInState(Missing(BURNING_IN, text), checks, message=shared)
        if verdict.failed:
            return BurnInState(Missing(BURNING_IN, verdict.failed[0].message), checks, verdict.failed, message=shared)
        if verdict.outcome is Outcome.PASS:
            return BurnInState(None, checks, message=shared, **_of_the_gang(measured))
        others = "" if verdict.names_shared and len(verdict.shared) == 1 and not measured.is_odd else shared
        words = "; ".join(dict.fromkeys(part for part in (verdict.message, *broken_by, others) if part))
        if self._must_wait():
            count = len(verdict.open)
            text = (
                f"The burn-in {self.profile} has no result for {count} node{'s' * (count != 1)}: {words}. Muster "
                f"repeats the tests every {AGAIN_SECONDS:.0f} s, for {patience_seconds(self.world) / 60:.0f} min at "
                "most. Then the job takes other nodes, or gives all back. Repair what is named"
            )
            again = self._without_stale_orders(checks, alone.intersection(verdict.open))
            return BurnInState(Missing(INCONCLUSIVE, text), again, untested=verdict.open, message=words)
        return BurnInState(None, checks, untested=verdict.open, message=words, **_of_the_gang(measured))

    def _must_wait(self) -> bool:
        """Whether the gang may not start with nodes of which nothing is proved."""
        waits = self.world.fleet.policy.preflight.on_inconclusive is OnInconclusive.WAIT
        return waits and _requested_profile(self.world) is not Profile.DISABLED

    def _pairs_again(self, verdict: Verdict, alone: Collection[str], fit: tuple[Tested, ...], told: Told) -> list[Pair]:
        """Return the first pairs of another pass, once the last pass is old that has proved nothing of some of its
        nodes.

        Args:
            verdict: of all tests.
            alone: nodes that are not proved good by the tests of the node by itself.
            fit: the nodes that take part in pairs.
            told: the outcomes of the pairs so far.
        """
        is_open = not verdict.failed and any(member.name in verdict.open and member.name not in alone for member in fit)
        if not is_open or not self._must_wait() or self.orders.newest_seconds(told) < AGAIN_SECONDS:
            return []
        return self.orders.round(fit, {}, self._yardsticks(), self._transport(), pass_of_pairs(told) + 1)[1]

    def _without_stale_orders(
        self, checks: Mapping[str, NodeChecks], unproven: frozenset[str]
    ) -> dict[str, NodeChecks]:
        """Return the checkers' tasks without old orders whose answers prove nothing: checkers forget what is not
        listed.

        Args:
            checks: the tasks, by node.
            unproven: nodes of which nothing is proved, because too many had the same result.
        """
        found, order_ids = dict(checks), (self.orders.node_id, self.orders.again_id)
        void = [
            worker_view.member.node
            for worker_view in self.subjects
            if worker_view.member.node in self.checkers
            and (
                worker_view.member.node in unproven
                or not _SAY_NOTHING.isdisjoint(self._local_results(worker_view.member.node))
            )
        ]
        if any(self._given_seconds(node) >= AGAIN_SECONDS for node in void):  # together: they are judged by each other
            for node in {*void, *self.beside}:
                gone = order_ids if node in void else order_ids[1:]
                kept = checks.get(node, NodeChecks())
                found[node] = replace(kept, orders=tuple(each for each in kept.orders if each.id not in gone))
        return found

    def _local_results(self, node: str) -> list[How]:
        return [each.how for each in local.outcomes_of_answer(node, self._answered(node))]

    def _given_seconds(self, node: str) -> float:
        return self.world.checkers[node].given.get(self.orders.node_id, 0.0)

    def _has_to_hear(self, node: str, orders: Mapping[str, Sequence[CheckOrder]]) -> bool:
        """Whether the checker of a node that has passed does not know that yet, and can be expected to."""
        view = self.checkers.get(node)
        if view is None or view.knows(self.orders.key):
            return False
        newest = min((view.given.get(order.id, 0.0) for order in orders.get(node, ())), default=0.0)
        profile = PROFILES[str(self.profile)]
        return newest <= max(profile.limit_seconds, *profile.deadline_seconds.values()) + ECHO_SECONDS

    def _grant(self, node: str) -> CheckGrant:
        gpus = self.checkers[node].tested_gpus(self.world.job.spec.gpus_per_node)
        return CheckGrant(self.orders.key, str(self.profile), gpus)

    def _node_checks(
        self, orders: Mapping[str, Sequence[CheckOrder]], passed: Iterable[str] = ()
    ) -> dict[str, NodeChecks]:
        granted = {node: (self._grant(node),) for node in passed if node in self.checkers}
        return {
            node: NodeChecks(tuple(orders.get(node, ())), granted.get(node, ())) for node in sorted({*orders, *granted})
        }


@lru_cache(maxsize=8)
def _cached_verdict(
    tested: tuple[Tested, ...],
    outcomes: tuple[PairOutcome, ...],
    found: tuple[LocalOutcome, ...],
    yardsticks: tuple[Yardstick, ...],
    limits: tuple[tuple[str, Limit], ...],
    transport: str,
    levels: tuple[str, ...],
) -> Verdict:
    """Return the verdict on a burn-in; it is cached, because it is asked for until all checkers know of it."""
    return reach_verdict(tested, outcomes, found, yardsticks, dict(limits), transport, levels)


@lru_cache(maxsize=8)
def _cached_evidence(
    fit: tuple[Tested, ...], outcomes: tuple[PairOutcome, ...], yardsticks: tuple[Yardstick, ...], transport: str
) -> Evidence:
    """Return the evidence that the pairs of a burn-in give; it is cached, because it is asked for at each decision."""
    return Evidence(MemberTopology(fit), outcomes, yardsticks, transport)


def _of_the_gang(measured: Measured) -> dict[str, Any]:
    return {"measured": measured.message, "is_odd": measured.is_odd, "is_wrong": measured.is_wrong}


def _notice_text(verdict: Verdict, measured: Measured) -> str:
    """Return what people should know although it blames no node, as text; "" if nothing."""
    return "; ".join([*(each.message for each in verdict.shared), *([measured.message] if measured.is_odd else [])])


def _held_text(held: WorkerView) -> str:
    if held.pod is None or not held.pod.node:
        return f"burn-in: waiting for the pod of {held.where} to be bound"
    return f"burn-in: waiting for {held.where} to end its old ranks"


def tries(record: GangSpec) -> int:
    """Return how often in a row failed nodes were replaced."""
    return record.burn_in.tries if record.burn_in else 0
