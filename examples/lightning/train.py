"""PyTorch Lightning: a Trainer with ModelCheckpoint, which goes on from `ckpt_path`."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.strategies import DDPStrategy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoints", required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--pause-seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()


class Net(lightning.LightningModule):  # type: ignore[misc]
    """Data are a function of the step, so that it does not matter where in its loader Lightning goes on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(
            *[layer for _ in range(3) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())]
        )

    def training_step(self, *_: object) -> Any:
        torch.manual_seed(1000 * self.trainer.global_step + self.global_rank)
        batch = torch.randn(16, 128)
        time.sleep(options.pause_seconds)
        return (self.net(batch) - batch.flip(1)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


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


class SaveWhenAsked(lightning.Callback):  # type: ignore[misc]
    """Saves when Muster asks for it, and stops if it asks for that, too."""

    leaves = False

    def on_train_batch_end(self, trainer: Any, *_: object) -> None:
        request = asked(trainer.global_step)
        if request:
            name = f"epoch={trainer.current_epoch}-step={trainer.global_step}.ckpt"
            trainer.save_checkpoint(Path(options.checkpoints) / name)
        if request == "Leave":
            self.leaves = trainer.should_stop = True


saver = SaveWhenAsked()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy=DDPStrategy(process_group_backend="gloo"),
    max_steps=options.steps,
    logger=False,
    default_root_dir="/tmp",
    callbacks=[
        saver,
        TQDMProgressBar(),  # where Rich is installed, Lightning would take its bar, which prints nothing into a log
        ModelCheckpoint(
            options.checkpoints, every_n_train_steps=options.save_every, save_top_k=3, monitor="step", mode="max"
        ),
    ],
)
net = Net()
# As long as the training: Lightning counts its batches anew in each epoch.
loader = torch.utils.data.DataLoader(range(options.steps * trainer.world_size), batch_size=1)
trainer.fit(net, loader, ckpt_path=os.environ.get("MUSTER_RESUME_PATH"))
if saver.leaves:
    trainer.strategy.barrier()
    os._exit(0)  # what follows is for a model that is finished

if trainer.is_global_zero:
    digest = hashlib.sha256()
    for _, weights in sorted(net.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
trainer.strategy.barrier()
os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
