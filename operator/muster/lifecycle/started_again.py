"""Find shell lines that end at their second start in one pod, as `git clone URL DIR && torchrun train.py`. Pure.

Ranks are started again in pods that stay, where the directory that `git clone` or `mkdir` makes is there. A command
whose end the line does not follow gives no warning, nor does one that another command before it may have provided for.

Tests: tests/unit/lifecycle/test_started_again.py.
"""

import re
from collections.abc import Iterator, Sequence

from muster.protocol.shell_words import clauses, resolved
from muster.protocol.starters import LONGEST_LINE, shell_at, shell_line

_ENDS_WITH_A_FAILURE = re.compile(r"-[a-zA-Z]*e[a-zA-Z]*|errexit")
_PROVIDES = frozenset(("rm", "mv", "[", "[[", "test", "if"))
_MAY_MAKE_PARENTS = re.compile(r"--parents|-[a-zA-Z]*p[a-zA-Z]*")
_LONGEST_SHOWN = 120


def ends_at_second_start(command: Sequence[str]) -> str:
    """Return the command in a shell's line for which the line ends when it runs again in a pod; "" = none does."""
    line, place = shell_line(command), shell_at(command)
    if not line or place is None or len(line) > LONGEST_LINE:
        return ""
    follows = _ends(command[place + 1 : command.index(line, place)])
    before = ""
    for words, operators in _commands(line):
        follows |= words[0] == "set" and _ends(words[1:])
        if words[0] in _PROVIDES:
            return ""
        ends_line = "&&" in operators or (follows and not set("|&") & set(operators))
        if _makes_a_directory(words) and ends_line and "||" not in before:
            return " ".join(words)[:_LONGEST_SHOWN]
        before = operators
    return ""


def message(found: str) -> str:
    """Return what people should know of a command that fails at its second start, and the way around it."""
    remedy = "Write `mkdir -p`" if found.startswith("mkdir") else "Put `[ -d DIRECTORY ] ||` in front of it"
    return (
        f"`{found}` in the shell's line fails where its directory is there, and the line ends with it: ranks are "
        f"started again in pods that stay. {remedy}"
    )


def _commands(line: str) -> Iterator[tuple[tuple[str, ...], str]]:
    listed = list(clauses(line))
    found = zip(resolved(words for words, _ in listed), (operators for _, operators in listed), strict=True)
    return ((words, operators) for words, operators in found if words)


def _ends(options: Sequence[str]) -> bool:
    return any(_ENDS_WITH_A_FAILURE.fullmatch(option) for option in options)


def _makes_a_directory(words: Sequence[str]) -> bool:
    """Whether a command fails where the directory is there that it made, under a name that is the same each time."""
    if any("$" in word for word in words):
        return False
    if words[0] == "mkdir":
        return not any(_MAY_MAKE_PARENTS.fullmatch(word) for word in words[1:])
    return list(words[:2]) == ["git", "clone"]
