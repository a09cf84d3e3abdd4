"""DistributedDataParallel under torchrun with torch.save and print: no library but torch, one file for each
checkpoint."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KEPT = 3

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, required=True, help="checkpoints: step_20.pt, step_40.pt, ...")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--pause-seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()

dist.init_process_group("gloo")  # "nccl" with GPUs
rank = dist.get_rank()
options.out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(1)
layers = [layer for _ in range(3) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())]
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def save(step: int) -> None:
    """Write the file under another name, and rename it when all of it is on the disk: it is there whole or not at all.

    Then the oldest files are deleted. Those of later steps stay: they are of a branch that training has gone back from.
    """
    path, unfinished = options.out / f"step_{step}.pt", options.out / f"step_{step}.tmp"
    with unfinished.open("wb") as file:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    saved = sorted(int(old.stem[5:]) for old in options.out.glob("step_*.pt"))
    for old in [number for number in saved if number <= step][:-KEPT]:
        (options.out / f"step_{old}.pt").unlink()


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
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    model.module.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    step = loaded["step"]

while step < options.steps:
    torch.manual_seed(1000 * step + rank)  # data are a function of the step's number
    batch = torch.randn(16, 128)
    loss = (model(batch) - batch.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    request = asked(step)
    if rank == 0:
        print(f"step {step} | loss {loss.item():.4f}", flush=True)
        if step % options.save_every == 0 or request:
            save(step)
    if request == "Leave":
        dist.barrier()
        os._exit(0)  # what stands behind the loop is for a model that is finished
    time.sleep(options.pause_seconds)

if rank == 0:
    digest = hashlib.sha256()
    for _, weights in sorted(model.module.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
dist.barrier()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
