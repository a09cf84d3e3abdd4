"""Train a small transformer with PyTorch on gloo, bit for bit repeatable, and follow Muster's trainer contract v1.

It exists to prove a recovery: an undisturbed run and a run that lost processes, pods and nodes must end with the same
weights. So every batch is a function of the step number alone, and gradients are added in the order of the ranks.
DistributedDataParallel is not used because it regroups its buckets after the first step of each process, which changes
the order of addition and with it the last bits.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

# Debian's PyTorch is built without libuv. More threads than cores make three ranks on a small machine slower.
os.environ.setdefault("USE_LIBUV", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

STEP_DIRECTORY = re.compile(r"step-(\d+)")
METADATA = ".metadata"


@dataclass(frozen=True)
class Config:
    """What a run trains and where it writes; equal configurations give equal weights."""

    steps: int
    checkpoint_every_steps: int
    checkpoint_directory: Path
    run_directory: Path
    keep: int = 3
    pause_seconds: float = 0.0
    seed: int = 1
    width: int = 96
    layers: int = 2
    heads: int = 4
    sequence_tokens: int = 32
    batch_sequences: int = 8
    vocabulary: int = 61
    learning_rate: float = 3e-3
    collective_timeout_seconds: int = 1800


@dataclass(frozen=True)
class Identity:
    """Who this process is, from the environment that Muster's launcher (or torchrun) sets."""

    rank: int
    world_size: int
    local_rank: int
    attempt: int

    @classmethod
    def from_environment(cls) -> Identity:
        """Read RANK and its relatives; a plain `python3 train.py` is a world of one."""
        return cls(
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            attempt=int(os.environ.get("MUSTER_ATTEMPT", "0")),
        )


@dataclass(frozen=True)
class Resume:
    """The checkpoint to continue from: `step` steps are done in it."""

    path: Path
    step: int

    @classmethod
    def from_environment(cls) -> Resume | None:
        """None means: from scratch."""
        path = os.environ.get("MUSTER_RESUME_PATH", "")
        return cls(Path(path), int(os.environ["MUSTER_RESUME_STEP"])) if path else None


class EventLog:
    """JSON lines on the shared volume, one file per attempt and rank, stamped with both clocks.

    CLOCK_MONOTONIC counts from the boot of a kernel: nodes that share one kernel can be compared with it.
    """

    def __init__(self, run_directory: Path, identity: Identity) -> None:
        folder = run_directory / "log"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"attempt-{identity.attempt:04d}-rank-{identity.rank:04d}.jsonl"
        self._identity = identity
        self._file = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **details: object) -> None:
        """Append one line with a single write, so that a SIGKILL leaves whole lines only."""
        line = {
            "event": event,
            **details,
            "rank": self._identity.rank,
            "attempt": self._identity.attempt,
            "monotonic_seconds": time.monotonic(),
            "wall_seconds": time.time(),
        }
        os.write(self._file, (json.dumps(line) + "\n").encode())


def report_progress(step: int, **more: float) -> None:
    """Tell Muster that a step is done: one line in the file named by MUSTER_PROGRESS."""
    path = os.environ.get("MUSTER_PROGRESS", "")
    if path:
        with Path(path).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step, **more}) + "\n")


