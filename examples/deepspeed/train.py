"""DeepSpeed, ZeRO 1, under torchrun. It goes on from the checkpoint that the file `latest` names, as `load_checkpoint`
does by itself."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoints", type=Path, required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--pause-seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = (
    False  # on CPUs it would be compiled, and the image has no compiler
)
deepspeed.utils.logging.set_log_level_from_string("info")  # else `steps_per_print` prints nothing

deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(*[layer for _ in range(3) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())])
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config={"train_micro_batch_size_per_gpu": 16, "steps_per_print": 1, "zero_optimization": {"stage": 1}},
)
engine.load_checkpoint(str(options.checkpoints))


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


while engine.global_steps < options.steps:
    torch.manual_seed(1000 * engine.global_steps + dist.get_rank())
    batch = torch.randn(16, 128)
    loss = (engine(batch) - batch.flip(1)).square().mean()
    engine.backward(loss)
    engine.step()
    request = asked(engine.global_steps)
    if engine.global_steps % options.save_every == 0 or request:
        engine.save_checkpoint(str(options.checkpoints))
        if dist.get_rank() == 0:
            for old in sorted(options.checkpoints.glob("global_step*"), key=lambda path: int(path.name[11:]))[:-3]:
                shutil.rmtree(old)
    if request == "Leave":
        dist.barrier()
        os._exit(0)  # what stands behind the loop is for a model that is finished
    time.sleep(options.pause_seconds)

if dist.get_rank() == 0:
    digest = hashlib.sha256()
    for _, weights in sorted(engine.module.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
dist.barrier()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
