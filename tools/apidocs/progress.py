"""Renders docs/reference/progress.md from the table of presets, so that what is read and what is said are one."""

from muster.protocol.presets import PRESETS, Line, LinePreset, Timer

_HEAD = """<!-- {generated} -->

# Steps that are read from the output

A trainer that writes its steps to the file in `MUSTER_PROGRESS` needs none of this. Of any other the output is looked through for
the lines below, by `spec.progress.preset`:

- left out, or `Auto`: all that count *by themselves*; `progress.stepPattern` stands in their place;
- a name: by that one alone;
- `Off`: not at all.

A line counts in whichever rank prints it, with colours, and behind what a logger puts before it. It may have the prefix `[rank0]:`, `[default0]:`,
`[0]:`, `0:` or that of Ray. Of a bar that is drawn again and again, every drawing counts. Steps are those of the whole training, so that
they go on after a resume. Evaluations, sanity checks, downloads and data sets that are mapped do not count.

## A loop of one's own

With `Auto`, lines of no framework count as well, where all of this holds:

- the word `step` or `iter` (`iteration`, `global_step`, `train step`) stands right before the number, and a loss in the same line:
  {samples};
- three such lines have come in order, alike up to the number, each with a higher one. From the third on they count;
- the number is no time, rate, range or step to come (`step 12 ms`, `steps 3/s`, `next step 500`). Thousands may be apart: `1,000`, `1_000`, `1'000`, or by a
  thin or no-break space. By a blank (`1 000`) only where it cannot be two numbers: `12 300` counts once a line before it says so, as `999` or `12 000` do;
- the line speaks of no evaluation, and of no other loop (micro-batches, warm-up, sampling, downloads);
- where an epoch is printed, the number has gone on from one epoch to the next. A number that begins again with each epoch never counts;
- the first number is not below the checkpoint that the start was given, and no other line of the rank counts differently.

A number that falls back later ends the count for this attempt (`StepsNotCounted`). No hang is noticed then, so that none is noticed wrongly.
Once a preset reads a line of the rank, its loop of its own is left alone.

Of other lines whose number rises, among them bars with a loss and epochs, Muster counts none. It proposes the `progress.stepPattern` that would
match them, with a line, in `StepsNotSeen`. Whether it is the step, only a person knows: set it while the job is suspended. Downloads, shards,
data sets that are mapped, and evaluations are not proposed either. Of a framework that does not count *by itself* three lines in order, each with
a higher number, have `StepsNotSeen` name its preset. How its numbers differ from those of its checkpoints stands in no line, so a person has to say it.

## Frameworks

| preset | a line as it is printed | counts by itself | to know | source |
|---|---|---|---|---|
"""

PLAIN_SAMPLES = (
    "step 12 | loss 0.53",
    "Step 12/500, Loss: 0.53",
    "iter 12: loss 0.53, time 12.1ms",
    "INFO train step=12 loss=0.53",
    "(step=0000012) Train Loss: 0.53",
)

_TAIL = """
Besides the step, the loss is read from the lines of {losses}. The tokens that each accelerator trains in a second are read from {tokens}.
[`kubectl muster report`](../goodput.md) shows what the current attempt has printed last, as it was printed. The time of a step is
measured between lines. If only one line of an attempt is seen, the time is the pace that the line prints (`it/s`, `s/it`, `elapsed time per iteration (ms)` and
the like). Where it prints none, the time follows from the tokens, with `spec.throughput.tokensPerStep`. A pace is printed by {paces}. Operations of each
accelerator in a second are read from {tflops}, and an MFU from {mfus}.

## What steps were spent on

Timers that are printed with the steps tell how long these waited for input or communicated, where the program does not write it to
[`MUSTER_PROGRESS`](../trainer-contract.md#what-a-step-was-spent-on). What is printed with the first line belongs to the start. Where lines
have the least and the most of all ranks, input counts by the most, since all wait for the slowest. Communication counts by the least, since the
others' waits for the slowest are in theirs. TorchTitan tells its data loading to TensorBoard and Weights & Biases alone; bars, Lightning and NeMo print only what a
step takes.

| preset | tells of | a line as it is printed | counts | source |
|---|---|---|---|---|
"""


def progress_presets(generated: str) -> str:
    """The page.

    Args:
        generated: says that it is generated.
    """
    losses, tokens, paces, tflops, mfus = (
        ", ".join(f"`{preset.name}`" for preset in PRESETS if getattr(preset, what))
        for what in ("loss", "tokens", "pace", "tflops", "mfu")
    )
    rows = "".join(row for preset in PRESETS for row in _rows(preset))
    timers = "".join(_timer(preset, timer) for preset in PRESETS for timer in preset.timers)
    tail = _TAIL.format(losses=losses, tokens=tokens, paces=paces, tflops=tflops, mfus=mfus)
    samples = ", ".join(f"`{line}`" for line in PLAIN_SAMPLES)
    return _HEAD.format(generated=generated, samples=samples) + rows + tail + timers


def _rows(preset: LinePreset) -> list[str]:
    """A row for each kind of line; what is said of the preset stands in the first."""
    by_itself = "yes" if preset.is_distinct else "no"
    rows = [_row("", line, "", "") for line in preset.lines + preset.begins + preset.confirms]
    rows[0] = _row(f"`{preset.name}`", preset.lines[0], by_itself, preset.needs)
    return rows


def _timer(preset: LinePreset, timer: Timer) -> str:
    counts = "for each step since the line before" if timer.is_mean else "once"
    sample = timer.sample.strip().replace("|", "\\|")
    return f"| `{preset.name}` | `{timer.spent_on}` | <code>{sample}</code> | {counts} | {timer.source} |\n"


def _row(name: str, line: Line, by_itself: str, needs: str) -> str:
    sample = line.sample.strip().replace("|", "\\|")
    return f"| {name} | <code>{sample}</code> | {by_itself} | {needs} | {line.source} |\n"