def readable_request() -> int:
    """Return what this rank reads of Muster's request: twice its number, and 1 more to leave; 0 without one."""
    try:
        request = json.loads(Path(os.environ.get("MUSTER_REQUESTS") or "-").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    known = request["kind"] in ("Save", "Leave")
    return 2 * request["number"] + (request["kind"] == "Leave") if known else 0


class Trainer:
    """One rank of the training run. Import torch before constructing it (`main` does, after logging `start`)."""

    def __init__(self, config: Config, identity: Identity, log: EventLog) -> None:
        import torch
        from torch import nn

        self.torch = torch
        self.config = config
        self.identity = identity
        self.log = log
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(config.seed)
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 4 * config.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.model = nn.ModuleDict(
            {
                "tokens": nn.Embedding(config.vocabulary, config.width),
                "positions": nn.Embedding(config.sequence_tokens, config.width),
                "blocks": nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False),
                "head": nn.Linear(config.width, config.vocabulary),
            }
        )
        # Without a difference between the layers (TransformerEncoder copies one) they would still train, only worse.
        for parameter in self.model.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.learning_rate, foreach=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(config.sequence_tokens)
        self.places = torch.arange(config.sequence_tokens)
        self.step = 0
        self.followed_request = 0

    def batch(self, step: int) -> Any:
        """Return int64 [sequences, tokens + 1] for this rank: counting in steps of a random stride, to be continued."""
        torch, config = self.torch, self.config
        generator = torch.Generator()
        generator.manual_seed((config.seed * 1_000_003 + step) * self.identity.world_size + self.identity.rank)
        shape = (config.batch_sequences, 1)
        start = torch.randint(config.vocabulary, shape, generator=generator)
        stride = torch.randint(1, config.vocabulary, shape, generator=generator)
        return (start + stride * torch.arange(config.sequence_tokens + 1)) % config.vocabulary

    def loss(self, batch: Any) -> Any:
        """Cross entropy of the next token, in nats."""
        model = self.model
        hidden = model["tokens"](batch[:, :-1]) + model["positions"](self.places)
        logits = model["head"](model["blocks"](hidden, mask=self.mask, is_causal=True))
        return self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def average_gradients(self) -> None:
        """Replace each gradient by the mean over the ranks, added in the order of the ranks."""
        torch, world_size = self.torch, self.identity.world_size
        gradients = [parameter.grad for parameter in self.model.parameters()]
        mine = torch.cat([gradient.flatten() for gradient in gradients])
        parts = [torch.empty_like(mine) for _ in range(world_size)]
        torch.distributed.all_gather(parts, mine)
        total = parts[0]
        for part in parts[1:]:
            total += part
        total /= world_size
        for gradient, piece in zip(gradients, total.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(piece.view_as(gradient))

    def train_step(self) -> float:
        """Do step `self.step + 1` and return this rank's loss."""
        loss = self.loss(self.batch(self.step + 1))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.average_gradients()
        self.optimizer.step()
        self.step += 1
        return float(loss.item())

    def _checkpoint_state(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def save(self) -> None:
        """Write `step-N` with all ranks; `.metadata` comes last and makes it complete. Then drop old ones."""
        import torch.distributed.checkpoint as dcp

        directory = self.config.checkpoint_directory / f"step-{self.step}"
        dcp.save(self._checkpoint_state(), checkpoint_id=str(directory))
        self.log.write("checkpoint", step=self.step, path=str(directory))
        if self.identity.rank == 0:
            remove_old_checkpoints(self.config.checkpoint_directory, self.step, self.config.keep)

    def load(self, resume: Resume) -> None:
        """Continue after `resume.step`: weights, optimizer state and step number come from the checkpoint."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        state = self._checkpoint_state()
        dcp.load(state, checkpoint_id=str(resume.path))
        if state["step"] != resume.step:
            raise ValueError(
                f"{resume.path} holds step {state['step']}, but MUSTER_RESUME_STEP is {resume.step}: "
                "point both at the same checkpoint"
            )
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = resume.step

    def weights_sha256(self) -> str:
        """Digest of names, shapes and exact bytes of all weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def asked(self) -> str:
        """What Muster asks for, "Save", "Leave" or "" for nothing new; the same on every rank, although one may see it
        first.
        """
        newest = self.torch.tensor(readable_request())
        self.torch.distributed.all_reduce(newest, self.torch.distributed.ReduceOp.MAX)
        number, leaves = divmod(int(newest), 2)
        if number <= self.followed_request:
            return ""
        self.followed_request = number
        report_progress(self.step, request=number)
        return "Leave" if leaves else "Save"

    def run(self, resume: Resume | None) -> str | None:
        """Train to the last step and return the digest of the final weights; None: the program was asked to leave."""
        config = self.config
        if resume is not None:
            self.load(resume)
            self.log.write("resumed", step=self.step, path=str(resume.path))
        while self.step < config.steps:
            loss = self.train_step()
            report_progress(self.step, loss=round(loss, 6))
            self.log.write("step", step=self.step, loss=loss)
            asked = self.asked()
            if self.step % config.checkpoint_every_steps == 0 or self.step == config.steps or asked:
                self.save()
            if asked == "Leave" and self.step < config.steps:
                self.log.write("left", step=self.step)
                return None
            if config.pause_seconds > 0:
                time.sleep(config.pause_seconds)
        weights = self.weights_sha256()
        if self.identity.rank == 0:
            write_result(config.run_directory, self.step, self.identity.world_size, weights)
        self.log.write("done", step=self.step, weights_sha256=weights)
        return weights


def remove_old_checkpoints(directory: Path, newest_step: int, keep: int) -> None:
    """Keep the newest `keep` checkpoints up to `newest_step`, never fewer than two; `.metadata` goes first.

    Directories with a higher step (left by an attempt that was rolled back) are not ours to count: they will be
    overwritten when training gets there.
    """
    steps = sorted(
        int(match.group(1))
        for match in (STEP_DIRECTORY.fullmatch(entry.name) for entry in directory.iterdir())
        if match and int(match.group(1)) <= newest_step
    )
    complete = [step for step in steps if (directory / f"step-{step}" / METADATA).exists()]
    oldest_kept = complete[-max(2, keep) :][0]
    for step in steps:
        if step < oldest_kept:
            path = directory / f"step-{step}"
            (path / METADATA).unlink(missing_ok=True)
            shutil.rmtree(path)


def write_result(run_directory: Path, step: int, world_size: int, weights_sha256: str) -> None:
    """Write `result.json` so that it is either absent or whole."""
    temporary = run_directory / "result.json.tmp"
    result = {"step": step, "world_size": world_size, "weights_sha256": weights_sha256}
    temporary.write_text(json.dumps(result) + "\n", encoding="utf-8")
    temporary.rename(run_directory / "result.json")


def run_rank(
    config: Config, identity: Identity, resume: Resume | None, trainer_class: type[Trainer] = Trainer
) -> str | None:
    """Join the process group, train, and return what `Trainer.run` does."""
    log = EventLog(config.run_directory, identity)
    log.write("start", pid=os.getpid(), host=socket.gethostname())
    import torch

    try:
        torch.distributed.init_process_group(
            "gloo",
            init_method="env://",
            rank=identity.rank,
            world_size=identity.world_size,
            timeout=timedelta(seconds=config.collective_timeout_seconds),
        )
        trainer = trainer_class(config, identity, log)
        log.write("ready", torch=torch.__version__)
        return trainer.run(resume)
    except Exception as error:
        log.write("failed", error=repr(error))
        raise


def parse_arguments(arguments: list[str]) -> Config:
    """Read the command line; the defaults train for about a minute with three ranks on two cores."""
    parser = argparse.ArgumentParser(description="Train a small transformer, bit for bit repeatable.")
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="shared folder for step-N checkpoints")
    parser.add_argument("--run-dir", type=Path, required=True, help="shared folder for log/ and result.json")
    parser.add_argument("--steps", type=int, default=400, help="number of optimizer steps")
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--keep", type=int, default=3, help="checkpoints to keep, at least 2")
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="sleep after each step")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    return Config(
        steps=options.steps,
        checkpoint_every_steps=options.checkpoint_every,
        checkpoint_directory=options.checkpoint_dir,
        run_directory=options.run_dir,
        keep=options.keep,
        pause_seconds=options.pause_seconds,
        seed=options.seed,
    )


def main(arguments: list[str]) -> int:
    """Train as the rank that the environment names."""
    config = parse_arguments(arguments)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    config.checkpoint_directory.mkdir(parents=True, exist_ok=True)
    identity = Identity.from_environment()
    weights = run_rank(config, identity, Resume.from_environment())
    done = f"{config.steps} steps done, weights {weights}" if weights else "saved and left, as Muster has asked"
    print(f"rank {identity.rank}: {done}", flush=True)
    return 0


def main_and_leave(arguments: list[str]) -> NoReturn:
    """Run `main` and end the process at once, without taking the process group apart.

    PyTorch 2.6 can deadlock there: destroying the group waits, with the interpreter lock held, for a gloo thread that
    needs this lock to free the last collective's tensors. Everything worth keeping is on disk by now.
    """
    try:
        code = main(arguments)
    except Exception:
        logging.getLogger("train").exception("training failed")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main_and_leave(sys.argv[1:])
