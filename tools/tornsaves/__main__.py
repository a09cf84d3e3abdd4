"""`python -m tornsaves`: is what the scanner calls complete what the frameworks can load? Into
build/tornsaves/report.json.

For each framework of the recipes' image a program saves a few times under strace. Its changes of files are played again
up to 200 moments, and ten more runs are killed in the middle of a save. Each time the scanner says which checkpoint is
the newest complete one, and the framework itself tries to load every checkpoint that is there. What the scanner names
has to be loaded each time, and to be the newest that can be in 95 of 100. Needs root, for the image's files, and
strace.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localcluster.controlplane import free_port
from muster.node.checkpoint import find
from muster.node.checkpoint.find import Finder
from muster.protocol.checkpoint_names import order_candidates
from tornsaves import room
from tornsaves.trace import CALLS, MOST_BYTES, Change, changes, contents, play

OUTPUT = room.ROOT / "build" / "tornsaves" / "report.json"
CHECKPOINTS = {
    "torch": r"step-\d+",
    "hugging-face": r"checkpoint-\d+",
    "accelerate": r"checkpoint_\d+",
    "deepspeed": r"global_step\d+",
    "lightning": r".*\.ckpt",
    "orbax": r"\d+",
}
SAVES, MOMENTS, KILLS = 4, 200, 10
SHARE = 0.95  # of the answers are the newest that can be loaded
_PAUSE_SECONDS = 0.3
_LONGEST_SECONDS = 580.0


@dataclasses.dataclass(frozen=True)
class Moment:
    """What was there when a writer stopped, and what was said of it.

    Attributes:
        answer: the checkpoint that the scanner calls the newest complete one, "" = none.
        loadable: those that the framework loads, the newest first.
    """

    name: str
    answer: str
    loadable: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the answer can be loaded; none may be given at any time."""
        return not self.answer or self.answer in self.loadable

    @property
    def is_newest(self) -> bool:
        """Whether there is nothing newer that can be."""
        return self.answer == next(iter(self.loadable), "")


def newest_complete(directory: Path) -> str:
    """What the scanner says; nothing changes there any more, so it need not wait."""
    found = Finder(str(directory)).find(limit=1)
    return Path(found[0].path).name if found else ""


def checkpoints(framework: str, directory: Path) -> list[str]:
    """The names that the framework would take for checkpoints, the newest first."""
    names = [path.name for path in directory.iterdir() if re.fullmatch(CHECKPOINTS[framework], path.name)]
    return order_candidates(names)


