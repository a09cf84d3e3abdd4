"""Steps in what frameworks print, by their presets, and none in what looks like it.

Those of Lightning and Composer, maxtext_run.log and maxtext_resumed.log are what trainings have printed
(printed/record_programs.py); hugging_face.log is recorded with the framework's calls (printed/record.py); the others
are re-created from the sources that the table names, with numbers of our own.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from muster.node.launcher.children import own_command
from muster.node.launcher.printed import Reader
from muster.protocol.messages import LONGEST_SECONDS
from muster.protocol.presets import AUTO, BY_NAME, PRESETS, Line, Timer

LOGS = Path(__file__).parent / "printed"
OF_LOGS = {
    # File: preset, the steps in it.
    "hugging_face": ("HuggingFaceTrainer", [302, 303, 304]),
    "ms_swift": ("HuggingFaceTrainer", [101, 102, 103, 104]),
    "diffusers": ("Diffusers", [301, 302, 303]),
    "torchtune": ("Torchtune", [301, 302, 303]),
    "lightning": ("Lightning", list(range(1, 11))),
    "lightning_resumed": ("Lightning", list(range(8, 16))),
    "composer": ("Composer", list(range(1, 11))),
    "composer_resumed": ("Composer", list(range(8, 16))),
    "composer_batches": ("Composer", list(range(8, 13))),
    "composer_console": ("Composer", list(range(1, 11))),
    "megatron": ("Megatron", [310, 320, 330]),
    "torchtitan": ("TorchTitan", [510, 520]),
    "deepspeed": ("DeepSpeed", [310, 320, 330]),
    "maxtext": ("MaxText", [301, 302, 303]),
    "maxtext_run": ("MaxText", list(range(1, 8))),
    "maxtext_resumed": ("MaxText", list(range(8, 12))),
    "nemo": ("NeMo", [301, 302]),
}
# The step of the checkpoint that it went on from.
RESUMED = {"diffusers": 300, "lightning_resumed": 7, "composer_resumed": 7, "composer_batches": 7, "maxtext_resumed": 7}
LINES = [line for preset in PRESETS for line in preset.begins + preset.lines + preset.confirms + preset.figures_beside]
TIMERS = [timer for preset in PRESETS for timer in preset.timers]


def lines_of(name: str) -> list[bytes]:
    """As the launcher cuts them: a bar is drawn over itself."""
    return (LOGS / f"{name}.log").read_bytes().replace(b"\r", b"\n").split(b"\n")


def steps(reader: Reader, lines: list[bytes], place: int = 0, resumed: int = 0) -> list[tuple[str, int]]:
    """What is found, without what is told again."""
    found = [one for line in lines if (one := reader.read(place, line, resumed))]
    return list(dict.fromkeys((one.preset, one.step) for one in found if one.step is not None))


@pytest.mark.parametrize("name", OF_LOGS)
@pytest.mark.parametrize("by_name", [True, False])
def test_each_log_tells_the_steps_of_its_training_and_no_others(name: str, by_name: bool) -> None:
    preset, expected = OF_LOGS[name]
    reader = Reader(preset if by_name else AUTO)
    distinct = BY_NAME[preset].is_distinct
    found = steps(reader, lines_of(name), resumed=RESUMED.get(name, 0))
    assert found == ([(preset, step) for step in expected] if by_name or distinct else [])
    assert reader.looks_like == ("" if by_name or distinct else preset)


def lightning(*bars: tuple[int, int]) -> list[bytes]:
    """Bars of an epoch and a batch."""
    form = "Epoch %d:  10%%|#         | %d/1000 [00:10<01:30,  9.98it/s, v_num=0, train_loss=2.310]"
    return [(form % bar).encode() for bar in bars]


@pytest.mark.parametrize(
    ("bars", "looks_like"),
    [
        (((0, 0), (0, 1), (0, 2)), ""),
        (((0, 1), (0, 2), (0, 3)), "Lightning"),
        (((0, 998), (0, 999), (1, 1)), "Lightning"),
        (((0, 1), (0, 1), (0, 1), (0, 2), (0, 1)), ""),
    ],
    ids=["a bar begins with 0", "in an epoch", "beyond an epoch", "drawn again"],
)
def test_a_preset_that_counts_only_by_name_is_named_once_three_lines_agree(
    bars: tuple[tuple[int, int], ...], looks_like: str
) -> None:
    reader = Reader(AUTO)
    assert steps(reader, lightning(*bars)) == []
    assert reader.looks_like == looks_like
    assert reader.proposal() is None or not looks_like


def test_lines_of_several_ranks_do_not_agree_with_one_another() -> None:
    reader = Reader(AUTO)
    for rank in range(3):
        assert steps(reader, lightning((0, 1 + rank)), place=rank) == []
    assert reader.looks_like == ""


def test_a_bar_that_looks_like_a_preset_ends_no_count_that_has_begun() -> None:
    reader = Reader(AUTO)
    own = [b"step %d | loss 0.5" % step for step in range(1, 7)]
    lines = [*own[:4], *lightning((0, 1), (0, 2), (0, 3)), *own[4:]]
    assert [step for _, step in steps(reader, lines)] == [3, 4, 5, 6]
    assert steps(Reader(AUTO), [*lightning((0, 1)), *own]) == []


@pytest.mark.parametrize("preset", [AUTO, *BY_NAME])
def test_downloads_data_sets_evaluations_and_loops_of_ones_own_are_no_steps(preset: str) -> None:
    assert steps(Reader(preset), lines_of("others")) == []


@pytest.mark.parametrize("preset", BY_NAME)
def test_no_preset_reads_the_lines_of_another_one(preset: str) -> None:
    for name, (owner, _) in OF_LOGS.items():
        if owner != preset:
            assert steps(Reader(preset), lines_of(name)) == []


@pytest.mark.parametrize(
    "prefix", ["[rank0]:", "[default0]:", "[0]:", "[worker3]: ", "3: ", "  ", "(RayTrainWorker pid=2285, ip=10.0.0.1) "]
)
@pytest.mark.parametrize(
    "name", ["hugging_face", "ms_swift", "torchtune", "lightning", "composer", "composer_console", "torchtitan", "nemo"]
)
def test_a_rank_before_each_line_changes_nothing(name: str, prefix: str) -> None:
    preset, expected = OF_LOGS[name]
    lines = [prefix.encode() + line for line in lines_of(name)]
    assert [step for _, step in steps(Reader(preset), lines)] == expected


def test_colours_within_a_line_change_nothing() -> None:
    text = BY_NAME["TorchTitan"].lines[0].sample.replace("step: 300  ", "\x1b[1;31mstep: \x1b[0m300  \x1b[38;2;1;2;3m")
    assert steps(Reader(AUTO), [text.encode()]) == [("TorchTitan", 300)]


def test_of_huggingfaces_trainer_the_total_in_its_log_says_which_bar_counts() -> None:
    total = BY_NAME["HuggingFaceTrainer"].confirms[1].sample.encode()
    bars = [b" 70%|###### | 700/900 [00:02<00:01, 148.51it/s]", b"  1%|      | 1/1000 [00:02<08:01,  2.51s/it]"]
    assert steps(Reader(AUTO), [total, *bars]) == [("HuggingFaceTrainer", 1)]
    assert steps(Reader(AUTO), bars) == []


def test_of_several_drawings_of_a_bar_in_one_line_the_newest_counts() -> None:
    line = b" 70%|###### | 7/10 [00:02<00:01, 148.51it/s]  80%|####### | 8/10 [00:02<00:01, 148.51it/s]"
    losses = BY_NAME["HuggingFaceTrainer"].confirms[0].sample.encode()
    assert [step for _, step in steps(Reader(AUTO), [line, losses])] == [8]


def test_the_megatron_trainer_of_ms_swift_confirms_its_bar_by_iterations() -> None:
    bar = b"Train:  30%|###   | 30/100 [00:02<08:01,  2.51s/it]"
    log = b"{'loss': 2.17, 'grad_norm': 3.1, 'iteration': '30/100', 'elapsed_time': '2s'}"
    assert steps(Reader(AUTO), [bar, log]) == [("HuggingFaceTrainer", 30)]


def test_the_bars_of_one_rank_are_not_confirmed_by_what_another_one_prints() -> None:
    reader = Reader(AUTO)
    losses = BY_NAME["HuggingFaceTrainer"].confirms[0].sample.encode()
    assert steps(reader, [b" 70%|###### | 700/900 [00:02<00:01, 148.51it/s]"], place=0) == []
    assert steps(reader, [losses], place=1) == []


def test_a_second_training_with_another_length_is_followed() -> None:
    bar, losses = b" 70%%|###### | %d/%d [00:02<00:01, 148.51it/s]", b"{'loss': 2.3, 'epoch': 1.0}"
    lines = [bar % (7, 10), losses, bar % (8, 10), bar % (11, 20), losses, bar % (12, 20)]
    assert [step for _, step in steps(Reader(AUTO), lines)] == [7, 8, 11, 12]


def unnamed(batch: int) -> bytes:
    """A bar of Lightning's after it has gone on in the middle of an epoch."""
    return b"Training: |          | %d/? [00:00<00:00, 39.08it/s, train_loss=0.199]" % batch


