"""The folder of a release takes the place of the one before, and no crash at any line loses a whole one.

Only a whole release is ever named `release` or `release.old`. What is being made or removed is `release.partial`. A run
puts the old one back where it finds none, so a crash between the two renames costs nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from localcluster.cache import locked
from release.checks import ReleaseError


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """Give an empty folder, which takes the place of `output` at the end; after an exception the old one stays.

    Raises:
        ReleaseError: another run is replacing it.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked(_beside(output, "lock"), waits=False))
        except BlockingIOError as error:
            raise ReleaseError(f"another run is making {output}: start this one again when it has ended") from error
        _settle(output)
        held.callback(_settle, output)
        partial = _beside(output, "partial")
        partial.mkdir()
        yield partial
        if output.exists():
            output.rename(_beside(output, "old"))
        partial.rename(output)


def _settle(output: Path) -> None:
    """Remove what a run has left beside the folder. Where there is no folder, the old one takes its name back."""
    partial, old = _beside(output, "partial"), _beside(output, "old")
    _remove(partial)
    if old.exists():
        old.rename(partial if output.exists() else output)
        _remove(partial)


def _remove(partial: Path) -> None:
    if partial.exists():
        shutil.rmtree(partial)


def _beside(output: Path, ending: str) -> Path:
    return output.with_name(f"{output.name}.{ending}")
