"""Hugging Face's Trainer with a small GPT-2 of random weights. It takes all options of `TrainingArguments`, as its
examples do."""

# mypy: disable-error-code="import-not-found"
import hashlib
import os
import time
from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


@dataclass
class Options:
    """Beside those of the Trainer."""

    pause_seconds: float = 0.2
    """Of each step, so that there is time to do harm."""


class Pause(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, *_: object, **__: object) -> None:
        time.sleep(options.pause_seconds)


options, arguments = HfArgumentParser((Options, TrainingArguments)).parse_args_into_dataclasses()

torch.manual_seed(1)
model = GPT2LMHeadModel(
    GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0)
)
rows = [torch.randint(64, (16,)) for _ in range(2048)]
trainer = Trainer(
    model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows], callbacks=[Pause()]
)
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)

if trainer.is_world_process_zero():
    digest = hashlib.sha256()
    for _, weights in sorted(model.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
trainer.accelerator.wait_for_everyone()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
