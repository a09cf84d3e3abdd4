"""What the outcomes of a burn-in blame: nodes, by proven partners; links and shared parts of the fabric, by name; or
nothing.

The order is: what is wrong everywhere, then what a domain's members have in common, then nodes. A node is blamed only
for what neither explains.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from muster.preflight.evidence import LEAST_WITNESSES, BurnInEvidence, Prefix, Test, alike
from muster.preflight.outcomes import PAIR, Fail
from muster.preflight.own_tests import ALIKE, NO_OWN_TESTS, OwnTests, are_too_many, common_failures
from muster.preflight.rounds import is_link, missing_pairs
from muster.protocol.numerals import significant
from muster.world.names import nodes_text

# A domain is to blame where so many of its judged members are stuck; all of them where there are two.
DOMAIN_SHARE, DOMAIN_LEAST = 0.8, 2
# Below this share of what its stuck mates reach a node has a fault of its own.
OWN_SHARE = 0.5
# NVLink inside a rack carries up to 18 times what a port of 400 Gbit/s does: less than this is told, and proves
# nothing.
FAR_SHARE = 1 / 25


class Outcome(StrEnum):
    """The result of a burn-in for the whole gang."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class Part(StrEnum):
    """A part of the fabric that no single node owns."""

    LINK = "Link"  # what lies between two nodes that are proven otherwise
    UPLINK = "Uplink"  # some of what leads out of a domain
    UPLINKS = "Uplinks"  # all of what leads out of a domain
    DOMAIN = "Domain"  # a domain, inside as well: its leaf or NVLink switch
    FABRIC = "Fabric"  # all that connects a level: spine, superspine


@dataclass(frozen=True, slots=True)
class Shared:
    """A part of the fabric that is slow or dead. It is named, and no node is blamed for it.

    Attributes:
        part: which kind of part.
        domain: its names from the outside in; () for the whole fabric and for a link between domains.
        level: the level at which pairs miss.
        pairs: of a link or uplink, the pairs that missed.
        message: what is wrong, for people.
    """

    part: Part
    domain: tuple[str, ...]
    level: int
    pairs: tuple[tuple[str, str], ...]
    message: str


@dataclass(frozen=True, slots=True)
class BurnInVerdict:
    """The whole result of a burn-in.

    Attributes:
        outcome: for the gang.
        failed: the nodes that failed.
        shared: the parts of the fabric that are slow or dead.
        passed: nodes that are proven at every level at which they have a partner.
        open: nodes of which nothing is proven either way.
        message: why the outcome is inconclusive; "" where it is not.
        names_shared: whether `message` name the first of `shared`.
    """

    outcome: Outcome
    failed: tuple[Fail, ...] = ()
    shared: tuple[Shared, ...] = ()
    passed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    message: str = ""
    names_shared: bool = False


def reach_verdict(evidence: BurnInEvidence, own: OwnTests = NO_OWN_TESTS, levels: Sequence[str] = ()) -> BurnInVerdict:
    """Return the verdict on all tests of a burn-in.

    Args:
        evidence: of the pairs of all nodes that are fit for them.
        own: what the nodes' own probes have shown.
        levels: the names of domains from the outside in, say ("block", "rack"); for messages only.
    """
    return _VerdictMaker(evidence, own, levels).verdict()


