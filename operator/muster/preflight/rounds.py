"""Which pairs are tested next. A pure function of the members, a seed and all outcomes so far.

Nothing of a round is stored: members send their outcomes again to a new leader, which computes the same round. Round 1
tests every node inside its innermost domain. Round 2 tests it once at each level further out, so that leaf and spine
links are both tested; a node that missed meets a proven partner there. Rounds 3 to 5 test again what is open, several
times in one round, with proven partners only. The number of rounds does not depend on the gang's size.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from muster.preflight.evidence import (
    FIRST_ROUNDS,
    LEAST_MISSES,
    NOTHING_KNOWN,
    SURPRISE,
    BurnInEvidence,
    MemberTopology,
    Prefix,
    Test,
    merge_outcomes,
)
from muster.preflight.outcomes import BurnInMember, Pair, PairOutcome, Round
from muster.preflight.pair_thresholds import PairThresholds

MOST_ROUNDS = 5
# Few nodes have few partners: a gang of so many makes so many pairings in each of its first two rounds.
FEW, PAIRINGS = 16, 4
# How many suspects a proven node serves in a round, and how many tests a suspect gets at a level, one after the other.
SERVES, MOST_TESTS = 4, 6
# Tests beyond those that could decide if all of them missed: a round costs more than a test.
MARGIN = 1
# A node is tested until it is so much clearer than necessary that it is bad, in nats: what others do later may add
# noise.
BEYOND = 1.0
# A pair that misses again and again between proven nodes is a bad link. It blames no node: one of a gang's tests
# in exp(this) may be named wrongly.
LINK_SURPRISE = 2.0
# How many partners are looked at before the best of them is taken.
_LOOKED_AT = 12


def next_round(
    members: Iterable[BurnInMember],
    seed: str,
    outcomes: Iterable[PairOutcome],
    thresholds: PairThresholds = NOTHING_KNOWN,
) -> Round | None:
    """Return what is still due of the round that the outcomes belong to, or the next round; None: nothing more to test.

    Args:
        members: the nodes that take part.
        seed: of the gang's UID and its attempt, so that every leader draws the same pairs.
        outcomes: all so far, in any order, repeated or not. The caller adds one for each pair that will not report:
        OTHER_ENDED for a dead member, UNHEARD else.
        thresholds: what pairs have to reach.
    """
    topology, merged = MemberTopology(members), merge_outcomes(outcomes)
    number = max((outcome.round for outcome in merged), default=1)
    while number <= MOST_ROUNDS:
        done = [outcome for outcome in merged if outcome.round == number]
        earlier_outcomes = [outcome for outcome in merged if outcome.round < number]
        evidence = BurnInEvidence(topology, earlier_outcomes, thresholds)
        pairs = _PairDrawer(evidence, f"{seed}/{number}").pairs(number)
        if not pairs and not done:
            return None
        due = _due(evidence, pairs, done)
        if due:
            names = [Pair(evidence.members[a].name, evidence.members[b].name, both) for a, b, both in due]
            return Round(number, _slots(names))
        number += 1
    return None


def _due(
    evidence: BurnInEvidence, planned: Sequence[tuple[int, int, bool]], done: Sequence[PairOutcome]
) -> list["_Due"]:
    """Return the pairs of a planned round that are still to be tested.

    Where an earlier outcome came late, the plan may differ from what was run. A test at the same level with another
    partner then counts for the planned one.

    Args:
        evidence: of all earlier rounds.
        planned: the pairs of the round.
        done: the outcomes of the round.
    """
    keys = {(min(a, b), max(a, b)) for a, b, _ in planned}
    ran, instead = set(), Counter[tuple[int, int]]()
    for outcome in done:
        a, b = evidence.number.get(outcome.a), evidence.number.get(outcome.b)
        if a is None or b is None:
            continue
        key = (min(a, b), max(a, b))
        ran.add(key)
        if key not in keys:
            level = evidence.level_of(a, b)
            instead.update([(a, level), (b, level)])
    due = []
    for a, b, both in planned:
        if (min(a, b), max(a, b)) in ran:
            continue
        level = evidence.level_of(a, b)
        subjects = [(a, level), (b, level)] if both else [(a, level)]
        if all(instead[subject] for subject in subjects):
            instead.subtract(subjects)
        else:
            due.append((a, b, both))
    return due


_Due = tuple[int, int, bool]


def _slots(pairs: Iterable[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """Return the pairs in slots: each pair in the first slot in which both nodes are free."""
    busy: dict[str, int] = defaultdict(int)
    slots: list[list[Pair]] = []
    for pair in pairs:
        taken_slots = busy[pair.a] | busy[pair.b]
        slot = (~taken_slots & (taken_slots + 1)).bit_length() - 1
        busy[pair.a] |= 1 << slot
        busy[pair.b] |= 1 << slot
        while len(slots) <= slot:
            slots.append([])
        slots[slot].append(pair)
    return tuple(tuple(slot) for slot in slots)


class _PairDrawer:
    """Draws the pairs of one round.

    Args:
        evidence: of all earlier rounds.
        seed: of this round's order.
    """

    def __init__(self, evidence: BurnInEvidence, seed: str) -> None:
        self.evidence = evidence
        self.nodes = [node for node in range(len(evidence.members)) if node not in evidence.ended]
        drawn = {
            node: blake2b(f"{seed}/{evidence.members[node].name}".encode(), digest_size=8).digest()
            for node in self.nodes
        }
        self.order = sorted(self.nodes, key=lambda node: (drawn[node], node))
        self.rank = {node: place for place, node in enumerate(self.order)}
        self.clean = evidence.clean_nodes() - evidence.ended
        self.met: dict[int, set[int]] = defaultdict(set)
        for test in evidence.tests:
            self.met[test.a].add(test.b)
            self.met[test.b].add(test.a)
        self.load = Counter[int]()
        self.found: list[_Due] = []
        self.now: dict[int, set[int]] = defaultdict(set)
        self._pools: dict[tuple[int, Prefix], list[int]] = {}

    def pairs(self, number: int) -> list[_Due]:
        """Return the pairs of the round of this number, as (subject, partner, whether the partner is a subject,
        too)."""
        # The levels at which a node is to be judged: a replacement may have a domain to itself.
        levels = sorted(
            level
            for level, level_nodes in self.evidence.levels.items()
            if any(not self._is_decided(node) for node in level_nodes)
        )
        if not levels or all(self._is_decided(node) for node in self.nodes):
            return []
        if number > 2:
            self._draw_later_round(number)
        elif len(self.nodes) <= FEW and not any(self._is_decided(node) for node in self.nodes):
            self._draw_circle(number)
        else:
            for level in levels[-1:] if number == 1 else levels[:-1] or levels:
                self._cover(level)
                self._compare(level)
        return self.found

    def _is_decided(self, node: int) -> bool:
        return self.evidence.members[node].proven

    def _draw_pair(self, a: int, b: int, *, both: bool) -> None:
        self.found.append((a, b, both))
        self.now[a].add(b)
        self.now[b].add(a)
        self.load[b] += not both

    def _draw_circle(self, number: int) -> None:
        """Draw the pairs of a small gang by the circle method: its pairings together hold every pair once.

        With an odd number of nodes one node is left out of each pairing.
        """
        ring: list[int | None] = [*sorted(self.nodes)]
        if len(ring) % 2:
            ring.append(None)
        turns = len(ring) - 1
        first = (number - 1) * PAIRINGS
        for turn in range(first, first + min(PAIRINGS, turns)):
            by = turn % turns
            around = ring[:1] + ring[1 + by :] + ring[1 : 1 + by]
            for a, b in zip(around[: len(ring) // 2], reversed(around), strict=False):
                if a is not None and b is not None:
                    self._draw_pair(a, b, both=True)

    def _cover(self, level: int) -> None:
        """Draw one test for every node at a level: clean nodes with each other, suspects with proven ones."""
        open_nodes = [node for node in self.order if node in self.evidence.levels[level] and not self._is_decided(node)]
        # Before any node is proven all are alike.
        trusted = [node for node in open_nodes if node in self.clean] if self.clean else open_nodes
        suspects = [node for node in open_nodes if node not in self.clean] if self.clean else []
        if any(self._is_decided(node) for node in self.clean) and len(open_nodes) <= SERVES * len(self.clean):
            trusted, suspects = [], open_nodes
        left = self._match(trusted, level)
        pool = self.clean or frozenset(self.nodes)
        for node in [*suspects, *left]:
            self._serve(node, level, pool)

    def _compare(self, level: int) -> None:
        """Draw one pair of members that are not judged, where no history says what a healthy pair reaches.

        Without it, slow replacements would be their own measure.
        """
        if self.evidence.has_history(level):
            return
        first: dict[Prefix, int] = {}
        for node in filter(self._is_decided, self.order):
            other = first.setdefault(self.evidence.places[node][:level], node)
            if other != node and self.evidence.level_of(node, other) == level and other not in self.now[node]:
                self._draw_pair(node, other, both=False)
                return

    def _match(self, nodes: Sequence[int], level: int) -> list[int]:
        """Draw disjoint pairs of exactly this level, and return the nodes that are left over.

        Args:
            nodes: in the round's own order.
            level: of the pairs.
        """
        places, groups = self.evidence.places, defaultdict[Prefix, list[int]](list)
        for node in nodes:
            groups[places[node][:level]].append(node)
        left = []
        for group in groups.values():
            if level == self.evidence.depth:
                first, second = group[::2], group[1::2]
                left += group[len(group) - len(group) % 2 :]
                pairs = list(zip(first, second, strict=False))
            else:
                pairs, over = self._cross(group, level)
                left += over
            for a, b in pairs:
                self._draw_pair(a, b, both=True)
        return left

    def _cross(self, group: Sequence[int], level: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Return pairs of nodes in different domains, one half of the domains with the other, and the nodes left
        over."""
        domain = {node: self.evidence.places[node][: level + 1] for node in group}
        first_seen: dict[Prefix, int] = {}
        for place, node in enumerate(group):
            first_seen.setdefault(domain[node], place)
        ordered = sorted(group, key=lambda node: first_seen[domain[node]])
        half = len(ordered) // 2
        first, second = ordered[:half], ordered[half : 2 * half]
        left = ordered[2 * half :]
        if not half:
            return [], left
        # One domain may lie in both halves: its nodes choose first, among the others.
        middle = domain[first[-1]]
        second.sort(key=lambda node: self.rank[node])
        others = [node for node in second if domain[node] != middle]
        same = [node for node in second if domain[node] == middle]
        middle_nodes = [node for node in first if domain[node] == middle]
        rest = [node for node in first if domain[node] != middle]
        pairs = list(zip(middle_nodes, others, strict=False))
        left += middle_nodes[len(others) :]
        free = [*same, *others[len(middle_nodes) :]]
        pairs += zip(rest, free, strict=False)
        return pairs, left + free[len(rest) :]

    def _serve(self, node: int, level: int, fallback: frozenset[int]) -> None:
        """Draw a test of a node with a proven partner at a level, if there is one.

        Partners that the node has not met come first, then those with few tests.

        Args:
            node: its number.
            level: of the test.
            fallback: the partners where no node is proven at the level.
        """
        partner = self._partner(node, level, fallback)
        if partner is not None:
            self._draw_pair(node, partner, both=False)

    def _partner(self, node: int, level: int, fallback: frozenset[int]) -> int | None:
        places = self.evidence.places
        pool = self._pool(level, places[node][:level], fallback)
        own_domain = places[node][: level + 1] if level < self.evidence.depth else None
        start, best = self.rank[node] % max(1, len(pool)), None
        looked = 0
        for step in range(len(pool)):
            other = pool[(start + step) % len(pool)]
            if other == node or other in self.now[node] or self.load[other] >= SERVES:
                continue
            if own_domain is not None and places[other][: level + 1] == own_domain:
                continue
            key = (other in self.met[node], self.load[other])
            if best is None or key < best[0]:
                best = (key, other)
            looked += 1
            if key == (False, 0) or looked >= _LOOKED_AT:
                break
        return best[1] if best else None

    def _pool(self, level: int, group: Prefix, fallback: frozenset[int]) -> list[int]:
        """Return the nodes that may serve as partners at a level: proven and clean, else proven, else the fallback."""
        if (level, group) not in self._pools:
            group_nodes = [node for node in self.order if self.evidence.places[node][:level] == group]
            proven = self.evidence.proven[level]
            for trusted in (proven & self.clean, proven, fallback):
                pool = [node for node in group_nodes if node in trusted]
                if len({self.evidence.places[node][: level + 1] for node in pool}) > (level < self.evidence.depth):
                    break
            self._pools[level, group] = pool
        return self._pools[level, group]

    def _draw_later_round(self, number: int) -> None:
        """Draw the tests of a later round: for suspects and nodes left out, and for pairs of proven nodes that
        missed."""
        if not self.clean:
            if number == 3:  # new partners for all, once
                self._match(self.order, max(self.evidence.levels))
            return
        wanted = [
            (node, level, count)
            for node in self.order
            if not self._is_decided(node) or self._missed(node)
            for level, count in self._open(node)
        ]
        for a, b in self._links():
            self._draw_pair(a, b, both=False)
        for turn in range(MOST_TESTS):  # so that no suspect takes all partners
            for node, level, count in wanted:
                if turn < count:
                    self._serve(node, level, self.clean)

    def _missed(self, node: int) -> bool:
        return any(self.evidence.missed(node, level) for level in self.evidence.levels)

    def _open(self, node: int) -> list[tuple[int, int]]:
        """Return the levels at which a node is neither proven nor bad yet, each with the number of tests that could
        decide."""
        evidence, open_levels = self.evidence, []
        levels = [level for level in evidence.levels if node in evidence.levels[level]]
        undecided = [level for level in levels if not evidence.is_cleared(node, level)]
        if not undecided or evidence.is_bad(node, beyond=BEYOND):
            return []
        barren = [level for level in levels if not evidence.passes(node, level)]
        joint = sum(evidence.surprise(node, level) for level in barren)
        misses_of_all = sum(len(evidence.counted_misses(node, level)) for level in barren)
        for level in undecided:
            misses = evidence.tallies[node][level].misses
            if not misses:
                open_levels.append((level, 1))
                continue
            slow, silent = evidence.weights(node, level)
            weight = silent if all(test.is_rare for _, test in misses) else slow
            over = len(barren) if level in barren else 1
            surprise, counted = joint, misses_of_all
            if level not in barren:
                surprise, counted = evidence.surprise(node, level), len(evidence.counted_misses(node, level))
            need = max((SURPRISE + BEYOND - surprise) / weight, LEAST_MISSES - counted) / over
            open_levels.append((level, min(MOST_TESTS, max(1, math.ceil(need)) + MARGIN)))
        return open_levels

    def _links(self) -> list[tuple[int, int]]:
        """Return the pairs that missed though both nodes have passed with others, not yet often enough to be named a
        bad link.

        A single miss counts if it is of the first rounds, in which no pair was repeated.
        """
        evidence, links = self.evidence, list[tuple[int, int]]()
        for (a, b), tests in missing_pairs(evidence).items():
            if {a, b} & evidence.ended or self._explained(a, b) or self._explained(b, a):
                continue
            has_repeated = len(tests) > 1 or tests[0].round <= FIRST_ROUNDS
            if has_repeated and not is_link(evidence, tests):
                links.append((a, b))
        return links

    def _explained(self, node: int, other: int) -> bool:
        """Whether a miss of a node is likely its own fault: it has passed nowhere, or also misses with others at that
        level."""
        evidence = self.evidence
        level = evidence.level_of(node, other)
        if evidence.passes(node, level):
            return False
        misses = evidence.tallies[node][level].misses
        partners = {partner for partner, _ in misses}
        return len(partners) > 1 or not any(evidence.passes(node, tested_level) for tested_level in evidence.levels)


def missing_pairs(evidence: BurnInEvidence) -> dict[tuple[int, int], list[Test]]:
    """Return the pairs that have missed and never passed, with their tests."""
    misses: dict[tuple[int, int], list[Test]] = defaultdict(list)
    good = set()
    for test in evidence.tests:
        pair = (test.a, test.b)
        if test.good:
            good.add(pair)
        else:
            misses[pair].append(test)
    return {pair: misses[pair] for pair in sorted(misses) if pair not in good}


def is_link(evidence: BurnInEvidence, tests: Sequence[Test]) -> bool:
    """Whether the misses of one pair of proven nodes are more than chance among all tests of the gang.

    Args:
        evidence: of all tests.
        tests: of the pair.
    """
    surprise = -sum(math.log(evidence.noise[test.level][test.is_rare]) for test in tests)
    return len(tests) > 1 and surprise >= LINK_SURPRISE + math.log(len(evidence.tests))
