"""`python3 -m muster.node.checker.probes`: runs the node's part of a profile on this machine, and prints a table or
JSON.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any, Dict, List, Optional

from muster.node.checker.probes import node, outcome
from muster.node.checker.probes.prober import COMMAND, Prober, ZygoteError
from muster.protocol.profiles import PROFILES

_IMPORT_SECONDS = 120.0
_HIDDEN = frozenset({"gpus", "fingerprints", "sizes", "where", "patterns"})


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the probes. Return 0 when everything ran; 1 when there is a problem."""
    parser = argparse.ArgumentParser(prog="muster.node.checker.probes", description="Probe this machine.")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="Quick")
    parser.add_argument("--directory", help="try storage here, with a file that is removed again")
    parser.add_argument("--expected", type=int, help="how many GPUs there should be (default: whatever there is)")
    parser.add_argument("--json", action="store_true", help="all figures, for machines")
    parser.add_argument("--zygote", nargs=argparse.REMAINDER, default=COMMAND, help="another command for the zygote")
    options = parser.parse_args(arguments)
    tell = (lambda answer: None) if options.json else _print_answer
    try:
        prober = Prober(options.zygote)
        try:
            ready = prober.wait_until_ready(_IMPORT_SECONDS)
            findings = node.run(prober, PROFILES[options.profile], options.expected, options.directory, tell)
        finally:
            prober.close()
    except (OSError, ZygoteError) as error:
        print("nothing was probed: %s" % error, file=sys.stderr)
        return 1
    if options.json:
        whole = dataclasses.asdict(findings)
        whole.update(profile=options.profile, import_seconds=ready["import_seconds"], problems=findings.problems)
        print(json.dumps(whole, indent=2))
    else:
        _conclude(options.profile, ready, findings)
    return 1 if findings.problems else 0


def _print_answer(answer: Dict[str, Any]) -> None:
    """Print a line for each device."""
    for part in answer["parts"] or [answer]:
        name = "%s" % answer["probe"] + (" %d" % part["device"] if len(answer["parts"]) > 1 else "")
        shown = part.get("message") or _figures_text(part.get("figures", {}))
        print("%-14s %-16s %7.2f s  %s" % (name, part["outcome"], part["seconds"], shown), flush=True)
        for line in part.get("output", "").splitlines()[-3:] if part["outcome"] != outcome.DONE else ():
            print("%-14s | %s" % ("", line))
    given_back = answer.get("given_back", {"free": True})
    if given_back["free"] is not True:
        print("%-14s GPU memory is not free again: %s" % ("", given_back.get("message", "still in use")))


def _figures_text(figures: Dict[str, Any]) -> str:
    shown = []
    for name, value in figures.items():
        if isinstance(value, dict) and name not in _HIDDEN:
            shown.append("%s: %s" % (name, _figures_text(value)))
        elif name not in _HIDDEN and value is not None:
            shown.append("%s %s" % (name, "%.4g" % value if isinstance(value, float) else value))
    shown += [
        "%d KiB: best %.3g ms, median %.3g ms, %.3g GB/s"
        % (size["bytes"] // 1024, size["best_seconds"] * 1e3, size["median_seconds"] * 1e3, size["best_bus_gb_per_s"])
        for size in figures.get("sizes", ())
    ]
    shown += ["%s = %s" % item for item in figures.get("fingerprints", {}).items()]
    return ", ".join(shown)


def _conclude(profile: str, ready: Dict[str, Any], findings: node.Findings) -> None:
    print(
        "\n%s on %s: %.1f s, and %.1f s to import torch"
        % (profile, findings.device, findings.seconds, ready["import_seconds"])
    )
    print("compared with: %s" % ", ".join("%s %s" % item for item in sorted(findings.key.items()) if item[1]))
    for problem in findings.problems:
        print("problem: %s" % problem)


if __name__ == "__main__":
    sys.exit(main())
