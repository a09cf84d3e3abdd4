"""`python -m bench.burnin_rules`: whom the burn-in blames in random gangs, into build/bench/burnin-rules.json.

Gangs of 8 to 2,048 members with faults drawn at random; only the shipped `next_round` and `reach_verdict` decide.
Members die in rounds, leaders change in rounds: the new one gets the outcomes again in another order, some twice, some
late, some never. Each noise and each kind of trouble is a row of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from bench.bed import ROOT
from bench.burnin_gangs import Faults, Gang, Noise, cut, gang, thresholds
from bench.facts import facts
from muster.controller.settings import COLLECT_AFTER
from muster.preflight.evidence import BurnInEvidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import BurnInMember, How, Pair, PairOutcome
from muster.preflight.rounds import next_round
from muster.preflight.verdict import BurnInVerdict, Outcome, Part, reach_verdict

OUTPUT = ROOT / "build" / "bench" / "burnin-rules.json"
GANGS = 10_000
NOISES = (
    Noise("network 2 %", 0.02, 0.005, (0.5, 0.95), 0.85, 0.80, 0.005),
    Noise("network 5 %", 0.05, 0.01, (0.4, 0.95), 0.84, 0.72, 0.01),
    Noise("network 10 %", 0.10, 0.02, (0.3, 0.9), 0.70, 0.55, 0.02),
    # Best of 30 all-reduces of 1 MB over gloo between four network namespaces on two busy cores, as measured.
    Noise("local cluster", 0.35, 0.05, (0.1, 0.6), 0.50, 0.33, 0.065, 1.2),
)
GOALS = {"right": 0.998, "blamed": 0.00001, "rounds": 5, "mean rounds": 3.0, "named": 0.99}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One kind of trouble.

    Attributes:
        part: of the gangs of a noise, how many are of this case.
        faults: at most so many of each; what is drawn is at most five bad nodes and links together.
        sizes: of the gangs, the logarithm drawn evenly between.
        leaders: chance that the leader changes in each round.
    """

    name: str
    part: float
    faults: Faults
    sizes: tuple[int, int] = (8, 2048)
    leaders: float = 0.0
    lost: float = 0.0


CASES = (
    Case("bad nodes and links, deaths, leaders", 0.35, Faults(nodes=5, links=5, deaths=2), leaders=0.3, lost=0.03),
    Case("bad nodes, links and uplinks, leaders", 0.05, Faults(nodes=5, links=5, uplinks=5), leaders=0.3, lost=0.03),
    Case("bad nodes", 0.25, Faults(nodes=5)),
    Case("nothing bad", 0.10, Faults()),
    Case("bad links", 0.05, Faults(links=5)),
    Case("slow leaf", 0.05, Faults(leaf=True), (64, 512)),
    Case("slow leaf and bad nodes", 0.05, Faults(leaf=True, nodes=3), (64, 512)),
    Case("slow spine", 0.05, Faults(spine=True), (64, 512)),
    Case("30 to 60 % bad alike", 0.05, Faults(alike=0.6), (16, 512), leaders=0.2),
)


@dataclass
class Spent:
    """What one burn-in took; of the plans the longest."""

    slots: int = 0
    tests: int = 0
    leaders: int = 0
    plan_seconds: float = 0.0
    verdict_seconds: float = 0.0


