"""Hugging Face's Trainer with a small GPT-2 of random weights. It takes all options of `TrainingArguments`, as its
examples do."""

# mypy: disable-error-code="import-not-found"
import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


@dataclass
class Options:
    """Beside those of the Trainer."""

    pause_seconds: float = 0.2
    """Of each step, so that there is time to do harm."""


class Pause(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, *_: object, **__: object) -> None:
        time.sleep(options.pause_seconds)


followed = 0  # the highest number of a request that the ranks have agreed on


def asked(step: int) -> str:
    """What Muster asks for, "Save", "Leave" or "" for nothing new; the same on every rank, whichever sees it first."""
    global followed
    newest = 0
    with contextlib.suppress(FileNotFoundError):
        request = json.loads(Path(os.environ.get("MUSTER_REQUESTS") or "-").read_text(encoding="utf-8"))
        if request["kind"] in ("Save", "Leave"):
            newest = 2 * request["number"] + (request["kind"] == "Leave")
    agreed = torch.tensor(newest)  # on the GPU, with NCCL
    dist.all_reduce(agreed, dist.ReduceOp.MAX)
    number, leaves = divmod(int(agreed), 2)
    if number <= followed:
        return ""
    followed = number
    with Path(os.environ.get("MUSTER_PROGRESS", os.devnull)).open("a", encoding="utf-8") as progress:
        progress.write(json.dumps({"step": step, "request": number}) + "\n")
    return "Leave" if leaves else "Save"


class SaveWhenAsked(TrainerCallback):  # type: ignore[misc]
    """Saves when Muster asks for it, and stops if it asks for that, too."""

    leaves = False

    def on_step_end(self, _: object, state: Any, control: Any, **__: object) -> None:
        request = asked(state.global_step)
        if request:
            control.should_save = True
        if request == "Leave":
            self.leaves = control.should_training_stop = True


options, arguments = HfArgumentParser((Options, TrainingArguments)).parse_args_into_dataclasses()

torch.manual_seed(1)
model = GPT2LMHeadModel(
    GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0)
)
rows = [torch.randint(64, (16,)) for _ in range(2048)]
dataset, saver = [{"input_ids": row, "labels": row} for row in rows], SaveWhenAsked()
trainer = Trainer(model, arguments, train_dataset=dataset, callbacks=[Pause(), saver])
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
if saver.leaves:
    trainer.accelerator.wait_for_everyone()
    os._exit(0)  # what follows is for a model that is finished

if trainer.is_world_process_zero():
    digest = hashlib.sha256()
    for _, weights in sorted(model.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
trainer.accelerator.wait_for_everyone()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
