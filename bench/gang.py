"""`python -m bench.gang`: gangs of whole-node pods on KWOK, by Muster and by its peers, into build/bench/gang.json.

Each size has a control plane of its own with as many nodes; all systems run on it one after the other, alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import cases
from bench.bed import ROOT, Bed
from bench.facts import facts
from bench.figures import Measurement, Row, merged, row
from bench.goals import goals
from bench.peers.bare import Bare
from bench.peers.job import Job
from bench.peers.jobset import JobSet
from bench.peers.kueue import JobSetKueue
from bench.peers.muster import Muster
from bench.peers.system import System
from bench.plan import BINDINGS, CASES, MODES, RUNS, SIZES, SYSTEMS, Selection, Variant, runs_of, variants
from bench.podwatch import PodWatch
from bench.report import goals_table, rows_table
from localcluster.errors import LocalClusterError
from localcluster.kwok import KwokControlPlane

OUTPUT = ROOT / "build" / "bench" / "gang.json"
BARE_CONNECTIONS = (16, 32, 64)
_WIDTH = 200


def main() -> None:
    """Run what the command line asks for, and show what is known then."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    known = facts()
    kept = _kept(arguments.output, known)
    selection = Selection(arguments.systems, arguments.bindings, arguments.modes, arguments.cases, arguments.runs)
    try:
        for size in arguments.sizes:
            for rows in _size(size, selection):
                kept = merged(kept, rows)
                _save(arguments.output, {**known, "results": kept})
    except KeyboardInterrupt:
        sys.exit("stopped: what was measured until now is kept")
    except LocalClusterError as error:
        sys.exit(str(error))
    console = Console(width=_WIDTH)
    console.print(rows_table(kept), goals_table(goals(kept)))
    print(f"written: {os.path.relpath(arguments.output)}")


def _size(size: int, selection: Selection) -> Any:
    """The rows of one size, variant by variant."""
    wanted = [each for each in variants(selection) if any(runs_of(each, size, case, selection) for case in CASES)]
    if not wanted:
        return
    _say(f"{size} nodes ...")
    with KwokControlPlane.temporary_with(size) as cluster:
        bed = Bed(cluster, size)
        _warm_up(bed)
        for variant in wanted:
            started = time.monotonic()
            rows = _bare(bed, selection) if variant.system == "bare" else _variant(bed, variant, selection)
            _say(f"{size} {variant}: {time.monotonic() - started:.0f} s")
            yield rows


def _variant(bed: Bed, variant: Variant, selection: Selection) -> list[Row]:
    return _rows(_system(bed, variant), variant, selection, CASES)


def _bare(bed: Bed, selection: Selection) -> list[Row]:
    """The best of its settings, by the median of all bound."""
    variant = Variant("bare")
    starts = {
        connections: _measure(Bare(bed, connections), variant, selection, ("Start",))
        for connections in BARE_CONNECTIONS
    }
    if not all(measured["Start"] for measured in starts.values()):
        return []

    def typical(connections: int) -> float:
        bound = [run.bound_s for run in starts[connections]["Start"] if run.bound_s is not None]
        return statistics.median(bound) if bound else float("inf")

    best = min(starts, key=typical)
    system = Bare(bed, best)
    recovered = _measure(system, variant, selection, ("FailOnePod", "FailEightPods"))
    measured = {**starts[best], **{case: recovered[case] for case in cases.FAILED_PODS}}
    rows = [row(system.subject(case), runs) for case, runs in measured.items() if runs]
    for mode in selection.modes:
        rows += _rows(Bare(bed, best, mode), variant, selection, ("Start",))
    return rows


def _rows(system: System, variant: Variant, selection: Selection, wanted: Sequence[str]) -> list[Row]:
    measured = _measure(system, variant, selection, wanted)
    return [row(system.subject(case), runs) for case, runs in measured.items() if runs]


def _measure(
    system: System, variant: Variant, selection: Selection, wanted: Sequence[str]
) -> dict[str, list[Measurement]]:
    """The runs of each wanted case."""
    times = {case: runs_of(variant, system.bed.size, case, selection) if case in wanted else 0 for case in CASES}
    node_runs = times.pop("FailOneNode")
    measured: dict[str, list[Measurement]] = {case: [] for case in CASES}
    system.begin()
    try:
        with closing(PodWatch(system.bed.connect(), "bench")) as watch:
            stage = cases.Stage(system, watch)
            for run in range(max(times.values())):
                _gang(
                    stage,
                    {case for case, count in times.items() if run < count and not _hopeless(measured[case])},
                    measured,
                )
            for _ in range(node_runs):
                measured["FailOneNode"].append(_node(stage))
    finally:
        system.end()
    return measured


