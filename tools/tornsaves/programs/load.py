"""Says which checkpoints a framework can load: load.py FRAMEWORK, with a JSON list of paths on stdin and one of
booleans on stdout.

Each is loaded as a resuming program does, in one process, and where the program writes known values they have to
be those.
"""

# mypy: ignore-errors
# ruff: noqa: PTH119, PTH120, SLF001
import contextlib
import json
import os
import re
import sys
import tempfile

from write import model_and_optimizer


def step_of(path):
    return int(re.findall(r"\d+", os.path.basename(path))[-1])


def check(wanted, values):
    found = {float(value) for value in values}
    if found != {float(wanted)}:
        raise ValueError(f"of step {wanted} it has {sorted(found)[:4]}")


def torch_dcp(path):
    import torch
    import torch.distributed.checkpoint as dcp

    names = [f"{kind}.{rank}.{place}" for kind in ("model", "optimizer") for rank in range(2) for place in range(4)]
    tensors = {name: torch.zeros(512) for name in names}
    dcp.load(tensors, checkpoint_id=path)
    check(step_of(path), (value for tensor in tensors.values() for value in tensor.unique()))


def hugging_face(path):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    row = torch.zeros(16, dtype=torch.long)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        tempfile.mkdtemp(), max_steps=step_of(path) + 1, save_strategy="no", per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[], disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=[{"input_ids": row, "labels": row}] * 64)
    began = []
    trainer.add_callback(_began(began))
    trainer.train(resume_from_checkpoint=path)
    check(step_of(path), began)


def _began(steps):
    from transformers import TrainerCallback

    class Began(TrainerCallback):
        def on_train_begin(self, arguments, state, control, optimizer=None, **_):
            steps.append(state.global_step)
            if not any(state_of for state_of in optimizer.optimizer.state.values()):
                raise ValueError("its optimizer is new")

    return Began()


def accelerate(path):
    import torch
    from accelerate import Accelerator

    global accelerator
    accelerator = globals().get("accelerator") or Accelerator(cpu=True)
    accelerator._models.clear()
    accelerator._optimizers.clear()
    model, _ = accelerator.prepare(*model_and_optimizer(torch, 0))
    accelerator.load_state(path)
    check(1000 + step_of(path), [torch.initial_seed()])  # without its random states it goes on with a warning
    check(step_of(path), (value for parameter in model.parameters() for value in parameter.detach().unique()))


def deepspeed_zero(path):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    state = get_fp32_state_dict_from_zero_checkpoint(os.path.dirname(path), os.path.basename(path))
    if {name: tuple(tensor.shape) for name, tensor in state.items()} != {"weight": (64, 64), "bias": (64,)}:
        raise ValueError("not all of it is there")


def lightning(path):
    import torch
    from lightning.pytorch import LightningModule, Trainer

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(64, 64)

        def on_train_start(self):
            check(step_of(path), [self.trainer.global_step])

        def training_step(self, *_):
            return self.net(torch.ones(1, 64)).sum()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    trainer = Trainer(
        accelerator="cpu", max_steps=step_of(path) + 1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir="/tmp",
    )  # fmt: skip
    trainer.fit(Net(), torch.utils.data.DataLoader(range(64), batch_size=1), ckpt_path=path)


def orbax(path):
    import numpy as np
    import orbax.checkpoint as ocp

    manager = ocp.CheckpointManager(os.path.dirname(path), options=ocp.CheckpointManagerOptions(read_only=True))
    like = {"w": np.zeros(512), "m": np.zeros(64)}
    state = manager.restore(step_of(path), args=ocp.args.StandardRestore(like))
    check(step_of(path), (value for array in state.values() for value in np.unique(array)))


FRAMEWORKS = {
    "torch": torch_dcp,
    "hugging-face": hugging_face,
    "accelerate": accelerate,
    "deepspeed": deepspeed_zero,
    "lightning": lightning,
    "orbax": orbax,
}


def loads(load, path):
    try:
        load(path)
    except BaseException as error:  # noqa: BLE001 - whatever a framework raises: DCP's are no Exception
        print(path, type(error).__name__, str(error)[:160].replace("\n", " "), file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    paths = json.load(sys.stdin)
    answers = os.dup(1)
    os.dup2(2, 1)  # what frameworks print is no answer
    with contextlib.suppress(ImportError):
        import logging

        logging.disable(logging.WARNING)
    found = [loads(FRAMEWORKS[sys.argv[1]], path) for path in paths]
    os.write(answers, json.dumps(found).encode())
    os._exit(0)
