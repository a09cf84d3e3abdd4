"""The command line: `make attack FAULTS=build/simulate/17.json`, `make attack SEED=5 MINUTES=3`."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from attack.faults import MAKERS, ON_THE_WAY
from attack.play import QUIET_SECONDS, Outcome, Player, finish, play_list, play_seed
from attack.stage import CHAOS, opened
from attack.way import Way, restore, routed_through_proxy
from simulate import stories
from simulate.play import Story
from testbed.bed import ROOT, Bed

OUTPUT = ROOT / "build" / "attack"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 when nothing was violated, 1 when something was, 2 when nothing could be played."""
    asked = _parser().parse_args(arguments)
    chaos = sorted(CHAOS) if asked.chaos == "all" else [one for one in asked.chaos.split(",") if one]
    if set(chaos) - set(CHAOS):
        print(f"--chaos {asked.chaos}: there are {', '.join(sorted(CHAOS))}, and `all`", file=sys.stderr)
        return 2
    told = None
    if asked.faults is not None:
        try:
            told = stories.read(asked.faults)
        except stories.StoryError as error:
            print(error, file=sys.stderr)
            return 2
    bed = Bed.open()
    bed.cluster  # noqa: B018 - somebody else's nodes are not attacked: it says so
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # and put all back on the way
    restore(bed)
    if not asked.installed:
        bed.install()
    if told is not None:
        name, story, seconds = asked.faults.stem, told, 0.0
    else:
        seed = int(time.time()) if asked.seed is None else asked.seed
        name, story, seconds = str(seed), Story(seed, []), asked.minutes * 60
        if not asked.chaos:
            chaos = some_chaos(seed)
    with _way(bed, story, seconds) as way:
        outcome = attack(bed, story, name, chaos, seconds=seconds, quiet_seconds=asked.quiet, way=way)
    return int(bool(outcome.violations))


def _way(bed: Bed, story: Story, seconds: float) -> AbstractContextManager[Way | None]:
    return (
        routed_through_proxy(bed)
        if seconds or any(fault.kind in ON_THE_WAY for fault in story.faults)
        else nullcontext()
    )


def some_chaos(seed: int) -> list[str]:
    """What the trainer does wrong in the life of a seed."""
    return [one for one in sorted(CHAOS) if random.Random(f"{seed}{one}").random() < 0.5]


def attack(
    bed: Bed,
    story: Story,
    name: str,
    chaos: Sequence[str],
    *,
    seconds: float = 0,
    quiet_seconds: float = QUIET_SECONDS,
    way: Way | None = None,
) -> Outcome:
    """Play a story on an open bed, or with `seconds` faults at random for so long; keep what was played and seen."""
    unknown = sorted({fault.kind for fault in story.faults} - set(MAKERS))
    if unknown:
        print(f"skipped, for they cannot be made here: {', '.join(unknown)}", flush=True)
    print(f"{name}: chaos of the trainer: {', '.join(chaos) or 'none'}", flush=True)
    with opened(bed, chaos, way) as stage:
        player = Player(stage, say=lambda text: print(text, flush=True))
        if seconds:
            play_seed(player, story.seed, seconds)
        else:
            play_list(player, [fault for fault in story.faults if fault.kind in MAKERS])
        outcome = finish(player, quiet_seconds)
        _keep(name, outcome, story)
        for job in stage.jobs.values():
            text = "".join(path.read_text() for path in sorted(job.folder.glob("log-*.jsonl")))
            (OUTPUT / f"{name}-{job.name}.jsonl").write_text(text)
    print(json.dumps(outcome.to_json(), indent=1))
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print(f"what was played: {OUTPUT / name}.json; again with `make attack FAULTS={OUTPUT / name}.json`", flush=True)
    return outcome


def _keep(name: str, outcome: Outcome, played: Story) -> None:
    faults = [made.fault for made in outcome.made if not made.why_not]
    stories.write(OUTPUT / f"{name}.json", replace(played, faults=faults), "; ".join(outcome.violations[:3]))
    (OUTPUT / f"{name}-outcome.json").write_text(json.dumps(outcome.to_json(), indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attack", description="The simulator's faults, on the real local cluster.")
    parser.add_argument("--faults", type=Path, help="a story, as `make simulate` keeps it")
    parser.add_argument("--seed", type=int, default=None, help="draw faults at random; default: by the clock")
    parser.add_argument("--minutes", type=float, default=3.0, help="of random faults")
    parser.add_argument("--chaos", default="", help=f"what the trainer does wrong: all, or some of {','.join(CHAOS)}")
    parser.add_argument("--quiet", type=float, default=QUIET_SECONDS, help="seconds for the jobs to end, once repaired")
    parser.add_argument("--installed", action="store_true", help="Muster is there already: do not install it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
