"""Events that count instead of repeating, and certificates that replicas agree on, in a real API server."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from muster.kube import paths
from muster.kube.certificates import (
    AUTHORITY_SECRET_NAME,
    SECRET_NAME,
    CertificateKeeper,
)
from muster.kube.client import Client
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding


def about(namespace: str, uid: str = "uid-1") -> Regarding:
    return Regarding("muster.dev/v1alpha1", "TrainingJob", "j", uid, namespace)


def recorder(client: Client, **settings: Any) -> EventRecorder:
    return EventRecorder(client, "muster.dev/operator", "muster-0", **settings)


async def events(client: Client, namespace: str) -> list[dict[str, Any]]:
    data = await client.get(paths.group("events.k8s.io/v1", "events", namespace=namespace))
    found: list[dict[str, Any]] = json.loads(data)["items"]
    return found


async def test_repetition_is_counted_also_by_the_next_process(client: Client, namespace: str) -> None:
    first = recorder(client)
    for _ in range(3):
        first.record(about(namespace), WARNING, "RankFailed", "rank 3 exited with 1")
    await first.flush()
    (event,) = await events(client, namespace)
    assert (event["reason"], event["type"], event["note"]) == ("RankFailed", "Warning", "rank 3 exited with 1")
    assert (event["regarding"]["name"], event["regarding"]["uid"], event["series"]["count"]) == ("j", "uid-1", 3)
    second = recorder(client)
    second.record(about(namespace), WARNING, "RankFailed", "rank 3 exited with 1")
    await second.flush()
    (event,) = await events(client, namespace)
    assert event["series"]["count"] == 4


async def test_different_happenings_are_different_events(client: Client, namespace: str) -> None:
    made = recorder(client)
    made.record(about(namespace), NORMAL, "Placed", "attempt 1 on 3 nodes")
    made.record(about(namespace), NORMAL, "Placed", "attempt 2 on 3 nodes")
    made.record(about(namespace, "uid-2"), NORMAL, "Placed", "attempt 1 on 3 nodes")
    await made.flush()
    found = await events(client, namespace)
    assert len(found) == 3
    assert all("series" not in event or not event["series"] for event in found)


async def test_repetitions_are_written_seldom(client: Client, namespace: str, background: Any, until: Any) -> None:
    writes: list[str] = []
    client.on_write = lambda verb, _, moment: writes.append(verb) if moment == "after" else None
    now = [0.0]
    made = recorder(client, per_second=1000.0, series_seconds=0.2, clock=lambda: now[0])
    background(made.run())
    made.record(about(namespace), NORMAL, "Waiting", "no nodes")
    await until(lambda: writes == ["POST"])
    for _ in range(50):
        made.record(about(namespace), NORMAL, "Waiting", "no nodes")
    made.record(about(namespace), NORMAL, "Waiting", "still no nodes")
    await until(lambda: writes == ["POST", "POST"])
    assert len(made._pending) == 1
    now[0] = 1.0
    await until(lambda: not made._pending and writes[-1] == "PATCH")
    counts = {e["note"]: (e.get("series") or {}).get("count") for e in await events(client, namespace)}
    assert counts == {"no nodes": 51, "still no nodes": None}


async def test_events_that_cannot_be_posted_break_nothing(client: Client, namespace: str) -> None:
    made = recorder(client)
    made.record(about("no-such-namespace"), NORMAL, "Placed", "x")
    made.record(about(namespace), NORMAL, "Placed", "y" * 5000)
    await made.flush()
    (event,) = await events(client, namespace)
    assert len(event["note"]) == 1024


async def test_event_of_a_cluster_scoped_object(client: Client) -> None:
    made = recorder(client)
    made.record(Regarding("v1", "Node", "node-1", "node-uid"), NORMAL, "Excluded", "too many faults")
    await made.flush()
    assert [e for e in await events(client, "default") if e["regarding"].get("uid") == "node-uid"]


async def test_replicas_agree_on_the_certificates(client: Client, namespace: str) -> None:
    keepers = [CertificateKeeper(client, namespace) for _ in range(3)]
    made = await asyncio.gather(*(keeper.ensure() for keeper in keepers))
    assert made[0] == made[1] == made[2] == await keepers[0].read()
    made[0].serving.parsed.verify_directly_issued_by(x509.load_pem_x509_certificate(made[0].bundle))


async def test_certificates_are_renewed_in_time_and_the_bundle_keeps_the_old_authority(
    client: Client, namespace: str
) -> None:
    start = datetime.now(UTC)
    now = [start]
    keeper, standby = CertificateKeeper(client, namespace, lambda: now[0]), CertificateKeeper(client, namespace)

    async def authority() -> bytes:
        return (await data_of(client, namespace, AUTHORITY_SECRET_NAME))["ca.crt"]

    first = await keeper.ensure()
    assert await keeper.ensure() == first == await standby.read()
    now[0] = start + timedelta(days=10)
    second = await keeper.ensure()
    assert (second.serving != first.serving, second.bundle, await authority()) == (True, first.bundle, first.bundle)
    now[0] = start + timedelta(days=250)
    third = await keeper.ensure()
    assert await authority() == first.bundle
    assert third.bundle.startswith(first.bundle)
    assert await standby.read() == third
    now[0] += timedelta(days=30)
    await keeper.ensure()  # it publishes it itself
    now[0] += timedelta(hours=1)
    fourth = await keeper.ensure()
    assert await authority() not in (b"", first.bundle)
    assert await authority() in third.bundle, "launchers have had it for a month"
    assert first.bundle in fourth.bundle
    fourth.serving.parsed.verify_directly_issued_by(x509.load_pem_x509_certificate(await authority()))


@pytest.mark.parametrize(
    "damage", [{"tls.key": "bm90IGEga2V5"}, {"ca.crt": None}], ids=["a key that is none", "no authority"]
)
async def test_damaged_secret_is_made_anew(client: Client, namespace: str, damage: dict[str, Any]) -> None:
    keeper = CertificateKeeper(client, namespace)
    first = await keeper.ensure()
    await client.patch(paths.core("secrets", namespace=namespace, name=SECRET_NAME), {"data": damage})
    assert await keeper.read() is None
    second = await keeper.ensure()
    assert second.serving != first.serving
    assert second.bundle == first.bundle
    assert await keeper.read() == second


async def data_of(client: Client, namespace: str, name: str) -> dict[str, bytes]:
    """What is in a Secret."""
    found = json.loads(await client.get(paths.core("secrets", namespace=namespace, name=name)))
    return {key: base64.b64decode(value) for key, value in found["data"].items()}
