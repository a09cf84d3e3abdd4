"""Which nodes that no gang holds are tested, and the results. Pure.

A node is tested when a user requests it, or it has no pass that holds (it is new, was booted, or was changed). It is
also tested when jobs of several owners have failed there since its last deep test, or when its last pass is old. A
gang's orders come first: the checker stops a test of an idle node at once. Nothing is stored while a test lasts. The
answer stays with the checker for as long as the order stands.

How soon a pass is old, and what is tested then, follows the node's risk. Source: SuperBench, USENIX ATC 2024, which
selects tests by the expected time to the next incident. The machine's account of offences makes a pass count as
several times older. A machine with a recent incident is tested more deeply. The account fades, so the rule needs no
other memory.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

from muster.api.nodehealth import CheckedProbe, CheckOutcome, CheckRequest, CheckResult
from muster.api.preflight import PreflightPolicy, Profile
from muster.preflight import single_node
from muster.preflight.evidence import LEAST_WITNESSES, BurnInEvidence, MemberTopology
from muster.preflight.outcomes import BurnInMember, Fail, How
from muster.preflight.own_tests import LEAST_ALIKE, MOST_ALIKE_SHARE, OwnTests, evaluate_own_tests
from muster.preflight.verdict import BurnInVerdict, Outcome, reach_verdict
from muster.protocol.checks import NODE, READY, UNFIT, CheckAnswer, CheckGrant, CheckOrder, PassReport
from muster.protocol.numerals import significant
from muster.world.checks import CheckerView, NodeChecks, ProbeThreshold

SINGLE_NODE_PREFIXES = ("new/", "check/", "idle/", "suspicion/")
"""How the IDs of orders for single nodes begin, and of the passes granted for them: links were not tested."""
RETRY_SECONDS = 600.0
"""After this long a test that could not run is tried again."""
MAX_TESTED_SHARE = 0.05
"""At most this share of the fleet's checkers tests nodes whose last pass is only old; one always may."""
RECENT_OFFENCES = 0.5
"""The score from which a machine is tested one profile deeper: one incident after the policy's half-life."""
_ONCE_MORE = "/again"
_MAX_PROBES = 32


