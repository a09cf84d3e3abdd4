"""A replica that hears nothing any more says so to its kubelet, and takes it back when it hears again."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from muster.controller import operator
from muster.controller.operator import Operator
from muster.controller.settings import Settings
from muster.kube.client import Client
from muster.kube.informer import READ_TIMEOUT_SECONDS

STALE_SECONDS = 6.0


@pytest.fixture
async def standby(installation: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Operator]:
    """A replica in this process that never leads: losing the lease would end the process."""
    monkeypatch.setattr(operator, "STALE_SECONDS", STALE_SECONDS)
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
        probe_port=installation.free_port(),
    )
    replica = Operator(client, settings)
    await replica.start()
    yield replica
    await replica.stop()


async def test_liveness_fails_while_the_informers_hear_nothing(
    installation: Any, standby: Operator, wait_until: Callable[..., Any]
) -> None:
    def health() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{standby.settings.probe_port}/healthz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    await standby.cluster.wait_synced()
    assert await asyncio.to_thread(health) == (200, "ok")
    installation.control_plane.stop_apiserver()
    try:
        status, text = await asyncio.to_thread(wait_until, lambda: _other_than_ok(health()), "liveness fails")
    finally:
        await asyncio.to_thread(installation.control_plane.start_apiserver)
    assert status == 500
    assert "has heard nothing for" in text
    await asyncio.to_thread(wait_until, lambda: health()[0] == 200, "it hears again")


def test_a_quiet_but_sound_watch_is_far_from_stale() -> None:
    assert operator.STALE_SECONDS >= 3 * READ_TIMEOUT_SECONDS


def _other_than_ok(answer: tuple[int, str]) -> tuple[int, str] | None:
    return None if answer[0] == 200 else answer
