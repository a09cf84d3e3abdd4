"""Renders docs/reference/resuming.md from the table of presets, so that what is read and what is done are one."""

from muster.protocol.resuming import ANY, PRESETS, Preset

_HEAD = """<!-- {generated} -->

# How programs are told where to go on

A program that reads `MUSTER_RESUME_PATH` needs none of this. Any other has to be told which checkpoint Muster has chosen, by
`spec.checkpoint.resumePreset`:

- left out, or `Auto`: by the row of the checkpoint's format, where the command is *certainly* that framework's and does not say
  something else itself. Else nothing is added. Nor is it behind a lone `config.json`, from which Hugging Face's examples then take all their
  options: write these into the command;
- a name: by that one. Its words end the command, where the last of several counts; what the command itself says against them is told;
- `Off`: nothing. `spec.checkpoint.resumeArgument` adds words of one's own in place of a preset.

Where the checkpoint lies in an [object store](../checkpoints.md), `MUSTER_RESUME_PATH` and `MUSTER_RESUME_DIRECTORY` are URLs. The column
*from a URL* says which of them the framework opens itself. With any other `Auto` adds nothing, and a name is refused in words: let the program
fetch the checkpoint, and give the framework the copy. Muster writes nothing into a store, neither a tracker of Megatron-LM nor DeepSpeed's `latest`.

A start without a checkpoint adds nothing. What was added stands in the job's status (condition `Running`) and in the Event `Started`. An option
that the command has with the same meaning (`--load` with the same directory, or with `$(MUSTER_RESUME_PATH)`) is not repeated. A
checkpoint that lies elsewhere is one that `spec.checkpoint.resumeFrom` names outside `spec.checkpoint.directory`.

| preset | formats | what ends the command | for a checkpoint elsewhere | from a URL | Auto, where the command has | to know | source |
|---|---|---|---|---|---|---|---|
"""

_TAIL = """
The formats are those of [checkpoints.md](checkpoints.md).

## What was run with Muster

`make recipes` runs eight examples on real nodes, and takes from each a rank, a pod and the power of a node. Their weights were those of
an undisturbed run, bit for bit:

- by a preset: {run};
- by `MUSTER_RESUME_PATH` or `MUSTER_RESUME_STEP`, which their programs read themselves:
  [`torch.save`](../../examples/torch-save/README.md), [DistributedDataParallel](../../examples/torchrun-ddp/README.md) and [FSDP2](../../examples/torch-fsdp2/README.md) under torchrun,
  [Lightning](../../examples/lightning/README.md), and [JAX with Orbax](../../examples/jax-orbax/README.md).

Not run were the presets {rest}: what they add is from the frameworks' own sources and documents. Nor were `Auto`, and the columns *for a
checkpoint elsewhere* and *from a URL*.
"""


def resume_presets(generated: str) -> str:
    """The page.

    Args:
        generated: says that it is generated.
    """
    return _HEAD.format(generated=generated) + "".join(_row(preset) for preset in PRESETS) + _tail()


def _tail() -> str:
    run = (f"[`{one.name}`](../../examples/{one.recipe}/README.md)" for one in PRESETS if one.recipe)
    rest = (f"`{one.name}`" for one in PRESETS if not one.recipe)
    return _TAIL.format(run=", ".join(run), rest=", ".join(rest))


def _row(preset: Preset) -> str:
    own = _options(preset.own)
    if preset.pointer:
        own = f"nothing; the file `{preset.pointer}` is written to name the checkpoint"
    elsewhere = "cannot be told" if preset.elsewhere is None else _options(preset.elsewhere)
    certain = ", ".join(f"`{program}`" for program in preset.programs) or "by name only"
    if preset.shows:
        certain += f", and an option `{preset.shows}…`"
    cells = (
        f"`{preset.name}`",
        ", ".join(preset.formats),
        own,
        "the same" if elsewhere == own else elsewhere,
        _urls(preset),
        certain,
        preset.needs,
        preset.source,
    )
    return f"| {' | '.join(cells)} |\n"


def _urls(preset: Preset) -> str:
    known = "any" if ANY in preset.urls else ", ".join(f"`{scheme}://`" for scheme in preset.urls) or "no"
    return f"{known}, but not {', '.join(preset.files_only)}" if preset.files_only else known


def _options(options: tuple[tuple[str, ...], ...]) -> str:
    return f"`{' '.join(word for option in options for word in option)}`" if options else "nothing"