@dataclass(frozen=True, slots=True)
class IdleNode:
    """A node that no gang holds, with what decides whether it is tested.

    Attributes:
        node: its name.
        view: the last report of its checker.
        accelerators: how many it should have; None: as many as it has.
        check_request: the request for a test whose result is not written yet; None: none.
        out_of_use: a name for the time that it is out of use, and its length in seconds; None: it is in use. A pass
            from before does not count.
        offences: the machine's account, 1 for each incident, faded.
        suspicion: a name for the job failures that request a test, and how many seconds ago they were; None: none do.
    """

    node: str
    view: CheckerView
    accelerators: int | None = None
    check_request: CheckRequest | None = None
    out_of_use: tuple[str, float] | None = None
    offences: float = 0.0
    suspicion: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class IdleTestResult:
    """The result of a test of an idle node.

    Attributes:
        node: its name.
        order: the ID of the order.
        profile: of the test.
        outcome: of the test.
        fails: the failed probes.
        probes: all probes, as NodeHealth shows them.
        seconds: how long the test took.
        device: what was tested.
        message: the result, for people.
        check_request: the request that is answered; None: the test was not requested.
    """

    node: str
    order: str
    profile: Profile
    outcome: Outcome
    fails: tuple[Fail, ...]
    probes: tuple[CheckedProbe, ...]
    seconds: float
    device: str
    message: str
    check_request: CheckRequest | None = None

    def result(self, request: CheckRequest, now: datetime) -> CheckResult:
        """Return the result in the form that NodeHealth records."""
        return CheckResult(
            id=request.id,
            profile=self.profile,
            outcome=CheckOutcome(str(self.outcome)),
            time=now,
            seconds=round(self.seconds),
            device=self.device[:128],
            probes=list(self.probes[:_MAX_PROBES]),
            message=self.message[:1024],
        )


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The tasks of the checkers of idle nodes, by node, and the results of their tests."""

    checks: Mapping[str, NodeChecks]
    idle_results: tuple[IdleTestResult, ...]


def plan_upkeep(sites: Sequence[IdleNode], policy: PreflightPolicy, thresholds: Sequence[ProbeThreshold]) -> Upkeep:
    """Return which idle nodes are to be tested now, and the results of tests.

    Args:
        sites: the nodes that no gang holds.
        policy: of burn-in.
        thresholds: what probes have to reach.
    """
    checks: dict[str, NodeChecks] = {}
    idle_results: list[IdleTestResult] = []
    old: list[tuple[float, str, IdleNode, CheckOrder]] = []
    passes = {site.node: [pass_report.age_seconds for pass_report in site.view.report.passes] for site in sites}
    fleet = _Fleet(thresholds, {node: min(ages) for node, ages in passes.items() if ages})
    for site in sites:
        if not site.view.is_fresh:
            continue
        if site.view.report.state != READY:
            if site.check_request is not None and site.view.report.state == UNFIT:
                idle_results.append(_unfit(site, site.check_request))
            continue
        order, age = _due(site, policy)
        if order is None:
            continue
        if age is not None:
            old.append((-age, site.node, site, order))
            continue
        checks[site.node], idle_result = _evaluate(site, order, fleet)
        idle_results += [idle_result] if idle_result else []
    room = max(1, int(MAX_TESTED_SHARE * len(sites)))
    # A test that has begun goes on; then the oldest passes come first.
    for _, _, site, order in sorted(old, key=lambda item: (item[3].id not in item[2].view.given, item[0], item[1])):
        checks_of_it, idle_result = _evaluate(site, order, fleet)
        idle_results += [idle_result] if idle_result else []
        if room > 0 or site.view.answer(order.id) is not None:
            checks[site.node] = checks_of_it
            room -= site.view.answer(order.id) is None
    return Upkeep(checks, tuple(_not_too_many(idle_results, len(fleet.passed))))


def _not_too_many(idle_results: Sequence[IdleTestResult], proved: int) -> Iterator[IdleTestResult]:
    """Yield the results; a failure that many nodes share, or that comes before any node has passed, becomes
    inconclusive.

    Args:
        idle_results: the results.
        proved: how many of the idle nodes have a pass.
    """
    failed = Counter(fail.probe for idle_result in idle_results for fail in idle_result.fails)
    alike = {
        probe
        for probe, count in failed.items()
        if not proved or (count >= LEAST_ALIKE and count > MOST_ALIKE_SHARE * (count + proved))
    }
    for idle_result in idle_results:
        left = tuple(fail for fail in idle_result.fails if fail.probe not in alike)
        if left or not idle_result.fails:
            yield replace(idle_result, fails=left)
            continue
        probe = idle_result.fails[0].probe
        beside = f"{proved} have passed" if proved else "none has passed yet"
        words = f"{probe} fails on {failed[probe]} of the idle nodes and {beside}: it may not be the node"
        yield replace(idle_result, outcome=Outcome.INCONCLUSIVE, fails=(), message=f"{words} ({idle_result.message})")


def _due(site: IdleNode, policy: PreflightPolicy) -> tuple[CheckOrder | None, float | None]:
    """Return the test that is due for a node, None: none; and the age in seconds that its last pass counts for.

    The age is None where a user or a missing pass requires the test, and infinite where failures of jobs request it.
    """
    report = site.view.report
    if site.check_request is not None:
        return _order(site, f"check/{site.check_request.id}", site.check_request.profile), None
    if policy.profile is Profile.DISABLED:
        return None, None
    name, since = site.out_of_use or ("", math.inf)
    newest = newest_pass(site.view, policy.profile, site.accelerators or 0)
    if newest is None or newest.age_seconds >= since:
        return _order(
            site,
            f"new/{policy.profile}/{site.accelerators or 0}/{report.boot_id[:16]}/{report.identity[:16]}/{name}",
            policy.profile,
        ), None
    if site.suspicion is not None and not _is_answered(site, site.suspicion[1]):
        return _order(site, f"suspicion/{site.suspicion[0]}", Profile.DEEP), math.inf
    counts_as_seconds = newest.age_seconds * (1.0 + site.offences)
    if policy.idle_max_age_seconds and counts_as_seconds >= policy.idle_max_age_seconds:
        # Another one each time, or the checker would know its grant already.
        name = blake2b(newest.granted.encode(), digest_size=8).hexdigest()
        profile = policy.profile.deeper if site.offences >= RECENT_OFFENCES else policy.profile
        return _order(site, f"idle/{name}", profile), counts_as_seconds
    # The answer that the newest pass was granted for is kept no longer.
    return None, None


def _is_answered(site: IdleNode, since_seconds: float) -> bool:
    deepest = newest_pass(site.view, Profile.DEEP, site.accelerators or 0)
    return deepest is not None and deepest.age_seconds < since_seconds


def newest_pass(view: CheckerView, least: Profile, gpus: int = 0) -> PassReport | None:
    """Return the newest pass that still holds, of this profile or a deeper one; None where there is none.

    Args:
        view: the last report of the node's checker.
        least: the profile.
        gpus: with how many GPUs it must have been tested at least.
    """
    enough = (
        pass_report
        for pass_report in view.report.passes
        if Profile.rank_of(pass_report.profile) >= least.rank and pass_report.gpus >= gpus
    )
    return min(enough, key=lambda pass_report: pass_report.age_seconds, default=None)


def _order(site: IdleNode, order_id: str, profile: Profile) -> CheckOrder:
    return CheckOrder(order_id, NODE, str(profile), gpus=site.accelerators)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What the test of one idle node is compared with.

    Attributes:
        thresholds: what probes have to reach.
        passed: by idle node, the age of its newest pass in seconds.
    """

    thresholds: Sequence[ProbeThreshold]
    passed: Mapping[str, float]

    def passed_since(self, node: str, seconds: float) -> int:
        """Return how many other nodes have passed in these last seconds."""
        return sum(age < seconds for other, age in self.passed.items() if other != node)


