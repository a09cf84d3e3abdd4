"""Describe how training frameworks print their steps: one table of presets, for log readers and for messages.

A line counts when the framework finished a training step with it, numbered over the whole training as its checkpoints
are: lines of evaluations, downloads or data sets do not match. Colours are removed first
(muster.node.launcher.printed).

Each pattern is one pass from left to right over a line: no repetition contains another one. `sample` is a line as the
source prints it; tests search it for its step.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

from muster.protocol.messages import COMMUNICATION, INPUT_WAIT

AUTO = "Auto"  # all that are distinct
OFF = "Off"
PLAIN_LOOP = "PlainLoop"  # no preset, but what AUTO reads of loops of users' own (muster.node.launcher.plainloop)


class Line(NamedTuple):
    """One kind of line with a step.

    Attributes:
        holds: a text that every line of this kind holds; other lines are not matched.
        pattern: with a group `step`; with `epoch` and `total` the step is that of an epoch of so many, with `unnamed`
            that of the epoch in whose middle the program resumed. With `restored` it is no news where it is the step of
            the checkpoint. In a line that confirms, `total` is that of the bar that counts.
        sample: as it is printed.
        source: project, file, version.
    """

    holds: str
    pattern: str
    sample: str
    source: str


class Timer(NamedTuple):
    """A line with the time of steps that was not computing, in milliseconds.

    Attributes:
        spent_on: INPUT_WAIT or COMMUNICATION of muster.protocol.messages.
        holds: a text that every line of this kind holds.
        pattern: with a group `value`; or with `least` and `most` of all ranks. Input counts by the most, because all
            wait for the slowest; communication by the least, because the others' waits for the slowest are in theirs.
        is_mean: it has the mean of the steps up to the newest line, else the sum since the last line of this kind.
        sample: as it is printed.
        source: project, file, version.
    """

    spent_on: str
    holds: str
    pattern: str
    is_mean: bool
    sample: str
    source: str


class LinePreset(NamedTuple):
    """The lines of one framework.

    Attributes:
        name: in spec.progress.preset.
        lines: those with a step.
        begins: lines of a step that begins, with its number, or with that of an epoch (`epoch_begins`). Such a step is
            finished by the next of `lines`, which have no number then.
        figures_beside: lines that print figures of the newest step, and not its number.
        confirms: another line of the framework, where its steps are in a bar like any other. Steps count from then on,
            of bars that are as long as the newest one was then.
        needs: requirements that people have to know, "" = none.
        loss: finds the loss in such a line (or in one that confirms, or beside), as a group `value`, "" = none prints
            it.
        tokens: likewise, the tokens that each accelerator trains in a second.
        pace: likewise, the time of a step, as a group `seconds` or `milliseconds`, or `rate`: steps in a second.
        tflops: likewise, the operations of each accelerator in a second, in 10^12.
        mfu: likewise, the share of its peak, as a group `percent` or `value`.
        timers: lines with the time of steps that was not computing.
        is_distinct: no other program prints such lines, and their numbers are those of the checkpoints; else the preset
            counts only by name.
    """

    name: str
    lines: Tuple[Line, ...]
    confirms: Tuple[Line, ...] = ()
    needs: str = ""
    loss: str = ""
    tokens: str = ""
    pace: str = ""
    tflops: str = ""
    mfu: str = ""
    timers: Tuple[Timer, ...] = ()
    is_distinct: bool = True
    figures_beside: Tuple[Line, ...] = ()
    begins: Tuple[Line, ...] = ()


_VALUE = r"(?P<value>nan|-?inf|-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\b"
_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_SHORT = r"(?:%s)[KMBT]?\b" % _NUMBER  # 11.5K
_BAR_PACE = r", *(?:(?P<rate>%s)(?:it|ba)/s|(?P<seconds>%s)s/(?:it|ba))" % (_NUMBER, _NUMBER)  # tqdm's
# Before a line whose beginning counts: `[rank0]:`, `[default0]:` of torchrun, `[0]:`, `0:` of srun, and
# `(RayTrainWorker pid=2285, ip=10.0.0.1)` of Ray.
_RANK = r"^\s*(?:\[[A-Za-z_]*\d+\]: ?|\d+: |\([A-Za-z_]\w{0,63} pid=\d+(?:, ip=[\d.]{1,15})?\) ){0,2}"
# Of Megatron's timers: that of one rank, or of all ranks the least and the most.
_SPREAD = r" \.*: (?:\((?P<least>%s), (?P<most>%s)\)|(?P<value>%s))\s*$" % (_NUMBER, _NUMBER, _NUMBER)
_MEGATRON_TIMERS = "Megatron-LM, core 0.20.0, megatron/core/timers.py (log), "
_HUGGING_FACE = "transformers 5.23.0, trainer_callback.py"
_COMPOSER = "composer 0.32.1, loggers/"
_NEMO_RL = "NeMo RL 7ea279abf, nemo_rl/algorithms/"

PRESETS: Tuple[LinePreset, ...] = (
    LinePreset(
        "HuggingFaceTrainer",
        (
            Line(
                "%|",
                # A bar below another one, as that of an evaluation, is followed by the way back up to it (ESC [A). What
                # a logger prints next is appended to the newest drawing.
                _RANK
                + r"\s*(?:Train: +)?\d+%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) \[[^\],]*, *[\d.?]+(?:it/s|s/it)\](?:\s*$|[^\s\x1b])",  # noqa: E501
                " 60%|██████    | 301/500 [00:02<00:01, 148.51it/s]",
                _HUGGING_FACE
                + " (ProgressCallback); tqdm 4.70, std.py; `Train:` before it: ms-swift, swift/trainers/callback.py, "
                "swift/megatron/callbacks/print_callback.py",
            ),
        ),
        (
            Line(
                "'loss': ",
                # Two streams in one log: the line is appended to the drawing before it.
                _RANK + r"(?:\s*(?:Train: +)?\d+%\|[^|]*\|[^{]*\])?\{'loss': .*'(?:epoch|iteration)': ",
                "{'loss': '2.17', 'grad_norm': '3.1', 'learning_rate': '1.98e-05', 'epoch': '3.02'}",
                _HUGGING_FACE + " (ProgressCallback)",
            ),
            Line(
                "Total optimization steps",
                r"Total optimization steps = (?P<total>[\d,]+)",
                "  Total optimization steps = 1,000",
                "transformers 5.23.0, trainer.py",
            ),
            Line(
                "Total steps = ",
                r"\b(?:Num Epochs|Total batch size) = [\d,]+ \| Total steps = (?P<total>[\d,]+)\s*$",
                "   \\\\   /|    Num examples = 210,289 | Num Epochs = 1 | Total steps = 60",
                "unsloth, unsloth/models/llama.py (the head in place of the Trainer's)",
            ),
        ),
        needs="its bar looks like any other, so steps count from the first line of losses on (`logging_steps`, 500 "
        "by default; `logging_first_step=True`), or from `Total optimization steps` (`log_level=info`; in Unsloth's "
        "head `Total steps`). With `disable_tqdm` no step is printed",
        loss=r"'loss': '?" + _VALUE,
        pace=_BAR_PACE,
    ),
    LinePreset(
        "Lightning",
        (
            Line(
                "Epoch ",
                _RANK
                + r"\s*Epoch (?P<epoch>\d+)(?:/\d+)?: +\d+%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) \[[^\],]*, *[\d.?]+(?:it/s|s/it)[\],]",  # noqa: E501
                "Epoch 3:  10%|█         | 100/1000 [00:10<01:30,  9.98it/s, v_num=0, train_loss=2.310]",
                "lightning 2.6.6, callbacks/progress/tqdm_progress.py",
            ),
            Line(
                "Epoch 0",  # of a loader of unknown length, until its first epoch ends
                _RANK + r"\s*Epoch 0(?:/\d+)?: +\|[^|]*\| (?P<step>\d+)/\? \[[^\],]*, *[\d.?]+(?:it/s|s/it)[\],]",
                "Epoch 0: |          | 3/? [00:52<00:00,  0.06it/s, v_num=0, train_loss=14.80]",
                "lightning 2.6.6, callbacks/progress/tqdm_progress.py (on_train_epoch_start)",
            ),
            Line(
                "Training: ",
                # After it has resumed in the middle of an epoch, until that ends: it names neither its number nor its
                # length.
                _RANK + r"\s*(?P<unnamed>Training): +\|[^|]*\| (?P<step>\d+)/\? \[[^\],]*, *[\d.?]+(?:it/s|s/it)[\],]",
                "Training: |          | 3/? [00:00<00:00, 39.08it/s, train_loss=0.199]",
                "lightning 2.6.6, loops/fit_loop.py (on_advance_start)",
            ),
        ),
        needs="it prints batches of an epoch, from which the step is computed. It is the same as in its checkpoints "
        "with one optimizer, `accumulate_grad_batches=1` and epochs of one length. After a resume in the middle of an "
        "epoch it counts on without naming the epoch. Until the epoch ends, steps are counted from "
        "`MUSTER_RESUME_STEP`, too low by less than `refresh_rate`. `RichProgressBar` prints nothing into a log. Of "
        "a loader of unknown length only the first epoch counts",
        loss=r"[ ,\[](?:train(?:ing)?[_/])?loss(?:[_/]step)?=" + _VALUE,
        pace=_BAR_PACE,
        is_distinct=False,
    ),
    LinePreset(
        "Diffusers",
        (
            Line(
                "Steps: ",
                # It resumes at its old position, and is drawn so before the first step where gradients are accumulated.
                _RANK + r"\s*Steps: +\d+%\|[^|]*\| (?P<step>\d+)/\d+ \[[^\],]*, *[\d.?]+(?:it/s|s/it)(?P<restored>,)"
                r"(?=[^\]]* lr=)(?=[^\]]* (?:step_)?loss=)",
                "Steps:  30%|███       | 300/1000 [01:03<02:28,  4.71it/s, lr=0.0001, step_loss=0.0231]",
                "diffusers 0.36, examples/text_to_image/train_text_to_image_lora.py; tqdm 4.70, std.py",
            ),
        ),
        needs="the bar of its example scripts and of those made from them. Before diffusers 0.22 they counted from 1 "
        "after a resume: there `Off`",
        loss=r" (?:step_)?loss=" + _VALUE,
        pace=_BAR_PACE,
    ),
    LinePreset(
        "Torchtune",
        (
            Line(
                "|Loss: ",
                _RANK + r"\s*\d+\|(?P<step>\d+)\|Loss: [-+\w.,]+: +\d+%\|",
                "4|300|Loss: 2.3100430965423584:  50%|█████     | 50/100 [00:41<00:41,  1.21it/s]",
                "torchtune 0.6, recipes/full_finetune_distributed.py",
            ),
        ),
        needs="it prints steps and numbers its checkpoints by epochs (`epoch_3`), unless it saves by steps "
        "(`save_every_n_steps`). With epochs the steps since a checkpoint are counted too high",
        loss=r"\|Loss: " + _VALUE,
        pace=_BAR_PACE,
        is_distinct=False,
    ),
    LinePreset(
        "Megatron",
        (
            Line(
                " iteration ",
                r" iteration +(?P<step>\d+)/ *\w+ \|.* elapsed time per iteration \(ms\): ",
                " [2026-08-22 10:00:00.123456] iteration      300/    1000 | consumed samples:        76800 | "
                "elapsed time per iteration (ms): 812.4 | learning rate: 1.500000E-04 | global batch size:   256 | "
                "lm loss: 2.310000E+00 |",
                "Megatron-LM, core 0.20.0, megatron/training/training.py (training_log)",
            ),
        ),
        needs="printed every `--log-interval` (100) steps, by the last rank",
        loss=r" lm loss: +" + _VALUE,
        pace=r" elapsed time per iteration \(ms\): (?P<milliseconds>%s)" % _NUMBER,
        tflops=r" throughput per GPU \(TFLOP/s/GPU\): +%s| TFLOPs: +(?P<of_deepspeed>%s) \|"
        r"| GPU utilization: +(?P<of_bridge>%s) ?MODEL_TFLOP/s/GPU" % (_VALUE, _NUMBER, _NUMBER),
        figures_beside=(
            Line(
                "MODEL_TFLOP/s/GPU",
                r"\bStep Time ?: ",
                "Step Time : 9.09s GPU utilization: 663.5MODEL_TFLOP/s/GPU",
                "Megatron Bridge, src/megatron/bridge/training/utils/train_utils.py (training_log)",
            ),
        ),
        timers=(
            Timer(
                INPUT_WAIT,
                "batch-generator ",
                _RANK + r"\s*batch-generator" + _SPREAD,
                True,
                "    batch-generator ................................: (3.90, 43.10)",
                _MEGATRON_TIMERS + "pretrain_gpt.py (get_batch), with `--timing-log-level 2`",
            ),
            Timer(
                COMMUNICATION,
                "grads-",
                _RANK + r"\s*(?:all-grads-sync|[a-z-]*grads-(?:all-reduce|reduce-scatter))" + _SPREAD,
                True,
                "    all-grads-sync .................................: (12.10, 15.20)",
                _MEGATRON_TIMERS + "megatron/core/distributed/finalize_model_grads.py, with `--timing-log-level 1`",
            ),
            Timer(
                COMMUNICATION,
                "params-all-gather ",
                _RANK + r"\s*params-all-gather" + _SPREAD,
                True,
                "    params-all-gather ..............................: (8.30, 9.10)",
                _MEGATRON_TIMERS + "megatron/core/optimizer/distrib_optimizer.py, with `--timing-log-level 1`",
            ),
        ),
    ),
    LinePreset(
        "TorchTitan",
        (
            Line(
                "step: ",
                r"(?<!validate )step: +(?P<step>\d+)  loss: ",
                "[titan] 2026-08-22 10:00:00,123 - root - INFO - step: 300  loss:  2.31000  grad_norm:  0.8100  "
                "memory: 44.21GiB(55.90%)  tps: 7,104  tflops: 411.20  mfu: 41.58%",
                "torchtitan 0.2.2, components/metrics.py (MetricsProcessor.log)",
            ),
        ),
        needs="printed every `--metrics.log_freq` (10) steps",
        loss=r" loss: +" + _VALUE,
        tokens=r" tps: +" + _VALUE,
        tflops=r" tflops: +" + _VALUE,
        mfu=r" mfu: +(?P<percent>%s)%%" % _NUMBER,
    ),
    LinePreset(
        "DeepSpeed",
        (
            Line(
                "step=",
                # `global_step=` of its timer counts from 1 after each resume.
                r"(?<![\w/])step=(?P<step>\d+), skipped=\d+, lr=",
                "[2026-08-22 10:00:00,123] [INFO] [logging.py:128:log_dist] [Rank 0] step=300, skipped=0, "
                "lr=[0.001], mom=[(0.9, 0.999)]",
                "deepspeed 0.19.6, runtime/engine.py (_report_progress)",
            ),
            Line(
                "steps: ",
                r"\bsteps: (?P<step>\d+) loss: .*iter time \(s\): ",
                "steps: 300 loss: 2.3100 iter time (s): 0.812 samples/sec: 315.271",
                "deepspeed 0.19.6, runtime/pipe/engine.py (train_batch)",
            ),
        ),
        needs="printed where the configuration has `steps_per_print`, which newer versions leave out by default",
        loss=r" loss: +" + _VALUE,
        pace=r" iter time \(s\): (?P<seconds>%s)" % _NUMBER,
        timers=(
            Timer(
                COMMUNICATION,
                "_allreduce: ",
                r"time \(ms\) \| .*(?:bwd|backward)_allreduce: (?P<value>%s)" % _NUMBER,
                False,
                "[Rank 0] time (ms) | fwd: 27.41 | bwd: 73.44 | bwd_inner: 50.99 | bwd_allreduce: 22.40 | step: 72.82",
                "deepspeed 0.19.6, utils/timer.py (log), runtime/engine.py, with `wall_clock_breakdown`; not true "
                "with `overlap_comm` (deepspeedai/DeepSpeed#617)",
            ),
            Timer(
                INPUT_WAIT,
                "batch_input: ",
                r"time \(ms\) \| .*?\bbatch_input: (?P<value>%s)" % _NUMBER,
                False,
                "[Rank 0] time (ms) | batch_input: 209.59 | fwd_microstep: 2785.85 | bwd_microstep: 5153.22 | "
                "bwd_inner_microstep: 5153.13 | bwd_allreduce_microstep: 0.00 | step_microstep: 12.50",
                "deepspeed 0.19.6, runtime/pipe/engine.py (_exec_optimizer_step), with `wall_clock_breakdown`",
            ),
        ),
    ),
    LinePreset(
        "Composer",
        # A bar that was restored from a checkpoint counts `it` in place of `ba`, until the next epoch, and begins at
        # its old position.
        (
            Line(
                "Epoch ",
                r"\btrain +Epoch +(?P<epoch>\d+): +\d+%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) \[[^\],]*, "
                r"*[\d.?]+(?:ba/s|s/ba|(?P<restored>it/s|s/it))",
                "train          Epoch   3:    20%|█████                    | 5/25 [00:01<00:04,  4.71ba/s, "
                "loss/train/total=2.3100]",
                _COMPOSER + "progress_bar_logger.py",
            ),
            Line(
                "train ",
                r"\btrain +\d+%\|[^|]*\| (?P<step>\d+)/\d+ \[[^\],]*, *[\d.?]+(?:ba/s|s/ba|(?P<restored>it/s|s/it))",
                "train                         30%|███████▌                 | 300/1000 [01:03<02:28,  4.71ba/s, "
                "loss/train/total=2.3100]",
                _COMPOSER + "progress_bar_logger.py",
            ),
            Line(
                "[epoch=",
                _RANK + r"\[epoch=(?P<next_epoch>\d+)\]\[batch=(?P<step>\d+)/(?P<total>\d+)\]:?\s*$",
                "[epoch=4][batch=5/25]:",
                _COMPOSER + "console_logger.py",
            ),
            Line(
                "[batch=",
                _RANK + r"\[batch=(?P<step>\d+)/\d+\]:?\s*$",
                "[batch=300/1000]:",
                _COMPOSER + "console_logger.py",
            ),
        ),
        needs="only with `max_duration` in epochs (`ep`) or batches (`ba`), and epochs of known length",
        loss=r" loss/train/total=" + _VALUE,
        pace=_BAR_PACE,
    ),
    LinePreset(
        "MaxText",
        (
            Line(
                "completed ",
                r"\bcompleted (?:profiler activation/deactivation )?step: (?P<step>\d+), ",
                "completed step: 300, seconds: 5.668, TFLOP/s/device: 134.909, Tokens/s/device: 8671.794, "
                "total_weights: 196608, loss: 2.310",
                "MaxText e591f30cb, src/maxtext/common/metric_logger.py",
            ),
        ),
        needs="it numbers steps from 0, as its checkpoints do: the first one does not count",
        loss=r" loss: +" + _VALUE,
        tokens=r" Tokens/s/device: +" + _VALUE,
        pace=r", seconds: (?P<seconds>%s)" % _NUMBER,
        tflops=r" TFLOP/s(?:/device)?: +" + _VALUE,
    ),
    LinePreset(
        "NeMo",
        (
            Line(
                "Training epoch ",
                r"\bTraining epoch \d+, iteration [^|]*\|.* global_step: (?P<step>\d+)\b",
                "Training epoch 0, iteration 300/999 | lr: 0.0003 | global_batch_size: 512 | global_step: 300 | "
                "reduced_train_loss: 2.31 | train_step_timing in s: 0.812 | consumed_samples: 154112",
                "NeMo 2.6.0rc0, nemo/lightning/pytorch/callbacks/progress_printer.py",
            ),
        ),
        needs="it numbers steps from 0, as its checkpoints do: the first one does not count",
        loss=r" reduced_train_loss: +" + _VALUE,
        tokens=r" tokens_per_sec_per_gpu: +" + _VALUE,
        pace=r" train_step_timing in s: (?P<seconds>%s)" % _NUMBER,
        tflops=r" (?:TFLOPS_per_GPU|tflops_per_sec_per_gpu): +" + _VALUE,
    ),
    LinePreset(
        "PaddleNLP",
        (
            Line(
                "global_step: ",
                # Its bar (`TrainProcess:`) may stand before it on the same line.
                r"(?<!_)\bloss: \S{1,40}, learning_rate: \S{1,40}, global_step: (?P<step>\d+), "
                r"(?:interval|current|max)_",
                "[2026-08-22 10:00:00,123] [    INFO] - loss: 2.31, learning_rate: 2.99e-05, global_step: 300, "
                "interval_runtime: 8.12, interval_samples_per_second: 315.27, interval_steps_per_second: 1.2315, "
                "epoch: 0.0265",
                "PaddleNLP 3.0, paddlenlp/trainer/trainer.py (_maybe_log_save_evaluate), trainer_callback.py",
            ),
        ),
        needs="printed every `logging_steps` steps, at level `info`",
        loss=r"(?<!_)\bloss: " + _VALUE,
        tokens=r" interval_tokens_per_second_per_device: " + _VALUE,
        pace=r" interval_steps_per_second: (?P<rate>%s)" % _NUMBER,
    ),
    LinePreset(
        "Verl",
        (
            Line(
                "step:",
                # Evaluations alone (`val-core/...`) are printed with the newest step, too.
                _RANK + r"step:(?P<step>\d+) - (?:.* - )?(?:actor/pg_loss|training/global_step|timing_s/step"
                r"|train/loss):",
                "(TaskRunner pid=2285) step:300 - actor/pg_loss:0.0423 - actor/grad_norm:0.1296 - "
                "perf/mfu/actor:0.343 - training/global_step:300 - timing_s/step:96.551 - perf/throughput:1846.2",
                "verl 1dda039b9, verl/utils/logger/aggregate_logger.py (concat_dict_to_str), "
                "verl/trainer/ppo/metric_utils.py (compute_throughout_metrics), verl/trainer/sft_trainer_ray.py",
            ),
        ),
        needs="printed with `console` in `trainer.logger`. Of a line longer than 4,096 bytes the rest is not read: "
        "newer versions print so much that `perf/throughput` is behind that",
        loss=r" - (?:actor/pg_loss|train/loss):(?:np\.\w{5,8}\()?" + _VALUE,
        tokens=r" - perf/throughput:(?:np\.\w{5,8}\()?" + _VALUE,
        pace=r" - (?:perf/time_per_step|timing_s/step):(?P<seconds>%s)" % _NUMBER,
        mfu=r" - (?:perf/mfu/actor|train/mfu):(?:np\.\w{5,8}\()?" + _VALUE,
    ),
    LinePreset(
        "NeMoRL",
        (
            Line(
                "Training Results:",
                _RANK + r"\s*(?:\S{1,4} )?Training Results:\s*$",
                "\U0001f4ca Training Results:",
                _NEMO_RL + "grpo.py, sft.py, dpo.py, rm.py, ppo.py, distillation.py",
            ),
        ),
        begins=(
            Line(
                "= Step ",
                _RANK + r"={5,} Step (?P<step>\d+)/(?P<total>\d+) ={5,}\s*$",
                "========================= Step 3/100 =========================",
                _NEMO_RL + "grpo.py",
            ),
            Line(
                "= Epoch ",
                _RANK + r"={5,} Epoch (?P<epoch_begins>\d+)/\d+ ={5,}\s*$",
                "========================= Epoch 1/10 =========================",
                _NEMO_RL + "sft.py",
            ),
        ),
        needs="it numbers the steps of an epoch. The epochs before count as long as the newest one. So a data set "
        "whose epoch is longer than `max_num_steps` is counted right in its first epoch alone",
        loss=r"\u2022 (?:Policy )?[Ll]oss: " + _VALUE,
        tokens=r"- E2E \(Tokens/sec/gpu\): " + _VALUE,
        pace=r"\u2022 Total step time: (?P<seconds>%s)s" % _NUMBER,
        tflops=r"\((?P<value>%s) TFLOPS per rank\)" % _NUMBER,
        mfu=r"\u2022 Training Model Floating Point Utilization: (?P<percent>%s)%%" % _NUMBER,
        figures_beside=(
            Line(
                "\u2022 ",
                _RANK + r"\s*\u2022 (?:(?:Policy )?[Ll]oss|Total step time|Training FLOPS"
                r"|Training Model Floating Point Utilization): ",
                "  \u2022 Loss: 0.6931",
                _NEMO_RL + "grpo.py",
            ),
            Line(
                "- E2E (Tokens/sec/gpu): ",
                _RANK + r"\s*- E2E \(Tokens/sec/gpu\): ",
                "    - E2E (Tokens/sec/gpu): 1199.04",
                _NEMO_RL + "utils.py (print_performance_metrics)",
            ),
        ),
    ),
    LinePreset(
        "Nanotron",
        (
            Line(
                "]: iteration: ",
                r"\]: iteration: (?P<step>\d+) / \d+ \| .* tokens_per_sec_per_gpu: ",
                "08/22 10:00:00 [INFO|DP=0|PP=0|TP=0]: iteration: 300 / 1000 | consumed_tokens: 85.8M | "
                "time_per_iteration_ms: 812 | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | "
                "global_batch_size: 64K | lm_loss: 2.31 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | eta: 0:09:28",
                "nanotron 2411b022, src/nanotron/trainer.py (train_step_logs), src/nanotron/logging/base.py",
            ),
        ),
        needs="printed every `iteration_step_info_interval` steps",
        loss=r" lm_loss: " + _VALUE,
        tokens=r" tokens_per_sec_per_gpu: (?P<value>%s)" % _SHORT,
        pace=r" (?:elapsed_)?time_per_iteration_ms: (?P<milliseconds>%s)" % _SHORT,
        tflops=r" model_tflops_per_gpu: (?P<value>%s)" % _SHORT,
    ),
    LinePreset(
        "OLMoCore",
        (
            Line(
                "[step=",
                r"\[step=(?P<step>\d+)/(?:\d+|\?\?\?),epoch=\d+(?:,eta=[^\]]*)?\]\s*$",
                "2026-08-22 10:00:00.123\tgpu-1:0\tolmo_core.train.callbacks.console_logger:84\tINFO\t"
                "[step=300/1000,epoch=1,eta=0:09:28]",
                "OLMo-core fa6c5014c, src/olmo_core/train/callbacks/console_logger.py (log_metrics)",
            ),
        ),
        needs="what belongs to a step stands in the lines below it",
        loss=r" train/CE loss=" + _VALUE,
        tokens=r" throughput/device/TPS=" + _VALUE,
        tflops=r" throughput/device/flopsPS=(?P<value>%s)T$" % _NUMBER,
        mfu=r" throughput/device/MFU=(?P<percent>%s)" % _NUMBER,
        figures_beside=tuple(
            Line(
                name,
                _RANK + r"\s* " + name,
                sample,
                "OLMo-core fa6c5014c, src/olmo_core/train/callbacks/" + where,
            )
            for name, sample, where in (
                ("train/CE loss=", "    train/CE loss=2.310", "console_logger.py"),
                ("throughput/device/", "    throughput/device/TPS=258,163", "speed_monitor.py"),
            )
        ),
    ),
    LinePreset(
        "LitGPT",
        (
            Line(
                "iter time: ",
                # `Epoch 1 | iter 8 step 2 | loss train:` now, `iter 8 | step 2: loss` and the like before.
                r"\biter \d+(?: \|)? step (?P<step>\d+)(?: \||:) loss .* iter time: ",
                "Epoch 1 | iter 1200 step 300 | loss train: 2.310, val: 2.342 | iter time: 112.20 ms (step) remaining "
                "time: 0:01:54",
                "LitGPT, litgpt/pretrain.py, litgpt/finetune/*.py (fit)",
            ),
        ),
        needs="the time that it prints is that of a micro-batch",
        loss=r" loss (?:train(?: \(curr\))?: )?" + _VALUE,
    ),
    LinePreset(
        "XTuner",
        (
            Line(
                " Step ",
                r"\] Epoch \d+ Step (?P<step>\d+)/\d+ data_time: ",
                "[XTuner][RANK 0][2026-08-22 10:00:00][INFO] Epoch 1 Step 300/1000 data_time: 0.0100 lr: 1.000000e-05 "
                "time: 1.2345 text_tokens: 4096 reduced_llm_loss: 2.31000000 grad_norm: 0.81200000 tgs: 3318.0 "
                "eta: 0:14:24",
                "XTuner b934f4620, xtuner/v1/train/trainer.py (_log_step)",
            ),
            Line(
                "Train step ",
                r"\] Train step (?P<step>\d+)/\d+(?! start)\b",
                "[XTuner][2026-08-22 10:00:00][INFO] Train step 300/1000",
                "XTuner b934f4620, xtuner/v1/train/rl_trainer.py",
            ),
            Line(
                "Iter(train) ",
                r" Iter\(train\) \[ *(?P<step>\d+)/\d+\] ",
                "2026/08/22 10:00:00 - mmengine - INFO - Iter(train) [ 300/1000]  lr: 3.3994e-05  eta: 0:29:39  "
                "time: 2.9010  data_time: 0.0192  memory: 15266  loss: 0.7605",
                "XTuner 0.1, by mmengine 0.10, mmengine/runner/log_processor.py",
            ),
        ),
        needs="before version 1 it counted micro-batches, as its checkpoints (`iter_500.pth`) did",
        loss=r" (?:reduced_llm_)?loss: " + _VALUE,
        tokens=r" tgs: " + _VALUE,
        pace=r" time: (?P<seconds>%s)" % _NUMBER,
    ),
)
BY_NAME = {preset.name: preset for preset in PRESETS}
