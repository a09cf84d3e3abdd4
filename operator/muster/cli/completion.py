"""Complete in shells: `kubectl muster completion SHELL`, and the program that kubectl's own completion runs.

Typer resolves the words of a line, by the copy of click's parser that it carries. bash, zsh and fish ask by click's own
scripts: Typer's offer files where no name is found, and the one for zsh evaluates what the program prints. kubectl
completes `kubectl muster ...` by the executable `kubectl_complete-muster`, which gets the words and prints lines of
value, tab and description, then a colon and a directive (4: offer no files).
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from click import Command
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class
from typer._completion_classes import FishComplete
from typer.main import get_command

from muster.cli import show

PROGRAM = "kubectl-muster"
VARIABLE = "_KUBECTL_MUSTER_COMPLETE"
NO_FILES = ":4"


class Shell(StrEnum):
    """A shell for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a completion script of a shell, for kubectl-muster.

    kubectl muster itself needs none (docs/cli.md).
    """
    typer.echo(_asking(shell).source(), nl=False)


def answer_shell(app: typer.Typer, instruction: str) -> None:
    """Print what may stand at the cursor, as click's script for a shell reads it, which instructs by bash_complete and
    the like."""
    shell = _asking(instruction.removesuffix("_complete"))
    complete_words, current = shell.get_completion_args()
    option, equals, _ = current.partition("=")
    for item in offers(app, complete_words, current):
        if equals and option.startswith("-"):  # zsh and fish replace the whole word; bash splits it at the =
            item.value = f"{option}={item.value}"
        typer.echo(shell.format_completion(item))


def answer_kubectl(app: typer.Typer, words: Sequence[str]) -> None:
    """Print what may stand at the cursor, as kubectl reads it. The last of the words after the program's name is being
    typed, and may be empty."""
    *complete_words, current = words or [""]
    for item in offers(app, complete_words, current):
        typer.echo(f"{item.value}\t{item.help}".rstrip("\t"))
    typer.echo(NO_FILES)


def offers(app: typer.Typer, complete_words: Sequence[str], current: str) -> list[CompletionItem[str]]:
    """Return what may stand at the cursor."""
    resolver = FishComplete(get_command(app), {}, PROGRAM, VARIABLE)
    words = [word for word in complete_words if word != "="]  # bash splits --output=json into three words
    return [
        CompletionItem(item.value, item.type, show.on_one_line(item.help or ""))
        for item in resolver.get_completions(words, current)
    ]


def _asking(shell: str) -> ShellComplete:
    """Return a shell's script and form of answers; without commands, as click's parser does not resolve Typer's."""
    kind = get_completion_class(shell)
    if kind is None:
        sys.exit(f"error: {VARIABLE} names {shell!r}, and there is a script for bash, zsh and fish")
    return kind(Command(None), {}, PROGRAM, VARIABLE)
