"""Have the user confirm on the terminal what nothing undoes.

Tests: tests/unit/cli/test_cancel.py, tests/unit/cli/test_lost.py.
"""

import signal
import sys

import typer

from muster.cli.errors import CliError


async def confirm(question: str, remedy: str = "add --yes") -> None:
    """Ask on the terminal.

    Args:
        question: what to confirm.
        remedy: what to do where there is no terminal.

    Raises:
        CliError: there is no terminal, or the answer was no.
        typer.Abort: Ctrl-C, or the end of the input.
    """
    if not is_terminal():
        raise CliError(f"this has to be confirmed, and there is no terminal to ask: {remedy}. Nothing was changed")
    # The event loop would only cancel its task upon Ctrl-C, and wait on for the answer.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        is_confirmed = typer.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, previous)
    if not is_confirmed:
        raise CliError("nothing was changed")


def is_terminal() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()
