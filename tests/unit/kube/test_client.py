"""What a client says where the API server gives no answer; tests/integration/kube/test_client.py has the rest."""

import socket

import pytest

from muster.kube import library
from muster.kube.client import Client
from muster.kube.errors import Unreachable


async def test_a_refused_connection_is_reported_in_two_words() -> None:
    configuration = library.part("client").Configuration()
    with socket.socket() as closed:
        closed.bind(
            ("127.0.0.1", 0)
        )  # bound and not listening: no other process gets the port, and connections are refused
        configuration.host = f"http://127.0.0.1:{closed.getsockname()[1]}"
        client = Client(configuration)
        try:
            with pytest.raises(Unreachable) as raised:
                await client.get("/api")
        finally:
            await client.close()
    assert raised.value.cause == f"{configuration.host}: Connection refused"