@pytest.mark.parametrize(
    ("resumed", "batches", "expected"),
    [
        (300, (0, 301, 302), [301, 302]),  # one epoch, as long as the training
        (300, (0, 50, 100), [301, 351]),  # a later one, of which every 50th batch is printed
        (7, (0, 3, 4, 5), [8, 9, 10]),
        (0, (0, 3, 4), []),  # it went on by itself: nobody knows from where
    ],
)
def test_the_epoch_in_whose_middle_lightning_goes_on_is_counted_from_there(
    resumed: int, batches: tuple[int, ...], expected: list[int]
) -> None:
    found = steps(Reader("Lightning"), [unnamed(batch) for batch in batches], resumed=resumed)
    assert [step for _, step in found] == expected


def nemo_rl(*texts: str) -> list[bytes]:
    """Its headers of epochs and steps, and what it prints when a step has ended."""
    header = "=" * 25
    printed = ("\U0001f4ca Training Results:" if text == "end" else f"{header} {text} {header}" for text in texts)
    return [text.encode() for text in printed]


def test_a_step_that_begins_with_its_number_counts_when_it_ends() -> None:
    lines = nemo_rl("Epoch 2/3", "Step 4/10", "end", "Step 5/10", "Epoch 3/3", "Step 1/10", "end", "end")
    assert [step for _, step in steps(Reader(AUTO), lines)] == [14, 21]


