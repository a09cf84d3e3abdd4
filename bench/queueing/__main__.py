"""`python -m bench.queueing`: how long jobs wait in Muster's queue and in others, into build/bench/queue.json.

The shipped plan decides over weeks of jobs as clusters published them (`workload`), on a fleet whose nodes fail
(`cluster`); the others (`policies`) decide over the same jobs with the same placement and the same failures.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.facts import facts
from bench.queueing.cluster import CHECKPOINT_SECONDS, REPAIR_SECONDS, RESTART_SECONDS, Policy, simulate
from bench.queueing.outcome import figures_of, summary, table
from bench.queueing.policies import PLANNED_AHEAD, Conservative, Easy, Estimates, Fifo, NoReservations, Oracle
from bench.queueing.shipped import ALL_NODES, Muster
from bench.queueing.workload import LONGEST_SECONDS, SHORTEST_SECONDS, SMALL_NODES, WORKLOADS, draw
from muster.controller.settings import COLLECT_AFTER
from muster.whatif.rates import LLAMA3
from simulate.hashes import fix_hashes

OUTPUT = Path(__file__).resolve().parents[2] / "build" / "bench" / "queue.json"
POLICIES: dict[str, Callable[[], Policy]] = {
    "muster": Muster,
    "muster2": lambda: Muster(Estimates(2)),
    "muster-preemptible": lambda: Muster(None, preemptible_up_to=ALL_NODES),
    "muster2-preemptible": lambda: Muster(Estimates(2), preemptible_up_to=ALL_NODES),
    "muster2-small-preemptible": lambda: Muster(Estimates(2), preemptible_up_to=SMALL_NODES),
    "muster2-priority": lambda: Muster(Estimates(2), by_priority=True),
    "fifo": Fifo,
    "easy": lambda: Easy(1),
    "easy2": lambda: Easy(2),
    "easy2-priority": lambda: Easy(2, by_priority=True),
    "easy5": lambda: Easy(5),
    "conservative": lambda: Conservative(2),
    "none": NoReservations,
    "oracle": Oracle,
}
DEFAULT = ["kalos", "helios", "philly", "pai"]
"""Seren's queue grows to thousands of jobs, of which each plan that is timed takes a second."""
WIDE = 240
"""Columns of the printed tables, also where the output is no terminal."""


def measure(arguments: argparse.Namespace, workload: str, required: float, console: Console) -> dict[str, Any]:
    """All policies over the same jobs, seed by seed."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        jobs = draw(workload, seed, arguments.nodes, arguments.days, arguments.load, required)
        for name in arguments.policies:
            policy = POLICIES[name]()
            begun = time.process_time()
            simulation = simulate(policy, jobs, arguments.nodes, arguments.days, seed)
            figures = figures_of(simulation, policy, arguments.days)
            found.setdefault(policy.name, []).append(figures | {"cpu_s": time.process_time() - begun})
            console.print(f"{workload}, seed {seed}: {policy.name} {figures['small_mean_h']:.2f} h", style="dim")
    return {name: summary(runs) for name, runs in found.items()}


def main() -> None:
    """Measure, print, and write."""
    fix_hashes("bench.queueing")
    gc.set_threshold(*COLLECT_AFTER)  # as in the operator
    arguments = _arguments()
    console = Console(width=WIDE)
    cases = []
    for required in arguments.required:
        for workload in arguments.workloads:
            rows = measure(arguments, workload, required, console)
            cases.append({"workload": workload, "required": required, "queues": rows})
            text = f", {required:.0%} of the jobs of 2 to 32 nodes in one domain" if required else ""
            title = f"{workload}, {arguments.nodes} nodes, {arguments.days:g} days, load {arguments.load:.0%}{text}"
            console.print(table(f"{title}: min / median / max of {arguments.seeds} seeds", rows))
            _write(arguments, cases)
    console.print(f"written: {OUTPUT}")


def _write(arguments: argparse.Namespace, cases: Sequence[dict[str, Any]]) -> None:
    settings = {
        "nodes": arguments.nodes,
        "days": arguments.days,
        "load": arguments.load,
        "seeds": list(range(arguments.seed, arguments.seed + arguments.seeds)),
        "node_mttf_days": LLAMA3.mttf_days,
        "repair_seconds": REPAIR_SECONDS,
        "checkpoint_seconds": CHECKPOINT_SECONDS,
        "restart_seconds": RESTART_SECONDS,
        "job_seconds": [SHORTEST_SECONDS, LONGEST_SECONDS],
        "planned_ahead": PLANNED_AHEAD,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({**facts(), "settings": settings, "cases": cases}, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--days", type=float, default=30.0, help="in which jobs come; each works to its end")
    parser.add_argument("--load", type=float, default=0.85, help="node time of all jobs, as a share of the fleet's")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workloads", type=_names(WORKLOADS), default=DEFAULT)
    parser.add_argument("--policies", type=_names(POLICIES), default=list(POLICIES))
    parser.add_argument(
        "--required",
        type=lambda text: [float(share) for share in text.split(",")],
        default=[0.0],
        help="shares of the jobs of 2 to 32 nodes that must lie in one rack or block, one case for each",
    )
    return parser.parse_args()


def _names(known: Sequence[str] | dict[str, Any]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


if __name__ == "__main__":
    main()
