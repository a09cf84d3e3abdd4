"""The small client of the API server tries again when it is asked to, and tells any other refusal at once."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localcluster import api
from localcluster.api import Api, ApiError


class Server(ThreadingHTTPServer):
    """Answers with these codes in turn, then with an object; without TLS."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.paths.append(self.path)
        self.send_response(server.codes.pop(0) if server.codes else 200)
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(b'{"kind": "NodeList"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[object]:
    monkeypatch.setattr(api, "_context", lambda _: None)
    (tmp_path / "ca.pem").write_text("")
    started: list[Server] = []

    def start(*codes: int) -> tuple[Server, Api]:
        server = Server(*codes)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        return server, Api(f"http://127.0.0.1:{server.server_port}", "token", tmp_path / "ca.pem")

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_a_server_that_asks_to_come_back_later_is_asked_again(serve):
    server, client = serve(429, 429)
    assert client.get("/api/v1/nodes") == {"kind": "NodeList"}
    assert server.paths == ["/api/v1/nodes"] * 3


@pytest.mark.parametrize("code", [403, 404, 409, 503])
def test_any_other_refusal_is_told_at_once(serve, code):
    server, client = serve(code)
    with pytest.raises(ApiError) as refused:
        client.get("/api/v1/nodes")
    assert refused.value.code == code
    assert server.paths == ["/api/v1/nodes"]
