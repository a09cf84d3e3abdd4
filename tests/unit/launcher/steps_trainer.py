"""Runs of the trainer of the end-to-end tests, by any number of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from localcluster.controlplane import free_port
from muster.node.checkpoint.find import Finder

TRAINER = Path(__file__).parents[2] / "e2e" / "trainers" / "steps.py"


def train(directory: Path, count: int, attempt: int, *arguments: str, resume: Any = None) -> list[int]:
    """So many ranks of one attempt; returns their exit codes."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    environment |= {
        "MUSTER_ATTEMPT": str(attempt),
        "RUN_DIR": str(directory),
        "CHECKPOINT_DIR": str(directory / "ckpt"),
    }
    if resume is not None:
        environment |= {"MUSTER_RESUME_PATH": resume.path, "MUSTER_RESUME_STEP": str(resume.step)}
    options = ["--steps", "12", "--step-seconds", "0.01", "--checkpoint-every", "5", *arguments]
    ranks = [
        subprocess.Popen(
            [sys.executable, TRAINER, *options], env={**environment, "RANK": str(rank)}, stdout=subprocess.DEVNULL
        )
        for rank in range(count)
    ]
    return [rank.wait(300) for rank in ranks]


def events(directory: Path, rank: int, name: str) -> list[Any]:
    lines = (directory / f"log-{rank}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def weights(directory: Path, count: int) -> set[str]:
    return {event["weights_sha256"] for rank in range(count) for event in events(directory, rank, "done")}


def wrong_weights_are_saved_and_told_of_once(tmp_path: Path, count: int) -> None:
    wrong, right = tmp_path / "wrong", tmp_path / "right"
    options = ("--fault-rank", "0", "--corrupt-at", "4", "--find-corruption-at", "7")
    assert train(wrong, count, 1, *options)[0] == 1
    saved = Finder(str(wrong / "ckpt")).find()[0]
    assert saved.step == 5
    assert train(wrong, count, 2, *options, resume=saved) == [0] * count
    assert train(right, count, 1) == [0] * count
    assert len(weights(wrong, count) | weights(right, count)) == 2, "who goes on from it ends with other weights"


def a_failure_ends_all_ranks_and_the_resumed_run_ends_alike(tmp_path: Path, count: int) -> None:
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    assert train(disturbed, count, 1, "--fail-at", "8", "--exit-code", "9") == [*[1] * (count - 1), 9]
    newest = Finder(str(disturbed / "ckpt")).find()[0]
    assert newest.step == 5
    assert train(disturbed, count, 2, "--fail-at", "8", resume=newest) == [0] * count
    assert train(undisturbed, count, 1) == [0] * count
    assert weights(disturbed, count) == weights(undisturbed, count)
    assert len(weights(disturbed, count)) == 1
    assert [event["step"] for event in events(disturbed, count - 1, "step")] == [*range(1, 8), *range(6, 13)]
    assert [event["step"] for event in events(disturbed, 0, "resumed")] == [5]
    published = json.loads((disturbed / "ckpt" / "step-10" / "state.json").read_text())
    assert (published["attempt"], published["rank"], published["step"]) == (2, 0, 10)
