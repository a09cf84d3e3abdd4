"""`make test`: the stages that must pass before a change lands, one after the other, and a table at the end.

The first stage that fails ends the run. On a clean tree the result is kept in `gate/<commit>.json` in the cache folder:
{"green": true or false, "stages": {...}, "failed": [...]}.
"""

from __future__ import annotations

import sys
import time

from gate import kept
from gate.parts import PARTS
from gate.stage import INTERRUPTED, REFUSED, Outcome, failed, refusal, report, run, table, take_signals

# Printed beside what was measured; a test of the gate judges no duration, and neither does this.
BUDGETS = {
    "lint": "120 s wall with verify",
    "verify": "",
    "unit": "480 s CPU",
    "integration": "300 s wall",
    "e2e": "720 s wall",
}


def main() -> int:
    if problem := refusal(needs_root=True):
        print(f"make test: {problem}", file=sys.stderr)
        return REFUSED
    commit = kept.clean_commit()
    outcomes: list[Outcome] = []
    try:
        for part in (part for part in PARTS if part.target):
            outcome = run(part.name, part.make(), has_tests=part.has_tests)
            outcomes.append(outcome)
            report(outcome)
            if not outcome.passed:
                break
    except KeyboardInterrupt:
        print(table(outcomes, BUDGETS))
        print(f"Interrupted in {part.name}: the gate has no result.")
        return INTERRUPTED
    green = all(outcome.passed for outcome in outcomes)
    print(table(outcomes, BUDGETS))
    if commit is None:
        print("The tree is not clean, or git cannot say: the result is not kept.")
    else:
        result = {
            "green": green,
            "stages": {outcome.name: outcome.as_json() for outcome in outcomes},
            "failed": failed(outcomes),
            "ended": int(time.time()),
        }
        if kept.clean_commit() == commit:  # an edit while it ran makes the result nobody's
            kept.write(kept.gate_file(commit), result)
    print("The gate is green." if green else f"The gate is red: {outcomes[-1].name} failed.")
    return 0 if green else 1


if __name__ == "__main__":
    take_signals()
    sys.exit(main())