def test_the_end_of_a_step_whose_begin_another_rank_has_printed_counts_for_nothing() -> None:
    reader = Reader(AUTO)
    begins, ends = nemo_rl("Step 4/10", "end")
    assert steps(reader, [begins], place=0) == steps(reader, [ends], place=1) == []


def test_a_composer_that_went_on_from_elsewhere_tells_so() -> None:
    """Its restored bar begins with where it stood: no news at the step of the checkpoint, at any other one it is."""
    bar = b"train                          42%%|######      | %d/12 [00:00<?, ?it/s, loss/train/total=0.0624]"
    assert [step for _, step in steps(Reader(AUTO), [bar % 5, bar % 6], resumed=7)] == [5, 6]


def test_each_start_counts_from_where_it_went_on() -> None:
    reader = Reader("Lightning")
    assert [step for _, step in steps(reader, [unnamed(3), unnamed(4)], resumed=7)] == [8, 9]
    assert [step for _, step in steps(reader, [unnamed(5)], resumed=9)] == [10]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.sample[:30])
def test_the_sample_of_each_line_is_one(line: Line) -> None:
    assert line.holds in line.sample
    assert line.source
    assert re.search(line.pattern, line.sample)
    (preset,) = (each for each in PRESETS if line in each.begins + each.lines + each.confirms + each.figures_beside)
    reader, confirms = Reader(preset.name), [other.sample.encode() for other in preset.confirms]
    begins = [other.sample.encode() for other in preset.begins]
    if line in preset.lines:
        ((name, step),) = steps(reader, [*begins[:1], line.sample.encode(), *confirms[:1]], resumed=299)
        assert name == preset.name
        assert step in (3, 80, 300, 301, 3100)


