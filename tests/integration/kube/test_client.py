"""The client against a real API server: typed errors, deadlines, retries of reads, permission to write."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from localcluster.errors import LocalClusterError
from localcluster.patience import PATIENCE_SECONDS
from muster.kube import paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    LeadershipLost,
    NotFound,
    Unauthorized,
    Unreachable,
)
from muster.kube.version import check_server_version


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def at(namespace: str, name: str = "") -> str:
    return paths.core("configmaps", namespace=namespace, name=name)


async def test_write_read_patch_delete(client: Client, namespace: str) -> None:
    created = json.loads(await client.post(at(namespace), config_map(x="1")))
    replaced = json.loads(await client.put(at(namespace, "a"), {**created, "data": {"x": "2"}}))
    assert int(replaced["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    await client.patch(at(namespace, "a"), {"data": {"y": "3"}})
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"z": "4"}}
    await client.patch(at(namespace, "a"), applied, APPLY_PATCH, {"fieldManager": "test"})
    assert json.loads(await client.get(at(namespace, "a")))["data"] == {"x": "2", "y": "3", "z": "4"}
    listed = json.loads(await client.get(at(namespace), {"limit": 10, "fieldSelector": "metadata.name=a"}))
    assert len(listed["items"]) == 1
    await client.delete(at(namespace, "a"), {"preconditions": {"uid": created["metadata"]["uid"]}})
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await client.get(at(namespace, "a"))


async def test_typed_errors(client: Client, namespace: str) -> None:
    created = json.loads(await client.post(at(namespace), config_map()))
    with pytest.raises(AlreadyExists):
        await client.post(at(namespace), config_map())
    await client.patch(at(namespace, "a"), {"data": {"y": "3"}})
    with pytest.raises(Conflict):
        await client.put(at(namespace, "a"), created)
    with pytest.raises(Conflict):
        await client.delete(at(namespace, "a"), {"preconditions": {"uid": "another"}})
    job = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "j"},
        "spec": {"nodes": 0, "template": {}},
    }
    with pytest.raises(Invalid) as caught:
        await client.post(paths.muster("trainingjobs", namespace=namespace), job)
    assert "spec.nodes" in [cause["field"] for cause in caught.value.details["causes"]]


async def test_wrong_credentials(api_server: Any, tmp_path: Path) -> None:
    text = api_server.kubeconfig.read_text()
    token = json.loads(text)["users"][0]["user"]["token"]
    path = tmp_path / "kubeconfig"
    path.write_text(text.replace(token, "wrong"))
    stranger = await Client.connect(str(path))
    try:
        with pytest.raises(Unauthorized):
            await stranger.get("/api/v1/nodes")
        path.write_text(text)  # e.g. a token that was renewed on disk
        assert await stranger.get("/api/v1/nodes")
    finally:
        await stranger.close()


async def test_no_write_without_leadership(client: Client, namespace: str) -> None:
    def refuse() -> float:
        raise LeadershipLost("not the leader")

    client.before_write = refuse
    for write in (
        client.post(at(namespace), config_map()),
        client.put(at(namespace, "a"), config_map()),
        client.patch(at(namespace, "a"), {}),
        client.delete(at(namespace, "a")),
    ):
        with pytest.raises(LeadershipLost):
            await write
    assert json.loads(await client.get(at(namespace)))["items"] == []
    await client.post(at(namespace), config_map(), guarded=False)
    assert await client.get(at(namespace, "a"))


async def test_hook_sees_each_write_before_and_after(client: Client, namespace: str) -> None:
    seen: list[tuple[str, str, str, bool]] = []

    async def hook(verb: str, path: str, moment: str) -> None:
        try:
            await client.get(at(namespace, "a"))
            exists = True
        except NotFound:
            exists = False
        seen.append((verb, path, moment, exists))

    client.on_write = hook
    await client.post(at(namespace), config_map())
    await client.delete(at(namespace, "a"))
    assert seen == [
        ("POST", at(namespace), "before", False),
        ("POST", at(namespace), "after", True),
        ("DELETE", at(namespace, "a"), "before", True),
        ("DELETE", at(namespace, "a"), "after", False),
    ]


async def test_deadline_of_a_write_is_what_is_left_of_the_lease(
    far_client: Client, network: Any, namespace: str
) -> None:
    await far_client.get("/version")
    network.freeze()
    far_client.before_write = lambda: 0.3
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(Unreachable, match="no answer to POST"):
            await far_client.post(at(namespace), config_map(), deadline_seconds=3600)


async def test_read_is_tried_again_when_the_connection_breaks(far_client: Client, network: Any) -> None:
    await far_client.get("/version")
    network.freeze()
    reading = asyncio.create_task(far_client.get("/version"))
    done, _ = await asyncio.wait((reading,), timeout=0.2)
    assert not done
    network.cut()
    network.thaw()
    assert b"gitVersion" in await reading


async def test_write_is_not_tried_again(
    api_server: Any, far_client: Client, network: Any, namespace: str, until: Any
) -> None:
    await far_client.get("/version")
    network.freeze(requests=False)
    writing = asyncio.create_task(far_client.post(at(namespace), config_map()))
    await until(lambda: exists(api_server, at(namespace, "a")))
    network.cut()
    network.thaw()
    with pytest.raises(Unreachable):  # a second try would have found that it exists
        await writing


def exists(api_server: Any, path: str) -> bool:
    try:
        return bool(api_server.api.get(path))
    except LocalClusterError:
        return False


@pytest.mark.parametrize("gather_seconds", [0.0, 0.3])
async def test_a_watch_shows_everything_in_order_until_the_server_ends_it(
    client: Client, namespace: str, gather_seconds: float
) -> None:
    """More than the buffers hold, and the end while nothing is being read."""
    query = {"resourceVersion": json.loads(await client.get(at(namespace)))["metadata"]["resourceVersion"]}
    lines = client.watch(at(namespace), {**query, "timeoutSeconds": 5}, gather_seconds=gather_seconds)

    async def write() -> None:
        for number in range(60):
            await client.post(at(namespace), config_map(f"c{number:02}", text="x" * 50_000))

    writing = asyncio.create_task(write())
    seen = [json.loads(line) async for line in lines]
    await writing
    if len(seen) < 60:  # a slow machine was still writing
        query["resourceVersion"] = (
            seen[-1]["object"]["metadata"]["resourceVersion"] if seen else query["resourceVersion"]
        )
        lines = client.watch(at(namespace), {**query, "timeoutSeconds": 5}, gather_seconds=gather_seconds)
        seen += [json.loads(line) async for line in lines]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", f"c{number:02}") for number in range(60)
    ]


async def test_server_version(client: Client) -> None:
    assert (await check_server_version(client)).startswith("v1.")


async def test_nobody_listens(tmp_path: Path, api_server: Any) -> None:
    path = tmp_path / "kubeconfig"
    api_server.write_kubeconfig("admin", path, "https://127.0.0.1:9")
    lonely = await Client.connect(str(path))
    try:
        with pytest.raises(
            Unreachable, match=r"no answer to GET /version from the API server at https://127\.0\.0\.1:9"
        ) as refused:
            await lonely.get("/version", deadline_seconds=1.0)
        assert refused.value.cause.startswith("https://127.0.0.1:9: ")
    finally:
        await lonely.close()
