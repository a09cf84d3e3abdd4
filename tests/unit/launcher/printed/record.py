"""Records hugging_face.log, lightning.log and composer.log: tqdm driven as these frameworks drive it, its bytes as they come.

    pip install tqdm==4.70.1 && python record.py

The calls are those of ProgressCallback (transformers 5.23.0), TQDMProgressBar (lightning 2.6.2) and ProgressBarLogger (composer
0.33.0.dev0); models, losses and times are not theirs.
"""

import io
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

HERE = Path(__file__).parent


def eager(file: io.StringIO, **options: Any) -> tqdm:
    return tqdm(file=file, mininterval=0, miniters=1, **options)


def hugging_face(file: io.StringIO) -> None:
    """Goes on from step 300 of 304, an evaluation of 700 batches in between, another one of 900 afterwards."""
    shards = eager(file, total=2, desc="Loading checkpoint shards")
    shards.update(2)
    shards.close()
    training, current = eager(file, total=304, dynamic_ncols=True), 0
    for step in range(301, 305):
        training.update(step - current)
        current = step
        if step == 302:
            training.write(
                "{'loss': '2.17', 'grad_norm': '3.1', 'learning_rate': '1.9e-05', 'epoch': '3.02'}", file=file
            )
            evaluation = eager(file, total=700, leave=False, dynamic_ncols=True)
            evaluation.update(450)
            evaluation.update(1)
            training.write("{'eval_loss': '2.2', 'eval_runtime': '1.1', 'epoch': '3.02'}", file=file)
            evaluation.close()
    training.write("{'train_runtime': '10.1', 'train_loss': '2.1', 'epoch': '3.04'}", file=file)
    training.close()
    prediction = eager(file, total=900, leave=True, dynamic_ncols=True)
    prediction.update(800)
    prediction.close()


def lightning(file: io.StringIO) -> None:
    """Goes on in epoch 3 of 5 batches each, after batch 2."""
    sanity = eager(file, desc="Sanity Checking", leave=False, dynamic_ncols=True)
    sanity.reset(2)
    sanity.set_description("Sanity Checking DataLoader 0")
    sanity.update(2)
    sanity.close()
    training = eager(file, desc="Training", leave=True, dynamic_ncols=True, smoothing=0)
    for epoch, first in ((3, 3), (4, 1)):
        training.reset(5)
        training.initial = 0
        training.set_description(f"Epoch {epoch}")
        for batch in range(first, 6):
            training.n = batch
            training.refresh()
            training.set_postfix({"v_num": 0, "train_loss": "2.310"})
        validation = eager(file, desc="Validation", position=1, leave=False, dynamic_ncols=True)
        validation.reset(70)
        validation.set_description("Validation DataLoader 0")
        validation.update(60)
        validation.close()
    training.close()


def composer(file: io.StringIO) -> None:
    """Epoch 3 of 5 batches, an evaluation, then one bar over all 300 batches."""
    dummy = eager(file, position=0, total=1, bar_format="{bar:-1b}")
    for label, total, numbers in (
        (f"{'train':15}Epoch {3:3}: ", 5, (0, 4, 5)),
        (f"{'eval':15}Epoch {3:3}: ", 900, (700,)),
        (f"{'train':15}".ljust(29), 300, (299, 300)),
    ):
        form = label + " {l_bar}{bar:25}{r_bar}{bar:-1b}"
        bar = eager(file, total=total, position=1, bar_format=form, ncols=120, leave=True, unit="ba")
        for number in numbers:
            bar.update(number - bar.n)
            bar.set_postfix({"loss/train/total": "2.3100"})
        bar.refresh()
        print(file=file)
        bar.close()
    dummy.close()


for record in (hugging_face, lightning, composer):
    output = io.StringIO()
    record(output)
    (HERE / f"{record.__name__}.log").write_bytes(output.getvalue().encode())
