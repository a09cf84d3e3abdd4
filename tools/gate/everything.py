"""`make test-all`: every part, going on after a failure, with one table at the end.

Results are kept by commit: on a clean tree a run that was interrupted goes on where it stopped, and a part that has
passed on this commit is not run again (AGAIN=1 runs it). PART=name runs one part, PART=oldest the one that was not run
for longest, on whatever commit that was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gate import kept, results
from gate.parts import PARTS, Part
from gate.stage import INTERRUPTED, REFUSED, ROOT, Outcome, Stage, call, refusal, report, run, table, take_signals

OLDEST = "oldest"
CLUSTER = "nightly"
_LOCALCLUSTER = (sys.executable, "-m", "localcluster")


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    chosen = _chosen(options.part)
    if problem := refusal(needs_root=any(part.name.startswith("e2e") for part in chosen)):
        print(f"make test-all: {problem}", file=sys.stderr)
        return REFUSED
    commit = kept.clean_commit()
    outcomes: list[Outcome] = []
    interrupted = ""
    for part in chosen:
        before = None if options.again or options.part else _kept(commit, part)
        if before is not None and before.passed:
            print(f"{part.name}: passed on this commit before, {before.wall_seconds:.0f} s")
            outcomes.append(before)
            continue
        seed = random.SystemRandom().randrange(1, 2**31) if part.draws else None
        try:
            outcome = _run(part, seed)
        except KeyboardInterrupt:
            interrupted = part.name
            break
        outcomes.append(outcome)
        if kept.clean_commit() != commit:  # an edit while it ran makes the result nobody's
            commit = None
        _keep(commit, outcome, seed)
        report(outcome)
    print(table(outcomes))
    if commit is None:
        kept_as = _folder(commit).name
        print(f"The tree is or was edited, or git cannot say: results are kept as {kept_as}, not as a commit's.")
    if interrupted:
        print(f"Interrupted in {interrupted}: it has no result. The same command goes on there.")
        return INTERRUPTED
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _run(part: Part, seed: int | None) -> Outcome:
    """Run the part; its cluster is taken down whatever happens."""
    environment = _environment(part, seed)
    try:
        (outcome,) = run([Stage(part.name, _command(part, seed), environment, part.has_tests)])
        return outcome
    finally:
        if part.nodes:
            call([*_LOCALCLUSTER, "down", "--name", CLUSTER], environment)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gate.everything", description="Run every part of the tests.")
    names = [part.name for part in PARTS]
    parser.add_argument("--part", default="", metavar="NAME", help=f"{OLDEST}, or one of {', '.join(names)}")
    parser.add_argument("--again", action="store_true", help="also what has passed on this commit")
    options = parser.parse_args(arguments)
    if options.part not in ("", OLDEST, *names):
        parser.error(f"PART={options.part}: no such part. Give {OLDEST}, or one of {', '.join(names)}.")
    return options


def _chosen(part: str) -> list[Part]:
    if part == OLDEST:
        return [min(PARTS, key=_last_run)]
    return [each for each in PARTS if part in ("", each.name)]


def _last_run(part: Part) -> float:
    """When the part ended last, on any commit, in seconds since 1970; 0 for never."""
    files = kept.parts_folder().glob(f"*/{part.name}.json")
    return max((path.stat().st_mtime for path in files), default=0.0)


def _folder(commit: str | None) -> Path:
    return kept.parts_folder() / (commit or "not-clean")


def _kept(commit: str | None, part: Part) -> Outcome | None:
    path = _folder(commit) / f"{part.name}.json"
    if commit is None or not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return Outcome(part.name, found["code"], found["wallSeconds"], found["cpuSeconds"], found["results"])


def _keep(commit: str | None, outcome: Outcome, seed: int | None) -> None:
    content = {**outcome.as_json(), "results": outcome.tests, "ended": int(time.time())}
    if seed is not None:
        content["seed"] = seed
    kept.write(_folder(commit) / f"{outcome.name}.json", content)


def _environment(part: Part, seed: int | None) -> dict[str, str]:
    path = os.pathsep.join(str(ROOT / folder) for folder in ("operator", "tools"))
    variables = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}  # as the Makefile has it
    if part.nodes:
        variables["CLUSTER_NAME"] = CLUSTER
    if part.api_server:
        variables["API_SERVER"] = part.api_server
    if seed is not None:
        variables["MUSTER_SEED"] = str(seed)
    return variables


def _command(part: Part, seed: int | None) -> list[str]:
    if part.target:
        return part.make()
    python = f"{_venv()}/bin/python"
    test = [python, "-m", "pytest", "-p", results.__name__, "-q", *part.tests, *part.pytest]
    if part.workers > 1:
        test += ["-n", str(part.workers)]
    if seed is not None:
        test += [f"--hypothesis-seed={seed}"]
    if part.is_unit:
        return [*test, "--hypothesis-profile=nightly"]
    binaries = ["make", "--no-print-directory", "binaries"]  # in a test, the build would be under the test's time limit
    if not part.nodes:
        return _one_after_another(binaries, test)
    images = [sys.executable, "-m", "imagebuild"]
    up = [*_LOCALCLUSTER, "up", "--name", CLUSTER, "--nodes", str(part.nodes), "--from", "build/images/images.json"]
    return _one_after_another(images, up, test)


def _one_after_another(*commands: list[str]) -> list[str]:
    """One command that runs these until one fails."""
    return ["bash", "-c", " && ".join(map(shlex.join, commands))]


def _venv() -> str:
    return subprocess.run([str(ROOT / "tools" / "venv.sh")], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    take_signals()
    sys.exit(main())