def drawn(random: Random, case: Case, size: int) -> Faults:
    """How many of each there are in one gang: at most a quarter of it together."""
    faults = case.faults
    kinds = [kind for kind in ("nodes", "links", "uplinks") if getattr(faults, kind)]
    counts = Counter(
        random.choices(kinds, k=min(size // 4, random.randint(0, max(getattr(faults, kind) for kind in kinds))))
        if kinds
        else ()
    )
    alike = random.uniform(0.3, faults.alike) if faults.alike else 0.0
    deaths = random.randint(0, faults.deaths)
    return replace(
        faults, nodes=counts["nodes"], links=counts["links"], uplinks=counts["uplinks"], deaths=deaths, alike=alike
    )


def run(made: Gang, faults: Faults, seed: str, case: Case) -> tuple[BurnInVerdict, list[PairOutcome], Spent]:
    """One burn-in from the first round to the verdict."""
    random, outcomes, late = made.random, list[PairOutcome](), list[PairOutcome]()
    known, spent = thresholds(made), Spent()
    members: Sequence[BurnInMember] = made.members
    while True:
        begun = time.process_time()
        due = next_round(members, seed, outcomes, known)
        spent.plan_seconds = max(spent.plan_seconds, time.process_time() - begun)
        if due is None:
            break
        if not outcomes and faults.links:
            cut(made, [(pair.a, pair.b) for slot in due.slots for pair in slot], faults.links)
        spent.slots += len(due.slots)
        pairs = [pair for slot in due.slots for pair in slot]
        spent.tests += len(pairs)
        if random.random() < case.leaders:
            done = random.sample(pairs, len(pairs) * random.randrange(1, 4) // 4)
            outcomes, held = handed_over(random, outcomes + tests(made, done, due.number), case.lost)
            late += held
            spent.leaders += 1
            continue
        outcomes += tests(made, pairs, due.number) + late
        late = []
    begun = time.process_time()
    verdict = reach_verdict(BurnInEvidence(MemberTopology(members), merge_outcomes(outcomes), known))
    spent.verdict_seconds = time.process_time() - begun
    return verdict, outcomes, spent


def tests(made: Gang, pairs: Sequence[Pair], number: int) -> list[PairOutcome]:
    """The tests of some pairs of a round."""
    return [made.test(pair.a, pair.b, number) for pair in pairs]


def handed_over(
    random: Random, outcomes: Sequence[PairOutcome], lost: float
) -> tuple[list[PairOutcome], list[PairOutcome]]:
    """What a new leader hears at once, and what comes later: in another order, some twice, some never."""
    known, late = list[PairOutcome](), list[PairOutcome]()
    for outcome in outcomes:
        chance = random.random()
        if chance < lost:
            continue
        (late if chance < 2 * lost else known).append(outcome)
        if chance > 1 - lost:
            known.append(replace(outcome, a=outcome.b, b=outcome.a))
    random.shuffle(known)
    return known, late


def tally(made: Gang, verdict: BurnInVerdict, outcomes: Sequence[PairOutcome], spent: Spent) -> Counter[str]:
    """One gang counted against the truth."""
    blamed = {fail.node for fail in verdict.failed}
    bad = set(made.bad)
    ran = {frozenset((each.a, each.b)) for each in outcomes if each.how is How.RESULT}
    named = {frozenset(pair) for part in verdict.shared for pair in part.pairs}
    cut_links = [link for link in made.links if link in ran]
    counts = Counter({"gangs": 1, "bad": len(bad), "healthy": len(made.members) - len(bad), "wrong": len(blamed - bad)})
    counts["wrong gangs"] = bool(blamed - bad)
    counts["right"] = len(blamed & bad)
    counts["exact"] = blamed == bad
    counts["links"], counts["links named"] = len(cut_links), sum(link in named for link in cut_links)
    counts["parts"] = len(verdict.shared)
    counts["inconclusive"] = verdict.outcome is Outcome.INCONCLUSIVE
    parts = {part.part for part in verdict.shared}
    places = {part.domain[:2] for part in verdict.shared if part.part in (Part.DOMAIN, Part.UPLINKS)}
    counts["leaf named"] = bool(made.slow_leaf) and made.slow_leaf in places  # as a whole, or what leads out of it
    counts["spine named"] = Part.FABRIC in parts
    rounds = max((each.round for each in outcomes), default=0)
    counts[f"rounds {rounds}"], counts["rounds"] = 1, rounds
    counts.update(slots=spent.slots, tests=spent.tests, leaders=spent.leaders)
    return counts


def campaign(noise: Noise, case: Case, gangs: int, seed: int) -> Row:
    """Many gangs of one case under one noise."""
    total, slowest, most = Counter[str](), Spent(), 0
    for number in range(gangs):
        random = Random(f"{seed}/{noise.name}/{case.name}/{number}")
        low, high = case.sizes
        size = round(math.exp(random.uniform(math.log(low), math.log(high))))
        faults = drawn(random, case, size)
        made = gang(random, size, noise, faults)
        verdict, outcomes, spent = run(made, faults, f"uid-{number}/1", case)
        counted = tally(made, verdict, outcomes, spent)
        most = max(most, counted["rounds"])
        total.update(counted)
        slowest.plan_seconds = max(slowest.plan_seconds, spent.plan_seconds)
        slowest.verdict_seconds = max(slowest.verdict_seconds, spent.verdict_seconds)
    return row(noise, case, total, slowest, most)


def row(noise: Noise, case: Case, total: Counter[str], slowest: Spent, most: int) -> Row:
    """The shares that the goals are about."""

    def part(key: str, of: str) -> float | None:
        return total[key] / total[of] if total[of] else None

    shares = {
        "right": part("right", "bad"),
        "blamed": part("wrong", "healthy"),
        "gangs_with_wrong": part("wrong gangs", "gangs"),
        "exact_gangs": part("exact", "gangs"),
        "links_named": part("links named", "links"),
        "inconclusive": part("inconclusive", "gangs"),
        "leaf_named": part("leaf named", "gangs") if case.faults.leaf else None,
        "spine_named": part("spine named", "gangs") if case.faults.spine else None,
        "mean_rounds": part("rounds", "gangs"),
        "mean_slots": part("slots", "gangs"),
        "most_rounds": most,
        "slowest_plan_s": round(slowest.plan_seconds, 4),
        "slowest_judge_s": round(slowest.verdict_seconds, 4),
    }
    return {"noise": noise.name, "case": case.name, **shares, "counts": dict(sorted(total.items()))}


def line(each: Row) -> str:
    """One row for people."""

    def percent(key: str, digits: int = 2) -> str:
        return "-" if each[key] is None else f"{100 * each[key]:.{digits}f}"

    named = percent("leaf_named") if each["leaf_named"] is not None else percent("spine_named")
    counts = each["counts"]
    return (
        f"{each['noise']:14}{each['case']:48}{counts['gangs']:6} gangs  right {percent('right'):>6} of "
        f"{counts['bad']:<6}wrong {counts['wrong']:3} ({percent('blamed', 4)} %)  links {percent('links_named'):>6}  "
        f"named {named:>6}  inconclusive {percent('inconclusive', 1):>5}  rounds {each['mean_rounds']:.2f} (most "
        f"{each['most_rounds']})  plan {each['slowest_plan_s']:.2f} s, judge {each['slowest_judge_s']:.2f} s"
    )


def main() -> None:
    """Measure."""
    gc.set_threshold(*COLLECT_AFTER)  # as in the operator
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=GANGS, help="in all, over the noises")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rows = []
    for noise in NOISES:
        for case in CASES:
            rows.append(campaign(noise, case, max(1, round(arguments.gangs * case.part / len(NOISES))), arguments.seed))
            print(line(rows[-1]), flush=True)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({**facts(), "goals": GOALS, "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
