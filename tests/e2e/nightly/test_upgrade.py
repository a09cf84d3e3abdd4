"""From a release before to this one, half of the way, and back: what was made lives on, and faults are repaired."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.faults import ENDLESS, assert_every_rank_started_once, ends_right
from tests.e2e.sick_nodes import healths
from tests.fakes.nvml.build import library

from skew.kept import RELEASES, NoHistoryError, Release
from testbed.bed import DEFINITIONS, OVERLAYS, ROOT, SYSTEM_NAMESPACE, Bed
from testbed.gangwatch import GangWatch, Seen
from testbed.jobs import Job
from testbed.kube import wait_until

TRAINER = [*ENDLESS, "--checkpoint-every=10", "--keep=5"]


@dataclass(frozen=True)
class Built:
    """A tree of before, with the images that were built from it."""

    tree: Path
    images: dict[str, str]


def build(bed: Bed, release: Release) -> Built:
    """Build the images of a release's overlay, and load them."""
    try:
        tree = release.tree()
    except NoHistoryError as error:
        pytest.skip(str(error))
    overlay = yaml.safe_load((tree / OVERLAYS / "default" / "kustomization.yaml").read_text())
    names = [entry["name"].rpartition("/")[2] for entry in overlay["images"]]
    command = [sys.executable, "-m", "imagebuild", *(f"--only={name}" for name in names)]
    subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree / "tools")}, check=True)
    built = json.loads((tree / "build" / "images" / "images.json").read_text())
    bed.cluster.load([Path(built[name]["archive"]) for name in names])
    return Built(tree, {name: entry["image"] for name, entry in built.items()})


@pytest.fixture(scope="module")
def oldest(bed: Bed) -> Built:
    """The oldest release whose objects and running pods the operator takes over: nothing is kept for older ones."""
    return build(bed, RELEASES[0])


@pytest.fixture(scope="module")
def newest(bed: Bed) -> Built:
    return build(bed, RELEASES[-1])


def test_what_the_release_before_has_made_lives_through_the_upgrade(
    bed: Bed, oldest: Built, submit: Callable[..., Job]
) -> None:
    bed.install(library(), oldest.tree, oldest.images)
    job = submit("upgraded", trainer=TRAINER)
    job.wait_step(25)
    launchers = {container["image"] for pod in job.pods().values() for container in pod["spec"]["initContainers"]}
    assert launchers == {oldest.images["launcher"]}
    with trains_on(job):
        bed.install(library())
    again = kill_a_rank(job)
    assert (again.attempt, again.level) == (2, "R0"), "launchers of before take orders from the operator of now"
    again = delete_a_pod(job)
    assert (again.attempt, again.level) == (3, "R0b"), "beside a launcher of now"
    assert bed.images["launcher"] in {container["image"] for container in job.pods()[2]["spec"]["initContainers"]}
    ends_right(job)


def test_a_gang_trains_through_half_an_upgrade_and_the_way_back(
    bed: Bed, newest: Built, submit: Callable[..., Job]
) -> None:
    bed.install(library(), newest.tree, newest.images)
    job = submit("rolled-back", trainer=TRAINER)
    job.wait_step(25)
    sick = min(set(bed.cluster.node_names) - set(job.current().nodes))
    try:
        bed.faults.xid(sick, 79)
        wait_until("its verdict", lambda: healths(bed).get(sick, {}).get("state") == "Unhealthy")
        records = Records.read(bed, job)
        with trains_on(job):  # definitions of now, all else of before
            bed.kubectl("apply", "-k", str(ROOT / DEFINITIONS))
        assert kill_a_rank(job).level == "R0"
        with trains_on(job):  # a leader of now; a standby, agents and launchers of before
            upgrade_standby(bed)
            change_leader(bed)
        assert image_of(wait_until("a leader", bed.leader)) == bed.images["operator"]
        assert kill_a_rank(job).level == "R0"
        with trains_on(job):
            change_leader(bed)
        assert image_of(wait_until("a leader", bed.leader)) == newest.images["operator"]
        records = records.kept(bed, job)
        with trains_on(job):
            bed.install(library())
        records = records.kept(bed, job)
        with trains_on(job):
            bed.install(library(), newest.tree, newest.images, keep_definitions=True)
        records = records.kept(bed, job)
        again = delete_a_pod(job)
        assert (again.attempt, again.level) == (4, "R0b"), (
            "the operator of before repairs what fails after the way back"
        )
        with trains_on(job):
            bed.install(library())
        records = records.kept(bed, job)
        assert (kill_a_rank(job).attempt, len(records.incidents)) == (5, 3)
        ends_right(job)
        account = wait_until("its account", lambda: account_of(job))
        assert (account["state"], account["attempts"]) == ("Succeeded", 5)
    finally:
        bed.faults.repair()
        bed.kubectl("delete", "nodehealth", sick)


