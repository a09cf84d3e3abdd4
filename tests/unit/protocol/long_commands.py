"""What it costs to look at a command of many words."""

from tests.unit.counting import CountedWork

from muster.protocol.resuming import chosen


def a_command_of_many_words_takes_a_few_steps_for_each(count: int) -> None:
    command = ["python3", "train.py", *["a"] * count]
    with CountedWork() as counted:
        assert chosen("Auto", "HuggingFaceTrainer", command, "/c/checkpoint-1", "/c") == ""
        assert chosen("Auto", "HuggingFaceTrainer", [*command, "/x/run_clm.py"], "/c/checkpoint-1", "/c") != ""
    assert counted.steps < 20 * len(command)