@pytest.mark.parametrize(
    ("name", "loss", "tokens"),
    [
        ("hugging_face", "2.17", None),
        ("ms_swift", "1.92", None),
        ("diffusers", "0.0555", None),
        ("torchtune", "2.2711000442504883", None),
        ("lightning", "0.464", None),
        ("composer", "0.5143", None),
        ("megatron", "2.300000E+00", None),
        ("torchtitan", "2.30000", 7104.0),  # not those of the validation
        ("maxtext", "2.310", 8687.815),
        ("nemo", "2.3", None),
    ],
)
def test_the_loss_and_the_tokens_beside_the_newest_step_are_read(name: str, loss: str, tokens: float | None) -> None:
    preset, _ = OF_LOGS[name]
    reader = Reader(preset)
    found = [one for line in lines_of(name) if (one := reader.read(0, line))]
    assert [one.loss for one in found if one.loss][-1] == loss
    assert ([one.figures["tokens"] for one in found if "tokens" in one.figures] or [None])[-1] == tokens


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("megatron", [0.8124, 0.8101, 4.1031]),
        ("deepspeed", [None, None, 0.812]),
        ("maxtext", [5.658, None, 5.658]),  # the second one says only that its profiler was switched
        ("nemo", [0.812, 0.81]),
        ("torchtitan", [None, None]),  # by its tokens, where the job says how many a step has
    ],
)
def test_the_pace_beside_a_step_is_read(name: str, seconds: list[float | None]) -> None:
    preset, _ = OF_LOGS[name]
    reader = Reader(preset)
    found = {one.step: one.figures.get("stepSeconds") for line in lines_of(name) if (one := reader.read(0, line))}
    assert list(found.values())[: len(seconds)] == seconds


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [("1.25it/s", 0.8), ("637.47s/it", 637.47), ("0.00it/s", None), ("?it/s", None), ("1e9s/it", None)],
)
def test_a_bar_tells_its_pace_by_either_of_its_rates(rate: str, seconds: float | None) -> None:
    line = f"Epoch 0:  10%|█         | 100/1000 [00:10<01:30,  {rate}, v_num=0, train_loss=2.310]"
    found = Reader("Lightning").read(0, line.encode())
    assert (found.figures.get("stepSeconds") if found else None) == seconds


@pytest.mark.parametrize("printed", ["nan", "inf", "-5.0", "200,000,000"])
@pytest.mark.parametrize(("figure", "shown"), [("tps", "tps: 3,000"), ("tflops", "tflops: 140.60")])
def test_what_no_report_may_carry_is_not_read(figure: str, shown: str, printed: str) -> None:
    line = "step:  5  loss:  7.1  memory: 21.60GiB(27.28%)  tps: 3,000  tflops: 140.60  mfu: 14.22%"
    assert shown in line
    found = Reader("TorchTitan").read(0, line.replace(shown, f"{figure}: {printed}").encode())
    assert found is None or all(0 < number <= LONGEST_SECONDS for number in found.figures.values())


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("loss", ["nan", "inf", "-0.5", "1,234.5", "3e-05"])
def test_a_loss_is_taken_as_it_is_printed(name: str, loss: str) -> None:
    preset = BY_NAME[name]
    those = (*preset.lines, *preset.confirms, *preset.figures_beside)
    lines = [line for line in those if re.search(preset.loss, line.sample)]
    assert lines
    for line in lines:
        at = re.search(preset.loss, line.sample)
        assert at is not None
        text = line.sample[: at.start("value")] + loss + line.sample[at.end("value") :]
        reader = Reader(name)
        found = [one for each in (preset.lines[0].sample, text) if (one := reader.read(0, each.encode(), 299))]
        assert found[-1].loss == loss


