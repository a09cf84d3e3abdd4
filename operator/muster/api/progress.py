"""Renders docs/reference/progress.md from the table of presets, so that what is read and what is said are one."""

from muster.protocol.presets import PRESETS, Line, Preset

_HEAD = """<!-- {generated} -->

# Steps that are read from the output

A trainer that writes its steps to the file in `MUSTER_PROGRESS` needs none of this. Of any other the output is looked through for
the lines below, by `spec.progress.preset`:

- left out, or `Auto`: all that count *by themselves*; `progress.stepPattern` stands in their place;
- a name: by that one alone;
- `Off`: not at all.

A line counts in whichever rank prints it, with colours, with `[rank0]:`, `[default0]:`, `[0]:` or `0:` before it, and behind what a
logger puts before it; of a bar that is drawn again and again every drawing. Steps are those of the whole training, so that
they go on after a resume. Evaluations, sanity checks, downloads and data sets that are mapped do not count.

| preset | a line as it is printed | counts by itself | to know | source |
|---|---|---|---|---|
"""

_TAIL = """
Of what these lines tell besides the step, {losses} are read for the loss, and {tokens} for the tokens that each accelerator trains in a
second: [`kubectl muster report`](../goodput.md) shows what the current attempt has printed last, as it was printed. The time of a step is
measured between lines. Of an attempt of which one line alone is seen it is the pace that the line prints, which {paces} do
(`it/s`, `s/it`, `elapsed time per iteration (ms)` and the like), or, with `spec.throughput.tokensPerStep`, the tokens. None of these lines tells how long a step has waited for its data (TorchTitan tells that to TensorBoard and Weights & Biases
alone): [`MUSTER_PROGRESS`](../trainer-contract.md#what-a-step-was-spent-on) can.
"""


def progress_presets(generated: str) -> str:
    """The page.

    Args:
        generated: says that it is generated.
    """
    losses, tokens, paces = (
        ", ".join(f"`{preset.name}`" for preset in PRESETS if getattr(preset, what))
        for what in ("loss", "tokens", "pace")
    )
    rows = "".join(row for preset in PRESETS for row in _rows(preset))
    return _HEAD.format(generated=generated) + rows + _TAIL.format(losses=losses, tokens=tokens, paces=paces)


def _rows(preset: Preset) -> list[str]:
    """A row for each kind of line; what is said of the preset stands in the first."""
    by_itself = "yes" if preset.is_distinct else "no"
    rows = [_row("", line, "", "") for line in preset.lines + preset.confirms]
    rows[0] = _row(f"`{preset.name}`", preset.lines[0], by_itself, preset.needs)
    return rows


def _row(name: str, line: Line, by_itself: str, needs: str) -> str:
    sample = line.sample.strip().replace("|", "\\|")
    return f"| {name} | <code>{sample}</code> | {by_itself} | {needs} | {line.source} |\n"
