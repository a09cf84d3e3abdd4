"""DeepSpeed, ZeRO 1, under torchrun. It goes on from the checkpoint that the file `latest` names, as `load_checkpoint`
does by itself."""

# mypy: disable-error-code="import-not-found"
import argparse
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


def asked_to_stop(step: int) -> bool:
    """Whether Muster asks the program to save and leave; the same on every rank, although one may see it first."""
    try:
        request = json.loads(Path(os.environ.get("MUSTER_REQUESTS") or "-").read_text(encoding="utf-8"))
        number = request["number"] if request["kind"] == "Leave" else 0
    except FileNotFoundError:
        number = 0
    asked = torch.tensor(number)  # on the GPU, with NCCL
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    if asked:
        with Path(os.environ.get("MUSTER_PROGRESS", os.devnull)).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step, "request": int(asked)}) + "\n")
    return bool(asked)


while engine.global_steps < options.steps:
    torch.manual_seed(1000 * engine.global_steps + dist.get_rank())
    batch = torch.randn(16, 128)
    loss = (engine(batch) - batch.flip(1)).square().mean()
    engine.backward(loss)
    engine.step()
    leaves = asked_to_stop(engine.global_steps)
    if engine.global_steps % options.save_every == 0 or leaves:
        engine.save_checkpoint(str(options.checkpoints))
        if dist.get_rank() == 0:
            for old in sorted(options.checkpoints.glob("global_step*"), key=lambda path: int(path.name[11:]))[:-3]:
                shutil.rmtree(old)
    if leaves:
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
