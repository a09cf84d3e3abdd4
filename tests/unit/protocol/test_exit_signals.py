"""A signal is sent only where the command itself says that all ranks save and end by it."""

import signal

import pytest

from muster.protocol.exit_signals import exit_signal_of

SWITCH = "--exit-signal-handler"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["torchrun", "pretrain_gpt.py", SWITCH], signal.SIGTERM),
        (["torchrun", "--nnodes=2", "pretrain_gpt.py", SWITCH, "--exit-signal", "SIGUSR1"], signal.SIGUSR1),
        (["python", "-m", "torch.distributed.run", "pretrain_gpt.py", SWITCH, "--exit-signal=SIGUSR2"], signal.SIGUSR2),
        (["python3", "pretrain_gpt.py", SWITCH], signal.SIGTERM),
        (["bash", "-c", f"cd /m && torchrun pretrain_gpt.py {SWITCH} 2>&1"], signal.SIGTERM),
        (["bash", "-c", f'ARGS="--save /c {SWITCH}"; torchrun pretrain_gpt.py $ARGS'], signal.SIGTERM),
        (["torchrun", "pretrain_gpt.py"], None),
        (["torchrun", "pretrain_gpt.py", "--exit-signal", "SIGTERM"], None),
        (["torchrun", "pretrain_gpt.py", SWITCH, "--exit-signal", "SIGKILL"], None),
        (["torchrun", "pretrain_gpt.py", SWITCH, "--exit-signal", "SIGINT"], None),
        (["deepspeed", "pretrain_gpt.py", SWITCH], None),
        (["bash", "-c", f"echo {SWITCH} > notes" + " " * 40_000], None),
        (["bash", "train.sh", SWITCH], None),
        (["python3", "-m", "maxtext.trainers.pre_train.train", "enable_autocheckpoint=true"], signal.SIGTERM),
        (["python3", "/m/src/MaxText/train.py", "base.yml", "enable_autocheckpoint=True"], signal.SIGTERM),
        (["python3", "-m", "MaxText.train", "enable_autocheckpoint=true", "enable_autocheckpoint=false"], None),
        (["python3", "-m", "maxtext.trainers.pre_train.train", "base.yml"], None),
        (["python3", "train.py", "enable_autocheckpoint=true"], None),
        (["torchrun", "-m", "nemo_automodel.recipes.llm.train_ft", "-c", "a.yaml"], signal.SIGTERM),
        (["torchrun", "/a/nemo_automodel/recipes/llm/train_ft.py", "-c", "a.yaml"], signal.SIGTERM),
        (["torchrun", "-m", "nemo_automodel.recipes.llm.train_ft", "--step_scheduler.preemption_signal=USR1"], None),
        (["torchrun", "finetune.py", "-c", "nemo_automodel.yaml"], None),
    ],
)  # fmt: skip
def test_the_signal_of_a_command(command: list[str], expected: int | None) -> None:
    assert exit_signal_of(command) == expected
