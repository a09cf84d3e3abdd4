"""FSDP2 (`fully_shard`) under torchrun, two ranks on each node, with asynchronous checkpoints: training goes on beside
the save."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import shutil
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoints", type=Path, required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--pause-seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()

if not hasattr(
    torch.cpu.Stream, "record_event"
):  # PyTorch 2.6: FSDP2 asks streams for it, which CPUs have only by name
    torch.cpu.Stream.record_event = lambda self, event=None: None
    torch.cpu.Stream.wait_event = lambda self, event: None

dist.init_process_group("gloo")
rank = dist.get_rank()
savers = dist.new_group(
    backend="gloo"
)  # the thread that saves must not share a group with the training: they would mix
torch.manual_seed(1)
model = torch.nn.Sequential(*[layer for _ in range(3) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())])
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        # PyTorch 2.6 takes the gathering in the backward pass for a change in place, on CPUs.
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def state(step: int) -> dict[str, Any]:
    """What decides the next step: data are a function of its number."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def finish(saving: "Future[Any] | None") -> None:
    """Wait for the save under way; then all but three checkpoints can go."""
    if saving is None:
        return
    saving.result()
    if rank == 0:
        for old in sorted(options.checkpoints.glob("step-*"), key=lambda path: int(path.name[5:]))[:-3]:
            shutil.rmtree(old)


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


step, saving = 0, None
if path := os.environ.get("MUSTER_RESUME_PATH"):
    loaded = state(step)
    dcp.load(loaded, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    step = loaded["step"]

while step < options.steps:
    torch.manual_seed(1000 * step + rank)
    batch = torch.randn(16, 128)
    loss = (model(batch) - batch.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0:
        with Path(os.environ.get("MUSTER_PROGRESS", os.devnull)).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step}) + "\n")
    request = asked(step)
    if step % options.save_every == 0 or request:
        finish(saving)
        path = options.checkpoints / f"step-{step}"
        if rank == 0:
            shutil.rmtree(path, ignore_errors=True)  # what an attempt that was stopped in its save has left
            print(f"step {step} of {options.steps}, loss {loss.item():.4f}, saving", flush=True)
        dist.barrier()
        saving = dcp.async_save(state(step), checkpoint_id=path, process_group=savers)
    if request == "Leave":
        finish(saving)
        dist.barrier()
        os._exit(0)  # what stands behind the loop is for a model that is finished
    time.sleep(options.pause_seconds)

finish(saving)
digest = hashlib.sha256()
for _, weights in sorted(model.state_dict().items()):
    digest.update(weights.full_tensor().numpy().tobytes())
if rank == 0:
    print(f"weights {digest.hexdigest()}", flush=True)
dist.barrier()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
