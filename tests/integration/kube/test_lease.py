"""Leadership between two real clients: one at a time, whatever the network does."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import LeadershipLost
from muster.kube.lease import LeaderLease

# A machine that is busy for a minute renews in time, and what comes about within the tests' limit did not wait for its
# end.
DURATION, DEADLINE, RETRY = 120.0, 80.0, 0.5
# Where a lease has to run out. Such a test asks for an order, and holds however late anything happens.
SHORT = (6.0, 4.0)


class Candidate:
    """A lease and what became of it."""

    def __init__(self, client: Client, namespace: str, name: str, lease: tuple[float, float]) -> None:
        self.losses = 0
        self.lease = LeaderLease(
            client,
            namespace,
            "muster",
            name,
            lease_duration=lease[0],
            renew_deadline=lease[1],
            retry=RETRY,
            on_lost=self._lose,
        )
        self.rival: Candidate | None = None
        self.rival_left: float | None = None  # how long the rival could still have written when we began

    def _lose(self) -> None:
        self.losses += 1

    async def run(self) -> None:
        await self.lease.acquire()
        self.rival_left = self.rival.lease.remaining_seconds() if self.rival else None
        await self.lease.hold()


@pytest.fixture
def candidate(namespace: str) -> Callable[..., Candidate]:
    return lambda client, name, lease=(DURATION, DEADLINE): Candidate(client, namespace, name, lease)


async def stored(client: Client, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await client.get(paths.leases(namespace, "muster")))
    return found


async def test_release_hands_over_at_once(
    client: Client, namespace: str, candidate: Any, background: Any, until: Any
) -> None:
    first, second = candidate(client, "first"), candidate(client, "second")
    holding = background(first.run())
    await until(lambda: first.lease.leading)
    background(second.run())
    await until(lambda: second.lease.holder == "first")
    assert not second.lease.leading
    with pytest.raises(LeadershipLost, match="second does not hold the lease"):
        second.lease.check()
    assert DURATION - DEADLINE < first.lease.check() <= DURATION
    holding.cancel()
    await asyncio.wait((holding,))
    await first.lease.release()
    await until(lambda: second.lease.leading)
    assert (first.losses, first.lease.remaining_seconds()) == (0, 0.0)
    assert (await stored(client, namespace))["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize(("holder", "left"), [("first", ""), ("second", "second")])
async def test_release_after_a_write_it_does_not_know_of(
    client: Client, namespace: str, candidate: Any, holder: str, left: str
) -> None:
    """A renewal that was cancelled on its way and has arrived is released all the same; another's lease is not."""
    first = candidate(client, "first")
    await first.lease.acquire()
    found = await stored(client, namespace)
    found["spec"]["holderIdentity"] = holder
    await client.put(
        paths.leases(namespace, "muster"), {**found, "metadata": {**found["metadata"], "labels": {"a": "b"}}}
    )
    await first.lease.release()
    assert (await stored(client, namespace))["spec"].get("holderIdentity", "") == left


async def test_the_holders_address_is_known_while_it_holds(
    client: Client, namespace: str, candidate: Any, background: Any, until: Any
) -> None:
    first, second = candidate(client, "first"), candidate(client, "second")
    holding = background(first.run())
    await until(lambda: first.lease.leading)
    background(second.run())
    await until(lambda: second.lease.holder == "first")
    assert second.lease.leader_address == ""
    first.lease.address = "10.0.0.1:8443"  # it listens by now
    await until(lambda: second.lease.leader_address == "10.0.0.1:8443")
    assert first.lease.leader_address == "", "that it leads itself it knows"
    await client.patch(paths.leases(namespace, "muster"), {"metadata": {"annotations": {"somebody": "else's"}}})
    holding.cancel()
    await asyncio.wait((holding,))
    await first.lease.release()
    await until(lambda: second.lease.leading)
    annotations = (await stored(client, namespace))["metadata"]["annotations"]
    assert annotations == {"muster.dev/coordinator-address": "", "somebody": "else's"}


