"""Have the user confirm on the terminal what nothing undoes.

Tests: tests/unit/cli/test_cancel.py, tests/unit/cli/test_lost.py.
"""

import asyncio
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
    """
    if not is_terminal():
        raise CliError(f"this has to be confirmed, and there is no terminal to ask: {remedy}. Nothing was changed")
    if not await asyncio.to_thread(typer.confirm, question, err=True):
        raise CliError("nothing was changed")


def is_terminal() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()
