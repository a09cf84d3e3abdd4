"""What the outcomes of a burn-in blame: nodes, by proven partners; links and shared parts of the fabric, by name; or
nothing.

The order is: what is wrong everywhere, then what a domain's members have in common, then nodes. A node is blamed only
for what neither explains.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from muster.preflight.evidence import LEAST_WITNESSES, Evidence, MemberTopology, Prefix, Test, alike, merge_outcomes
from muster.preflight.local import SHARED
from muster.preflight.outcomes import How, Limit, LocalOutcome, Member, PairOutcome, Yardstick
from muster.preflight.rounds import is_link, missing_pairs
from muster.protocol.numerals import significant

# More failures of one kind than these are not so many bad nodes.
MOST_ALIKE_SHARE, LEAST_ALIKE = 0.25, 4
# Beyond so many it does not matter whether they are alike: too few are left to prove anything.
MOST_SHARE = 0.5
# A domain is to blame where so many of its judged members are stuck; all of them where there are two.
DOMAIN_SHARE, DOMAIN_LEAST = 0.8, 2
# Figures within this factor of each other (their middle half) may have one cause.
ALIKE = 1.3
# Below this share of what its stuck mates reach a node has a fault of its own.
OWN_SHARE = 0.5
# NVLink inside a rack carries up to 18 times what a port of 400 Gbit/s does: less than this is told, and proves
# nothing.
FAR_SHARE = 1 / 25
PAIR = "pair"


class Outcome(StrEnum):
    """The result of a burn-in for the whole gang."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


@dataclass(frozen=True, slots=True)
class Fail:
    """A node that failed the burn-in, and what proves it.

    Attributes:
        node: its name.
        probe: "pair", or the local probe.
        figure: the best that the node reached with proven partners, or in the local probe; None: no result.
        threshold: what it had to reach, in the same unit.
        unit: of both.
        partners: proven nodes with which it missed; empty for a local probe.
        message: what happened, for people.
        wrong: whether a result was wrong; else something is slow or does not answer.
        levels: at which its pairs speak against it.
    """

    node: str
    probe: str
    figure: float | None
    threshold: float
    unit: str
    partners: tuple[str, ...]
    message: str
    wrong: bool = False
    levels: tuple[int, ...] = ()


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
class Verdict:
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


