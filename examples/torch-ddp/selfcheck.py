"""Show that the digest of the final weights is a witness: equal after a correct resume, different after a wrong one.

Each variant trains in processes of its own (forked after torch was imported once, which is what takes the time), talks
over loopback and writes below its own folder. Prints one JSON object: variant name -> digest of the final weights.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import importlib
import json
import logging
import multiprocessing
import os
import socket
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import train

STEPS = 10
CHECKPOINT_EVERY = 4
RESUME_STEP = 4
SECOND_RESUME_STEP = 8
RANK_TIMEOUT_SECONDS = 120


class WithoutOptimizerState(train.Trainer):
    """Loads the weights and the step, but starts Adam's moments afresh."""

    def load(self, resume: train.Resume) -> None:
        torch = self.torch
        super().load(resume)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate, foreach=False)


class OneStepBack(train.Trainer):
    """Repeats the last step that the checkpoint already holds."""

    def load(self, resume: train.Resume) -> None:
        super().load(resume)
        self.step -= 1


class OneStepAhead(train.Trainer):
    """Believes that the checkpoint holds one step more than it does."""

    def load(self, resume: train.Resume) -> None:
        super().load(resume)
        self.step += 1


class SkippedBatch(train.Trainer):
    """Does every step, but from the resume on with the batch of the step after it."""

    def batch(self, step: int) -> Any:
        return super().batch(step if step <= RESUME_STEP else step + 1)


def config(directory: Path, steps: int) -> train.Config:
    """A model small enough for a check that takes seconds."""
    return train.Config(
        steps=steps,
        checkpoint_every_steps=CHECKPOINT_EVERY,
        checkpoint_directory=directory / "checkpoints",
        run_directory=directory,
        keep=100,
        width=32,
        heads=2,
        batch_sequences=4,
        collective_timeout_seconds=RANK_TIMEOUT_SECONDS,
    )


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def rank_process(
    answer: Connection, settings: train.Config, identity: train.Identity, resume: train.Resume | None,
    trainer_class: type[train.Trainer],
) -> None:  # fmt: skip
    """Body of one forked rank; leaves as `train.main_and_leave` does, for its reason."""
    try:
        answer.send(train.run_rank(settings, identity, resume, trainer_class))
    except Exception:
        logging.getLogger("selfcheck").exception("rank %d failed", identity.rank)
        os._exit(1)
    os._exit(0)


def run_world(
    settings: train.Config,
    world_size: int,
    resume: train.Resume | None = None,
    trainer_class: type[train.Trainer] = train.Trainer,
    attempt: int = 1,
) -> str:
    """Train with `world_size` ranks and return the digest, which must be the same on every rank."""
    settings.checkpoint_directory.mkdir(parents=True, exist_ok=True)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(free_port())
    context = multiprocessing.get_context("fork")
    ranks = []
    for rank in range(world_size):
        receiver, sender = context.Pipe(duplex=False)
        identity = train.Identity(rank=rank, world_size=world_size, local_rank=rank, attempt=attempt)
        process = context.Process(
            target=rank_process, args=(sender, settings, identity, resume, trainer_class), daemon=True
        )
        process.start()
        sender.close()
        ranks.append((process, receiver))
    digests = set()
    for process, receiver in ranks:
        if not receiver.poll(RANK_TIMEOUT_SECONDS):
            raise TimeoutError(f"a rank sent no digest within {RANK_TIMEOUT_SECONDS} s")
        digests.add(receiver.recv())
        process.join(RANK_TIMEOUT_SECONDS)
    if len(digests) != 1:
        raise RuntimeError(f"the ranks of one run ended with different weights: {sorted(digests)}")
    return str(digests.pop())


def check(directory: Path, world_size: int) -> dict[str, str]:
    """Run every variant and return its digest by name."""
    digests = {
        "undisturbed": run_world(config(directory / "undisturbed", STEPS), world_size),
        "undisturbed_again": run_world(config(directory / "undisturbed-again", STEPS), world_size),
    }
    interrupted = directory / "interrupted"
    run_world(config(interrupted, RESUME_STEP), world_size)
    checkpoint = train.Resume(interrupted / "checkpoints" / f"step-{RESUME_STEP}", RESUME_STEP)
    variants: dict[str, type[train.Trainer]] = {
        "resumed": train.Trainer,
        "optimizer_state_not_loaded": WithoutOptimizerState,
        "resumed_one_step_back": OneStepBack,
        "resumed_one_step_ahead": OneStepAhead,
        "batch_skipped": SkippedBatch,
    }
    for name, trainer_class in variants.items():
        digests[name] = run_world(config(directory / name, STEPS), world_size, checkpoint, trainer_class)
    second = train.Resume(directory / "resumed" / "checkpoints" / f"step-{SECOND_RESUME_STEP}", SECOND_RESUME_STEP)
    digests["resumed_twice"] = run_world(config(directory / "resumed-twice", STEPS), world_size, second, attempt=2)
    return digests


def main(arguments: list[str]) -> int:
    """Print the digests as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--world-size", type=int, default=2)
    options = parser.parse_args(arguments)
    # Forked ranks inherit the import, which is most of what a start costs.
    importlib.import_module("torch.distributed.checkpoint.state_dict")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        print(json.dumps(check(Path(directory), options.world_size), sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
