"""The sum of all lives that were ever played, by revision, in a file of the repository."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What decides what a life is: a change of anything else leaves the sum of a revision open.
PLAYED = "operator/muster"
_SUMMED = ("seeds", "faults", "simulated_hours", "cpu_s", "violations")


class RecordError(Exception):
    """The sum cannot be read, or nothing can be added to it; says why."""


@dataclass
class Record:
    """What was played.

    Attributes:
        runs: for each revision, oldest first: `revision`, `next_seed`, and the sums of what the runs have shown.
    """

    runs: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> "Record":
        """As it was kept; nothing where there is no file.

        Raises:
            RecordError: it is not what was written.
        """
        try:
            runs = json.loads(path.read_text())["revisions"] if path.exists() else []
            found = cls(runs)
            found.total(), found.next_seed
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path} is no sum of lives: {error!r}") from error
        return found

    def write(self, path: Path) -> None:
        """Keep it.

        Raises:
            RecordError: it cannot be written.
        """
        text = json.dumps({"total": self.total(), "revisions": self.runs}, indent=1) + "\n"
        beside = path.with_name(f".{path.name}.new")
        try:
            beside.write_text(text)
            beside.replace(path)
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error.strerror}") from error

    def total(self) -> dict[str, float]:
        return {name: round(sum(run[name] for run in self.runs), 1) for name in _SUMMED}

    @property
    def next_seed(self) -> int:
        """The first that nobody has played: no life is counted twice."""
        return max((int(run["next_seed"]) for run in self.runs), default=1)

    @property
    def faults(self) -> int:
        return int(self.total()["faults"])

    @property
    def violations(self) -> int:
        return int(self.total()["violations"])

    def add(self, revision: str, next_seed: int, shown: Mapping[str, Any]) -> None:
        """What more was played of this revision."""
        if not shown["seeds"]:
            return
        if not self.runs or self.runs[-1]["revision"] != revision:
            self.runs.append({"revision": revision, **dict.fromkeys(_SUMMED, 0)})
        run = self.runs[-1]
        run["next_seed"] = next_seed
        for name in _SUMMED:
            run[name] = round(run[name] + shown[name], 1)


def revision() -> str:
    """The last commit that has changed what is played.

    Raises:
        RecordError: there are changes that are in no commit, or there is no git.
    """
    try:
        changed = _git("status", "--porcelain", "--", PLAYED)
        found = _git("log", "-1", "--format=%h", "--", PLAYED)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RecordError(f"the sum is kept by revision, and git does not tell which this is: {error}") from error
    if changed:
        raise RecordError(f"commit the changes in {PLAYED} first: the sum is kept by revision:\n{changed}")
    return found


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.rstrip()
