"""Accelerate: a loop of one's own, saved by `save_state` and gone on from by `load_state`, with the option that its
examples have."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output_dir", type=Path, required=True)
parser.add_argument("--resume_from_checkpoint", type=Path)
parser.add_argument("--max_train_steps", type=int, default=300)
parser.add_argument("--checkpointing_steps", type=int, default=20)
parser.add_argument("--pause_seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()

# Debian's PyTorch knows MPI, which Accelerate would take: each rank would train alone.
accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
torch.manual_seed(1)
model = torch.nn.Sequential(*[layer for _ in range(3) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = accelerator.prepare(model, optimizer)


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


step = 0
if options.resume_from_checkpoint:
    accelerator.load_state(str(options.resume_from_checkpoint))
    step = int(options.resume_from_checkpoint.name.removeprefix("step_"))

while step < options.max_train_steps:
    torch.manual_seed(1000 * step + accelerator.process_index)
    batch = torch.randn(16, 128)
    loss = (model(batch) - batch.flip(1)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    accelerator.print(f"step {step} of {options.max_train_steps}, loss {loss.item():.4f}", flush=True)
    request = asked(step)
    if step % options.checkpointing_steps == 0 or request:
        accelerator.save_state(str(options.output_dir / f"step_{step}"))
        if accelerator.is_main_process:
            for old in sorted(options.output_dir.glob("step_*"), key=lambda path: int(path.name[5:]))[:-3]:
                shutil.rmtree(old)
    if request == "Leave":
        accelerator.wait_for_everyone()
        os._exit(0)  # what stands behind the loop is for a model that is finished
    time.sleep(options.pause_seconds)

if accelerator.is_main_process:
    digest = hashlib.sha256()
    for _, weights in sorted(accelerator.unwrap_model(model).state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
accelerator.wait_for_everyone()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
