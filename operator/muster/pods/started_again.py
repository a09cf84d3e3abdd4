"""Find shell lines that end at their second start in one pod, as `git clone URL DIR && torchrun train.py`. Pure.

Ranks are started again in pods that stay, where the directory that `git clone` or `mkdir` makes is there. A command
whose end the line does not follow gives no warning, nor does one that another command before it may have provided for.

Tests: tests/unit/pods/test_started_again.py.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from muster.protocol.shell_words import clauses, resolved
from muster.protocol.starters import LONGEST_LINE, shell_at, shell_line

_KEPT_LINES = 4096  # as many jobs may have one each, and each decision asks again
_ERREXIT = re.compile(r"([-+])(?:[a-zA-Z]*e[a-zA-Z]*|o errexit)\b")
_PROVIDES = frozenset(("rm", "rmdir", "mv", "find", "[", "[[", "test", "if"))
_MAY_MAKE_PARENTS = re.compile(r"--parents|-[a-zA-Z]*p[a-zA-Z]*")
_LONGEST_SHOWN = 120


def ends_at_second_start(command: Sequence[str]) -> str:
    """Return the command in a shell's line for which the line ends when it runs again in a pod; "" = none does."""
    line, place = shell_line(command), shell_at(command)
    if not line or place is None or len(line) > LONGEST_LINE:
        return ""
    return _found(line, _errexit(command[place + 1 : command.index(line, place)], errexit_before=False))


def message(failing: str) -> str:
    """Return what people should know of a command that fails at its second start, and the way around it."""
    remedy = "Write `mkdir -p`" if failing.startswith("mkdir") else "Put `[ -d DIRECTORY ] ||` in front of it"
    return (
        f"`{failing}` in the shell's line fails where its directory is there, and the line ends with it: ranks are "
        f"started again in pods that stay. {remedy}"
    )


@lru_cache(maxsize=_KEPT_LINES)
def _found(line: str, errexit: bool) -> str:
    listed, operators_before = list(_commands(line)), ""
    for at, (words, operators) in enumerate(listed):
        if words[0] in _PROVIDES or (words[0] == "cd" and any("$" in word for word in words)):
            return ""
        if words[0] == "set":
            errexit = _errexit(words[1:], errexit)
        if _makes_a_directory(words) and "||" not in operators_before:
            behind = "".join(operators for _, operators in listed[at:-1])
            if (errexit and not set("|&") & set(operators)) or _is_one_and_list(operators, behind):
                return " ".join(words)[:_LONGEST_SHOWN]
        operators_before = operators
    return ""


def _is_one_and_list(operators: str, behind: str) -> bool:
    """Whether a command's failure ends the line, as all that follows stands behind an `&&`, at most with a pipe."""
    return "&&" in operators and "||" not in behind and not behind.replace("&&", "").replace("|", "").strip(" \t")


def _commands(line: str) -> Iterator[tuple[tuple[str, ...], str]]:
    listed = list(clauses(line))
    pairs = zip(resolved(words for words, _ in listed), (operators for _, operators in listed), strict=True)
    return ((words, operators) for words, operators in pairs if words)


def _errexit(options: Sequence[str], errexit_before: bool) -> bool:
    """Whether a failure ends the line once these options of `set`, or of the shell, count."""
    signs = _ERREXIT.findall(" ".join(option for option in options if not option.startswith("--")))
    return signs[-1] == "-" if signs else errexit_before


def _makes_a_directory(words: Sequence[str]) -> bool:
    """Whether a command fails where the directory is there that it made, under a name that is the same each time."""
    if any("$" in word for word in words):
        return False
    if words[0] == "mkdir":
        return not any(_MAY_MAKE_PARENTS.fullmatch(word) for word in words[1:])
    return list(words[:2]) == ["git", "clone"]
