"""What all tests so far say together: about each node at each level, about levels, and about noise between healthy
nodes.

A level is how many domains a pair shares from the outside in. It is 0 for two nodes with nothing in common, and the
number of levels for two nodes of one innermost domain. A test at a level says something about every link up to it. Each
level has a threshold of its own: NVLink is ten times as fast as a network port.

Tests: tests/unit/preflight/test_verdict.py.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from muster.preflight.outcomes import COUNTS_FOR_NOBODY, BurnInMember, How, PairOutcome
from muster.preflight.pair_thresholds import PairThresholds
from muster.protocol.numerals import significant
from muster.world.checks import ProbeThreshold

# A node is blamed for what happens to a healthy one once in exp(this): a million times.
SURPRISE = 13.8
# What disturbs a pair makes it slower, never faster: a bad node hardly ever passes, so a pass says as much
# as this in the other direction. A healthy one behind one bad uplink of eight misses four of five now and then.
PASS = 8.0
# A node that has passed is never blamed at that level for fewer misses than so many for each pass.
MISSES_PER_PASS = 6
# The same partner says the same twice at most: what misses again and again may lie between the two.
OFTEN = 2
# No node is blamed for fewer misses, partners and rounds than these, however surprising each miss is.
LEAST_MISSES, LEAST_WITNESSES, LEAST_ROUNDS = 3, 2, 2
# Where one domain outnumbers all others by more than this, its members are not all tested across.
SPREAD = 2
# The round's own pairs are a measure from so many on; their upper quartile, because the middle is a bad pair's where
# a quarter of the nodes is bad.
OWN_MEASURE = 8
FIRST_ROUNDS = 2
# Before that, and without a history, the best of a few tests is all there is: more than a healthy pair reaches, and
# their spread is not known. A gang of three that varies by 20 % would blame a healthy node once in ten times.
FEW_RATIO = 0.5
RETRANSMITS_PER_THOUSAND = 3.0
# A healthy pair that gives no result at all, or wrong sums, is rarer than one that is slow.
_SILENT_SHARE = 0.001
# How many tests the history counts for beside the gang's own, and the gang beside a domain's own.
_HISTORY_WEIGHT, _GANG_WEIGHT = 20, 8
_MOST_NOISE = 0.3
# Which of two different reports of a pair counts. An end that could not test explains why the other waited in vain; an
# end that hung explains why the other was left.
_STRENGTH = {
    how: rank
    for rank, how in enumerate(
        (
            How.RESULT,
            How.ENVIRONMENT,
            How.LATE,
            How.NO_RESULT,
            How.OTHER_ENDED,
            How.COULD_NOT_CONNECT,
            How.UNHEARD,
        )
    )
}

Prefix = tuple[str, ...]


@dataclass(slots=True)
class Test:
    """One test of a pair that counts, between the members with the numbers `a` and `b`.

    Attributes:
        a: the smaller number.
        b: the greater number.
        level: how many domains the two share.
        round: in which it was made.
        silent: whether it gave no result.
        gbps: the bus bandwidth in GB/s; 0 without a result.
        retransmits: segments sent again per 1,000.
        transport: what it ran over; "": not known.
        wrong: whether its sums were wrong.
        good: whether it counts as a pass.
    """

    a: int
    b: int
    level: int
    round: int
    silent: bool
    gbps: float
    retransmits: float
    transport: str
    wrong: bool = False
    good: bool = True

    @property
    def is_rare(self) -> bool:
        """Whether the test gave no result or wrong sums, which hardly ever happens to healthy nodes."""
        return self.silent or self.wrong


@dataclass(slots=True)
class Tally:
    """A node's tests at one level.

    Attributes:
        passes: how many it passed.
        misses: the partner's number and the test, for each that it missed.
    """

    passes: int = 0
    misses: list[tuple[int, Test]] = field(default_factory=list)


class MemberTopology:
    """The members' places in the network topology. Members are numbered in the order of their names."""

    def __init__(self, members: Iterable[BurnInMember]) -> None:
        self.members = sorted(members, key=lambda member: member.name)
        self.number = {member.name: place for place, member in enumerate(self.members)}
        self.depth = max((len(member.domains) for member in self.members), default=0)
        # A member without a domain at a level shares none.
        self.places: list[Prefix] = [
            member.domains + (f"\0{member.name}",) * (self.depth - len(member.domains)) for member in self.members
        ]
        self.lone: dict[int, set[int]] = defaultdict(set)  # level -> members with one partner there, and no other
        self.levels = self._levels()

    def level_of(self, a: int, b: int) -> int:
        """Return how many domains two members share, from the outside in."""
        places_a, places_b = self.places[a], self.places[b]
        for level in range(self.depth):
            if places_a[level] != places_b[level]:
                return level
        return self.depth

    def _levels(self) -> dict[int, set[int]]:
        """Return, by level, the numbers of the members to be tested there: those with enough partners at that level.

        Members with one partner at a level are noted in `lone`.
        """
        nodes_by_level: dict[int, set[int]] = {}
        for level in range(self.depth + 1):
            outer: dict[Prefix, list[int]] = defaultdict(list)
            for node, place in enumerate(self.places):
                outer[place[:level]].append(node)
            size_by_domain = (
                Counter(place[: level + 1] for place in self.places) if level < self.depth else Counter[Prefix]()
            )
            tested_nodes = set[int]()
            for nodes in outer.values():
                for node in nodes:
                    own = size_by_domain[self.places[node][: level + 1]]
                    others = len(nodes) - (own or 1)
                    if others and SPREAD * others >= own:
                        tested_nodes.add(node)
                    if others == 1:
                        self.lone[level].add(node)
            if tested_nodes:
                nodes_by_level[level] = tested_nodes
        return nodes_by_level