@dataclass(frozen=True)
class Records:
    """What versions keep of a gang and of its fleet.

    Attributes:
        incidents: of the gang: time, reason and level of each.
        seconds: that its account has counted, in all buckets.
        nodes: the names of those that have a record.
        unhealthy: of those with incidents, by name: the state, and the times of the incidents.
    """

    incidents: tuple[tuple[str, str, str], ...]
    seconds: float
    nodes: frozenset[str]
    unhealthy: dict[str, tuple[str, tuple[str, ...]]]

    @classmethod
    def read(cls, bed: Bed, job: Job) -> Records:
        gangs = bed.items(f"/apis/muster.dev/v1alpha1/namespaces/{job.namespace}/gangs")
        spec, records = next(gang["spec"] for gang in gangs if gang["spec"]["jobUid"] == uid_of(job)), healths(bed)
        return cls(
            tuple((it["time"], it["reason"], it["level"]) for it in spec.get("incidents", ())),
            sum(spec["account"]["milliseconds"].values()) / 1000,
            frozenset(records),
            {
                name: (health["state"], tuple(it["time"] for it in health["incidents"]))
                for name, health in records.items()
                if health.get("incidents")
            },
        )

    def kept(self, bed: Bed, job: Job) -> Records:
        """Read them again: nothing of these may be missing."""
        now = Records.read(bed, job)
        assert now.incidents[: len(self.incidents)] == self.incidents
        assert now.seconds >= self.seconds
        assert (now.nodes, now.unhealthy) == (self.nodes, self.unhealthy)
        return now


def uid_of(job: Job) -> str:
    uid: str = job.bed.kubectl.json("get", "trainingjob", "-n", job.namespace, job.name)["metadata"]["uid"]
    return uid


def account_of(job: Job) -> dict[str, Any] | None:
    """What the history has of a job that has ended."""
    path = f"/apis/muster.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/endedjobs"
    return next((dict(it["spec"]) for it in job.bed.items(path) if it["spec"]["name"] == job.name), None)


@contextlib.contextmanager
def trains_on(job: Job) -> Iterator[None]:
    """Whatever happens meanwhile, every rank goes on in its process, and makes steps afterwards."""
    attempt, processes = job.current().attempt, [job.rank_pids(index) for index in range(job.nodes)]
    yield
    job.watch.close()  # a definition that changes ends the watches of its objects
    job.watch = GangWatch(job.bed.kubectl, job.namespace, job.name)
    job.wait_step(job.step() + 20)
    assert job.current().attempt == attempt
    assert [job.rank_pids(index) for index in range(job.nodes)] == processes
    assert_every_rank_started_once(job)


def kill_a_rank(job: Job) -> Seen:
    """The attempt that follows."""
    attempt = job.current().attempt
    job.signal_rank(1)
    return job.wait_training_again(attempt)


def delete_a_pod(job: Job) -> Seen:
    """The attempt that follows."""
    attempt, pod = job.current().attempt, job.pods()[2]["metadata"]["name"]
    job.bed.kubectl("delete", "pod", "-n", job.namespace, pod, "--wait=false")
    return job.wait_training_again(attempt)


def replicas(bed: Bed) -> list[dict[str, Any]]:
    """The pods of the operator that are to stay."""
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"
    listed = bed.items(path, labelSelector="app.kubernetes.io/name=muster")
    return [pod for pod in listed if not pod["metadata"].get("deletionTimestamp")]


def image_of(replica: dict[str, Any]) -> str:
    return str(replica["spec"]["containers"][0]["image"])


def is_ready(replica: dict[str, Any], image: str) -> bool:
    """Whether it is ready with this image, in which it may just be started again."""
    states = replica["status"].get("containerStatuses", ())
    return image_of(replica) == image and all(it["ready"] and it["restartCount"] for it in states)


def upgrade_standby(bed: Bed) -> None:
    """Have the replica that does not lead run this tree's image: the Deployment does not look at pods that it has."""
    leader, image = wait_until("a leader", bed.leader), bed.images["operator"]
    standby = next(name_of(pod) for pod in replicas(bed) if name_of(pod) != name_of(leader))
    bed.kubectl("set", "image", "-n", SYSTEM_NAMESPACE, f"pod/{standby}", f"operator={image}")
    wait_until("the standby of now", lambda: any(is_ready(it, image) for it in replicas(bed) if name_of(it) == standby))


def change_leader(bed: Bed) -> None:
    """Delete the pod that leads; the other one leads, and the Deployment makes a new standby."""
    leader = name_of(wait_until("a leader", bed.leader))
    bed.kubectl("delete", "pod", "-n", SYSTEM_NAMESPACE, leader, "--wait=true")
    wait_until("another leader", lambda: (pod := bed.leader()) is not None and name_of(pod) != leader)
    bed.rolled_out("deployment/muster", SYSTEM_NAMESPACE)


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])
