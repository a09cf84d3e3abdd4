"""Simulated launchers with a real operator and a real API server: started the way a bench does it, from a command line.

Nodes are only objects; the test binds pods and says that they run, as KWOK does.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localcluster.controlplane import ControlPlane, free_port
from localcluster.patience import PATIENCE_SECONDS
from muster.api.base import API_VERSION
from muster.controller.operator import Operator
from muster.controller.settings import Settings
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import NotFound
from muster.world.views import INDEX_LABEL, JOB_UID_LABEL

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "jobs"
SIZE = 3
SECONDS = 60.0
# Ranks of the mind are proved dead only by their launcher's word: a silent one is waited for no longer than this.
SILENCE_SECONDS = 10

Object = dict[str, Any]


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="muster-launchers-") as folder, ControlPlane(folder) as made:
        for arguments in (("apply", "-f", str(ROOT / "crds")), ("wait", "--for=condition=Established", "crd", "--all")):
            subprocess.run(
                [str(made.kubectl), f"--kubeconfig={made.kubeconfig}", f"--cache-dir={folder}/kubectl", *arguments],
                check=True,
                capture_output=True,
                timeout=PATIENCE_SECONDS,
            )
        yield made


class Launchers:
    """The process, its events and its commands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[Object] = []
        self._changed = asyncio.Condition()

    async def read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            async with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()

    def order(self, command: Object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    async def event(self, name: str, **wanted: Any) -> Object:
        """Wait for an event with these fields."""

        def found() -> Object | None:
            return next((e for e in self.events if e["event"] == name and e.items() >= wanted.items()), None)

        async with self._changed:
            try:
                return await asyncio.wait_for(self._changed.wait_for(found), SECONDS)
            except TimeoutError:
                raise AssertionError(f"no event {name} {wanted} within {SECONDS:.0f} s: {self.events}") from None


class Kwok:
    """Binds pods to the nodes they are pinned to and lets them run; deletes what is to be deleted."""

    def __init__(self, api: Client) -> None:
        self.api = api

    async def run(self) -> None:
        where, query = paths.core("pods", namespace=NAMESPACE), {"labelSelector": JOB_UID_LABEL, "resourceVersion": "0"}
        async with contextlib.aclosing(self.api.watch(where, query)) as lines:
            async for line in lines:
                event = msgspec.json.decode(line)
                with contextlib.suppress(NotFound):
                    if event["type"] == "ADDED":
                        await self._start(event["object"])
                    elif event["type"] == "MODIFIED" and "deletionTimestamp" in event["object"]["metadata"]:
                        await self.api.delete(pod_path(event["object"]), {"gracePeriodSeconds": 0})

    async def _start(self, pod: Object) -> None:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}}
        await self.api.post(pod_path(pod, "binding"), {**binding, "target": target})
        block, place = divmod(int(pod["metadata"]["labels"][INDEX_LABEL]), 250)
        address = f"10.0.{block}.{place + 1}"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await self.api.patch(pod_path(pod, "status"), {"status": status})


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Client]:
    made = await Client.connect(str(control_plane.kubeconfig))
    for name in (NAMESPACE, "muster-system"):
        await made.post(paths.core("namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    policy = {"apiVersion": API_VERSION, "kind": "FleetPolicy", "metadata": {"name": "default"}, "spec": {}}
    await made.post(paths.muster("fleetpolicies"), policy)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await made.post(paths.core("serviceaccounts", namespace=NAMESPACE), account)
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    for number in range(SIZE + 1):
        name = f"gpu-{number}"
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        }
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        await made.post(paths.core("nodes"), {**node, "status": status})
        await made.patch(paths.core("nodes", name=name), {"spec": {"taints": None}})
    yield made
    await made.close()


@pytest.fixture
async def launchers(control_plane: ControlPlane, api: Client) -> AsyncIterator[Launchers]:
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    settings = Settings(
        identity="operator",
        launcher_image="example.org/launcher:1",
        coordinator_url=url,
        coordinator_name="muster-coordinator.muster-system.svc",
        coordinator_port=port,
        probe_port=free_port(),
        metrics_port=free_port(),
        worlds_port=free_port(),
    )
    operator = Operator(await Client.connect(str(control_plane.kubeconfig)), settings)
    await operator.start()
    kwok = asyncio.create_task(Kwok(api).run())
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.launchers", "--kubeconfig", str(control_plane.kubeconfig), "--coordinator", url),
        *("--namespace", NAMESPACE, "--step-seconds", "0.02", "--checkpoint-steps", "5"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    made = Launchers(process)
    reading = asyncio.create_task(made.read())
    try:
        await made.event("watching")
        yield made
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await reading
        kwok.cancel()
        await asyncio.gather(kwok, return_exceptions=True)
        await operator.stop()


async def test_a_job_from_start_through_faults_to_its_end(api: Client, launchers: Launchers) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "example.org/t:1", "command": ["train"]}]}}
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": "job"},
        "spec": {
            "nodes": SIZE,
            "template": template,
            "checkpoint": {"directory": "/checkpoints"},
            "recovery": {"unreachableTimeoutSeconds": SILENCE_SECONDS},
        },
    }
    job = msgspec.json.decode(await api.post(paths.muster("trainingjobs", namespace=NAMESPACE), manifest))
    about = {"job": job["metadata"]["uid"], "workers": SIZE}
    await launchers.event("started", attempt=1, **about)
    gang = await record(api)
    assert gang["start"].get("resume") is None
    await checkpointed(api)

    first = gang["members"][0]["podUid"]
    launchers.order({"fail_ranks": [(await pods_by_uid(api))[first]["metadata"]["name"]], "exit_code": 3})
    await launchers.event("failed_ranks", pods=1)
    await launchers.event("ended", attempt=1, **about)
    await launchers.event("started", attempt=2, **about)
    gang = await record(api)
    assert gang["incidents"][-1]["exitCode"] == 3
    assert gang["start"]["resume"]["step"] % 5 == 0

    failed = (await pods_by_uid(api))[gang["members"][1]["podUid"]]
    ended = {"name": "trainer", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    await api.patch(pod_path(failed, "status"), {"status": {"phase": "Failed", "containerStatuses": [ended]}})
    await launchers.event("started", attempt=3, **about)

    lost = (await record(api))["members"][2]["node"]
    launchers.order({"silence_node": lost})
    await launchers.event("silenced", launchers=1)
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    await api.patch(paths.core("nodes", name=lost, subresource="status"), {"status": {"conditions": [ready]}})
    await launchers.event("started", attempt=4, **about)
    members = (await record(api))["members"]
    assert lost not in [member["node"] for member in members]
    launchers.order({"restore_node": lost})
    await launchers.event("restored", was_silent=True)

    names = await pods_by_uid(api)
    last = [names[member["podUid"]]["metadata"]["name"] for member in members]
    launchers.order({"fail_ranks": last, "exit_code": 0})
    await launchers.event("exit", exit_codes={"0": SIZE}, **about)
    await succeeded(api, last)


async def record(api: Client) -> Object:
    """The spec of the job's Gang."""
    listed = msgspec.json.decode(await api.get(paths.muster("gangs", namespace=NAMESPACE)))
    spec: Object = listed["items"][0]["spec"]
    return spec


async def pods_by_uid(api: Client) -> dict[str, Object]:
    listed = msgspec.json.decode(await api.get(paths.core("pods", namespace=NAMESPACE)))
    return {pod["metadata"]["uid"]: pod for pod in listed["items"]}


async def checkpointed(api: Client) -> None:
    """Wait until the coordinator has heard of a checkpoint."""
    path = paths.muster("trainingjobs", namespace=NAMESPACE, name="job")

    async def known() -> bool:
        return "checkpoint" in msgspec.json.decode(await api.get(path)).get("status", {})

    await until(known)


async def succeeded(api: Client, names: list[str]) -> None:
    """Wait until the containers of these pods are reported as ended."""

    async def over() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in (await pods_by_uid(api)).values()}
        return all(pods[name]["status"]["phase"] == "Succeeded" for name in names)

    await until(over)


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if await check():
                return
            await asyncio.sleep(0.05)


def pod_path(pod: Object, subresource: str = "") -> str:
    return paths.core("pods", namespace=NAMESPACE, name=pod["metadata"]["name"], subresource=subresource)
