"""Records what small trainings of whole frameworks print, on one processor: `python record_programs.py NAME`.

Each function says what it needs beside torch, and runs in an environment of its own. What they print goes to NAME.log
as it is.
"""

# mypy: disable-error-code="import-not-found"
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _lightning(more_epochs: int, resumed_from: str = "") -> str:
    """pip install lightning==2.6.6: epochs of five batches, each with an evaluation of three; saves after batch 7.

    Returns:
        What it has printed.
    """
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar

    class Net(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(batch).square().mean()
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch: torch.Tensor, _: int) -> None:
            self.log("val_loss", self.net(batch).square().mean(), prog_bar=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    batches = [torch.utils.data.DataLoader(torch.randn(rows, 4), batch_size=4) for rows in (20, 12)]
    saver = ModelCheckpoint(SAVED, filename="{step}", every_n_train_steps=7, save_top_k=-1)
    options = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_model_summary": False}
    bar = TQDMProgressBar(refresh_rate=1)
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as output, contextlib.redirect_stdout(output):
        trainer = lightning.Trainer(max_epochs=more_epochs, callbacks=[saver, bar], **options)
        trainer.fit(Net(), *batches, ckpt_path=resumed_from or None)
        output.seek(0)
        return output.read()


def lightning() -> str:
    """Two epochs from scratch."""
    return _lightning(2)


def lightning_resumed() -> str:
    """From step 7, in the middle of the second epoch, to the end of the third."""
    _lightning(2)
    return _lightning(3, f"{SAVED}/step=7.ckpt")


def _composer(duration: str, resumed_from: str = "", *, bar: bool = True) -> str:
    """pip install mosaicml==0.32.1: epochs of five batches, each with an evaluation of three; saves after batch 7.

    Returns:
        What it has printed.
    """
    import torch
    from composer import ComposerModel, Trainer

    class Net(ComposerModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def forward(self, batch: torch.Tensor) -> Any:
            return self.net(batch)

        def loss(self, outputs: torch.Tensor, _: torch.Tensor) -> Any:
            return outputs.square().mean()

        def eval_forward(self, batch: torch.Tensor, outputs: Any = None) -> Any:
            return self.net(batch) if outputs is None else outputs

        def get_metrics(self, is_train: bool = False) -> dict[str, Any]:
            return {}

        def update_metric(self, *_: Any) -> None:
            pass

    net = Net()
    batches = [torch.utils.data.DataLoader(torch.randn(rows, 4), batch_size=4) for rows in (20, 12)]
    console = {"progress_bar": bar, "log_to_console": not bar, "console_log_interval": "1ba"}
    saving = {"save_folder": SAVED, "save_interval": "7ba", "save_overwrite": True, "load_path": resumed_from or None}
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as output, contextlib.redirect_stderr(output):
        Trainer(
            model=net,
            train_dataloader=batches[0],
            eval_dataloader=batches[1],
            optimizers=torch.optim.SGD(net.parameters(), 0.01),
            max_duration=duration,
            device="cpu",
            **console,
            **saving,
        ).fit()
        output.seek(0)
        return output.read()


def composer() -> str:
    """Two epochs from scratch."""
    return _composer("2ep")


def composer_resumed() -> str:
    """From batch 7, in the middle of the second epoch, to the end of the third."""
    _composer("2ep")
    return _composer("3ep", f"{SAVED}/ep1-ba7-rank0.pt")


def composer_batches() -> str:
    """One bar over twelve batches, from batch 7."""
    _composer("12ba")
    return _composer("12ba", f"{SAVED}/ep1-ba7-rank0.pt")


def composer_console() -> str:
    """The same without a bar, from scratch."""
    return _composer("2ep", bar=False)


def _maxtext(steps: int) -> str:
    """pip install maxtext==0.2.5, and jax for CPUs: a model of one layer, saved every five steps.

    Returns:
        What it has printed, without the lines that tell its settings and where it saves.
    """
    import maxtext

    small = [
        "base_emb_dim=32",
        "base_num_query_heads=2",
        "base_num_kv_heads=2",
        "base_mlp_dim=64",
        "base_num_decoder_layers=1",
        "head_dim=16",
        "vocab_size=128",
        "max_target_length=16",
        "per_device_batch_size=1",
        "attention=dot_product",
        "dataset_type=synthetic",
        "hardware=cpu",
        "skip_jax_distributed_system=true",
        "enable_goodput_recording=false",
        "monitor_goodput=false",
        "enable_checkpointing=true",
        "checkpoint_period=5",
        "async_checkpointing=false",
        "run_name=r",
    ]
    config = Path(next(iter(maxtext.__path__))) / "configs" / "base.yml"
    program = [sys.executable, "-m", "maxtext.trainers.pre_train.train", str(config)]
    run = [*program, *small, f"steps={steps}", f"base_output_directory={SAVED}"]
    done = subprocess.run(run, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=True)
    lines = (done.stdout + done.stderr).splitlines(keepends=True)
    return "".join(line for line in lines if " metric_logger.py:" in line and SAVED not in line)


def maxtext_run() -> str:
    """Eight steps, which it numbers from 0."""
    return _maxtext(8)


def maxtext_resumed() -> str:
    """From the checkpoint of its step 7 on."""
    _maxtext(8)
    return _maxtext(12)


PROGRAMS: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        lightning,
        lightning_resumed,
        composer,
        composer_resumed,
        composer_batches,
        composer_console,
        maxtext_run,
        maxtext_resumed,
    )
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as SAVED:
        printed = PROGRAMS[sys.argv[1]]()
    (HERE / f"{sys.argv[1]}.log").write_bytes(printed.encode())