def reach_verdict(
    members: Iterable[Member],
    outcomes: Iterable[PairOutcome],
    local: Iterable[LocalOutcome] = (),
    yardsticks: Sequence[Yardstick] = (),
    limits: Mapping[str, Limit] | None = None,
    transport: str = "",
    levels: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on all outcomes; the order in which they came does not matter.

    Args:
        members: the nodes that take part.
        outcomes: of pairs.
        local: outcomes of the nodes' own probes.
        yardsticks: see Evidence.
        limits: by local probe; a figure without a limit is only measured.
        transport: what tests have to run over, see Evidence.
        levels: the names of domains from the outside in, say ("block", "rack"); for messages only.
    """
    all_members, local_outcomes = list(members), list(local)
    own, broken = find_local_failures(all_members, local_outcomes, limits or {})
    # A node with a failure of its own is no partner, and no other stays open for lack of it.
    out = unfit(all_members, own, broken, local_outcomes)
    ground = MemberTopology(member for member in all_members if member.name not in out)
    evidence = Evidence(ground, merge_outcomes(outcomes), yardsticks, transport)
    return _VerdictMaker(evidence, levels, len(out)).verdict(own, broken)


def find_local_failures(
    members: Sequence[Member], local: Iterable[LocalOutcome], limits: Mapping[str, Limit]
) -> tuple[list[Fail], list[str]]:
    """Return the failures of nodes in their own probes, and the nodes on which a probe could not run.

    Args:
        members: the nodes that take part; witnesses are not judged.
        local: outcomes of the nodes' own probes.
        limits: by probe.
    """
    judged = {member.name for member in members if not member.witness}
    broken, fails = set[str](), list[Fail]()
    for outcome in local:
        if outcome.node not in judged:
            continue
        if outcome.how is How.ENVIRONMENT:
            broken.add(outcome.node)
            continue
        fail = _local_fail(outcome, limits.get(outcome.probe))
        if fail is not None:
            fails.append(fail)
    worst: dict[tuple[str, str], Fail] = {}
    for fail in sorted(fails, key=lambda each: (each.node, each.probe, each.figure is not None, each.figure or 0.0)):
        worst.setdefault((fail.node, fail.probe), fail)
    return list(worst.values()), sorted(broken)


def unfit(
    members: Sequence[Member], own: Sequence[Fail], broken: Collection[str], local: Iterable[LocalOutcome]
) -> set[str]:
    """Return the nodes that are not tested with others, because of their own probes.

    A failure that so many nodes share that it may not be the nodes' fault excludes none. But a probe that hung may hang
    again, and would then look like the node's links.

    Args:
        members: the nodes that take part.
        own: the failures in nodes' own probes.
        broken: nodes on which a probe could not run.
        local: outcomes of the nodes' own probes.
    """
    count = sum(not member.witness for member in members)
    many = _common(own, broken, count)
    failed, ran = Counter(fail.probe for fail in own), ran_on(local)
    found = set(broken)
    for fail in own:
        shared = is_of_many(fail.probe, failed[fail.probe], ran)
        answered = fail.wrong or fail.figure is not None
        if not shared and not (fail.probe in many and answered):
            found.add(fail.node)
    return found


def ran_on(local: Iterable[LocalOutcome]) -> Counter[str]:
    """Return, by probe, on how many nodes it could run."""
    return Counter(probe for _, probe in {(each.node, each.probe) for each in local if each.how is not How.ENVIRONMENT})


def is_of_many(probe: str, failed: int, ran: Mapping[str, int]) -> bool:
    """Whether a probe of a service that many nodes share failed on so many that it may not be the nodes' fault.

    Args:
        probe: its name.
        failed: on how many nodes it failed.
        ran: by probe, on how many nodes it ran.
    """
    return probe.partition(" on ")[0] in SHARED and failed > MOST_ALIKE_SHARE * ran[probe]


def _common(own: Sequence[Fail], broken: Collection[str], count: int) -> dict[str, str]:
    """Return, by probe that fails on so many nodes alike that it may not be their fault, that as a message.

    Args:
        own: the failures in nodes' own probes.
        broken: nodes on which a probe could not run.
        count: how many nodes are judged.
    """
    by_probe: dict[str, list[Fail]] = defaultdict(list)
    for fail in own:
        by_probe[fail.probe].append(fail)
    found = {}
    for probe, fails in sorted(by_probe.items()):
        nodes = {fail.node for fail in fails}
        # In the smallest gangs no node is left that could show that the cause is not shared.
        left = count - len(nodes.union(broken))
        all_alike = len(fails) > 1 and left <= 0 and not any(fail.wrong for fail in fails)
        if all_alike or _are_too_many([fail.figure or 0.0 for fail in fails], len(fails), count):
            found[probe] = f"{probe} fails on {len(fails)} of {count} nodes alike: not so many are bad"
    return found


def _are_too_many(figures: Sequence[float], some: int, count: int) -> bool:
    if some < LEAST_ALIKE or some <= MOST_ALIKE_SHARE * count:
        return False
    return some > MOST_SHARE * count or alike(figures, ALIKE)


def _local_fail(outcome: LocalOutcome, limit: Limit | None) -> Fail | None:
    said = f" ({outcome.message})" if outcome.message else ""
    at_least, unit = (limit.at_least, limit.unit) if limit else (0.0, "")
    if outcome.how is How.LATE:
        words = f"its tests have not ended in time{said}"
        return Fail(outcome.node, outcome.probe, None, at_least, unit, (), words)
    if outcome.how is not How.RESULT:
        words = f"{outcome.probe} gave no result within its deadline{said}"
        return Fail(outcome.node, outcome.probe, None, at_least, unit, (), words)
    if outcome.wrong:
        words = f"{outcome.probe} found what must not be{said}"
        return Fail(outcome.node, outcome.probe, outcome.figure, at_least, unit, (), words, wrong=True)
    if limit is None or outcome.figure is None or outcome.figure >= limit.at_least:
        return None  # without a figure there was nothing to measure, say with one GPU between GPUs
    measured = f"{significant(outcome.figure, 4)} {unit}".strip()
    words = (
        f"{outcome.probe} measured {measured}, at least {significant(at_least, 4)} is expected by {limit.source}{said}"
    )
    return Fail(outcome.node, outcome.probe, outcome.figure, at_least, unit, (), words)


class _VerdictMaker:
    """Derives the verdict from one set of evidence.

    Args:
        evidence: of all pairs.
        levels: the names of domains from the outside in.
        out: how many nodes are judged by their own probes alone.
    """

    def __init__(self, evidence: Evidence, levels: Sequence[str], out: int = 0) -> None:
        self.evidence, self.names = evidence, levels
        self.judged = [
            node for node, member in enumerate(evidence.members) if not member.witness and node not in evidence.ended
        ]
        self.count = len(self.judged) + out
        self.slow = {level: words for level in evidence.levels if (words := evidence.slow_level(level))}
        self.excused: dict[int, set[int]] = defaultdict(set)
        self.shared: list[Shared] = []

    def verdict(self, own: Sequence[Fail], broken: Sequence[str]) -> Verdict:
        evidence = self.evidence
        self._name_fabric()
        self._name_domains()
        self._name_links()
        self._name_far_levels()
        bad = [node for node in self.judged if evidence.is_bad(node, self.excused[node])]
        self._name_wrong_sums(bad)
        common = _common(own, broken, self.count)
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
        return Verdict(outcome, tuple(fails), tuple(self.shared), tuple(names), tuple(unsure), words, names_shared)

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
        gone = self.evidence.ended.union(bad, (node,))
        return any(
            other not in gone and self.evidence.level_of(node, other) == level for other in self.evidence.levels[level]
        )

    # What is wrong everywhere

    def _name_fabric(self) -> None:
        for level, words in self.slow.items():
            told = f"what connects {self._plural(level)}: {words}" if level < self.evidence.depth else words
            self.shared.append(Shared(Part.FABRIC, (), level, (), told))
            for node in self.judged:
                self.excused[node].add(level)

    def _name_far_levels(self) -> None:
        """Name the levels without a history that reach far less than an inner level does.

        A node that is alone in its domain has no other pairs, and would be its own yardstick there.
        """
        evidence = self.evidence
        inner = 0.0
        for level in range(evidence.depth, -1, -1):
            reached = evidence.reference[level] or 0.0
            if level not in self.slow and 0.0 < reached < FAR_SHARE * inner and not evidence.has_history(level):
                told = (
                    f"what connects {self._plural(level)} reaches {significant(reached)} GB/s where pairs within "
                    f"one reach {significant(inner)}, and no history says what is usual"
                )
                self.shared.append(Shared(Part.FABRIC, (), level, (), told))
            inner = max(inner, reached)

    def _unjudgeable(self) -> str:
        evidence = self.evidence
        for level in sorted(evidence.levels):
            if evidence.is_foreign(level):
                return f"the pairs run over {evidence.is_foreign(level)}, where {evidence.transport} is expected"
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
        known = set[int]().union(*(self.excused[node] for node in nodes))  # by what is further out
        levels = [level for level in evidence.levels if level <= depth and level not in known]
        stuck = {level: found for level in levels if (found := self._best_figures_if_alike(nodes, level, depth))}
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
        what = f"{'' if inside else 'what leads out of '}{self._name(depth)} {'/'.join(domain)}"
        wrong = any(test.wrong for node in nodes for _, test in evidence.tallies[node][level].misses)
        told = f"{what} {self._fault_text(median(stuck[level].values()), level, wrong)}; its members miss alike"
        self.shared.append(Shared(part, domain, level, (), told))

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
        for domain, all_pairs in sorted(around.items(), key=lambda each: (-len(each[1]), each[0])):
            pairs = [pair for pair in all_pairs if pair not in covered]
            if len(pairs) >= DOMAIN_LEAST:
                covered.update(pairs)
                level = len(domain) - 1
                ails = self._fault_of_tests([test for pair in pairs for test in missing[pair]], level)
                told = (
                    f"some of what leads out of {self._name(level + 1)} {'/'.join(domain)} {ails}; {len(pairs)} "
                    "pairs miss"
                )
                self.shared.append(Shared(Part.UPLINK, domain, level, self._pair_names(pairs), told))
        for a, b in named:
            if (a, b) not in covered:
                pair, level = self._pair_names([(a, b)]), evidence.level_of(a, b)
                ails = self._fault_of_tests(missing[a, b], level)
                told = f"the link between {pair[0][0]} and {pair[0][1]} {ails}; both pass with others"
                if self._are_alone(a, b):
                    told += f", and no other node in their {self._name(level)} can show which end it is"
                self.shared.append(Shared(Part.LINK, (), level, pair, told))

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
            told = (
                f"sums of {pairs[0][0]} and {pairs[0][1]} were wrong{more}; the tests do not show which of them is "
                "the cause"
            )
            self.shared.append(Shared(Part.LINK, (), min(wrong.values()), tuple(pairs), told))

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
        if _are_too_many([self._best(node)[0] for node in bad], count, self.count):
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
        found = [(0.0, level) for level in self._judged_levels(node)]
        for level in self._judged_levels(node):
            reference = self.evidence.reference[level] or 0.0
            for _, test in self.evidence.counted_misses(node, level):
                if not test.silent and reference:
                    found.append((test.gbps / reference, level))
        return max(found)

    def _judged_levels(self, node: int) -> list[int]:
        evidence = self.evidence
        levels = [level for level in evidence.levels if level not in self.excused[node]]
        return [level for level in levels if evidence.counted_misses(node, level)]

    def _fail(self, node: int) -> Fail:
        evidence = self.evidence
        best, level = self._best(node)
        tests = [miss for each in self._judged_levels(node) for miss in evidence.counted_misses(node, each)]
        partners = sorted({evidence.members[other].name for other, _ in tests})
        threshold = evidence.threshold_gbps(level)
        reference = evidence.reference[level] or 0.0
        silent = all(test.is_rare for _, test in tests)
        wrong = sum(test.wrong for _, test in tests)
        lossy = not silent and best * reference >= threshold
        told = "gave no result" if silent else f"reached {significant(best * reference)} GB/s at best"
        if wrong:
            told = f"gave wrong sums {wrong} times"
        elif lossy:
            again = median(test.retransmits for _, test in tests)
            told += (
                f", with {significant(again)} segments of 1,000 sent again"
                if again
                else f" over {tests[0][1].transport}"
            )
        words = f"{told} in {len(tests)} tests with {len(partners)} proven partners"
        words += "" if wrong else f"; {significant(threshold)} is the least"
        name, figure = evidence.members[node].name, None if silent else best * reference
        levels = tuple(self._judged_levels(node))
        return Fail(name, PAIR, figure, threshold, "GB/s", tuple(partners), words, wrong=wrong > 0, levels=levels)

    def _open_text(self, unsure: Sequence[str], broken: Sequence[str]) -> str:
        if broken:
            return f"a probe could not run on {_nodes(len(broken))}, {broken[0]} first"
        if self.shared:
            return f"{self.shared[0].message}; {_nodes(len(unsure))} cannot be proven past it"
        return f"{_nodes(len(unsure))} could not be tested to an end, {unsure[0]} first"

    def _name(self, depth: int) -> str:
        return self.names[depth - 1] if depth <= len(self.names) else "domain"

    def _plural(self, level: int) -> str:
        return f"{self._name(level + 1)}s"


def _nodes(count: int) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{count} node{'s' * (count != 1)}"


def _best_of(tests: Iterable[Test]) -> float:
    """Return the best figure of these tests, in GB/s; 0 where none gave a result."""
    return max((0.0 if test.silent else test.gbps for test in tests), default=0.0)
