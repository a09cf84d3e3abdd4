"""What a client says where the API server gives no answer; tests/integration/kube/test_client.py has the rest."""

import socket
from collections.abc import AsyncIterator

import pytest

from muster.kube import library
from muster.kube.client import Client
from muster.kube.errors import LeadershipLost, Unreachable


@pytest.fixture
async def refused() -> AsyncIterator[Client]:
    """A client of an address that refuses connections: bound and not listening, so that no other process gets it."""
    configuration = library.part("client").Configuration()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        configuration.host = f"http://127.0.0.1:{closed.getsockname()[1]}"
        client = Client(configuration)
        yield client
        await client.close()


async def test_a_refused_connection_is_reported_in_two_words(refused: Client) -> None:
    with pytest.raises(Unreachable) as raised:
        await refused.get("/api")
    assert raised.value.cause == f"{refused._host}: Connection refused"


async def test_a_guarded_client_asks_before_it_writes_and_its_original_does_not(refused: Client) -> None:
    def lost() -> float:
        raise LeadershipLost("another replica leads")

    noted: list[tuple[str, str]] = []
    refused.on_write = lambda verb, _path, moment: noted.append((verb, moment))
    guarded = refused.guarded(lost)
    with pytest.raises(LeadershipLost):
        await guarded.post("/api/v1/namespaces/ns/pods", {})
    assert noted == [("POST", "before")]
    for request in (guarded.get("/api"), refused.post("/api/v1/namespaces/ns/pods", {})):
        with pytest.raises(Unreachable):
            await request
