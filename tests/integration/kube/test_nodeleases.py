"""How old a node's heartbeat is, told from one look at a real API server's counter."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from muster.api.namespaces import NODE_LEASES
from muster.controller.heartbeats import LeaseAges
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import AlreadyExists
from muster.kube.lease import LeaderLease
from muster.kube.nodeleases import NodeLeases


async def renew(client: Client, name: str, when: str) -> None:
    await client.patch(paths.leases(NODE_LEASES, name), {"spec": {"renewTime": when}})


@pytest.fixture
async def nodes(client: Client, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """Two nodes' leases."""
    with contextlib.suppress(AlreadyExists):
        await client.post(paths.core("namespaces"), {"metadata": {"name": NODE_LEASES}})
    names = (f"{namespace}-silent", f"{namespace}-beating")
    for name in names:
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"renewTime": "2026-11-01T00:00:00.000000Z"}}
        await client.post(paths.leases(NODE_LEASES), body)
    yield names
    for name in names:
        await client.delete(paths.leases(NODE_LEASES, name))


async def test_a_heartbeat_is_dated_by_the_leaders_own_lease_and_seen_by_one_look(
    client: Client, namespace: str, nodes: tuple[str, str], background: Any, until: Any
) -> None:
    silent, beating = nodes
    ages = LeaseAges(client.answers.attended_seconds)
    lease = LeaderLease(client, namespace, "muster", "me", retry=0.2, seen=ages.versions.seen)
    await lease.acquire()
    background(lease.hold())
    first = ages.versions.written_by(0)
    await until(lambda: ages.versions.written_by(sys.maxsize) - first > 3.0 and len(ages.versions) > 5)
    await renew(client, beating, "2026-11-01T00:00:03.000000Z")
    await NodeLeases(client, ages.note_leases).read_leases()
    assert ages.age_seconds(silent) >= 2.0, "nothing was heard of it while the lease was renewed for three seconds"
    assert ages.age_seconds(beating) < ages.age_seconds(silent)
    found = ages.lease(beating)
    stored = json.loads(await client.get(paths.leases(NODE_LEASES, beating)))
    assert found is not None
    assert str(found.resource_version) == stored["metadata"]["resourceVersion"]


async def test_a_change_is_in_the_next_look_whatever_is_cached(client: Client, nodes: tuple[str, str]) -> None:
    """The list is as of the question: who has just renewed is never seen as he was before."""
    ages = LeaseAges(client.answers.attended_seconds)
    leases = NodeLeases(client, ages.note_leases)
    await leases.read_leases()
    for second in range(20):
        when = f"2026-11-01T00:01:{second:02}.000000Z"
        await renew(client, nodes[1], when)
        await leases.read_leases()
        found = ages.lease(nodes[1])
        assert found is not None
        assert found.renew_time == when
