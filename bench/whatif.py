"""`python -m bench.whatif`: what an answer of `kubectl muster what-if` takes of a core, into build/bench/what-if.json.

Llama 3's published rates over 54 days, as many lives as the command lives by default; each answer with all that it
compares.
"""

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.bed import ROOT
from bench.facts import facts
from muster.cli.whatif import dice
from muster.whatif.answer import answer
from muster.whatif.plan import Plan, usual_start_seconds
from muster.whatif.rates import LLAMA3

OUTPUT = ROOT / "build" / "bench" / "what-if.json"
LIVES = 100


@dataclass(frozen=True)
class Case:
    """A size, and what its answer may take."""

    gpus: int
    spares: int
    goal_cpu_s: float


CASES = (Case(1024, 2, 600.0), Case(16384, 8, 600.0), Case(131072, 32, 3600.0))


def plan_of(case: Case) -> Plan:
    """The gang of a case, with the command's defaults."""
    return Plan(
        nodes=case.gpus // 8,
        mttf_days=LLAMA3.mttf_days,
        spares=case.spares,
        repair_seconds=2.2 * 3600,
        checkpoint_seconds=600.0,
        save_seconds=10.0,
        step_seconds=4.0,
        hang_seconds=600.0,
        pod_seconds=120.0,
        start_seconds=usual_start_seconds(case.gpus),
    )


def measure(case: Case) -> dict[str, Any]:
    """One row."""
    begun = time.process_time()
    found = answer(plan_of(case), LLAMA3, dice(1), LIVES)
    cpu = time.process_time() - begun
    return {
        "gpus": case.gpus,
        "spares": case.spares,
        "failures_per_life": round(sum(row.failures for row in found.causes), 1),
        "cpu_s": round(cpu, 2),
        "goal_cpu_s": case.goal_cpu_s,
        "met": cpu <= case.goal_cpu_s,
        "ettr": found.ettr.to_json(),
        "closed_form_ettr": found.closed_form_ettr,
        "best_checkpoint_seconds": found.best_checkpoint_seconds,
    }


def main() -> int:
    """Measure all sizes; 1 when a goal was missed."""
    rows = [measure(case) for case in CASES]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"facts": facts(), "lives": LIVES, "days": 54, "rows": rows}, indent=2) + "\n")
    for row in rows:
        ettr = row["ettr"]
        print(
            f"{row['gpus']:>7} GPUs: {row['cpu_s']:6.2f} s of a core (goal {row['goal_cpu_s']:.0f} s), ETTR "
            f"{100 * ettr['mean']:.2f} % ({100 * ettr['low']:.2f} to {100 * ettr['high']:.2f}), closed form "
            f"{100 * row['closed_form_ettr']:.2f} %"
        )
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
