"""The forwarder carries bytes both ways, and a dead API server looks dead."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.patience import PATIENCE_SECONDS

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        yield server


@pytest.fixture
def door(target: socket.socket) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = target.getsockname()
        process = subprocess.Popen(
            [sys.executable, "-m", "localcluster.forward", str(listener.fileno()), host, str(port)],
            env={"PYTHONPATH": str(TOOLS)},
            pass_fds=[listener.fileno()],
        )
        yield listener.getsockname()
        process.kill()
        process.wait()


def test_bytes_pass_both_ways_until_each_side_ends(target: socket.socket, door: tuple[str, int]) -> None:
    sent = bytes(range(256)) * 4096
    with socket.create_connection(door, timeout=PATIENCE_SECONDS) as client:
        server, _ = target.accept()
        with server:
            client.sendall(b"request")
            client.shutdown(socket.SHUT_WR)
            assert server.makefile("rb").read() == b"request"
            server.sendall(sent)
        assert client.makefile("rb").read() == sent


def test_a_target_that_does_not_listen_breaks_the_connection(target: socket.socket, door: tuple[str, int]) -> None:
    target.close()

    with socket.create_connection(door, timeout=PATIENCE_SECONDS) as client:
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            return
