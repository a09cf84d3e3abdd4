"""The work for a command that is as long as a launcher can be given."""

from tests.unit.protocol.long_commands import a_command_of_many_words_takes_a_few_steps_for_each


def test_a_command_of_many_words_takes_a_few_steps_for_each() -> None:
    a_command_of_many_words_takes_a_few_steps_for_each(150_000)
