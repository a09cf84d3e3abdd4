"""Plays the nodes' agents and other systems that mark nodes, and looks at what Muster makes of it."""

import contextlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from muster.api.base import API_VERSION, rfc3339
from muster.kube import paths
from muster.kube.client import APPLY_PATCH
from muster.kube.errors import AlreadyExists, Conflict, NotFound
from stage.hand import Object, patiently
from stage.scene import Scene

TAINT_KEY = "muster.dev/unhealthy"
NODES = {"health": {"enforcement": "Nodes"}}


def evidence(kind: str, code: int = 0, subject: str = "GPU-1", boot: str = "boot-1", **more: Any) -> dict[str, Any]:
    """What an agent tells of one thing."""
    now = rfc3339(datetime.now(UTC))
    return {"kind": kind, "code": code, "subject": subject, "firstSeen": now, "lastSeen": now, "bootId": boot, **more}


async def agent_says(
    scene: Scene, node: str, *several: dict[str, Any], boot: str = "boot-1", machine: str = ""
) -> None:
    """The agent of a node writes its part of NodeHealth; each node is a machine of its own unless said otherwise."""
    collection = paths.muster("nodehealths")
    body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": node}}
    with contextlib.suppress(AlreadyExists):
        await scene.api.post(collection, body)
    agent = {"version": "test", "bootId": boot, "systemUuid": machine or f"board-of-{node}", "gpus": 8}
    path = paths.muster("nodehealths", name=node, subresource="status")
    said = {**body, "status": {"evidence": list(several), "agent": agent}}
    query = {"fieldManager": "muster-agent", "force": "true"}
    await patiently(lambda: scene.api.patch(path, said, APPLY_PATCH, query))


async def health(scene: Scene, node: str) -> dict[str, Any]:
    """The status of the node's record; empty when there is none."""
    try:
        found = await patiently(lambda: scene.api.get(paths.muster("nodehealths", name=node)))
    except NotFound:
        return {}
    status: dict[str, Any] = found.get("status", {})
    return status


async def is_in_state(scene: Scene, node: str, state: str | None) -> bool:
    return (await health(scene, node)).get("state") == state


async def has_score(scene: Scene, node: str, least: str) -> bool:
    """Whether the account of offences in the node's record has this score or more: it is written after the taint."""
    return Decimal((await health(scene, node)).get("offences", {}).get("score", "0")) >= Decimal(least)


async def tainted(scene: Scene) -> list[str]:
    """The nodes that bear Muster's taint."""
    nodes = await scene.listed(paths.core("nodes"))
    return sorted(
        node["metadata"]["name"]
        for node in nodes
        if any(taint["key"] == TAINT_KEY for taint in node["spec"].get("taints") or ())
    )


async def are_tainted(scene: Scene, *names: str) -> bool:
    return await tainted(scene) == sorted(names)


async def node(scene: Scene, name: str) -> Object:
    return await patiently(lambda: scene.api.get(paths.core("nodes", name=name)))


async def others_taints(scene: Scene, name: str) -> list[Object]:
    """The taints of a node that are not Muster's."""
    return [taint for taint in (await node(scene, name))["spec"].get("taints") or () if taint["key"] != TAINT_KEY]


async def set_taints(scene: Scene, name: str, *theirs: Object) -> None:
    """Another system has these taints on the node, and no others; it leaves Muster's alone, as Muster leaves its."""
    while True:
        found = await node(scene, name)
        ours = [taint for taint in found["spec"].get("taints") or () if taint["key"] == TAINT_KEY]
        patch = {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "spec": {"taints": [*ours, *theirs]},
        }
        with contextlib.suppress(Conflict):
            await scene.hand.patch_node(name, patch)
            return


async def label(scene: Scene, name: str, labels: dict[str, str | None]) -> None:
    """Another system sets these labels, or takes off those that are None."""
    await scene.hand.patch_node(name, {"metadata": {"labels": labels}})


async def set_conditions(scene: Scene, name: str, *conditions: Object, ready: str = "True") -> None:
    """The node has these conditions besides Ready; each with `type`, `status`, `reason`, `message`."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {condition["type"]: condition for condition in (await node(scene, name))["status"]["conditions"]}
    dated = []
    for condition in ({"type": "Ready", "status": ready, "reason": "KubeletReady"}, *conditions):
        old = before.get(condition["type"])
        since = old["lastTransitionTime"] if old and old["status"] == condition["status"] else now
        dated.append({"message": "", **condition, "lastHeartbeatTime": now, "lastTransitionTime": since})
    patch = {"status": {"conditions": dated}}
    await scene.hand.patch_node(name, patch, "status")