@dataclass(frozen=True, slots=True)
class _Tested:
    """A test of an idle node that is answered.

    Attributes:
        answer: of its checker.
        thresholds: what probes had to reach, by name.
        own: what they have shown.
        verdict: on the node.
        message: the same, for people.
    """

    answer: CheckAnswer
    thresholds: Mapping[str, ProbeThreshold]
    own: OwnTests
    verdict: BurnInVerdict
    message: str


def _tested(site: IdleNode, answer: CheckAnswer, thresholds: Sequence[ProbeThreshold]) -> _Tested:
    # It is tested alone: that it was late says nothing of it.
    answered_outcomes = single_node.without_common_delays(single_node.outcomes_of_answer(site.node, answer), ())
    by_name, outcomes = single_node.with_thresholds(answered_outcomes, {site.node: site.view}, thresholds)
    own = evaluate_own_tests([BurnInMember(site.node)], outcomes, by_name)
    fit = [BurnInMember(site.node)] if site.node not in own.unfit else []
    verdict = reach_verdict(BurnInEvidence(MemberTopology(fit), ()), own)
    why = (outcome.message for outcome in outcomes if outcome.how is How.ENVIRONMENT and outcome.message)
    message = "; ".join(fail.message for fail in verdict.failed) or next(why, "") or verdict.message
    return _Tested(answer, by_name, own, verdict, message)


