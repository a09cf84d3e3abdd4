"""DistributedDataParallel under torchrun, with a checkpoint of torch.distributed.checkpoint every few steps."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoints", type=Path, required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--pause-seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(1)
layers = [layer for _ in range(3) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())]
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def state(step: int) -> dict[str, Any]:
    """What decides the next step: data are a function of its number."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


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
if path := os.environ.get("MUSTER_RESUME_PATH"):
    loaded = state(step)
    dcp.load(loaded, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    step = loaded["step"]

while step < options.steps:
    torch.manual_seed(1000 * step + dist.get_rank())
    batch = torch.randn(16, 128)
    loss = (model(batch) - batch.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        with Path(os.environ.get("MUSTER_PROGRESS", os.devnull)).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step}) + "\n")
    request = asked(step)
    if step % options.save_every == 0 or request:
        dcp.save(state(step), checkpoint_id=options.checkpoints / f"step-{step}")
        if dist.get_rank() == 0:
            print(f"step {step} of {options.steps}, loss {loss.item():.4f}, saved", flush=True)
            for old in sorted(options.checkpoints.glob("step-*"), key=lambda path: int(path.name[5:]))[:-3]:
                shutil.rmtree(old)
    if request == "Leave":
        dist.barrier()
        os._exit(0)  # what stands behind the loop is for a model that is finished
    time.sleep(options.pause_seconds)

if dist.get_rank() == 0:
    digest = hashlib.sha256()
    for _, weights in sorted(model.module.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
dist.barrier()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
