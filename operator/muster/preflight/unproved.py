"""Which failures of a verdict stand: whether the partners that show them are healthy, and whether the nodes are to
blame at all. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from muster.preflight.evidence import LEAST_WITNESSES, BurnInEvidence
from muster.preflight.outcomes import PAIR, Fail
from muster.preflight.own_tests import LEAST_ALIKE, MOST_ALIKE_SHARE, OwnTests, is_of_many, ran_on
from muster.preflight.verdict import OWN_SHARE, BurnInVerdict, Outcome

MOST_CONTROLS = 4
"""The largest number of a node's partners that are tested with each other."""


def control_pairs(verdict: BurnInVerdict, evidence: BurnInEvidence) -> list[tuple[str, str]]:
    """Return the pairs of nodes to be tested before a node is failed, each once.

    They are partners of the node that nothing else has shown to be healthy. They are also neighbours on the way on
    which the node misses, where no other node has passed.
    """
    controls, good = list[tuple[str, str]](), _good_pairs(evidence)
    for fail in verdict.failed:
        if fail.partners and not _are_well(fail, evidence, good):
            controls += pairwise(sorted(fail.partners)[:MOST_CONTROLS])
        for pairs in _unseen(fail, verdict, evidence, good).values():
            controls += pairs
    return list(dict.fromkeys(controls))


def unproved_failures(verdict: BurnInVerdict, evidence: BurnInEvidence) -> dict[str, str]:
    """Return, by node, why its failure does not stand, as text; a failure that stands is absent.

    It does not stand where the partners have not shown in this burn-in that they are healthy. The same holds where no
    other node has passed on the way on which the node misses.
    """
    reasons, good = dict[str, str](), _good_pairs(evidence)
    for fail in verdict.failed:
        beside = f"{fail.node} misses beside {', '.join(fail.partners)}"
        if fail.partners and not _are_well(fail, evidence, good):
            reasons[fail.node] = f"{beside}, which pass with no other node"
        elif unseen := _unseen(fail, verdict, evidence, good):
            excused = set(range(evidence.depth + 1)).difference(set(fail.levels).difference(unseen))
            if not evidence.is_bad(evidence.number[fail.node], excused):
                reasons[fail.node] = f"{beside}, and no other node was seen to pass where it does not"
    return reasons


_Good = Mapping[int, Sequence[tuple[int, int]]]
"""Node -> partner and level of each test that it has passed."""


def _good_pairs(evidence: BurnInEvidence) -> _Good:
    good: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for test in evidence.tests:
        if test.good:
            good[test.a].append((test.b, test.level))
            good[test.b].append((test.a, test.level))
    return good


def _are_well(fail: Fail, evidence: BurnInEvidence, good: _Good) -> bool:
    """Whether enough of the partners that a failed node missed with have passed with others.

    Args:
        fail: the failure.
        evidence: of all pairs.
        good: by node, partner and level of each test that it passed.
    """
    node = evidence.number[fail.node]
    speaking = (evidence.number[partner] for partner in fail.partners)
    well = [number for number in speaking if any(other != node for other, _ in good.get(number, ()))]
    return len(well) >= LEAST_WITNESSES


def _unseen(
    fail: Fail, verdict: BurnInVerdict, evidence: BurnInEvidence, good: _Good
) -> dict[int, list[tuple[str, str]]]:
    """Return, by level at which a node misses and no neighbour has passed, the pairs of nodes that could show the
    cause. A level at which no other node can be tested is absent.

    A member that has trained is not tested again when another node is replaced. So an uplink that has become slow looks
    like the new node's port.
    """
    if not fail.partners:
        return {}
    pairs_by_level: dict[int, list[tuple[str, str]]] = {}
    node, level_of = evidence.number[fail.node], evidence.level_of
    speaking = {evidence.number[partner] for partner in fail.partners}
    out = evidence.ended.union(evidence.number[failure.node] for failure in verdict.failed if failure.partners)
    others = [peer for peer in range(len(evidence.members)) if peer not in out]
    others.sort(key=lambda peer: (peer not in speaking, peer))
    for level in fail.levels:
        around = [peer for peer in others if level_of(node, peer) >= level]
        # The nodes that share most of its way; at the innermost level that is all nodes there.
        nearest = max((level_of(node, peer) for peer in around), default=level)
        near = [peer for peer in around if level_of(node, peer) == nearest]
        # Where all its failed partners are of one domain, what leads there may be the cause.
        theirs = {evidence.places[partner][: level + 1] for partner in speaking if level_of(node, partner) == level}
        if any(
            other != node and at == level and (len(theirs) > 1 or evidence.places[other][: level + 1] in theirs)
            for peer in near
            for other, at in good.get(peer, ())
        ):
            continue
        pairs = [
            (peer, other)
            for peer in near[:LEAST_WITNESSES]
            for other in islice((o for o in around if level_of(peer, o) == level and o != peer), LEAST_WITNESSES)
        ]
        if pairs:
            names = [sorted(evidence.members[end].name for end in pair) for pair in pairs]
            pairs_by_level[level] = list(dict.fromkeys((a, b) for a, b in names))[:MOST_CONTROLS]
    return pairs_by_level