def _evaluate(site: IdleNode, order: CheckOrder, fleet: _Fleet) -> tuple[NodeChecks, IdleTestResult | None]:
    """Return the checker's tasks now, and the result of the test; None: there is none yet.

    Args:
        site: the node.
        order: the test that is due.
        fleet: what the test is compared with.
    """
    answer = site.view.answer(order.id)
    if answer is None:
        return NodeChecks((order,)), None
    tested = _tested(site, answer, fleet.thresholds)
    grant = CheckGrant(order.id, order.profile, site.view.tested_gpus(order.gpus))
    grants = (grant,) if tested.verdict.outcome is Outcome.PASS else ()
    if grants and not site.view.knows(order.id):
        return NodeChecks((order,), grants), None  # it does not know yet
    given = site.view.given.get(order.id, 0.0)
    if _may_be_a_moment(tested.verdict.failed) and not order.id.endswith(_ONCE_MORE):
        second_order = replace(order, id=order.id + _ONCE_MORE)
        has_begun = second_order.id in site.view.given or site.view.answer(second_order.id) is not None
        since = fleet.passed_since(site.node, given)
        is_shared = all(fail.probe in single_node.SHARED for fail in tested.verdict.failed)
        if has_begun or since >= LEAST_WITNESSES or not is_shared:
            checks, second = _evaluate(site, second_order, fleet)
            return replace(checks, orders=(order, *checks.orders)), second
        count = "only one" if since else "none"
        beside = f"what it tests others use, too, and {count} of them has passed since: it may not be the node"
        open_verdict = replace(tested.verdict, outcome=Outcome.INCONCLUSIVE, failed=())
        tested = replace(tested, verdict=open_verdict, message=f"{tested.message}; {beside}")
    idle_result = _idle_result(site, order, tested)
    if idle_result.outcome is Outcome.INCONCLUSIVE and site.check_request is None and given >= RETRY_SECONDS:
        return NodeChecks(), idle_result  # what is not declared is forgotten, and asked again
    return NodeChecks((order,), grants), idle_result


def _idle_result(site: IdleNode, order: CheckOrder, tested: _Tested) -> IdleTestResult:
    failed = tested.verdict.failed
    return IdleTestResult(
        node=site.node,
        order=order.id,
        profile=Profile(order.profile),
        outcome=tested.verdict.outcome,
        fails=failed,
        probes=tuple(_probes(tested, {fail.probe for fail in failed})),
        seconds=tested.answer.seconds,
        device=site.view.report.model or site.view.report.device,
        message=tested.message,
        check_request=site.check_request,
    )


def _may_be_a_moment(fails: Sequence[Fail]) -> bool:
    """Whether the failures may be of a moment, so that the test is repeated: no result was wrong, or only in shared
    services."""
    return bool(fails) and not any(fail.wrong and fail.probe not in single_node.SHARED for fail in fails)


def _unfit(site: IdleNode, request: CheckRequest) -> IdleTestResult:
    words = f"nothing can be tested there: {site.view.report.problem}"
    order = f"check/{request.id}"
    return IdleTestResult(
        node=site.node,
        order=order,
        profile=request.profile,
        outcome=Outcome.INCONCLUSIVE,
        fails=(),
        probes=(),
        seconds=0.0,
        device="nothing",
        message=words,
        check_request=request,
    )


def _probes(tested: _Tested, failed: Collection[str]) -> Iterator[CheckedProbe]:
    for outcome in tested.own.outcomes:
        threshold = tested.thresholds.get(outcome.probe)
        unit = threshold.unit if threshold else outcome.unit
        bad = CheckOutcome.FAIL if outcome.probe in failed else CheckOutcome.PASS
        least = f"{significant(threshold.least, 4)} {threshold.unit} ({threshold.source})" if threshold else ""
        yield CheckedProbe(
            probe=outcome.probe[:128],
            outcome=CheckOutcome.INCONCLUSIVE if outcome.how is How.ENVIRONMENT else bad,
            value="" if outcome.figure is None else f"{significant(outcome.figure, 4)} {unit}".strip()[:128],
            threshold=least[:256],
            message=outcome.message[:512],
        )
