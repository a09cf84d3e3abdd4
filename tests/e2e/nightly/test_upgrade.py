"""From the release before to this one: what it has made lives on, and the new operator leads it through faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.faults import assert_every_rank_started_once, finishes_right, reference_weights
from tests.fakes.nvml.build import library

from testbed.bed import ROOT, Bed
from testbed.gangwatch import GangWatch
from testbed.jobs import Job

# The oldest commit whose objects and running pods the operator takes over: nothing is kept for older ones.
BEFORE = "d5667119daf3d1f399e74c8f02353ab940708a54"
STEPS = 1200
TRAINER = [f"--steps={STEPS}", "--step-seconds=0.1", "--checkpoint-every=10", f"--hold-at={STEPS - 100}", "--keep=5"]


@dataclass(frozen=True)
class Release:
    """A tree of before, with the images that were built from it."""

    tree: Path
    images: dict[str, str]


@pytest.fixture(scope="module")
def before(bed: Bed) -> Release:
    """The release before, built from this repository's history."""
    if _git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this clone has no history to build the release before from: git fetch --unshallow")
    tree = ROOT / "build" / "before" / BEFORE
    if not tree.is_dir():
        tree.mkdir(parents=True)
        archive = tree.with_suffix(".tar")
        _git("archive", "--output", str(archive), BEFORE)
        with tarfile.open(archive) as packed:
            packed.extractall(tree, filter="data")
        archive.unlink()
    command = [sys.executable, "-m", "imagebuild", "--only", "operator", "--only", "launcher"]
    subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree / "tools")}, check=True)
    built = json.loads((tree / "build" / "images" / "images.json").read_text())
    bed.cluster.load([Path(built[name]["archive"]) for name in ("operator", "launcher")])
    return Release(tree, {name: entry["image"] for name, entry in built.items()})


def test_what_the_release_before_has_made_lives_through_the_upgrade(
    bed: Bed, before: Release, submit: Callable[..., Job]
) -> None:
    bed.install(library(), before.tree, before.images)
    job = submit("upgraded", trainer=TRAINER)
    job.wait_step(25)
    launchers = {container["image"] for pod in job.pods().values() for container in pod["spec"]["initContainers"]}
    assert launchers == {before.images["launcher"]}
    bed.install(library())
    job.watch.close()  # a definition that changes ends the watches of its objects
    job.watch = GangWatch(bed.kubectl, job.namespace, job.name)
    job.wait_step(job.step() + 20)
    assert job.current().attempt == 1
    assert_every_rank_started_once(job)
    job.signal_rank(1)
    again = job.wait_training_again(1)
    assert (again.attempt, again.level) == (2, "R0"), "launchers of before take orders from the operator of now"
    old = job.pods()[2]["metadata"]["name"]
    bed.kubectl("delete", "pod", "-n", job.namespace, old, "--wait=false")
    again = job.wait_training_again(2)
    assert (again.attempt, again.level) == (3, "R0b"), "beside a launcher of now"
    assert bed.images["launcher"] in {container["image"] for container in job.pods()[2]["spec"]["initContainers"]}
    finishes_right(job, reference_weights(STEPS, 3))


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
