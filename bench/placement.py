"""`python -m bench.placement`: how long placement takes on large fleets, into build/bench/placement.json.

With `--streams N` the table of docs/placement.md instead: N streams of jobs beside Kueue's documented rules.
"""

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from tests.unit.lifecycle.builders import a_fleet, a_node
from tests.unit.placement.streams import MUSTER, RULES, SYSTEMS, compared, tallied

from bench.facts import facts
from muster.controller.settings import COLLECT_AFTER
from muster.placement.eligibility import Requirements
from muster.placement.names import promised_refusal, reserved_refusal
from muster.placement.parts import at_once
from muster.placement.reasons import INSUFFICIENT_NODES
from muster.placement.request import Request
from muster.placement.space import Space, prepare_trees, solve
from muster.placement.where import domain_counts
from muster.queueing.ends import EndBasis, JobEnd, RemainingTime
from muster.queueing.lending import lending_offer
from muster.queueing.preemption import Borrower, Preemption, Victim
from muster.queueing.queue import plan_steps
from muster.queueing.starts import MAX_ESTIMATED, Ends, start_times
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed, Refusal, RefusalKind

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "bench" / "placement.json"
LEVELS = [("superpod", "superpod"), ("block", "block"), ("rack", "rack")]
LARGE = (16, 16, 4, 16)  # superpods, blocks in each, racks in each, nodes in each
SMALL = (2, 16, 4, 16)
NEEDS = Requirements(8, {}, {})
QUEUED = datetime(2026, 1, 31, 12, tzinfo=UTC)
GANG = 2048
STEPS = 40  # jobs in each stream
Row = dict[str, Any]


@dataclass(frozen=True)
class Fill:
    """How a fleet is occupied before a gang is placed: by the first so many nodes, or by a share at random."""

    name: str
    packed: int = 0
    share: float = 0.0


FILLS = (Fill("empty"), Fill("packed", packed=5000), Fill("random 30 %", share=0.3), Fill("random 60 %", share=0.6))


def a_large_fleet(shape: Sequence[int], fill: Fill) -> Fleet:
    """A fleet of equal domains, its nodes numbered along the fabric, filled by jobs of 64 nodes."""
    random, names, holders = Random(1), [], {}
    superpods, blocks, racks, nodes = shape
    for place in range(superpods * blocks * racks * nodes):
        rack = place // nodes
        labels = {"superpod": f"s{rack // racks // blocks}", "block": f"b{rack // racks % blocks}"}
        names.append(a_node(f"gpu-{place}", labels=labels | {"rack": f"r{rack % racks}"}))
        if place < fill.packed or random.random() < fill.share:
            holders[f"gpu-{place}"] = frozenset({f"job-{place // 64}"})
    return a_fleet(names, LEVELS, holders=holders)


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """How long it takes: by the clock, and of a core."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def figures(runs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Milliseconds of several runs."""
    clock, core = ([round(value * 1000, 3) for value in values] for values in zip(*runs, strict=True))
    return {"ms": _spread(clock), "core_ms": _spread(core)}


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "runs": list(values)}


