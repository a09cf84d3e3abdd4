"""A replica that is deaf says so to its kubelet; one that waits for the API server is as well as can be."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from muster.controller import readiness
from muster.controller.operator import Operator
from muster.controller.settings import Settings
from muster.kube import client as kube_client
from muster.kube import informer
from muster.kube.client import Client
from muster.kube.informer import READ_TIMEOUT_SECONDS

# Informers do not hear again all at once when the API server is back; this is more than lies between the first and the
# last.
STALE_SECONDS = 12.0
AWAY_SECONDS = 6.0


@pytest.fixture
async def standby(installation: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Operator]:
    """A replica in this process that never leads: losing the lease would end the process."""
    monkeypatch.setattr(readiness, "STALE_SECONDS", STALE_SECONDS)
    monkeypatch.setattr(kube_client, "AWAY_SECONDS", AWAY_SECONDS)
    monkeypatch.setattr(informer, "MAX_BACKOFF_SECONDS", 1.0)  # in proportion
    installation.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "muster-leader", "namespace": installation.namespace},
            "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600},
        }
    )
    client = await Client.connect(str(installation.kubeconfig()))
    settings = Settings(
        namespace=installation.namespace,
        identity="standby",
        launcher_image="muster/launcher",
        coordinator_port=installation.free_port(),
        probe_port=installation.free_port(),
        metrics_port=installation.free_port(),
        worlds_port=installation.free_port(),
    )
    replica = Operator(client, settings)
    await replica.start()
    yield replica
    await replica.stop()


async def test_liveness_holds_while_the_api_server_is_away_and_after_it(
    installation: Any, standby: Operator, wait_until: Callable[..., Any]
) -> None:
    await standby.cluster.wait_synced()
    seen: list[tuple[int, str]] = []

    def heard_nothing_for(seconds: float) -> bool:
        seen.append(_health(standby))
        return min(source.last_contact_age_seconds() for source in standby.cluster.informers) > seconds

    def all_hear_again() -> bool:
        seen.append(_health(standby))
        return max(source.last_contact_age_seconds() for source in standby.cluster.informers) < STALE_SECONDS

    installation.control_plane.stop_apiserver()
    try:
        await asyncio.to_thread(wait_until, lambda: heard_nothing_for(2 * STALE_SECONDS), "it is away for long")
    finally:
        await asyncio.to_thread(installation.control_plane.start_apiserver)
    await asyncio.to_thread(wait_until, all_hear_again, "every informer hears again")
    assert set(seen) == {(200, "ok")}


async def test_liveness_fails_while_an_informer_is_deaf_and_the_api_server_answers(
    installation: Any, standby: Operator, wait_until: Callable[..., Any]
) -> None:
    await standby.cluster.wait_synced()
    assert await asyncio.to_thread(_health, standby) == (200, "ok")
    rights = installation.get("clusterrole", "muster-operator")
    nodes = next(index for index, rule in enumerate(rights["rules"]) if "nodes" in rule["resources"])
    fewer = [rule for index, rule in enumerate(rights["rules"]) if index != nodes]
    _set_rules(installation, fewer)
    try:
        await asyncio.to_thread(installation.control_plane.restart_apiserver)  # it ends the watches that are open
        # Heartbeats are read now and then, so for a moment their silence may be the longest.
        status, text = await asyncio.to_thread(wait_until, lambda: _deaf(_health(standby), "nodes"), "liveness fails")
    finally:
        _set_rules(installation, rights["rules"])
    assert status == 503
    assert "informer nodes has heard nothing for" in text, text
    # not "all is well": the other streams have nothing to say meanwhile, and twelve seconds of silence are long here
    await asyncio.to_thread(wait_until, lambda: "informer nodes" not in _health(standby)[1], "it hears again")


def test_watches_that_are_quiet_or_wait_to_retry_are_far_from_stale() -> None:
    assert readiness.STALE_SECONDS >= 3 * READ_TIMEOUT_SECONDS
    assert readiness.STALE_SECONDS >= 3 * (informer.MAX_BACKOFF_SECONDS + kube_client.LIST_DEADLINE_SECONDS)


def _health(replica: Operator) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{replica.settings.probe_port}/healthz", timeout=30) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


def _set_rules(installation: Any, rules: list[Any]) -> None:
    patch = f"--patch={json.dumps({'rules': rules})}"
    installation.kubectl("patch", "clusterrole", "muster-operator", "--type=merge", patch)


def _deaf(answer: tuple[int, str], informer: str) -> tuple[int, str] | None:
    return answer if answer[0] != 200 and f"informer {informer} " in answer[1] else None
