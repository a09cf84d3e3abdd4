"""A release as a stranger has it: installed, trained with, upgraded, rolled back and removed, from folders alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.nightly.release.folders import make_release
from tests.e2e.nightly.release.stranger import LIMIT, NAMESPACE, Stranger

from muster import __version__
from testbed.harm import delete_pod, kill_rank
from testbed.kube import wait_until

pytestmark = pytest.mark.timeout(1800)  # the first test that asks for a release makes it


def test_the_same_commit_gives_the_same_files(tree: Path, folder: Path) -> None:
    before = (folder / "SHA256SUMS").read_text()
    assert (make_release(tree, __version__) / "SHA256SUMS").read_text() == before


def test_a_stranger_installs_trains_upgrades_and_removes(stranger: Stranger, next_folder: Path) -> None:
    stranger.take()
    before = stranger.installed()
    install(stranger)
    stranger.kubectl("patch", "fleetpolicy", "default", "--type=json", "-p", json.dumps(LIMIT))

    short = stranger.submit("torch-ddp", steps=400)
    for fault in (kill_rank, delete_pod):
        short.survives(fault)
    wait_until("the end", lambda: short.status()["state"] == "Succeeded", timeout_seconds=600)
    assert "Succeeded" in stranger.kubectl("muster", "report", f"{NAMESPACE}/torch-ddp")

    gang = stranger.submit("upgraded")
    gang.survives(kill_rank)
    wait_until("the account of the first job", lambda: "endedjobs" in {kind for kind, _ in gang.records()})
    later = stranger.at(next_folder)
    later.take()
    wait_until("a good moment", lambda: wrong(later.doctor("--before-upgrade")) <= {"images", "namespaces"})
    with gang.keeps_on():
        apply(later, "definitions.yaml", "install-jobs.yaml")
    gang.survives(delete_pod)
    stranger.take_command()
    with gang.keeps_on():
        apply(stranger, "install-jobs.yaml")  # the definitions of the newest version stay
    gang.survives(kill_rank)

    stranger.remove_jobs()
    stranger.kubectl("delete", "-f", "install-jobs.yaml", "--ignore-not-found")
    stranger.kubectl("delete", "-f", "definitions.yaml", "--ignore-not-found")
    stranger.kubectl("delete", "namespace", NAMESPACE)
    assert stranger.installed() == before


def install(stranger: Stranger) -> None:
    """Install the release, as docs/install.md says."""
    stranger.kubectl("apply", "-f", "definitions.yaml")
    stranger.kubectl("wait", "--for=condition=Established", "crd/fleetpolicies.muster.dev")
    stranger.kubectl("create", "-f", "fleetpolicy.yaml")
    apply(stranger, "install-jobs.yaml")
    wait_until("the first report of each agent", lambda: "node health" not in wrong(stranger.doctor()))
    rows = stranger.doctor()
    definitions = f"those of jobs are there, with the fields of version {__version__}"
    assert [row["finding"] for row in rows if row["check"] == "definitions"] == [definitions]
    assert wrong(rows) <= {"images", "namespaces"}, rows


def apply(stranger: Stranger, *files: str) -> None:
    for file in files:
        stranger.kubectl("apply", "-f", file)
    stranger.rolled_out()


def wrong(rows: list[dict[str, str]]) -> set[str]:
    """The checks of a doctor that say what is wrong."""
    return {row["check"] for row in rows if row["state"] == "Wrong"}


def test_the_wheel_is_the_library(folder: Path, tmp_path: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"muster_operator-{__version__.replace('-', '')}-")
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    program = "import muster.client, muster; print(muster.__version__, muster.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [__version__, f"{wheel}/muster/__init__.py"]