def decisions(fill: Fill, spares: int, runs: int) -> list[Row]:
    """A gang, and the replacement of three of its nodes, on a fleet of which 20 nodes change before each decision."""
    fleet, random = a_large_fleet(LARGE, fill), Random(2)
    names = sorted(fleet.nodes)
    request = Request(GANG, NEEDS, "gang", spares=spares)
    row = {"nodes": len(names), "fleet": fill.name, "spares": spares}

    def change() -> None:
        for name in random.sample(names, 20):
            fleet.occupy(("other", name), "other", frozenset({name} if random.random() < 0.5 else ()))

    parts = timed_steps(chain(prepare_trees(fleet, request), Space(fleet).solve(request)))
    cold = sum(clock for clock, _ in parts), sum(core for _, core in parts)
    longest = max(clock for clock, _ in parts), max(core for _, core in parts)
    warm = []
    for _ in range(runs):
        change()
        warm.append(seconds(lambda: solve(fleet, request)))
    beside = []
    for _ in range(runs):
        change()
        solve(fleet, replace(request, count=8))
        beside.append(seconds(lambda: solve(fleet, request)))
    answer = solve(fleet, request)
    assert isinstance(answer, Placed), answer
    fleet.occupy("gang", "gang", frozenset((*answer.nodes, *answer.spares)))
    lost = answer.nodes[:: GANG // 3 + 1]
    kept = tuple(name for name in answer.nodes if name not in lost)
    needs = Requirements(
        8, {}, dict.fromkeys(lost, Refusal(RefusalKind.AVOIDED_AFTER_FAILURE, "avoided after a failure there"))
    )
    replacement = Request(len(lost), needs, "gang", kept=kept)
    solve(fleet, replacement)
    again = []
    for _ in range(runs):
        change()
        again.append(seconds(lambda: solve(fleet, replacement)))
    return [
        {**row, "case": "gang, first decision", "size": GANG, **figures([cold]), "longest_step": figures([longest])},
        {**row, "case": "gang", "size": GANG, **figures(warm), "domains": domain_counts(fleet, answer.nodes)},
        {**row, "case": "gang after one of 8", "size": GANG, **figures(beside)},
        {**row, "case": "replacement", "size": len(lost), **figures(again)},
    ]


def plan(runs: int) -> Row:
    """1,000 waiting jobs on 2,048 nodes, most of which find no place, as the queue asks: one space, takings after
    each."""
    random = Random(3)
    requests = [
        Request(
            random.choice([1, 4, 16, 64, 256, 512]),
            NEEDS,
            f"job-{number}",
            required=random.choice([None, "block", "rack"]),
        )
        for number in range(1000)
    ]
    fleet = a_large_fleet(SMALL, Fill("random 60 %", share=0.6))

    def work() -> int:
        space, placed = Space(fleet), 0
        for request in requests:
            answer = at_once(space.solve(request))
            if isinstance(answer, NotPlaced):
                space.reserve_nodes(at_once(space.reservation(request)), reserved_refusal(f"default/{request.job_uid}"))
            else:
                placed += 1
                space.reserve_nodes(answer.nodes, promised_refusal(f"default/{request.job_uid}"))
        return placed

    placed = work()
    times = [seconds(work) for _ in range(runs)]
    return {"nodes": len(fleet.nodes), "case": "plan", "size": len(requests), "placed": placed, **figures(times)}


def queue_of(kind: str, count: int) -> list[WaitingJob]:
    """Waiting jobs whose workers differ in what their nodes must be like, so that no two share a look at the fleet."""
    found = []
    for number in range(count):
        spec: dict[str, Any] = {}
        requests: dict[str, int] = {}
        if kind != "requests":
            spec["tolerations"] = [{"key": f"team-{number}", "operator": "Exists"}]
        if kind == "selectors":
            spec["nodeSelector"] = {"superpod": f"s{number % 2}"}
        if kind == "requests":
            requests["cpu"] = 1000 + number
        needs, name = Requirements(8, spec, {}, requests), f"job-{number}"
        level = (None, "block", "rack")[number % 3]
        request = Request(16 if number % 3 else 64, needs, name, required=level, viewer="default")
        found.append(WaitingJob(name, f"default/{name}", "default", 0, QUEUED, request))
    return found


def _next(asked: Iterator[Any], over: list[bool]) -> None:
    try:
        next(asked)
    except StopIteration:
        over.append(True)


def steps(shape: Sequence[int], kind: str, count: int, runs: int) -> Row:
    """A plan for jobs of which each needs a look of its own: all of it, and the longest time without a pause."""
    times = [
        timed_steps(plan_steps(a_large_fleet(shape, Fill("random 60 %", share=0.6)), queue_of(kind, count)))
        for _ in range(runs)
    ]
    row = {"nodes": math.prod(shape), "case": f"queue, own {kind}", "size": count}
    return {**row, **figures_of_steps(times)}


def timed_steps(plan: Iterator[Any]) -> list[tuple[float, float]]:
    """How long each step of a plan takes: by the clock, and of a core."""
    times, over = list[tuple[float, float]](), list[bool]()
    while not over:
        times.append(seconds(partial(_next, plan, over)))
    return times


def figures_of_steps(runs: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Milliseconds of several plans, and of the longest step of each."""
    clocks, cores = [[[each[part] for each in times] for times in runs] for part in (0, 1)]
    longest = figures([*zip(map(max, clocks), map(max, cores), strict=True)])
    return {**figures([*zip(map(sum, clocks), map(sum, cores), strict=True)]), "longest_step": longest}


def giving_way(runs: int) -> Row:
    """1,000 waiting jobs for which 1,920 jobs of one node each would give way, but one more in each rack does not."""
    fleet, rack = a_large_fleet(SMALL, FILLS[0]), SMALL[-1]
    lent = {f"lent-{place}": name for place, name in enumerate(fleet.nodes) if place % rack}
    for uid, name in lent.items():
        fleet.occupy(uid, uid, frozenset({name}))
    for name in [*fleet.nodes][::rack]:
        fleet.occupy(name, "kept", frozenset({name}))
    request = Request(rack, NEEDS, "", required="rack", viewer="default")
    waiting = [
        WaitingJob(name, f"default/{name}", "default", 0, QUEUED, replace(request, job_uid=name))
        for name in [f"job-{number}" for number in range(1000)]
    ]
    jobs = {uid: Borrower(f"default/{uid}", QUEUED) for uid in lent}
    times = [timed_steps(plan_steps(fleet, waiting, preemption=Preemption(jobs))) for _ in range(runs)]
    return {"nodes": len(fleet.nodes), "case": "plan, none gives way", "size": len(waiting), **figures_of_steps(times)}


def beside_many_jobs(count: int, runs: int) -> list[Row]:
    """So many jobs of two nodes each, and 1,000 waiting ones: their plan if half of the others give way, if all are of
    lower priority, and if all waiting ones may pass the first; and when the first start if none of them has a place."""
    fleet, random = a_large_fleet(LARGE, FILLS[0]), Random(4)
    names, uids = [*fleet.nodes], [f"runs-{number}" for number in range(count)]
    for place, uid in enumerate(uids):
        fleet.occupy(uid, uid, frozenset(names[2 * place : 2 * place + 2]))
        fleet.set_name(uid, f"default/{uid}")
    waiting = []
    for name in [f"job-{number}" for number in range(1000)]:
        size = random.choice([1, 4, 16, 64, 256, 512, GANG, 3 * GANG])
        level = random.choice([None, None, "block", "rack"])
        request = Request(size, NEEDS, name, required=level, viewer="default")
        waiting.append(WaitingJob(name, f"default/{name}", "default", 0, QUEUED, request))
    borrowers = {uid: Borrower(f"default/{uid}", QUEUED) for uid in uids[::2]}
    ends = {uid: JobEnd(QUEUED + timedelta(minutes=place), EndBasis.EXPECTED, "") for place, uid in enumerate(uids)}
    lasts = Ends(ends.__getitem__, lambda _: RemainingTime(3600.0, EndBasis.EXPECTED, ""))
    first = [(job, NotPlaced(INSUFFICIENT_NODES, "")) for job in waiting[:MAX_ESTIMATED]]
    estimates = at_once(start_times(fleet, first, lasts, Preemption(), QUEUED))
    found = ((uid, lending_offer(estimate, QUEUED)) for uid, estimate in estimates.items())
    offers = {uid: offer for uid, offer in found if offer is not None}
    victims = {uid: Victim(f"default/{uid}", 0, 2, QUEUED, QUEUED) for uid in uids}
    urgent = [replace(job, priority=1, preempts_by="urgent") for job in waiting]
    passing = [replace(job, expected_seconds=3600.0) for job in waiting]
    # A plan fills in what it is told of the others: each run has its own.
    cases: dict[str, Callable[[], Iterator[Any]]] = {
        "plan, half give way": lambda: plan_steps(fleet, waiting, preemption=Preemption(borrowers)),
        "plan, all outranked": lambda: plan_steps(fleet, urgent, preemption=Preemption({}, victims, QUEUED)),
        "plan, all may pass": lambda: plan_steps(fleet, passing, preemption=Preemption(now=QUEUED), offers=offers),
        "start times": lambda: start_times(fleet, first, lasts, Preemption(borrowers), QUEUED),
    }
    row = {"nodes": len(names), "beside": count}
    sizes = {"start times": len(first)}
    return [
        {
            **row,
            "case": case,
            "size": sizes.get(case, len(waiting)),
            **figures_of_steps([timed_steps(made()) for _ in range(runs)]),
        }
        for case, made in cases.items()
    ]


def measure(runs: int) -> list[Row]:
    """All rows."""
    rows = [row for fill in FILLS for spares in (0, 2) for row in decisions(fill, spares, runs)]
    queues = [
        steps(shape, kind, count, min(runs, 3))
        for shape, count in ((SMALL, 400), (LARGE, 60))
        for kind in ("tolerations", "requests", "selectors")
    ]
    beside = [row for count in (8000, 5000) for row in beside_many_jobs(count, min(runs, 3))]
    return [*rows, plan(runs), giving_way(min(runs, 3)), *beside, *queues]


def streams(count: int) -> str:
    """The tables of docs/placement.md."""
    seeds = range(count)
    beside = compared(seeds, STEPS)
    lines = ["| beside | decisions | fewer domains | equal | more | only Muster finds a place | only the rule does |"]
    lines.append("|---|---|---|---|---|---|---|")
    for rule in RULES:
        found = beside[rule]
        equal = found.decisions - found.fewer - found.more
        cells = (found.decisions, found.fewer, equal, found.more, found.only_muster, found.only_rule)
        lines.append(f"| {rule} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    sums = tallied(seeds, STEPS)
    depths = sorted(sums[MUSTER].domains)
    names = "".join(f" domains at level {depth} |" for depth in depths)
    lines += ["", f"| system | jobs placed |{names} whole outermost domains free | largest one free | 3/4 of it |"]
    lines.append("|---|---|" + "---|" * (len(depths) + 3))
    for system in SYSTEMS:
        tally = sums[system]
        means = [f"{tally.domains[depth] / tally.at[depth]:.4f}" for depth in depths]
        room = [f"{value / tally.probes:.4f}" for value in (tally.whole, tally.largest, tally.most)]
        lines.append(f"| {system} | {tally.placed:,} | {' | '.join([*means, *room])} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or compare."""
    gc.set_threshold(*COLLECT_AFTER)  # as in the operator
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--streams", type=int, default=0, help="print the tables of so many streams instead")
    arguments = parser.parse_args()
    if arguments.streams:
        print(streams(arguments.streams))
        return
    rows = measure(arguments.runs)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({**facts(), "results": rows}, indent=2) + "\n")
    for row in rows:
        place = f"{row['case']:22}{row.get('fleet', row.get('beside', '')):<12} spares {row.get('spares', 0)}"
        longest = f", longest step {row['longest_step']['core_ms']['max']:.2f} ms" if "longest_step" in row else ""
        print(f"{place}  {row['ms']['median']:9.2f} ms, {row['core_ms']['median']:9.2f} ms of a core{longest}")


if __name__ == "__main__":
    main()