async def test_successor_of_a_dead_leader_waits_until_its_time_is_over(
    client: Client, candidate: Any, background: Any, until: Any
) -> None:
    first, second = candidate(client, "first", SHORT), candidate(client, "second", SHORT)
    holding = background(first.run())
    await until(lambda: first.lease.leading)
    second.rival = first
    background(second.run())
    await until(lambda: second.lease.holder == "first")
    holding.cancel()  # as a SIGKILL: nothing is released
    await asyncio.wait((holding,))
    await until(lambda: second.lease.leading)
    assert second.rival_left == 0.0
    with pytest.raises(LeadershipLost):
        first.lease.check()


async def test_cut_off_leader_stops_before_another_begins(
    client: Client, far_client: Client, network: Any, candidate: Any, background: Any, until: Any
) -> None:
    first, second = candidate(far_client, "first", SHORT), candidate(client, "second", SHORT)
    background(first.run())
    await until(lambda: first.lease.leading)
    second.rival = first
    background(second.run())
    await until(lambda: second.lease.holder == "first")
    network.freeze()
    await until(lambda: second.lease.leading)
    assert second.rival_left == 0.0
    await until(lambda: first.losses == 1)
    network.cut()
    network.thaw()


async def test_lost_answer_to_a_renewal_is_no_loss(
    client: Client, far_client: Client, network: Any, namespace: str, candidate: Any, background: Any, until: Any
) -> None:
    first = candidate(far_client, "first")
    holding = background(first.run())
    await until(lambda: first.lease.leading)
    before = first.lease._object["metadata"]["resourceVersion"]
    network.freeze(requests=False)
    while (await stored(client, namespace))[("metadata")]["resourceVersion"] == before:  # noqa: ASYNC110 - a server's state
        await asyncio.sleep(0.01)
    network.cut()
    network.thaw()
    await until(lambda: first.lease._object["metadata"]["resourceVersion"] not in ("", before))
    await until(lambda: first.lease.remaining_seconds() > DURATION - RETRY)
    assert (first.losses, holding.done()) == (0, False)


async def test_process_that_was_stopped_for_a_while_does_not_write(client: Client, namespace: str) -> None:
    """The renewals had no chance to notice: the check before each write does."""
    now = [0.0]
    lease = LeaderLease(client, namespace, "muster", "first", clock=lambda: now[0])
    await lease.acquire()
    client.before_write = lease.check
    path = paths.core("configmaps", namespace=namespace)
    await client.post(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    now[0] = 10.5
    assert lease.remaining_seconds() == 4.5
    with pytest.raises(LeadershipLost):
        await client.post(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}})


async def test_lease_taken_by_hand_ends_leadership(
    client: Client, namespace: str, candidate: Any, background: Any, until: Any
) -> None:
    first = candidate(client, "first")
    background(first.run())
    await until(lambda: first.lease.leading)
    await client.patch(paths.leases(namespace, "muster"), {"spec": {"holderIdentity": "somebody"}})
    await until(lambda: first.losses == 1)
    assert not first.lease.leading
    assert first.lease.holder == "somebody"


async def test_many_candidates_one_leader(client: Client, candidate: Any, background: Any, until: Any) -> None:
    everybody = [candidate(client, f"c{i}") for i in range(5)]
    for one in everybody:
        background(one.run())
    await until(lambda: any(one.lease.leading for one in everybody))
    await until(lambda: all(one.lease.holder for one in everybody))
    assert sum(one.lease.leading for one in everybody) == 1


def test_senseless_durations(namespace: str) -> None:
    with pytest.raises(ValueError, match="retry < renew_deadline < lease_duration"):
        LeaderLease(None, namespace, "x", "y", lease_duration=5, renew_deadline=10)  # type: ignore[arg-type]
