"""What the entry point sets of the process, before anything runs in it."""

import resource

import pytest

from muster.page import main
from muster.serve import open_as_many_files_as_allowed


def test_the_soft_limit_of_open_files_becomes_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 524288))
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: set_to.append(limit))
    open_as_many_files_as_allowed()
    assert set_to == [(resource.RLIMIT_NOFILE, (524288, 524288))]


def test_the_page_raises_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def run(_: object) -> None:
        done.append("run")

    monkeypatch.setattr(main, "open_as_many_files_as_allowed", lambda: done.append("raised"))
    monkeypatch.setattr(main, "_run", run)
    monkeypatch.setenv("MUSTER_PAGE_PORT", "0")
    main.main()
    assert done == ["raised", "run"]