def _slow_models(verdict: BurnInVerdict, evidence: BurnInEvidence, models: Mapping[str, str]) -> dict[str, str]:
    """Return, by failed node, the text that all nodes of its model are as slow beside another model.

    An older model has slower ports. A node without a result, with wrong sums, or much slower than its model is absent:
    it has a fault of its own.

    Args:
        verdict: with the failures.
        evidence: of all pairs.
        models: by node, its GPU model.
    """
    if len(set(models.values())) < 2:
        return {}
    good = _good_pairs(evidence)
    failed = {fail.node: fail for fail in verdict.failed if fail.probe == PAIR}
    well = {models.get(evidence.members[node].name) for node in good if evidence.members[node].name not in failed}
    best: dict[str, float] = defaultdict(float)
    for node, fail in failed.items():
        best[models.get(node, "")] = max(best[models.get(node, "")], fail.figure or 0.0)
    return {
        node: f"{node} {fail.message}; but no {models[node]} of this gang reaches more"
        for node, fail in failed.items()
        if node in models and models[node] not in well and not fail.wrong
        if fail.figure is not None and fail.figure >= OWN_SHARE * best[models[node]]
    }


@dataclass(frozen=True, slots=True)
class GangNodes:
    """What else is known of the nodes of a gang, beside its tests.

    Attributes:
        count: how many the gang has now.
        models: by node, its GPU model.
        earlier: node and probe of each failure in this gang before, whose node has left.
    """

    count: int
    models: Mapping[str, str] = field(default_factory=dict)
    earlier: Collection[tuple[str, str]] = ()


def without_unproved_failures(
    verdict: BurnInVerdict, evidence: BurnInEvidence, own: OwnTests, nodes: GangNodes
) -> BurnInVerdict:
    """Return the verdict without failures that are not proved, or too common to be the nodes' fault.

    Args:
        verdict: on all tests.
        evidence: of all pairs.
        own: what the nodes' own probes have shown.
        nodes: what else is known of them.
    """
    pairs = unproved_failures(verdict, evidence) | _slow_models(verdict, evidence, nodes.models)
    dropped = {(node, PAIR): words for node, words in pairs.items()} | _too_common(verdict, own, nodes)
    if not dropped:
        return verdict
    failed = tuple(fail for fail in verdict.failed if (fail.node, fail.probe) not in dropped)
    undecided = {node for node, _ in dropped}.difference(fail.node for fail in failed)
    return replace(
        verdict,
        outcome=Outcome.FAIL if failed else Outcome.INCONCLUSIVE,
        failed=failed,
        open=tuple(sorted(undecided.union(verdict.open))),
        message="; ".join(dict.fromkeys(dropped.values())),
    )


def _too_common(verdict: BurnInVerdict, own: OwnTests, nodes: GangNodes) -> dict[tuple[str, str], str]:
    """Return, by node and probe of a failure that too many nodes share, that as a message.

    Nodes that have left the gang for the same failure are counted, too.

    Args:
        verdict: with the failures.
        own: what the nodes' own probes have shown.
        nodes: what else is known of them.
    """
    ran, common = ran_on(own.outcomes), dict[tuple[str, str], str]()
    tried = nodes.count + len({node for node, _ in nodes.earlier})
    for fail in verdict.failed:
        now = {failure.node for failure in verdict.failed if failure.probe == fail.probe}
        alike = now.union(node for node, probe in nodes.earlier if probe == fail.probe)
        if len(alike) >= LEAST_ALIKE and len(alike) > MOST_ALIKE_SHARE * tried:
            words = f"{fail.probe} has failed on {len(alike)} of {tried} nodes that were tried: not so many are bad"
            common[fail.node, fail.probe] = words
        elif is_of_many(fail.probe, len(now), ran):
            words = f"{fail.message}; so it is on {len(now)} of {ran[fail.probe]} nodes, and it may not be the nodes"
            common[fail.node, fail.probe] = words
    return common
