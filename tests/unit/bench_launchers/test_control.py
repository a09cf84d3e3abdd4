"""Commands of a bench: each form, and what is no form."""

import pytest
from bench.launchers.control import Command, CommandError, FailRanks, Restore, Silence, Statistics, parse

COMMANDS: dict[str, tuple[str, Command]] = {
    "ranks fail": ('{"fail_ranks": ["a", "b"], "exit_code": 3}', FailRanks(("a", "b"), 3)),
    "with code 1": ('{"fail_ranks": ["a"]}', FailRanks(("a",), 1)),
    "a node that has power again": ('{"restore_node": "gpu-00017"}', Restore("gpu-00017")),
    "a node": ('{"silence_node": "gpu-00017"}', Silence(node="gpu-00017")),
    "pods": ('{"silence_pods": ["a"]}', Silence(pods=("a",))),
    "statistics": ('{"statistics": true}', Statistics()),
}
NONSENSE = {
    "misspelt": '{"fail_ranks": ["a"], "exitcode": 1}',
    "two at once": '{"silence_node": "a", "silence_pods": ["b"]}',
}


@pytest.mark.parametrize(("line", "want"), COMMANDS.values(), ids=COMMANDS)
def test_commands(line: str, want: Command) -> None:
    assert parse(line) == want


@pytest.mark.parametrize("line", NONSENSE.values(), ids=NONSENSE)
def test_what_would_be_half_done_is_refused(line: str) -> None:
    with pytest.raises(CommandError):
        parse(line)
