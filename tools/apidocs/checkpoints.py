"""Renders docs/reference/checkpoints.md from the table of formats, so that what is read and what is said are one."""

from muster.node.checkpoint.find import SETTLE_SECONDS
from muster.node.checkpoint.formats.base import Format
from muster.node.checkpoint.formats.table import FORMATS
from muster.protocol.checkpoint_names import PUT_AWAY_WORDS, WRITTEN_BEHIND

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

## Names

A name that is a step with something added counts only where a framework or the program writes it so, in all formats alike. Frameworks
write a prefix of the program's (`finetrainers_step_500`), metrics and other numbers (`epoch=1-step=500-val_loss=0.3`, `ep1-ba500-rank0.pt`),
versions (`last-v1.ckpt`), an ending of files, and behind the step {behind}. What counts for nothing:

- A name that begins with a dot, or has `tmp`, `temp` or `unfinished` as a word: frameworks save so, and rename what is whole.
- A step with one of these words before or behind it (`500.partial_save`, `old_500`), also `last`, `latest`, `final` and `checkpoint` with one:
  {away}; behind it also `backup`.
- The marks of copies and of what is hidden: `_500`, `500~`, `500 (1)`.
- A step with any other word behind it while names beside it are written without one: `500-spike` beside `400`. Where all have the word, the
  program writes it.

Such a checkpoint beyond the newest that counts is named in the message of `CheckpointsIncomplete` (not what frameworks rename). To have a bad
checkpoint passed over, rename it so. What `spec.checkpoint.pattern` matches counts, whatever these words say, and so does a checkpoint that
`spec.checkpoint.resumeFrom` names by its path, for the start that it asks for.

## Formats

| format | written by | what | step | complete | counts |
|---|---|---|---|---|---|
"""


def checkpoint_formats(generated: str) -> str:
    """The page.

    Args:
        generated: says that it is generated.
    """
    behind, away = (", ".join(f"`{word}`" for word in words) for words in (WRITTEN_BEHIND, PUT_AWAY_WORDS))
    head = _HEAD.format(generated=generated, seconds=SETTLE_SECONDS, behind=behind, away=away)
    return head + "".join(map(_row, FORMATS))


def _row(kind: Format) -> str:
    cells = (f"`{kind.name}`", *kind.words, "after two looks" if kind.settles else "at once")
    return f"| {' | '.join(cells)} |\n"
