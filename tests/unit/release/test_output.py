"""A release takes the place of the one before at once, and a crash at any line leaves one of them whole."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from release.checks import ReleaseError
from release.output import replacing

FILES = ("SHA256SUMS", "images/operator.tar")
LEFT = ["release", "release.lock"]


class Killed(BaseException):
    """Stands for the end of the process."""


@contextmanager
def killed_before(number: int) -> Iterator[None]:
    """End the process before this change of the file system: it makes none from then on."""
    count = itertools.count()

    def dying(change: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            if next(count) >= number:
                raise Killed
            change(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "rename", "unlink", "rmdir"):
            patch.setattr(os, name, dying(getattr(os, name)))
        yield


def make(output: Path, content: str) -> None:
    with replacing(output) as folder:
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)


def fail(output: Path) -> None:
    with pytest.raises(ReleaseError, match="down"), replacing(output) as folder:
        (folder / FILES[0]).write_text("half")
        raise ReleaseError("the registry is down")


def content_of(folder: Path) -> str:
    """What all files of a whole release have."""
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == sorted(FILES)
    (content,) = {(folder / name).read_text() for name in FILES}
    return content


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_no_crash_loses_a_release_or_leaves_half_of_one(tmp_path: Path) -> None:
    found = []
    for number in itertools.count():
        output = tmp_path / str(number) / "release"
        make(output, "old")
        with suppress(Killed), killed_before(number):
            make(output, "new")
            break
        whole = tuple(content_of(path) for path in (output, output.with_name("release.old")) if path.exists())
        fail(output)
        assert content_of(output) == whole[0]
        assert names(output.parent) == LEFT
        make(output, "newer")
        assert content_of(output) == "newer"
        found.append(whole)
    assert list(dict.fromkeys(found)) == [("old",), ("new", "old"), ("new",)]
    assert content_of(output) == "new"
    assert names(output.parent) == LEFT


def test_a_crash_of_the_first_run_leaves_no_release(tmp_path: Path) -> None:
    output = tmp_path / "release"
    with pytest.raises(Killed), killed_before(2):
        make(output, "new")
    assert names(tmp_path) == ["release.lock", "release.partial"]
    fail(output)
    assert names(tmp_path) == ["release.lock"]


def test_a_release_is_made_by_one_run_at_a_time(tmp_path: Path) -> None:
    output = tmp_path / "release"
    with replacing(output), pytest.raises(ReleaseError, match=f"another run is making {output}: start this one"):
        make(output, "new")