class Writer:
    """Runs the program of one framework in the room."""

    def __init__(self, framework: str, house: Path, work: Path) -> None:
        self.framework, self._house, self._work = framework, house, work
        shutil.copytree(room.PROGRAMS, work / "programs")
        self.directory = work / "saves"

    def start(self, around: Sequence[str] = (), pause_seconds: float = 0.0) -> subprocess.Popen[bytes]:
        """It begins to save into an empty directory."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        set_ = ["env", f"PORT={free_port()}", f"PAUSE_SECONDS={pause_seconds}"]
        program = ["write.py", self.framework, f"{room.WORK}/saves", str(SAVES)]
        command = room.command(self._house, self._work, program, around, set_)
        with (self._work / "log").open("w") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def record(self) -> list[Change]:
        """Its changes, all of them: playing them gives the files that are there."""
        log = self._work / "trace"
        around = [
            "strace",
            "-f",
            "-y",
            "-ttt",
            "-xx",
            "-s",
            str(MOST_BYTES),
            "--seccomp-bpf",
            "-o",
            str(log),
            "-e",
            f"trace={CALLS}",
        ]
        process = self.start(around)
        if process.wait(_LONGEST_SECONDS) != 0:
            raise RuntimeError((self._work / "log").read_text()[-3000:])
        with log.open(errors="replace") as lines:
            done = changes(lines, contents(self.directory), f"{self._house}{room.WORK}/saves", f"{room.WORK}/saves")
        log.unlink()
        played = self._work / "played"
        play(done, played)
        if contents(played) != contents(self.directory):
            raise RuntimeError(f"{self.framework}: what was recorded is not all that was done")
        return done

    def killed(self, chance: random.Random) -> None:
        """It is ended by SIGKILL somewhere between its first save and its last."""
        process = self.start(pause_seconds=_PAUSE_SECONDS)
        until = time.monotonic() + _LONGEST_SECONDS
        wanted = chance.randint(2, SAVES)
        while process.poll() is None and len(self._seen()) < wanted and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.15)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _seen(self) -> set[str]:
        """Numbers of saves that have begun: also those that are written under another name first."""
        return {
            found[-1] for path in self.directory.iterdir() if (found := re.findall(r"\d+", path.name.split(".")[0]))
        }

    def load(self, places: Sequence[tuple[Path, str]]) -> list[bool]:
        """Which of these checkpoints the framework loads."""
        inside = [f"{room.WORK}/{directory.relative_to(self._work)}/{name}" for directory, name in places]
        command = room.command(self._house, self._work, ["load.py", self.framework])
        done = subprocess.run(command, input=json.dumps(inside).encode(), capture_output=True, check=False)
        (OUTPUT.parent / f"{self.framework}.log").write_bytes(done.stderr)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.decode()[-3000:])
        found: list[bool] = json.loads(done.stdout)
        return found


def judged(writer: Writer, moments: Sequence[tuple[str, Path]]) -> list[Moment]:
    """What scanner and framework say of each directory. Two checkpoints with the same files are loaded once."""
    answers = [newest_complete(directory) for _, directory in moments]
    known: dict[str, int] = {}
    places: list[tuple[Path, str]] = []
    wanted: list[list[tuple[str, int]]] = []
    for _, directory in moments:
        asked = []
        for name in checkpoints(writer.framework, directory):
            path = directory / name
            files = contents(path) if path.is_dir() else {"": path.read_bytes()}
            key = repr((name, sorted(files.items())))
            if key not in known:
                known[key] = len(places)
                places.append((directory, name))
            asked.append((name, known[key]))
        wanted.append(asked)
    loads = writer.load(places) if places else []
    return [
        Moment(name, answer, tuple(each for each, place in asked if loads[place]))
        for (name, _), answer, asked in zip(moments, answers, wanted, strict=True)
    ]


def prefixes(done: Sequence[Change]) -> list[list[Change]]:
    """Each moment at which the writer may have died: between two changes, and in the middle of what is being
    written."""
    found: list[list[Change]] = [[]]
    for count, change in enumerate(done):
        size = len(change.data)
        kept = sorted({size // 4, size // 2, 3 * size // 4, size - 1} - {0, -1, size})
        found += [[*done[:count], change._replace(data=change.data[:most])] for most in kept]
        found.append(list(done[: count + 1]))
    return found


def prove(framework: str, house: Path, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One framework's figures."""
    writer, chance = Writer(framework, house, work), random.Random(1)
    done = writer.record()
    starts = prefixes(done)
    chosen = sorted(chance.sample(range(len(starts)), min(options.moments, len(starts))))
    places = [(f"at {number} of {len(starts)}", work / "moments" / str(number)) for number in chosen]
    for number, (_, place) in zip(chosen, places, strict=True):
        play(starts[number], place)
    for number in range(options.kills):
        writer.killed(chance)
        place = work / "kills" / str(number)
        place.parent.mkdir(exist_ok=True)
        writer.directory.rename(place)
        places.append((f"kill {number}", place))
    moments = judged(writer, places)
    played, killed = moments[: len(chosen)], moments[len(chosen) :]
    wrong = [one.name for one in moments if not one.is_right]
    behind = [
        f"{one.name}: {one.answer or 'none'}, not {one.loadable[0]}"
        for one in moments
        if one.is_right and not one.is_newest
    ]
    return {
        "changes": len(done),
        "moments": len(played),
        "kills": len(killed),
        "answers": sum(1 for one in moments if one.answer),
        "loaded": sum(1 for one in moments if one.answer and one.is_right),
        "newest_share": round(sum(one.is_newest for one in moments) / len(moments), 4),
        "newest_after_kills": sum(one.is_newest for one in killed),
        "wrong": wrong,
        "behind": behind,
    }


def main() -> int:
    """0 only where each answer is loaded, and enough of them are the newest."""
    parser = argparse.ArgumentParser(
        prog="tornsaves", description="Let frameworks load what the scanner calls complete."
    )
    parser.add_argument("--frameworks", nargs="+", choices=list(CHECKPOINTS), default=list(CHECKPOINTS), metavar="NAME")
    parser.add_argument("--moments", type=int, default=MOMENTS)
    parser.add_argument("--kills", type=int, default=KILLS)
    options = parser.parse_args()
    find.SETTLE_SECONDS = 0.0
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    house, report = room.unpacked(), {}
    for framework in options.frameworks:
        with tempfile.TemporaryDirectory(prefix="muster-tornsaves-", ignore_cleanup_errors=True) as work:
            report[framework] = found = prove(framework, house, Path(work), options)
        print(framework, json.dumps(found), flush=True)
    before = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    OUTPUT.write_text(json.dumps({**before, **report}, indent=1) + "\n")
    bad = [name for name, found in report.items() if found["wrong"] or found["newest_share"] < SHARE]
    print(f"not proved: {', '.join(bad)}" if bad else "each answer was loaded")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
