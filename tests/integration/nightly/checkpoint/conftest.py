"""A real S3 server, the Python of an image with s3fs, and what may stand between them."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from localcluster.build import VERSITYGW, extra
from localcluster.cache import cache_root, digest_of, make_once
from localcluster.controlplane import free_port
from localcluster.patience import PATIENCE_SECONDS
from localcluster.processes import kill, log_tail, spawn

ROOT = Path(__file__).resolve().parents[4]
ACCESS, SECRET = "muster", "a-secret-of-tests"
START_SECONDS = 30.0
# Whoever writes: commands of one JSON list each, a result for each.
WRITER = """
import json, sys
import s3fs
files = s3fs.S3FileSystem()
for line in sys.stdin:
    method, arguments = json.loads(line)
    if "Body" in arguments:
        arguments["Body"] = bytes.fromhex(arguments["Body"][0]) * arguments["Body"][1]
    answer = files.call_s3(method, **arguments)
    print(json.dumps({key: answer.get(key) for key in ("UploadId", "ETag")}), flush=True)
"""


def image_python() -> Path:
    """The Python of a trainer image, with what requirements/stores.txt locks."""
    locked = ROOT / "requirements" / "stores.txt"

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(locked)], check=True)

    target = cache_root() / "venv" / f"stores-{digest_of([locked.read_bytes(), sys.version])}"
    target.parent.mkdir(parents=True, exist_ok=True)
    return make_once(target, make) / "bin" / "python"


class Between:
    """Hands each request on to the server as it came, unless the test says what to answer instead.

    Attributes:
        answers: status and S3's code for each request from now on; None: the server's own answer.
        hangs: nobody answers.
        requests: method and path of each.
    """

    def __init__(self, server: int) -> None:
        self.answers: tuple[int, str] | None = None
        self.hangs = threading.Event()
        self.over = threading.Event()
        self.requests: list[tuple[str, str]] = []
        self._server = server
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                between.requests.append((self.command, self.path))
                if between.hangs.is_set():
                    between.over.wait()
                    return
                if between.answers is not None:
                    status, code = between.answers
                    text = f"<Error><Code>{code}</Code><Message>An answer of the test</Message></Error>".encode()
                    self._say(status, [("Content-Type", "application/xml")], text)
                    return
                server = http.client.HTTPConnection("127.0.0.1", between._server, timeout=30)
                server.request(self.command, self.path, body, dict(self.headers.items()))
                answer = server.getresponse()
                left_out = ("transfer-encoding", "connection", "content-length")
                headers = [item for item in answer.getheaders() if item[0].lower() not in left_out]
                self._say(answer.status, headers, answer.read())
                server.close()

            def _say(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        return Handler


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a versitygw over a folder."""
    folder = tmp_path_factory.mktemp("s3")
    for name in ("objects", "attributes"):
        (folder / name).mkdir()
    port, log = free_port(), folder / "log"
    command = [
        *(str(extra(VERSITYGW) / "versitygw"), "--access", ACCESS, "--secret", SECRET),
        *("--port", f"127.0.0.1:{port}", "--health", "/health"),
        *("posix", "--sidecar", str(folder / "attributes"), str(folder / "objects")),
    ]
    process = spawn(command, log)
    try:
        until = time.monotonic() + START_SECONDS
        while not _is_healthy(port):
            assert process.poll() is None, log_tail(log)
            assert time.monotonic() < until, log_tail(log)
            time.sleep(0.05)
        yield port
    finally:
        kill(process)


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def between(server: int) -> Iterator[Between]:
    """The way to the server."""
    way = Between(server)
    yield way
    way.close()


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch, between: Between) -> Path:
    """Children of the launcher run on the image's Python, with its credentials, and ask by way of `between`."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{between.port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_MAX_ATTEMPTS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    python = image_python()
    monkeypatch.setattr(sys, "executable", str(python))
    return python


S3 = Callable[..., dict[str, Any]]


@pytest.fixture
def s3(image: Path, server: int, tmp_path: Path) -> Iterator[S3]:
    """`s3("put_object", Bucket=..., Key=..., Body=bytes)`: one call of S3, by a client of its own, straight to the
    server."""
    environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server}"}
    with (
        (tmp_path / "writer.log").open("w") as errors,
        subprocess.Popen(
            [str(image), "-c", WRITER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def call(method: str, **arguments: Any) -> dict[str, Any]:
            body = arguments.get("Body")
            if isinstance(body, bytes):
                arguments["Body"] = (body.hex(), 1)
            print(json.dumps((method, arguments)), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, (tmp_path / "writer.log").read_text()
            return dict(json.loads(answer))

        yield call
        process.stdin.close()