def _hopeless(runs: Sequence[Measurement]) -> bool:
    """The gang did not run again in time: another run would wait as long for the same answer."""
    return bool(runs) and runs[-1].running_s is None and runs[-1].recovery_s is None


def _gang(stage: cases.Stage, wanted: set[str], measured: dict[str, list[Measurement]]) -> None:
    """One gang: it starts, and what is to fail fails one after the other."""
    begun = cases.start(stage)
    if stage.system.watches and cases.settle(stage):
        begun = replace(begun, cpu_us_per_pod_event=cases.event_cost(stage))
    _print_case(stage, "Start", begun)
    if "Start" in wanted:
        measured["Start"].append(begun)
    for case, count in cases.FAILED_PODS.items():
        if case in wanted and cases.settle(stage):
            failed = cases.fail_pods(stage, count)
            _print_case(stage, case, failed)
            measured[case].append(failed)
    cases.remove(stage)


def _node(stage: cases.Stage) -> Measurement:
    """One gang that loses a node for good, with others beside to take its place."""
    bed = stage.system.bed
    bed.place_victim()
    spares: list[str] = []
    try:
        begun = cases.start(stage)
        spares = bed.add_spares()
        measured = cases.fail_node(stage, bed.cut_victim) if cases.settle(stage) else begun
        _print_case(stage, "FailOneNode", measured)
        return measured
    finally:
        # The nodes go last: pods of a node that is not there never end.
        bed.bury_victims_pods()
        cases.remove(stage)
        bed.remove_victim(spares)


def _warm_up(bed: Bed) -> None:
    """One gang that is not measured: the first one on a new control plane pays for what all others find there."""
    system = Bare(bed, BARE_CONNECTIONS[1])
    system.begin()
    try:
        with closing(PodWatch(bed.connect(), "bench")) as watch:
            stage = cases.Stage(system, watch)
            cases.start(stage)
            cases.remove(stage)
    finally:
        system.end()


def _system(bed: Bed, variant: Variant) -> System:
    if variant.system == "muster":
        assert variant.binding is not None
        assert variant.mode is not None
        return Muster(bed, variant.binding, variant.mode)
    kinds: dict[str, type[System]] = {"job": Job, "jobset": JobSet, "jobset+kueue": JobSetKueue}
    return kinds[variant.system](bed)


def _print_case(stage: cases.Stage, case: str, measured: Measurement) -> None:
    names = (
        "created_s",
        "bound_s",
        "running_s",
        "recovery_s",
        "cpu_s",
        "rss_mb",
        "writes_per_pod",
        "cpu_us_per_pod_event",
    )
    figures = ((name, getattr(measured, name)) for name in names)
    text = ", ".join(f"{name} {figure:.2f}" for name, figure in figures if figure is not None)
    notes = ", ".join(f"{key} {value}" for key, value in measured.notes.items())
    relists = f", {stage.watch.relists} relists" if stage.watch.relists else ""
    _say(f"  {stage.system.name} {stage.size} {case}: {text} ({notes}{relists})")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _kept(path: Path, known: dict[str, Any]) -> list[Row]:
    """The rows of earlier parts, when they are of the same Muster on the same machine."""
    if not path.exists():
        return []
    old = json.loads(path.read_text())
    same = all(old.get(key) == known[key] for key in ("versions", "machine", "client_limits"))
    return list(old["results"]) if same else []


def _save(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gang", description=__doc__)

    def choice(flag: str, known: Sequence[str]) -> None:
        parser.add_argument(flag, type=_some_of(known), default=tuple(known), help=f"default {','.join(known)}")

    choice("--systems", SYSTEMS)
    choice("--bindings", BINDINGS)
    choice("--modes", MODES)
    choice("--cases", CASES)
    sizes = ",".join(map(str, SIZES))
    parser.add_argument("--sizes", type=_sizes, default=_sizes(sizes), help=f"nodes, default {sizes}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each case, default {RUNS}")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


def _some_of(known: Sequence[str]) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        unknown = set(names) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
        return names

    return parse


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    main()
