"""Mistakes on the command line end in one sentence that says how to go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster.__main__ import main
from localcluster.errors import LocalClusterError
from localcluster.machine import require_root

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """`command(*arguments)` runs it in this process, with a cache of its own: 1 for a mistake that is told."""
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path))

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["localcluster", *arguments])
        return main()

    return run


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["load"], "--from build/images/images.json", id="nothing to load"),
        pytest.param(["load", "absent.tar"], "absent.tar does not exist", id="archive missing"),
        pytest.param(["load", "--from", "absent.json"], "run `make images` first", id="list missing"),
        pytest.param(["describe"], "run `make cluster-up` first", id="not up"),
        pytest.param(["power-off", "node-1"], "run `make cluster-up` first", id="fault while not up"),
        pytest.param(["describe", "--name", "Not A Name"], "is no cluster name", id="bad name"),
    ],
)
def test_a_mistake_is_explained(
    arguments: list[str], want: str, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*arguments) == 1
    assert want in capsys.readouterr().err


def test_a_mistake_ends_the_process_with_one_sentence(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "localcluster", "describe"],
        env={**os.environ, "PYTHONPATH": str(TOOLS), "MUSTER_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 1
    assert "run `make cluster-up` first" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_list_that_names_a_missing_archive_says_which(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    listing = tmp_path / "images.json"
    listing.write_text(json.dumps({"operator": {"image": "x:1", "archive": "/gone/operator.tar"}}))

    assert command("load", "--from", str(listing)) == 1
    assert "/gone/operator.tar does not exist" in capsys.readouterr().err


def test_without_root_it_says_so_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(LocalClusterError, match=r"(?s)needs root.*CLUSTER=existing"):
        require_root()