@pytest.mark.parametrize("timer", TIMERS, ids=lambda timer: timer.sample[:30])
def test_the_sample_of_each_timer_is_one(timer: Timer) -> None:
    assert timer.holds in timer.sample
    assert timer.source
    (preset,) = (preset for preset in PRESETS if timer in preset.timers)
    found = Reader(preset.name).read(0, timer.sample.encode())
    assert found is not None
    assert (found.step, found.preset, found.seconds) == (None, preset.name, {timer.spent_on: 0.0})


def megatron(step: int) -> bytes:
    return f" iteration {step:8d}/    1000 | elapsed time per iteration (ms): 812.4 | lm loss: 2.3E+00 |".encode()


def test_a_timer_counts_for_the_steps_since_the_line_before_and_not_for_the_first() -> None:
    """Megatron's are means over the steps of an iteration's line, and stand below it."""
    waits = b"    batch-generator ................................: (3.90, 50.00)"
    reader, spent = Reader(AUTO), []
    for line in (megatron(100), waits, megatron(200), waits, megatron(210), waits, megatron(100), waits):
        found = reader.read(0, line)
        assert found is not None
        spent += [found.seconds["inputWaitSeconds"]] if found.step is None else []
    assert spent == [0.0, 5.0, 0.5, 0.0]


def test_of_deepspeed_each_line_counts_once_steps_are_seen() -> None:
    step = b"[Rank 0] step=%d, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"
    spent = b"[Rank 0] time (ms) | fwd: 27.41 | bwd: 73.44 | bwd_inner: 50.99 | bwd_allreduce: 500.00 | step: 72.82"
    reader = Reader(AUTO)
    found = [reader.read(0, line) for line in (spent, step % 10, spent, spent, step % 20, spent)]
    assert [one.seconds["communicationSeconds"] for one in found if one and one.step is None] == [0.0, 0.5, 0.5, 0.5]


def test_numbers_that_nobody_can_hold_are_no_steps() -> None:
    assert steps(Reader("MaxText"), [b"completed step: %s, seconds: 1" % (b"9" * 40)]) == []
    assert steps(Reader("Composer"), [b"[epoch=%s][batch=5/25]:" % (b"9" * 40)]) == []


def test_a_preset_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="there is no preset Horovod"):
        Reader("Horovod")


