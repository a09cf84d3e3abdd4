"""Records hugging_face.log: tqdm driven as ProgressCallback (transformers 5.23.0) drives it, its bytes as they come.

    pip install tqdm==4.70.1 && python record.py

Losses and times are not a model's. What whole programs have printed is recorded by `record_programs.py`.
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


output = io.StringIO()
hugging_face(output)
(HERE / "hugging_face.log").write_bytes(output.getvalue().encode())
