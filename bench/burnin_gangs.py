"""Random gangs with faults that the rule is not told, and what their tests would measure. Deterministic by seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from muster.preflight.evidence import SPREAD
from muster.preflight.outcomes import BurnInMember, How, PairOutcome
from muster.preflight.pair_thresholds import PairThresholds
from muster.world.checks import ProbeThreshold

UPLINKS = 8
# GB/s of healthy pairs by level: through the spine, through a leaf, inside an NVLink domain.
NETWORK_GBPS, NVLINK_GBPS = 48.0, 400.0
# Segments sent again per 1,000: 2.6 at most were measured on healthy paths, 6.2 at least on one that loses 1 %.
HEALTHY_RETRANSMITS, LOSSY_RETRANSMITS = (0.0, 2.6), (6.2, 30.0)


@dataclass(frozen=True)
class Noise:
    """How much healthy pairs differ.

    Attributes:
        sigma: of the logarithm of a figure.
        disturbed: share of tests that something passing slows down, to a share of `range`.
        ratio: the threshold that baselines.py derives from such figures.
        weakest: the strongest rate, as a share of a healthy one, that counts as a fault; between this and the ratio it
            is luck.
        capped: noise makes a bad part no faster than this: what limits it does not go away in a lucky moment.
    """

    name: str
    sigma: float
    disturbed: float
    range: tuple[float, float]
    ratio: float
    weakest: float
    miss_share: float
    capped: float = math.inf


class Kind(StrEnum):
    """What is wrong with a node."""

    DEAD = "dead"  # never a result
    SLOW = "slow node"  # all its pairs, NVLink too
    PORT = "slow port"  # all its pairs over the network
    ACROSS = "slow only across"  # its pairs that leave the leaf
    LOSSY = "lossy port"


@dataclass(frozen=True)
class Faults:
    """How many of what."""

    nodes: int = 0
    links: int = 0
    uplinks: int = 0
    leaf: bool = False
    spine: bool = False
    deaths: int = 0
    alike: float = 0.0


@dataclass
class Gang:
    """The truth about one gang."""

    random: Random
    noise: Noise
    members: list[BurnInMember]
    bad: dict[str, tuple[Kind, float]] = field(default_factory=dict)
    links: dict[frozenset[str], float] = field(default_factory=dict)
    uplinks: dict[tuple[tuple[str, ...], int], float] = field(default_factory=dict)
    slow_leaf: tuple[str, ...] = ()
    leaf_rate: float = 1.0
    spine_rate: float = 1.0
    dies: dict[str, int] = field(default_factory=dict)
    day: float = 1.0
    salt: int = 0

    def __post_init__(self) -> None:
        """Index the members."""
        self.domains = {member.name: member.domains for member in self.members}

    def leaf(self, name: str) -> tuple[str, ...]:
        """The leaf switch of a node."""
        return self.domains[name][:2]

    def test(self, a: str, b: str, number: int) -> PairOutcome:
        """What both ends of a pair would tell."""
        dead = [name for name in (a, b) if self.dies.get(name, 99) <= number]
        if dead:
            return PairOutcome(number, a, b, How.OTHER_ENDED, ended=dead[0])
        if any(self.bad.get(name, (None,))[0] is Kind.DEAD for name in (a, b)):
            return PairOutcome(number, a, b, How.NO_RESULT)
        rate, lossy = self._rate(a, b)
        noise = math.exp(self.random.gauss(0.0, self.noise.sigma))
        if self.random.random() < self.noise.disturbed:
            noise *= self.random.uniform(*self.noise.range)
        figure = rate * (noise if rate == 1.0 else min(noise, self.noise.capped))
        inside = len(self.domains[a]) > 2 and self.domains[a] == self.domains[b]
        again = self.random.uniform(*(LOSSY_RETRANSMITS if lossy else HEALTHY_RETRANSMITS))
        gbps = figure * self.day * (NVLINK_GBPS if inside else NETWORK_GBPS)
        return PairOutcome(number, a, b, How.RESULT, gbps, 0.0 if inside else again)

    def _rate(self, a: str, b: str) -> tuple[float, bool]:
        """The share of a healthy pair's rate that a pair can reach, and whether segments get lost."""
        nvlink = len(self.domains[a]) > 2 and self.domains[a] == self.domains[b]
        across = self.leaf(a) != self.leaf(b)
        rate, lossy = self.links.get(frozenset((a, b)), 1.0), False
        for name in (a, b):
            kind, value = self.bad.get(name, (Kind.SLOW, 1.0))
            if kind is Kind.SLOW or (kind is Kind.PORT and not nvlink) or (kind is Kind.ACROSS and across):
                rate = min(rate, value)
            lossy |= kind is Kind.LOSSY and not nvlink
            if self.leaf(name) == self.slow_leaf and not nvlink:
                rate = min(rate, self.leaf_rate)
        if across:
            rate = min(rate, self.spine_rate, *(self.uplinks.get(uplink, 1.0) for uplink in self.taken(a, b)))
        return rate, lossy

    def taken(self, a: str, b: str) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Which uplink of either leaf a pair's flow takes: a hash, the same each time."""
        a, b = min(a, b), max(a, b)
        key = Random(f"{a}/{b}/{self.salt}").getrandbits(16)
        return (self.leaf(a), key % UPLINKS), (self.leaf(b), key // 64 % UPLINKS)


def fabric(random: Random, size: int) -> list[BurnInMember]:
    """Members in blocks, leaves and, in a quarter of the gangs, NVLink domains of 4, 8 or 18 nodes."""
    per_leaf = random.choice([4, 8, 16, 32])
    per_block = random.choice([4, 16, 10**6])
    nvlink = random.random() < 0.25
    per_nvlink = random.choice([4, 8, 18])
    members = []
    for place in range(size):
        if nvlink:
            per_leaf = per_nvlink * 2
        leaf = place // per_leaf
        domains: tuple[str, ...] = (f"b{leaf // per_block}", f"l{leaf}")
        if nvlink:
            domains += (f"n{place // per_nvlink}",)
        members.append(BurnInMember(f"node-{place:04}", domains))
    return members


def gang(random: Random, size: int, noise: Noise, faults: Faults) -> Gang:
    """A gang with faults drawn at random, all but its bad links (`cut`)."""
    members = fabric(random, size)
    names = [member.name for member in members]
    made = Gang(random, noise, members, day=random.uniform(0.97, 1.03), salt=random.getrandbits(32))
    leaves = sorted({made.leaf(name) for name in names})
    inside = Counter(member.domains for member in members)
    for name in random.sample(names, min(faults.nodes, size // 4)):
        kinds = [Kind.DEAD, Kind.SLOW]
        own = inside[made.domains[name]] if len(made.domains[name]) > 2 else 0
        if SPREAD * (size - own) >= own:  # else it has too few partners over the network, and hardly uses it
            kinds += [Kind.PORT, Kind.LOSSY]
            kinds += [Kind.ACROSS] if len(leaves) > 2 else []
        made.bad[name] = (random.choice(kinds), rate(random, noise))
    for name in random.sample(names, round(faults.alike * size)):
        made.bad[name] = (Kind.SLOW, 0.8 * noise.weakest)
    for leaf in random.sample(leaves, min(faults.uplinks, len(leaves))) if len(leaves) > 1 else ():
        made.uplinks[leaf, random.randrange(UPLINKS)] = rate(random, noise)
    if faults.leaf:
        large = [leaf for leaf in leaves if sum(made.leaf(name) == leaf for name in names) >= 3]
        made.slow_leaf, made.leaf_rate = random.choice(large), 0.8 * noise.weakest
    if faults.spine:
        made.spine_rate = 0.8 * noise.weakest
    well = [name for name in names if name not in made.bad]
    made.dies = {name: random.randrange(1, 4) for name in random.sample(well, min(faults.deaths, len(well)))}
    return made


def cut(made: Gang, pairs: Sequence[tuple[str, str]], count: int) -> None:
    """Make the links of some of these pairs bad: of pairs that are tested, else nobody could see them."""
    well = [pair for pair in pairs if not made.bad.keys() & set(pair)]
    for pair in made.random.sample(well, min(count, len(well))):
        made.links[frozenset(pair)] = rate(made.random, made.noise)


def rate(random: Random, noise: Noise) -> float:
    """How much a bad part leaves."""
    return random.uniform(0.05, noise.weakest)


def thresholds(made: Gang) -> PairThresholds:
    """What pairs of each level have to reach by the fleet's history, if it had one."""
    depth = len(made.members[0].domains)
    network = ProbeThreshold(middle=NETWORK_GBPS, ratio=made.noise.ratio, miss_share=made.noise.miss_share)
    nvlink = ProbeThreshold(middle=NVLINK_GBPS, ratio=made.noise.ratio, miss_share=made.noise.miss_share)
    return PairThresholds(tuple(nvlink if level == 3 else network for level in range(depth + 1)))
