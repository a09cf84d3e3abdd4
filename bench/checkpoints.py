"""`python -m bench.checkpoints`: how long a worker takes to judge checkpoints, into build/bench/checkpoints.json.

Eight DCP checkpoints of 873 tensors on 512 ranks, looked at by the launcher's scanner and the child process that it
ships with: until the newest is judged, until all are, and again when nothing has changed; the same after the child was
killed. The floor is the same metadata read and the same files looked at with plain calls, by this process, in the same
run. Metadata is not in the page cache before a first scan; shards are holes, since nobody reads them.

Then one checkpoint of a tensor on 100,000 ranks, by itself and with a million other files beside it: seconds, and
seconds of a core, since other work on the machine stretches the former. The floor lists and looks at the same shards by
plain calls.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import dcp_files
from bench.facts import facts
from bench.processes import peak_mebibytes
from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.launcher.scan_child import collect_seldom
from muster.node.launcher.scanner import Scanner, ScanResult
from muster.recovery.verification import JUDGES

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "bench" / "checkpoints.json"
CHECKPOINTS, TENSORS, RANKS = 8, 873, 512
SHARDS, BESIDE = 100_000, 1_000_000
GOALS = {"newest_s": 10.0, "all_s": 90.0, "unchanged_s": 0.05, "gang_looks_per_second": 100.0}
WIDE_GOALS = {"first_core_s": 2.0, "unchanged_s": 0.1, "first_beside_core_s": 2.0, "unchanged_beside_s": 0.1}
_PERIOD_SECONDS, _DEADLINE_SECONDS = 2.0, 10.0  # as the launcher has them
_TRAINING_SECONDS = 120.0
_GIVE_UP_SECONDS = 600.0


class Scans:
    """A scanner, turned as the launcher turns it."""

    def __init__(self, directory: Path) -> None:
        self.scanner = Scanner(str(directory), _PERIOD_SECONDS, _DEADLINE_SECONDS)
        self._attempt = 0

    def attempt(self) -> tuple[float, float]:
        """Scan for a new attempt; seconds until the newest is judged, and until all are."""
        self._attempt += 1
        began, newest = time.perf_counter(), 0.0
        self.scanner.scan_for(self._attempt)
        while True:
            result = self._tick(time.monotonic())
            if result is not None and result.error:
                raise RuntimeError(result.error)
            if result is not None and result.attempt == self._attempt:
                newest = newest or time.perf_counter() - began
                if result.done:
                    return newest, time.perf_counter() - began

    def training(self, seconds: float) -> tuple[list[float], float]:
        """How long each scan takes while ranks run, and looks at files in each second of so many."""
        self.scanner.ranks_start()
        now = began = self.scanner.next_at() or 0.0
        looks, took = self.scanner.looks, []
        while now < began + seconds:
            start = time.perf_counter()
            while True:
                result = self._tick(now)
                if result is not None and result.done:
                    break
            took.append(time.perf_counter() - start)
            now = self.scanner.next_at() or 0.0
        return took, (self.scanner.looks - looks) / (now - began)

    def kill(self) -> None:
        """The child dies."""
        for pid in self.scanner.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.scanner.poll(time.monotonic(), {pid: signal.SIGKILL})

    def _tick(self, now: float) -> ScanResult | None:
        result = self.scanner.poll(now, {})
        descriptor = self.scanner.descriptor
        if result is None and descriptor is not None and not select.select([descriptor], [], [], _GIVE_UP_SECONDS)[0]:
            raise RuntimeError("no answer")
        return result


def measure(directory: Path) -> dict[str, float]:
    """One run: seconds, looks at files in each second of a gang in training, and MiB."""
    forget(directory)
    scans = Scans(directory)
    newest, everything = scans.attempt()
    memory = peak_mebibytes(scans.scanner.pids)
    _, thorough = scans.attempt()
    scans.kill()
    after, _ = scans.attempt()
    light, rate = scans.training(_TRAINING_SECONDS)
    scans.kill()
    markers = sorted(directory.glob("*/.metadata"))
    files = [path for path in directory.glob("*/*") if path.name != ".metadata"]
    forget(directory)
    first = plainly(markers[-1:], files[: len(files) // len(markers)])
    forget(directory)
    return {
        "newest_s": newest,
        "all_s": everything,
        "unchanged_thorough_s": thorough,
        "unchanged_s": statistics.median(light),
        "new_child_s": after,
        "gang_looks_per_second": JUDGES * rate,
        "child_peak_mib": memory,
        "floor_newest_s": first,
        "floor_all_s": plainly(markers, files),
        "floor_unchanged_thorough_s": plainly([], files + markers),
        "floor_unchanged_s": plainly([], markers * 4),
    }


def measure_wide(directory: Path, *, beside: bool) -> dict[str, float]:
    """One run: seconds, and seconds of a core, by a finder in this process, which collects as the shipped child
    does."""
    collect_seldom()
    forget(directory)
    finder, names = Finder(str(directory)), ("first", "again", "unchanged")
    suffix = "_beside" if beside else ""
    found = {}
    for name, how in zip(names, (ScanOptions(), ScanOptions(), ScanOptions(thorough=False)), strict=True):
        began, began_core = time.perf_counter(), time.process_time()
        *_, last = finder.scan(how)
        found[f"{name}{suffix}_s"] = time.perf_counter() - began
        found[f"{name}{suffix}_core_s"] = time.process_time() - began_core
        if [one.judged for one in last.checkpoints] != [True]:
            raise RuntimeError(f"it was not found complete: {last}")
    if not beside:
        began = time.perf_counter()
        for path in (directory / "step-500").iterdir():
            path.stat()
        found["floor_looks_s"] = time.perf_counter() - began
    return found


def wide(directory: Path, shards: int, beside: int, runs: int) -> dict[str, Any]:
    """The figures of one checkpoint of so many shards, alone and with other files beside it."""
    tensors = dcp_files.sharded(1, shards)
    dcp_files.write(directory / "step-500", dcp_files.metadata_of(tensors), tensors)
    alone = [measure_wide(directory, beside=False) for _ in range(runs)]
    for number in range(beside):
        os.close(os.open(directory / f"sample-{number}.json", os.O_CREAT | os.O_WRONLY))
    among = [measure_wide(directory, beside=True) for _ in range(runs)]
    return {key: spread([run[key] for run in runs]) for runs in (alone, among) for key in runs[0]}


def plainly(to_read: Sequence[Path], to_look_at: Sequence[Path]) -> float:
    """Seconds to read all bytes of files, and to look once at each of others."""
    began = time.perf_counter()
    for path in to_read:
        path.read_bytes()
    for path in to_look_at:
        path.stat()
    return time.perf_counter() - began


def forget(directory: Path) -> None:
    """Take the metadata out of the page cache."""
    for path in directory.glob("*/.metadata"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> int:
    """Measure, write, and fail if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tensors", type=int, default=TENSORS)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--beside", type=int, default=BESIDE)
    parser.add_argument("--only-wide", action="store_true", help="the one of many shards alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-bench-checkpoints-") as name:
        wide_figures = wide(Path(name), options.shards, options.beside, options.runs)
    if options.only_wide:
        print(json.dumps(wide_figures, indent=1))
        return exit_code({key: wide_figures[key]["median"] / goal for key, goal in WIDE_GOALS.items()})
    with tempfile.TemporaryDirectory(prefix="muster-bench-checkpoints-") as name:
        tensors = dcp_files.sharded(options.tensors, options.ranks)
        metadata = dcp_files.metadata_of(tensors)
        for step in range(1, CHECKPOINTS + 1):
            dcp_files.write(Path(name) / f"step-{step * 1000}", metadata, tensors)
        del tensors
        runs = [measure(Path(name)) for _ in range(options.runs)]
    figures = {key: spread([run[key] for run in runs]) for key in runs[0]}
    size = {
        "checkpoints": CHECKPOINTS,
        "tensors": options.tensors,
        "ranks": options.ranks,
        "metadata_bytes": len(metadata),
    }
    found = {
        "facts": facts(),
        "size": size,
        "figures": figures,
        "goals": GOALS,
        "wide": {"shards": options.shards, "beside": options.beside, "figures": wide_figures, "goals": WIDE_GOALS},
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({"size": size, "figures": figures, "wide": wide_figures}, indent=1))
    shares = {key: figures[key]["median"] / goal for key, goal in GOALS.items()}
    return exit_code(
        {**shares, **{f"wide {key}": wide_figures[key]["median"] / goal for key, goal in WIDE_GOALS.items()}}
    )


def exit_code(shares: Mapping[str, float]) -> int:
    """Say which goals were missed, of those that are given as shares of them; 1 if any was."""
    missed = [key for key, share in shares.items() if share > 1]
    print("missed: " + ", ".join(missed) if missed else "all goals are met")
    return int(bool(missed))


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Of several runs."""
    rounded = [round(value, 5) for value in values]
    return {"min": min(rounded), "median": statistics.median(rounded), "max": max(rounded), "runs": rounded}


if __name__ == "__main__":
    sys.exit(main())
