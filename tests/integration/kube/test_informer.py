"""Informers against a real API server that restarts, forgets, falls silent and is written to all the while."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.api.trainingjob import TrainingJob
from muster.kube import decode, informer, pages, paths
from muster.kube.client import Client
from muster.kube.informer import Informer
from muster.world.views import PodView

Seen = list[tuple[str | None, str | None]]


def pod(name: str, job: str = "", gpus: int = 0) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(_of(job) if job else {})},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }


def _of(job: str) -> dict[str, Any]:
    owner = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "name": job, "uid": job, "controller": True}
    return {"labels": {"muster.dev/job-uid": job}, "ownerReferences": [owner]}


def pods(namespace: str, name: str = "", subresource: str = "") -> str:
    return paths.core("pods", namespace=namespace, name=name, subresource=subresource)


def names(watched: Informer[PodView], namespace: str) -> set[str]:
    return {value.name for value in watched.store.values() if value.namespace == namespace}


def history(watched: Informer[PodView]) -> Seen:
    seen: Seen = []
    watched.store.subscribe(lambda old, new: seen.append((old and old.name, new and new.name)))
    return seen


async def test_follows_changes_with_index_and_pages(
    client: Client, namespace: str, background: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 2)
    job = f"job-{namespace}"
    for i in range(5):
        await client.post(pods(namespace), pod(f"p{i}", job))
    await client.post(pods(namespace), pod("foreign"))
    watched = informer.worker_pods(client)
    background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    assert {value.name for value in watched.store.by_index((namespace, job))} == {"p0", "p1", "p2", "p3", "p4"}
    seen = history(watched)
    await client.post(pods(namespace), pod("p5", job))
    await client.patch(pods(namespace, "p5"), {"metadata": {"labels": {"muster.dev/index": "7"}}})
    await client.delete(pods(namespace, "p0"))
    await until(lambda: seen[-1:] == [("p0", None)])
    assert seen[:2] == [(None, "p5"), ("p5", "p5")]
    assert len(watched.store.by_index((namespace, job))) == 5
    found = watched.store.get((namespace, "p5"))
    assert found is not None
    assert found.index == 7


async def test_occupants_are_unfinished_pods_on_nodes_that_are_no_workers(
    client: Client, namespace: str, background: Any, until: Any
) -> None:
    watched = informer.occupant_pods(client)
    background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    seen = history(watched)
    await client.post(pods(namespace), pod("waiting", gpus=1))
    await client.post(pods(namespace), pod("worker", "job", gpus=1))
    for name, gpus in (("one", 1), ("two", 2)):
        manifest = pod(name, gpus=gpus)
        manifest["spec"]["nodeName"] = "n0"
        await client.post(pods(namespace), manifest)
    await client.patch(pods(namespace, "one", "status"), {"status": {"phase": "Succeeded"}})
    await until(lambda: ("one", None) in seen)
    assert seen == [(None, "one"), (None, "two"), ("one", None)]
    assert [dict(value.requests) for value in watched.store.values() if value.namespace == namespace] == [
        {"pods": 1, "nvidia.com/gpu": 2}
    ]


async def test_version_that_the_server_forgot_leads_to_a_list_that_reports_what_is_gone(
    api_server: ControlPlane, client: Client, namespace: str, background: Any, until: Any
) -> None:
    for name in ("a", "b"):
        await client.post(pods(namespace), pod(name, "job"))
    watched = informer.worker_pods(client)
    first = background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    first.cancel()
    await asyncio.wait((first,))
    await client.delete(pods(namespace, "a"))
    await client.patch(pods(namespace, "b"), {"metadata": {"labels": {"muster.dev/index": "1"}}})
    await client.post(pods(namespace), pod("c", "job"))
    await asyncio.to_thread(api_server.restart_apiserver)  # its memory of past changes is gone
    seen, lists = history(watched), count_lists("worker_pods")
    background(watched.run())
    await until(lambda: len(seen) >= 3)
    assert sorted(seen, key=str) == sorted([("a", None), ("b", "b"), (None, "c")], key=str)
    assert count_lists("worker_pods") == lists + 1
    await client.delete(pods(namespace, "c"))
    await until(lambda: seen[-1] == ("c", None))


async def test_api_server_that_restarts_under_a_watch(
    api_server: ControlPlane, client: Client, namespace: str, background: Any, until: Any
) -> None:
    await client.post(pods(namespace), pod("a", "job"))
    watched = informer.worker_pods(client)
    background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    await asyncio.to_thread(api_server.restart_apiserver)
    await client.post(pods(namespace), pod("b", "job"))
    await client.delete(pods(namespace, "a"))
    await until(lambda: names(watched, namespace) == {"b"})


async def test_silent_stream_is_noticed(
    client: Client,
    far_client: Client,
    network: Any,
    namespace: str,
    background: Any,
    until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(informer, "READ_TIMEOUT_SECONDS", 1.0)
    watched = informer.worker_pods(far_client)
    background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    network.freeze()
    await client.post(pods(namespace), pod("a", "job"))
    await until(lambda: watched.last_contact_age_seconds() > 2.0)
    assert names(watched, namespace) == set()
    network.cut()
    network.thaw()
    await until(lambda: names(watched, namespace) == {"a"})
    assert watched.last_contact_age_seconds() < 2.0


async def test_own_write_shows_at_once_and_the_late_stream_does_not_undo_it(
    client: Client, far_client: Client, network: Any, namespace: str, background: Any, until: Any
) -> None:
    watched = informer.worker_pods(far_client)
    background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    await client.post(pods(namespace), pod("a", "job"))
    await until(lambda: names(watched, namespace) == {"a"})
    network.freeze()
    await client.patch(pods(namespace, "a"), {"metadata": {"labels": {"muster.dev/index": "1"}}})
    mine = decode.pod(await client.patch(pods(namespace, "a"), {"metadata": {"labels": {"muster.dev/index": "2"}}}))
    watched.store.assume(mine)
    gone = decode.pod(await client.post(pods(namespace), pod("b", "job")))
    watched.store.assume(gone)
    await client.delete(pods(namespace, "b"))
    watched.store.assume_deleted((namespace, "b"), gone.uid)
    seen: list[tuple[str, int]] = []
    watched.store.subscribe(lambda _, new: seen.append((new.name, new.index)) if new else None)
    await client.post(pods(namespace), pod("c", "job"))
    network.thaw()
    await until(lambda: names(watched, namespace) == {"a", "c"})
    assert seen == [("c", -1)]
    assert watched.store.get((namespace, "a")) == mine


async def test_answer_to_a_delete_tells_gone_from_going(
    client: Client, far_client: Client, network: Any, namespace: str, background: Any, until: Any
) -> None:
    node = f"node-{namespace}"
    await client.post(paths.core("nodes"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    made: dict[str, PodView] = {}
    watched = informer.worker_pods(far_client)
    for name in ("pending", "bound", "bound-without-grace", "held"):
        body = pod(name, "job")
        body["spec"]["nodeName"] = "" if name in ("pending", "held") else node
        body["metadata"]["finalizers"] = ["test.muster.dev/hold"] if name == "held" else []
        made[name] = decode.pod(await client.post(pods(namespace), body))
    background(watched.run())
    await until(lambda: names(watched, namespace) == set(made))
    network.freeze()
    for name, value in made.items():
        options = {"gracePeriodSeconds": 0} if name == "bound-without-grace" else None
        watched.assume_delete((namespace, name), value.uid, await client.delete(pods(namespace, name), options))
    deleting = {value.name: value.deleting for value in watched.store.values() if value.namespace == namespace}
    assert deleting == {"bound": True, "held": True}
    network.cut()
    network.thaw()
    await client.patch(pods(namespace, "held"), {"metadata": {"finalizers": []}})
    await until(lambda: names(watched, namespace) == {"bound"})
    job: dict[str, Any] = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j"}}
    job["spec"] = {"nodes": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i", "command": ["true"]}]}}}
    jobs = informer.training_jobs(far_client)
    found = jobs.assume(await client.post(paths.muster("trainingjobs", namespace=namespace), job))
    assert jobs.store.get((namespace, "j")) is found
    answer = await client.delete(paths.muster("trainingjobs", namespace=namespace, name="j"))
    jobs.assume_delete((namespace, "j"), decode.custom_meta(found).uid, answer)
    assert len(jobs.store) == 0


async def test_store_never_goes_back_while_everybody_writes(
    client: Client, far_client: Client, network: Any, namespace: str, background: Any, until: Any
) -> None:
    watched = informer.worker_pods(far_client)
    newest: dict[str, int] = {}

    def check(_: PodView | None, new: PodView | None) -> None:
        if new is not None:
            assert new.resource_version > newest.get(new.uid, 0)
            newest[new.uid] = new.resource_version

    watched.store.subscribe(check)
    running = background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)

    async def writer(number: int) -> None:
        name = f"p{number}"
        for i in range(12):
            made = decode.pod(await client.post(pods(namespace), pod(name, "job")))
            watched.store.assume(made)
            changed = decode.pod(
                await client.patch(pods(namespace, name), {"metadata": {"labels": {"muster.dev/index": str(i)}}})
            )
            watched.store.assume(changed)
            found = watched.store.get((namespace, name))
            assert found is not None
            assert found.index == i
            if i == 11:
                return
            await client.delete(pods(namespace, name), {"preconditions": {"uid": made.uid}})
            watched.store.assume_deleted((namespace, name), made.uid)
            assert watched.store.get((namespace, name)) is None

    async def trouble() -> None:
        while True:
            await asyncio.sleep(0.05)
            network.cut()

    troubled = background(trouble())
    await asyncio.gather(*(writer(number) for number in range(8)))
    troubled.cancel()  # on a busy machine no connection would ever last long enough to bring the rest

    listed = json.loads(await client.get(pods(namespace)))["items"]
    want = {(item["metadata"]["name"], item["metadata"]["resourceVersion"]) for item in listed}

    def agrees() -> bool:
        mine = [value for value in watched.store.values() if value.namespace == namespace]
        return {(value.name, str(value.resource_version)) for value in mine} == want and not watched.store._deleted

    await until(agrees)
    assert len(want) == 8
    assert not running.done()


async def test_custom_resources_are_decoded(client: Client, namespace: str, background: Any) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["true"]}]}}
    job = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "j"},
        "spec": {"nodes": 2, "template": template},
    }
    path = paths.muster("trainingjobs", namespace=namespace)
    uid = json.loads(await client.post(path, job))["metadata"]["uid"]
    watched = informer.training_jobs(client)
    background(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)
    (found,) = watched.store.by_index(uid)
    assert isinstance(found, TrainingJob)
    assert (found.spec.nodes, found.spec.template) == (2, template)
    assert watched.store.get((namespace, "j")) is found


async def test_every_other_informer_syncs(client: Client, background: Any) -> None:
    makers: tuple[Callable[[Client], Informer[Any]], ...] = (
        informer.nodes,
        informer.node_leases,
        informer.gangs,
        informer.fleet_policies,
    )
    for make in makers:
        watched = make(client)
        background(watched.run())
        await asyncio.wait_for(watched.synced.wait(), PATIENCE_SECONDS)


def count_lists(name: str) -> float:
    return informer._lists.labels(name)._value.get()