def worst_lines() -> list[bytes]:
    """What begins like a line that counts, again and again, and never ends as one."""
    samples = [line.sample for line in (*LINES, *TIMERS)]
    begun = [sample[: len(sample) * part // 8] for sample in samples for part in range(1, 8)]
    parts = [
        *samples,
        *begun,
        *(line.holds for line in (*LINES, *TIMERS)),
        "[rank0]:",
        "1",
        " ",
        "| ",
        "[",
        "Epoch 1: ",
        "train ",
    ]
    return [(part * 4096)[:4096].encode() for part in parts]


@pytest.mark.parametrize("preset", [AUTO, "Lightning"])
def test_no_line_takes_a_preset_longer_than_the_child_lives(preset: str) -> None:
    """The kernel ends the child with SIGPROF where a line takes a second of processor time."""
    asked = b"".join(b"0 1 0 %s\n" % line for line in worst_lines()) + b"\n"
    child = subprocess.run(own_command("--match-preset", preset), input=asked, capture_output=True, check=False)
    assert (child.returncode, json.loads(child.stdout)["steps"] != []) == (0, True)


@pytest.fixture
def trainer():
    """A program that prints a log, and then stays."""

    def make(name: str, then: str = "") -> str:
        return (
            f"import os, sys, time\nsys.stdout.buffer.write(open({str(LOGS / name)!r}, 'rb').read() + "
            f"b'\\n')\nsys.stdout.flush()\n{then}\ntime.sleep(600)"
        )

    return make


def test_a_trainer_that_prints_is_read_without_being_asked_for(coordinator, run_python, trainer) -> None:
    run_python(trainer("megatron.log"), MUSTER_PROGRESS_PRESET=AUTO)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.step == 330)
    assert (report.first_step, report.progress_preset, report.progress_error) == (310, "Megatron", "")
    assert (report.printed_loss, report.printed_tokens) == ("2.300000E+00", None)
    assert report.printed_step_seconds == 4.1031
    assert report.quiet_age_seconds is not None


def test_of_a_loop_that_counts_from_its_start_again_no_step_is_reported_any_more(coordinator, run_python) -> None:
    printed = "".join(f"print('step {step} | loss 0.5', flush=True)\n" for step in (10, 20, 30))
    run_python(f"import time\n{printed}time.sleep(0.5)\n{printed}time.sleep(600)", MUSTER_PROGRESS_PRESET=AUTO)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.progress_error)
    assert (report.step, report.progress_preset, report.step_age_seconds) == (30, "PlainLoop", None)
    assert "began again, at 10 after 30" in report.progress_error


def test_what_a_trainers_timers_print_is_told_as_if_it_had_written_it(coordinator, run_python, tmp_path) -> None:
    waits = b"    batch-generator ................................: (3.90, 50.00)\n"
    speaks = b"    all-grads-sync .................................: (20.00, 90.00)\n"
    lines = b"".join(line for step in (100, 200, 300) for line in (megatron(step) + b"\n", waits, speaks))
    (tmp_path / "timers.log").write_bytes(lines)
    run_python(
        f"import sys, time\nsys.stdout.buffer.write(open({str(tmp_path / 'timers.log')!r}, "
        "'rb').read())\nsys.stdout.flush()\ntime.sleep(600)",
        MUSTER_PROGRESS_PRESET=AUTO,
    )
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.step == 300 and (r.communication_seconds or 0.0) >= 4.0)
    assert (report.input_wait_seconds, report.communication_seconds) == (10.0, 4.0)
    assert report.checkpoint_stall_seconds is None


def test_a_trainer_that_went_on_is_read_from_there(coordinator, run_python, trainer) -> None:
    run_python(trainer("lightning_resumed.log"), MUSTER_PROGRESS_PRESET="Lightning")
    coordinator.run(1, resume_path="/c/epoch=1-step=7.ckpt", resume_step=7)
    report = coordinator.wait_for(lambda r: r.step == 15)
    assert report.first_step == 8


def test_what_the_trainer_writes_goes_before_what_it_prints(coordinator, run_python, tmp_path) -> None:
    write = "open(os.environ['MUSTER_PROGRESS'], 'a').write(%r)" % (json.dumps({"step": 5}) + "\n")
    wait = f"while not os.path.exists({str(tmp_path / 'print')!r}): time.sleep(0.01)"
    late = f"{wait}\nprint(open({str(LOGS / 'megatron.log')!r}).read(), flush=True)"
    run_python(f"import os, time\n{write}\n{late}\ntime.sleep(600)", MUSTER_PROGRESS_PRESET=AUTO)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.step == 5)
    (tmp_path / "print").touch()
    report = coordinator.wait_for(lambda r: r.step == 5 and r.quiet_age_seconds < r.step_age_seconds)
    assert (report.first_step, report.progress_preset) == (5, "")
