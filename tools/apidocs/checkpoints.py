"""Renders docs/reference/checkpoints.md from the table of formats, so that what is read and what is said are one."""

from muster.node.checkpoint.find import SETTLE_SECONDS
from muster.node.checkpoint.formats.base import Format
from muster.node.checkpoint.formats.table import FORMATS

_HEAD = """<!-- {generated} -->

# Checkpoints that are recognized

A directory or file below `spec.checkpoint.directory` is of the first of these formats whose files it has. Nothing is
imported or unpickled. The launcher reads names, sizes and times. Of `.safetensors` and the archives of `torch.save` it also reads the few
bytes that show whether the file is whole.

What is complete *at once* ends with a file that is there whole or not at all. Anything else counts once two looks, {seconds:g} s
apart, have found the same files. Weights without the state of an optimizer are never gone on from.

Programs whose saves are of none of these can write [`muster-checkpoint.json`](../trainer-contract.md#when-a-checkpoint-is-complete), or their job says what a
checkpoint is called by `spec.checkpoint.pattern`. With `state-{{step}}.npz` each is a file, which counts after two such looks (a zip archive, as
torch and numpy write them, only with its end; one of zeros never; a `.pt`, `.pth`, `.ckpt` or `.npz` that does not begin as an archive or
a pickle only where none of the others does). With `run_{{step}}/DONE` each is a directory in which `DONE` is written last. It counts at once as
long as nothing in it is newer. Then nothing else in the directory counts.

| format | written by | what | step | complete | counts |
|---|---|---|---|---|---|
"""


def checkpoint_formats(generated: str) -> str:
    """The page.

    Args:
        generated: says that it is generated.
    """
    return _HEAD.format(generated=generated, seconds=SETTLE_SECONDS) + "".join(map(_row, FORMATS))


def _row(kind: Format) -> str:
    cells = (f"`{kind.name}`", *kind.words, "after two looks" if kind.settles else "at once")
    return f"| {' | '.join(cells)} |\n"
