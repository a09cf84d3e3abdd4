"""`make test`: the stages that must pass before a change lands, and a table at the end.

A stage that fails ends the run. On a clean tree the result is kept in `gate/<commit>.json` in the cache folder:
{"green": true or false, "stages": {...}, "failed": [...]}.
"""

from __future__ import annotations

import sys
import time

from gate import kept
from gate.parts import PARTS
from gate.stage import (
    INTERRUPTED,
    REFUSED,
    Interrupted,
    Outcome,
    Stage,
    failed,
    refusal,
    report,
    run,
    table,
    take_signals,
)

# Printed beside what was measured; a test of the gate judges no duration, and neither does this.
BUDGETS = {
    "lint": "120 s wall with verify",
    "verify": "",
    "unit": "480 s CPU",
    "integration": "480 s CPU",
    "e2e": "720 s wall",
}


# The lanes of a row run side by side, and a row after one that passed. End-to-end tests mostly wait; the others take
# what CPU they leave: integration tests first, since unit tests use the rest of it best once the others have ended.
ROWS = ((("lint", "verify"),), (("e2e",), ("integration", "unit")))


def main() -> int:
    if problem := refusal(needs_root=True):
        print(f"make test: {problem}", file=sys.stderr)
        return REFUSED
    began = time.monotonic()
    commit = kept.clean_commit()
    parts = {part.name: part for part in PARTS}
    outcomes: list[Outcome] = []
    for row in ROWS:
        lanes = [[Stage(name, parts[name].make(), has_tests=parts[name].has_tests) for name in lane] for lane in row]
        try:
            ended = run(*lanes)
        except Interrupted as interrupted:
            ended = [*outcomes, *interrupted.outcomes]
            print(table(ended, BUDGETS, time.monotonic() - began))
            names = [name for lane in row for name in lane if name not in [outcome.name for outcome in ended]]
            print(f"Interrupted: {', '.join(names)} did not end, so the gate has no result.")
            return INTERRUPTED
        outcomes += ended
        for outcome in ended:
            report(outcome)
        if not all(outcome.passed for outcome in ended):
            break
    red = [outcome.name for outcome in outcomes if not outcome.passed]
    wall = time.monotonic() - began
    print(table(outcomes, BUDGETS, wall))
    if commit is None:
        print("The tree is not clean, or git cannot say: the result is not kept.")
    else:
        result = {
            "green": not red,
            "stages": {outcome.name: outcome.as_json() for outcome in outcomes},
            "failed": failed(outcomes),
            "wallSeconds": round(wall, 1),
            "ended": int(time.time()),
        }
        if kept.clean_commit() == commit:  # an edit while it ran makes the result nobody's
            kept.write(kept.gate_file(commit), result)
    print(f"The gate is red: {' and '.join(red)} failed." if red else "The gate is green.")
    return 1 if red else 0


if __name__ == "__main__":
    take_signals()
    sys.exit(main())