NOTHING_KNOWN = PairThresholds()


class BurnInEvidence:
    """What all tests of a burn-in say together: about nodes, about levels, and about the noise between healthy
    nodes.

    Args:
        topology: the members' places.
        outcomes: one for each pair and round, see `merge_outcomes`.
        thresholds: what pairs have to reach.
    """

    def __init__(
        self,
        topology: MemberTopology,
        outcomes: Iterable[PairOutcome],
        thresholds: PairThresholds = NOTHING_KNOWN,
    ) -> None:
        self.members, self.number, self.depth = topology.members, topology.number, topology.depth
        self.places, self.levels, self.level_of = topology.places, topology.levels, topology.level_of
        self.lone = topology.lone
        self.thresholds = thresholds
        self.ended: set[int] = set()
        self.tests = self._counting(outcomes)
        self.ran_over = {level: self._ran_over(level) for level in range(self.depth + 1)}
        self.reference: dict[int, float | None] = {}
        for level in range(self.depth + 1):
            self.reference[level] = self._reference(level)
        self.tallies: list[dict[int, Tally]] = [defaultdict(Tally) for _ in self.members]
        limits = {level: self.threshold_gbps(level) for level in range(self.depth + 1)}
        for test in self.tests:
            test.good = self._is_good(test, limits[test.level])
            for me, other in ((test.a, test.b), (test.b, test.a)):
                tally = self.tallies[me][test.level]
                if test.good:
                    tally.passes += 1
                else:
                    tally.misses.append((other, test))
        self.proven = {level: self._proven(level) for level in range(self.depth + 1)}
        self.noise = {level: self._noise(level) for level in range(self.depth + 1)}
        self._around: dict[tuple[Prefix, int], Counter[int]] = defaultdict(Counter)
        self._own: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        self._count_by_domain()

    def threshold(self, level: int) -> ProbeThreshold:
        """Return the threshold of a level, for the transport that most of its pairs run over."""
        return self.thresholds.at_level(level, self.ran_over[level][0])

    def slow_level(self, level: int) -> str:
        """Return what speaks against the network of a whole level rather than against nodes, as text; "" where nothing
        does."""
        reference, threshold = self.reference[level], self.threshold(level)
        tests = self._first_tests(level)
        if len(tests) < OWN_MEASURE:
            return ""
        if self.is_foreign(level):
            return f"most pairs run over {self.is_foreign(level)}, where {self.thresholds.transport} is expected"
        if sum(test.silent for test in tests) > 0.75 * len(tests):
            return "most pairs give no result"
        if sum(test.wrong for test in tests) > 0.75 * len(tests):
            return "most pairs give wrong sums"
        if reference is None:
            return ""
        if reference < threshold.least:
            least = significant(threshold.least)
            return f"three of four pairs reach no more than {significant(reference)} GB/s, where {least} is the least"
        return ""

    def is_foreign(self, level: int) -> str:
        """Return the transport that most pairs of a level ran over though another is expected; "" if they did not."""
        over, share = self.ran_over[level]
        return over if self.thresholds.is_foreign(over) and share > 0.5 else ""

    def _ran_over(self, level: int) -> tuple[str, float]:
        """Return the transport of most tests of a level, "" if unknown, and its share of those whose transport is
        known."""
        tests_by_transport = Counter(test.transport for test in self.tests if test.level == level and test.transport)
        over, count = max(tests_by_transport.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        return over, count / tests_by_transport.total() if tests_by_transport else 0.0

    def threshold_gbps(self, level: int) -> float:
        """Return the figure in GB/s below which a test of the level is a miss; 0 where nothing is known."""
        reference, threshold = self.reference[level], self.threshold(level)
        if reference is None:
            return threshold.floor
        own = self._ratio(level) * reference
        return own if reference < threshold.floor else max(own, threshold.floor)

    def counted_misses(self, node: int, level: int) -> list[tuple[int, Test]]:
        """Return a node's misses at a level with partners that are proven there, at most two with each.

        Returns:
            The partner's number and the test of each.
        """
        tally = self.tallies[node].get(level)
        if not tally or not tally.misses:
            return []
        misses, often = list[tuple[int, Test]](), Counter[int]()
        for other, test in tally.misses:
            often[other] += 1
            if other in self.proven[level] and often[other] <= OFTEN:
                misses.append((other, test))
        return misses

    def passes(self, node: int, level: int) -> int:
        """Return how many tests a node has passed at a level."""
        tally = self.tallies[node].get(level)
        return tally.passes if tally else 0

    def missed(self, node: int, level: int) -> int:
        """Return how many tests a node has missed at a level, with any partner."""
        tally = self.tallies[node].get(level)
        return len(tally.misses) if tally else 0

    def surprise(self, node: int, level: int) -> float:
        """Return how surprising a node's tests at a level would be if it were healthy, in nats; less than 0 speaks for
        it."""
        misses = self.counted_misses(node, level)
        if not misses:
            return -PASS * self.passes(node, level)
        slow, silent = self.weights(node, level)
        total = sum(silent if test.is_rare else slow for _, test in misses)
        return total - PASS * self.passes(node, level)

    def weights(self, node: int, level: int) -> tuple[float, float]:
        """Return how surprising one slow test, and one without result or with wrong sums, is for a healthy node, in
        nats.

        Where others of the node's domain miss, too, the surprise is smaller: their common network is the likelier
        cause.

        Args:
            node: its number.
            level: of the tests.
        """
        slow, silent = self.noise[level]
        if level < self.depth:
            place = self.places[node][: level + 1]
            around, own = self._around[place, level], self._own[node, level]
            tests = around[0] - own[0] + _GANG_WEIGHT
            slow = max(slow, (around[1] - own[1] + _GANG_WEIGHT * slow) / tests)
            silent = max(silent, (around[2] - own[2] + _GANG_WEIGHT * silent) / tests)
        return -math.log(min(_MOST_NOISE, slow)), -math.log(min(_MOST_NOISE, silent))

    def is_bad(self, node: int, excused: Collection[int] = (), beyond: float = 0.0) -> bool:
        """Whether a node's misses with proven partners are more than chance.

        One level can show it, or all levels together at which the node has never passed.

        Args:
            node: its number.
            excused: levels at which something else explains the misses.
            beyond: how much more surprising than necessary, in nats.
        """
        levels = [level for level in self.tallies[node] if level not in excused]
        if sum(self.missed(node, level) for level in levels) < LEAST_MISSES:
            return False
        barren = [level for level in levels if not self.passes(node, level)]
        return any(self._is_proof(node, (level,), beyond) for level in levels) or self._is_proof(node, barren, beyond)

    def _is_proof(self, node: int, levels: Collection[int], beyond: float) -> bool:
        misses = [miss for level in levels for miss in self.counted_misses(node, level)]
        passes = sum(self.passes(node, level) for level in levels)
        if (
            len(misses) < max(LEAST_MISSES, MISSES_PER_PASS * passes + 1)
            or len({other for other, _ in misses}) < LEAST_WITNESSES
        ):
            return False
        if len({test.round for _, test in misses}) < LEAST_ROUNDS:
            return False
        return sum(self.surprise(node, level) for level in levels) >= SURPRISE + beyond

    def is_cleared(self, node: int, level: int) -> bool:
        """Whether a node is proven at a level, or has passed there too often to be blamed."""
        if node in self.proven[level]:
            return True
        passes = self.passes(node, level)
        return passes > 0 and len(self.counted_misses(node, level)) <= MISSES_PER_PASS * passes

    def clean_nodes(self) -> frozenset[int]:
        """Return the numbers of the nodes that are proven at some level, and at every level at which they have
        missed."""
        somewhere = frozenset[int]().union(*(self.proven[level] for level in self.levels))
        return somewhere - {
            node
            for node in somewhere
            if any(tally.misses and node not in self.proven[level] for level, tally in self.tallies[node].items())
        }

    def _counting(self, outcomes: Iterable[PairOutcome]) -> list[Test]:
        tests = []
        for outcome in outcomes:
            a, b = self.number.get(outcome.a), self.number.get(outcome.b)
            if a is None or b is None or a == b:
                continue
            a, b = min(a, b), max(a, b)
            if outcome.how is How.OTHER_ENDED and outcome.ended in self.number:
                self.ended.add(self.number[outcome.ended])
            if outcome.how in COUNTS_FOR_NOBODY:
                continue
            silent = outcome.how is not How.RESULT
            figures = (outcome.gbps, outcome.retransmits, outcome.transport, outcome.wrong)
            tests.append(Test(a, b, self.level_of(a, b), outcome.round, silent, *figures))
        return tests

    def _reference(self, level: int) -> float | None:
        """Return what a healthy pair of this gang reaches at a level, in GB/s; None: nothing is known.

        It is the history's middle, or less where most pairs of the gang reach less.
        """
        tests = self._first_tests(level)
        figures = sorted(0.0 if test.silent else test.gbps for test in tests)
        middle = self.threshold(level).middle
        if len(figures) < OWN_MEASURE:
            if middle is not None or not figures:
                return middle
            # Nodes that are closer together reach no less: a bad node's only pair would be its own measure.
            return max([*figures, *(self.reference[outer] or 0.0 for outer in range(level))])
        own = figures[len(figures) * 3 // 4]
        return own if middle is None else min(middle, own)

    def has_history(self, level: int) -> bool:
        """Whether the fleet's history says what a healthy pair of this level reaches."""
        return self.threshold(level).middle is not None

    def _ratio(self, level: int) -> float:
        """Return the share of the level's reference below which a figure is a miss."""
        ratio = self.threshold(level).ratio
        few = not self.has_history(level) and len(self._first_tests(level)) < OWN_MEASURE
        return min(FEW_RATIO, ratio) if few else ratio

    def _first_tests(self, level: int) -> list[Test]:
        return [test for test in self.tests if test.level == level and test.round <= FIRST_ROUNDS]

    def _is_good(self, test: Test, limit_gbps: float) -> bool:
        if test.is_rare or test.retransmits > RETRANSMITS_PER_THOUSAND:
            return False
        if self.thresholds.is_foreign(test.transport) and not self.is_foreign(test.level):
            return False
        return test.gbps >= limit_gbps

    def _proven(self, level: int) -> frozenset[int]:
        """Return the numbers of the nodes proven at a level: they pass more than half as often as they miss with proven
        nodes.

        A node with only one partner at the level, which has passed further out, is not suspect because that partner is
        bad.
        """
        proven_before = {place for place, member in enumerate(self.members) if member.proven}
        proven_before |= {node for node in self.lone[level] if any(self.passes(node, outer) for outer in range(level))}
        proven = (proven_before | {node for node in range(len(self.members)) if self.passes(node, level)}) - self.ended
        for _ in range(3):
            kept = set()
            for node in proven:
                misses = sum(1 for other, _ in self.tallies[node][level].misses if other in proven)
                if 2 * (self.passes(node, level) + (node in proven_before)) > misses:
                    kept.add(node)
            if kept == proven:
                break
            proven = kept
        return frozenset(proven)

    def _noise(self, level: int) -> tuple[float, float]:
        """Return the share of slow tests between proven nodes at a level, and of those with no result or wrong sums."""
        proven, tests_by_pair = self.proven[level], dict[tuple[int, int], list[Test]]()
        for test in self.tests:
            if test.level == level and test.a in proven and test.b in proven:
                tests_by_pair.setdefault((test.a, test.b), []).append(test)
        # What misses again and again is no noise.
        pairs = [tests[0] for tests in tests_by_pair.values() if len(tests) == 1 or any(test.good for test in tests)]
        silent = sum(test.is_rare for test in pairs)
        slow = sum(not test.good for test in pairs) - silent
        tests = len(pairs) + _HISTORY_WEIGHT
        slow_share = (slow + _HISTORY_WEIGHT * self.threshold(level).miss_share) / tests
        return slow_share, (silent + _HISTORY_WEIGHT * _SILENT_SHARE) / tests

    def _count_by_domain(self) -> None:
        """Count, by domain and by node, the tests with proven nodes that lead out of the domain.

        Only domains in which a node has missed are counted.
        """
        missing = {
            self.places[node][: test.level + 1] for test in self.tests if not test.good for node in (test.a, test.b)
        }
        for test in self.tests:
            if test.level == self.depth:
                continue
            proven = self.proven[test.level]
            for me, other in ((test.a, test.b), (test.b, test.a)):
                domain = self.places[me][: test.level + 1]
                if domain in missing and other in proven and self.passes(me, test.level):
                    keys = (self._around[domain, test.level], self._own[me, test.level])
                    for counts in keys:
                        counts[0] += 1
                        counts[2 if test.is_rare else 1] += not test.good


def merge_outcomes(outcomes: Iterable[PairOutcome]) -> list[PairOutcome]:
    """Return one outcome for each pair in each round, in an order that does not depend on when the reports came.

    Both ends report, perhaps twice: a figure counts before no figure, a lower figure before a higher. Lost packets and
    wrong sums count if either end reports them, as only one may see them.
    """
    by_pair: dict[tuple[int, str, str], list[PairOutcome]] = {}
    for outcome in outcomes:
        by_pair.setdefault((outcome.round, min(outcome.a, outcome.b), max(outcome.a, outcome.b)), []).append(outcome)
    return [_one_of(by_pair[key]) for key in sorted(by_pair)]


def _one_of(outcomes: Sequence[PairOutcome]) -> PairOutcome:
    best = min(
        outcomes,
        key=lambda outcome: (
            _STRENGTH[outcome.how],
            outcome.gbps,
            -outcome.retransmits,
            outcome.transport,
            outcome.ended,
        ),
    )
    such = [outcome for outcome in outcomes if outcome.how is best.how]
    return replace(
        best, retransmits=max(outcome.retransmits for outcome in such), wrong=any(outcome.wrong for outcome in such)
    )


def alike(figures: Sequence[float], spread: float) -> bool:
    """Whether the middle half of these figures lies close together, so that most may have one cause.

    Args:
        figures: 0 or more; fewer than two are not alike.
        spread: the middle half's largest figure is less than this many times its smallest.
    """
    values = sorted(max(figure, 1e-6) for figure in figures)
    if len(values) < 2:
        return False
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    return high / low < spread
