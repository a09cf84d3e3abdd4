"""Saves a few times as one framework does: write.py FRAMEWORK DIRECTORY SAVES [RANK]. Without a rank it starts all of
them."""

# mypy: ignore-errors
import os
import subprocess
import sys
import tempfile
import time

RANKS = {"torch": 2, "accelerate": 2, "deepspeed": 2, "hugging-face": 1, "lightning": 1, "orbax": 1}
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0"))  # between two saves, so that one can be met


def model_and_optimizer(torch, step):
    """All weights are the step, so that the loading program knows of which save they are."""
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    fill(torch, model, optimizer, step)
    return model, optimizer


def fill(torch, model, optimizer, step):
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float(step))


def join(torch):
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method="file://" + os.environ["STORE"], rank=int(os.environ["RANK"]), world_size=2
    )
    return dist


def torch_dcp(directory, saves):
    import torch
    import torch.distributed.checkpoint as dcp

    dist = join(torch)
    for step in range(1, saves + 1):
        rank = dist.get_rank()
        tensors = {f"model.{rank}.{place}": torch.full((512,), float(step)) for place in range(4)}
        tensors |= {f"optimizer.{rank}.{place}": torch.full((512,), float(step)) for place in range(4)}
        dcp.save(tensors, checkpoint_id=f"{directory}/step-{step}")
        dist.barrier()
        time.sleep(PAUSE_SECONDS)


def hugging_face(directory, saves):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Pause(TrainerCallback):
        def on_save(self, *_, **__):
            time.sleep(PAUSE_SECONDS)

    import torch

    rows = [torch.randint(64, (16,)) for _ in range(64)]
    arguments = TrainingArguments(
        directory,
        max_steps=saves,
        save_steps=1,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"input_ids": row, "labels": row} for row in rows]
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0)
    Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[Pause()]).train()


def accelerate(directory, saves):
    import torch
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs

    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    model, optimizer = accelerator.prepare(*model_and_optimizer(torch, 0))
    for step in range(1, saves + 1):
        fill(torch, model, optimizer, step)
        torch.manual_seed(1000 + step)
        accelerator.save_state(f"{directory}/checkpoint_{step}")
        accelerator.wait_for_everyone()
        time.sleep(PAUSE_SECONDS)


def deepspeed_zero(directory, saves):
    import deepspeed
    import torch

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    model = torch.nn.Linear(64, 64)
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}},
    )
    for _ in range(saves):
        engine.backward(engine(torch.ones(1, 64)).sum())
        engine.step()
        engine.save_checkpoint(directory)
        time.sleep(PAUSE_SECONDS)


def lightning(directory, saves):
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(64, 64)

        def training_step(self, *_):
            time.sleep(PAUSE_SECONDS)
            return self.net(torch.ones(1, 64)).sum()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    keep = ModelCheckpoint(directory, every_n_train_steps=1, save_top_k=-1)
    trainer = Trainer(accelerator="cpu", max_steps=saves, logger=False, callbacks=[keep], enable_progress_bar=False)
    trainer.fit(Net(), torch.utils.data.DataLoader(range(saves), batch_size=1))


def orbax(directory, saves):
    import numpy as np
    import orbax.checkpoint as ocp

    manager = ocp.CheckpointManager(directory)
    for step in range(1, saves + 1):
        manager.save(
            step, args=ocp.args.StandardSave({"w": np.full((512,), float(step)), "m": np.full((64,), float(step))})
        )
        time.sleep(PAUSE_SECONDS)
    manager.wait_until_finished()


FRAMEWORKS = {
    "torch": torch_dcp,
    "hugging-face": hugging_face,
    "accelerate": accelerate,
    "deepspeed": deepspeed_zero,
    "lightning": lightning,
    "orbax": orbax,
}

if __name__ == "__main__":
    name, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if len(sys.argv) > 4 or RANKS[name] == 1:
        FRAMEWORKS[name](target, count)
        os._exit(0)  # PyTorch 2.6 may hang when it takes its groups down
    common = {
        "WORLD_SIZE": str(RANKS[name]),
        "LOCAL_WORLD_SIZE": str(RANKS[name]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": os.environ["PORT"],
        "STORE": tempfile.mktemp(),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:4], str(rank)],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(RANKS[name])
    ]
    sys.exit(max(rank.wait() for rank in ranks))