class _VerdictMaker:
    """Derives the verdict from one set of evidence, and from what the nodes' own probes have shown.

    Args:
        evidence: of all pairs.
        own: its unfit nodes are judged by their own probes alone.
        levels: the names of domains from the outside in.
    """

    def __init__(self, evidence: BurnInEvidence, own: OwnTests, levels: Sequence[str]) -> None:
        self.evidence, self.own, self.names = evidence, own, levels
        self.judged = [node for node in range(len(evidence.members)) if node not in evidence.ended]
        self.count = len(self.judged) + len(own.unfit)
        self.slow = {level: words for level in evidence.levels if (words := evidence.slow_level(level))}
        self.excused: dict[int, set[int]] = defaultdict(set)
        self.shared: list[Shared] = []

    def verdict(self) -> BurnInVerdict:
        """Return the verdict."""
        evidence, own, broken = self.evidence, self.own.failed, self.own.broken
        self._name_fabric()
        self._name_domains()
        self._name_links()
        self._name_far_levels()
        bad = [node for node in self.judged if evidence.is_bad(node, self.excused[node])]
        self._name_wrong_sums(bad)
        common = common_failures(own, broken, self.count)
        words = self._unjudgeable() or self._too_many_pairs(bad)
        fails = [] if words else [self._fail(node) for node in bad]
        fails += [fail for fail in own if fail.probe not in common]
        unproven = {fail.node for fail in own if fail.probe in common}
        words = next(iter(common.values()), words)
        failed = {fail.node for fail in fails}
        passed = [node for node in self.judged if self._has_passed(node, bad)]
        names = [evidence.members[node].name for node in passed]
        names = [name for name in names if name not in failed | unproven]
        unsure = [evidence.members[node].name for node in self.judged]
        unsure = sorted(unproven.union(broken, (name for name in unsure if name not in names)) - failed)
        names_shared = bool(not words and unsure and not broken and self.shared)
        if not words and unsure:
            words = self._open_text(unsure, broken)
        outcome = Outcome.FAIL if fails else Outcome.INCONCLUSIVE if words else Outcome.PASS
        fails.sort(key=lambda fail: (fail.node, fail.probe))
        return BurnInVerdict(
            outcome, tuple(fails), tuple(self.shared), tuple(names), tuple(unsure), words, names_shared
        )

    def _has_passed(self, node: int, bad: Sequence[int]) -> bool:
        evidence, member = self.evidence, self.evidence.members[node]
        levels = [level for level in evidence.levels if node in evidence.levels[level]]
        if node in bad or any(level in self.slow or evidence.is_foreign(level) for level in levels):
            return False
        if member.proven and not any(evidence.missed(node, level) for level in levels):
            return True
        cleared = [level for level in levels if evidence.is_cleared(node, level)]
        left = (level for level in levels if level not in cleared)
        return bool(cleared or not levels) and not any(self._has_partner(node, level, bad) for level in left)

    def _has_partner(self, node: int, level: int, bad: Sequence[int]) -> bool:
        """Whether there is a node at a level that could prove this one: not only bad nodes, or nodes that have gone."""
        excluded_nodes = self.evidence.ended.union(bad, (node,))
        return any(
            other not in excluded_nodes and self.evidence.level_of(node, other) == level
            for other in self.evidence.levels[level]
        )

    # What is wrong everywhere

    def _name_fabric(self) -> None:
        for level, words in self.slow.items():
            message = f"what connects {self._plural(level)}: {words}" if level < self.evidence.depth else words
            self.shared.append(Shared(Part.FABRIC, (), level, (), message))
            for node in self.judged:
                self.excused[node].add(level)

    def _name_far_levels(self) -> None:
        """Name the levels without a history that reach far less than an inner level does.

        A node that is alone in its domain has no other pairs, and would be its own measure there.
        """
        evidence = self.evidence
        inner = 0.0
        for level in range(evidence.depth, -1, -1):
            reached = evidence.reference[level] or 0.0
            if level not in self.slow and 0.0 < reached < FAR_SHARE * inner and not evidence.has_history(level):
                message = (
                    f"what connects {self._plural(level)} reaches {significant(reached)} GB/s where pairs within "
                    f"one reach {significant(inner)}, and no history says what is usual"
                )
                self.shared.append(Shared(Part.FABRIC, (), level, (), message))
            inner = max(inner, reached)

    def _unjudgeable(self) -> str:
        evidence = self.evidence
        for level in sorted(evidence.levels):
            if evidence.is_foreign(level):
                expected = evidence.thresholds.transport
                return f"the pairs run over {evidence.is_foreign(level)}, where {expected} is expected"
        if self.slow and len(self.slow) == len(evidence.levels):
            return f"it is the whole gang: {self.slow[max(self.slow)]}"
        proven = frozenset[int]().union(*evidence.proven.values())
        if len(proven) < LEAST_WITNESSES and any(self._has_missed(node) for node in self.judged):
            return "no proven node is left that could show which node is bad"
        return ""

    def _has_missed(self, node: int) -> bool:
        return any(self.evidence.missed(node, level) for level in self.evidence.levels)

    # What a domain's members have in common

    def _name_domains(self) -> None:
        evidence = self.evidence
        for depth in range(1, evidence.depth + 1):
            domains: dict[Prefix, list[int]] = defaultdict(list)
            for node in self.judged:
                domains[evidence.places[node][:depth]].append(node)
            if len(domains) < 2:
                continue
            for domain, nodes in sorted(domains.items()):
                within = {evidence.places[node][: depth + 1] for node in nodes}
                if len(nodes) >= DOMAIN_LEAST and (len(within) > 1 or depth == evidence.depth):
                    self._name_domain(domain, nodes, depth)

    def _name_domain(self, domain: Prefix, nodes: Sequence[int], depth: int) -> None:
        evidence = self.evidence
        excused_levels = set[int]().union(*(self.excused[node] for node in nodes))  # by what is further out
        levels = [level for level in evidence.levels if level <= depth and level not in excused_levels]
        stuck = {
            level: best_figures
            for level in levels
            if (best_figures := self._best_figures_if_alike(nodes, level, depth))
        }
        leaving = [level for level in stuck if level < depth]
        inside = depth in stuck
        if not stuck or (not leaving and len(nodes) <= DOMAIN_LEAST):
            return  # of a pair either may be the bad one
        for level, figures in stuck.items():
            usual = median(figures.values())
            for node in nodes:
                # A node that is far worse than its mates has a fault of its own.
                if figures.get(node, usual) >= OWN_SHARE * usual:
                    self.excused[node].add(level)
        part, level = (Part.DOMAIN, depth) if inside else (Part.UPLINKS, max(leaving))
        domain_text = f"{'' if inside else 'what leads out of '}{self._name(depth)} {'/'.join(domain)}"
        wrong = any(test.wrong for node in nodes for _, test in evidence.tallies[node][level].misses)
        message = (
            f"{domain_text} {self._fault_text(median(stuck[level].values()), level, wrong)}; its members miss alike"
        )
        self.shared.append(Shared(part, domain, level, (), message))

    def _best_figures_if_alike(self, nodes: Sequence[int], level: int, depth: int) -> dict[int, float]:
        """Return, by number, the best figures in GB/s of a domain's nodes where nearly all miss at a level, alike; else
        nothing.

        Args:
            nodes: of the domain.
            level: of the tests.
            depth: of the domain.
        """
        evidence, free, figures = self.evidence, 0, dict[int, float]()
        for node in nodes:
            if evidence.passes(node, level):
                free += 1
                continue
            misses = evidence.counted_misses(node, level)
            if level == depth and evidence.missed(node, level):  # no node inside may be proven
                misses = evidence.tallies[node][level].misses
            if misses:
                figures[node] = _best_of(test for _, test in misses)
        total = len(figures) + free
        if len(figures) < max(DOMAIN_LEAST, DOMAIN_SHARE * total) or (total <= DOMAIN_LEAST and total < len(nodes)):
            return {}
        # A node that is far worse than its mates has a fault of its own, and says nothing about what they share.
        least = OWN_SHARE * median(figures.values())
        mates = [figure for figure in figures.values() if figure >= least]
        return figures if len(mates) >= DOMAIN_LEAST and alike(mates, ALIKE) else {}

    # What lies between proven nodes

    def _name_links(self) -> None:
        evidence, missing = self.evidence, missing_pairs(self.evidence)
        named = [
            pair
            for pair, tests in missing.items()
            if (all(node in evidence.proven[tests[0].level] for node in pair) or self._are_alone(*pair))
            and is_link(evidence, tests)
        ]
        around: dict[Prefix, list[tuple[int, int]]] = defaultdict(list)
        for a, b in named:
            level = evidence.level_of(a, b)
            if level < evidence.depth:
                for node in (a, b):
                    around[evidence.places[node][: level + 1]].append((a, b))
        covered = set[tuple[int, int]]()
        # The domain that most pairs have in common explains them; the others were only at their other ends.
        for domain, all_pairs in sorted(around.items(), key=lambda item: (-len(item[1]), item[0])):
            pairs = [pair for pair in all_pairs if pair not in covered]
            if len(pairs) >= DOMAIN_LEAST:
                covered.update(pairs)
                level = len(domain) - 1
                ails = self._fault_of_tests([test for pair in pairs for test in missing[pair]], level)
                message = (
                    f"some of what leads out of {self._name(level + 1)} {'/'.join(domain)} {ails}; {len(pairs)} "
                    "pairs miss"
                )
                self.shared.append(Shared(Part.UPLINK, domain, level, self._pair_names(pairs), message))
        for a, b in named:
            if (a, b) not in covered:
                pair, level = self._pair_names([(a, b)]), evidence.level_of(a, b)
                ails = self._fault_of_tests(missing[a, b], level)
                message = f"the link between {pair[0][0]} and {pair[0][1]} {ails}; both pass with others"
                if self._are_alone(a, b):
                    message += f", and no other node in their {self._name(level)} can show which end it is"
                self.shared.append(Shared(Part.LINK, (), level, pair, message))

    def _are_alone(self, a: int, b: int) -> bool:
        """Whether two nodes have only each other at their level, and miss with each other only."""
        evidence, level = self.evidence, self.evidence.level_of(a, b)
        return all(
            node in evidence.lone[level]
            and any(evidence.passes(node, outer) for outer in range(level))
            and all(with_whom == other for tally in evidence.tallies[node].values() for with_whom, _ in tally.misses)
            for node, other in ((a, b), (b, a))
        )

    def _name_wrong_sums(self, bad: Sequence[int]) -> None:
        """Name the pairs with wrong sums that nothing else explains: too few to blame a node, and never noise."""
        named = {frozenset(pair) for part in self.shared for pair in part.pairs}
        wrong: dict[tuple[int, int], int] = {}
        for test in self.evidence.tests:
            if test.wrong and test.level not in self.slow and not {test.a, test.b}.intersection(bad):
                wrong.setdefault((test.a, test.b), test.level)
        pairs = [pair for pair in self._pair_names(wrong) if frozenset(pair) not in named]
        if pairs:
            more = f", and of {len(pairs) - 1} more pairs" if pairs[1:] else ""
            message = (
                f"sums of {pairs[0][0]} and {pairs[0][1]} were wrong{more}; the tests do not show which of them is "
                "the cause"
            )
            self.shared.append(Shared(Part.LINK, (), min(wrong.values()), tuple(pairs), message))

    def _fault_of_tests(self, tests: Sequence[Test], level: int) -> str:
        return self._fault_text(_best_of(tests), level, any(test.wrong for test in tests))

    def _fault_text(self, gbps: float, level: int, wrong: bool) -> str:
        """Return what is wrong with a part of the fabric, as text.

        Args:
            gbps: the best figure of the tests that missed there, in GB/s.
            level: of the tests.
            wrong: whether some of them gave wrong sums.
        """
        least = self.evidence.threshold_gbps(level)
        if wrong:
            return "gives wrong sums"
        if gbps <= 0.0:
            return "gives no result"
        if gbps >= least:
            return f"loses segments or is not what tests have to run over, at {significant(gbps)} GB/s"
        return f"is slow: {significant(gbps)} GB/s where {significant(least)} is the least"

    def _pair_names(self, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[str, str], ...]:
        members = self.evidence.members
        return tuple((members[a].name, members[b].name) for a, b in pairs)

    # Nodes

    def _too_many_pairs(self, bad: Sequence[int]) -> str:
        # Where a whole level is slow those that are stuck elsewhere are likely to be of the same kind.
        stuck = [node for node in self.judged if self.slow and node not in bad and self._is_open(node, bad)]
        count = len(bad) + len(stuck)
        if are_too_many([self._best(node)[0] for node in bad], count, self.count):
            return f"{count} of {self.count} nodes fail alike: not so many are bad"
        return ""

    def _is_open(self, node: int, bad: Sequence[int]) -> bool:
        """Whether a node misses at some level, not only with bad nodes, and too little is known to blame it."""
        evidence = self.evidence
        for level, tally in evidence.tallies[node].items():
            if level in self.excused[node] or evidence.is_cleared(node, level):
                continue
            if any(other not in bad and other not in evidence.ended for other, _ in tally.misses):
                return True
        return False

    def _best(self, node: int) -> tuple[float, int]:
        """Return the best share of a healthy pair's figure that a node reached with proven partners, and its level."""
        shares = [(0.0, level) for level in self._judged_levels(node)]
        for level in self._judged_levels(node):
            reference = self.evidence.reference[level] or 0.0
            for _, test in self.evidence.counted_misses(node, level):
                if not test.silent and reference:
                    shares.append((test.gbps / reference, level))
        return max(shares)

    def _judged_levels(self, node: int) -> list[int]:
        evidence = self.evidence
        levels = [level for level in evidence.levels if level not in self.excused[node]]
        return [level for level in levels if evidence.counted_misses(node, level)]

    def _fail(self, node: int) -> Fail:
        evidence = self.evidence
        best, level = self._best(node)
        tests = [
            miss for judged_level in self._judged_levels(node) for miss in evidence.counted_misses(node, judged_level)
        ]
        partners = sorted({evidence.members[other].name for other, _ in tests})
        threshold = evidence.threshold_gbps(level)
        reference = evidence.reference[level] or 0.0
        silent = all(test.is_rare for _, test in tests)
        wrong = sum(test.wrong for _, test in tests)
        lossy = not silent and best * reference >= threshold
        result = "gave no result" if silent else f"reached {significant(best * reference)} GB/s at best"
        if wrong:
            result = f"gave wrong sums {wrong} times"
        elif lossy:
            retransmits = median(test.retransmits for _, test in tests)
            result += (
                f", with {significant(retransmits)} segments of 1,000 sent again"
                if retransmits
                else f" over {tests[0][1].transport}"
            )
        words = f"{result} in {len(tests)} tests with {len(partners)} proven partners"
        words += "" if wrong else f"; {significant(threshold)} is the least"
        name, figure = evidence.members[node].name, None if silent else best * reference
        levels = tuple(self._judged_levels(node))
        return Fail(name, PAIR, figure, threshold, "GB/s", tuple(partners), words, wrong=wrong > 0, levels=levels)

    def _open_text(self, unsure: Sequence[str], broken: Sequence[str]) -> str:
        if broken:
            return f"a probe could not run on {nodes_text(len(broken))}, {broken[0]} first"
        if self.shared:
            return f"{self.shared[0].message}; {nodes_text(len(unsure))} cannot be proven past it"
        return f"{nodes_text(len(unsure))} could not be tested to an end, {unsure[0]} first"

    def _name(self, depth: int) -> str:
        return self.names[depth - 1] if depth <= len(self.names) else "domain"

    def _plural(self, level: int) -> str:
        return f"{self._name(level + 1)}s"


def _best_of(tests: Iterable[Test]) -> float:
    """Return the best figure of these tests, in GB/s; 0 where none gave a result."""
    return max((0.0 if test.silent else test.gbps for test in tests), default=0.0)
