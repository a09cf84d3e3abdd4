"""A scripted coordinator over real TLS, and real launchers from a real archive, as subprocesses with real signals."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import py_compile
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.launcher.real_launchers import packages  # noqa: F401 - a fixture
from tests.unit.launcher.started_programs import programs  # noqa: F401 - a fixture
from tests.unit.launcher.turns import turns  # noqa: F401 - a fixture

from imagebuild.runpyz import write_archive
from localcluster.controlplane import free_port
from localcluster.patience import PATIENCE_SECONDS
from muster.protocol.messages import RUN, WAIT, Directive, Report, decode_report, digest, encode

NAME = "coordinator.muster.test"
TOKEN = "a-token"
# The launcher, with as long for its end as a busy machine needs: upon SIGTERM it has less than a second.
PATIENT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from muster.node.launcher import supervisor
from muster.node.launcher.__main__ import main
for name in ("_LEAVE_SECONDS", "_LEAVE_RECLAIM_SECONDS", "_LEAVE_REPORT_SECONDS", "_EXIT_REPORT_SECONDS"):
    assert hasattr(supervisor, name)
    setattr(supervisor, name, 300.0)
raise SystemExit(main())
"""
SOURCE = Path(__file__).parents[3] / "operator" / "muster"


def wait_until(predicate: Callable[[], Any], what: str, deadline_seconds: float = PATIENCE_SECONDS) -> Any:
    """Poll a condition; returns its first true value."""
    until = time.monotonic() + deadline_seconds
    while time.monotonic() < until:
        value = predicate()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {deadline_seconds} s: {what}")


@dataclasses.dataclass(frozen=True)
class Authority:
    """A certificate authority and a server certificate for NAME, as PEM files."""

    ca: Path
    certificate: Path
    key: Path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def make_authority(directory: Path) -> Authority:
    def build(subject: str, public: Any, issuer: str, signer: Any, extension: x509.ExtensionType) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(_name(issuer), _name(subject), public, x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(hours=1))
        builder = builder.not_valid_after(now + dt.timedelta(hours=1))
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        key_of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        signs = {"digital_signature": True, "key_cert_sign": subject == issuer, "crl_sign": subject == issuer}
        others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
        usage = x509.KeyUsage(**signs, **dict.fromkeys((*others, "decipher_only"), False))
        builder = builder.add_extension(key_of_issuer, critical=False).add_extension(usage, critical=True)
        return builder.sign(signer, hashes.SHA256())

    directory.mkdir(parents=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = f"authority {directory.name}"  # OpenSSL finds an issuer by its name
    ca = build(issuer, ca_key.public_key(), issuer, ca_key, x509.BasicConstraints(ca=True, path_length=0))
    certificate = build(NAME, key.public_key(), issuer, ca_key, x509.SubjectAlternativeName([x509.DNSName(NAME)]))
    pem = serialization.Encoding.PEM
    authority = Authority(directory / "ca.pem", directory / "tls.pem", directory / "tls.key")
    authority.ca.write_bytes(ca.public_bytes(pem))
    authority.certificate.write_bytes(certificate.public_bytes(pem))
    authority.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return authority


@dataclasses.dataclass(frozen=True)
class Received:
    report: Report
    at: float
    connection: tuple[str, int]


class ScriptedCoordinator:
    """Answers every launcher with the directive that the test sets; holds answers as the real one does."""

    def __init__(self, authority: Authority, port: int = 0) -> None:
        self.authority = authority
        self.changed = threading.Condition()
        self.directive: Directive | None = None
        self.received: list[Received] = []
        self.watched = "127.0.0.1"  # the address of the launcher that the test is about
        self.status = 200
        self.leader = ""  # who leads instead, "" if this one does
        self.misdirected = 0  # reports that were sent on
        self.connections: Counter[tuple[str, int]] = Counter()  # reports by each
        self.stalled = False  # accept requests, answer nothing
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority.certificate, authority.key)
        self._server.socket = self._context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self._server.server_address[1]
        self._connections: set[Any] = set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        coordinator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                coordinator._connections.add(self.connection)

            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                assert self.path == "/v1/report"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                authorized = self.headers["Authorization"] == f"Bearer {TOKEN}"
                status, answer = (
                    coordinator.answer(decode_report(body), self.client_address) if authorized else (401, b"")
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        return Handler

    def answer(self, report: Report, connection: tuple[str, int]) -> tuple[int, bytes]:
        with self.changed:
            self.connections[connection] += 1
            if self.leader:
                self.misdirected += 1
                return 421, json.dumps({"error": "another replica leads", "leader": self.leader}).encode()
            if self.status == 200:
                self.received.append(Received(report, time.monotonic(), connection))
                self.changed.notify_all()
            until = time.monotonic() + report.hold_seconds
            while self.stalled or self.directive is None or digest(self.directive) == report.directive_seen:
                left = until - time.monotonic()
                if self.directive is not None and not self.stalled and left <= 0:
                    break
                self.changed.wait(max(0.01, min(left, 0.5)) if self.directive is not None else 0.5)
            return (self.status, encode(self.directive)) if self.status == 200 else (self.status, b"not the leader")

    def set(self, **fields: Any) -> Directive:
        """Change the directive, for all launchers."""
        with self.changed:
            self.directive = Directive(**{"hold_seconds": 5.0, "poll_seconds": 0.2, **fields})
            self.changed.notify_all()
            return self.directive

    def wait_to_run(self, attempt: int, **fields: Any) -> None:
        self.set(kind=WAIT, attempt=attempt, **fields)

    def run(self, attempt: int, **fields: Any) -> None:
        defaults = {"node_count": 1, "master_address": "127.0.0.1", "master_port": 29400}
        self.set(kind=RUN, attempt=attempt, **{**defaults, **fields})

    def fail(self, status: int) -> None:
        with self.changed:
            self.status = status
            self.changed.notify_all()

    def misdirect_to(self, leader: str) -> None:
        with self.changed:
            self.leader = leader

    def stall(self, *, stalled: bool) -> None:
        with self.changed:
            self.stalled = stalled
            self.changed.notify_all()

    @property
    def latest(self) -> Report | None:
        with self.changed:
            reports = [item.report for item in self.received if item.report.address == self.watched]
            return max(reports, key=lambda report: report.sequence, default=None)

    def wait_for(self, predicate: Callable[[Report], Any], what: str = "a report") -> Report:
        """The newest report, as soon as the predicate holds for it."""

        def check() -> Report | None:
            report = self.latest
            return report if report is not None and predicate(report) else None

        try:
            return wait_until(check, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last report: {self.latest}") from None

    def wait_for_any(self, predicate: Callable[[Report], Any]) -> Report:
        """The first report that the watched launcher has sent for which the predicate holds, be it the newest or
        not."""

        def find() -> Report | None:
            with self.changed:
                reports = [item.report for item in self.received if item.report.address == self.watched]
            return next((report for report in reports if predicate(report)), None)

        found: Report = wait_until(find, "a report")
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        with self.changed:
            self.stalled = False
            self.changed.notify_all()


@dataclasses.dataclass
class Launcher:
    """A launcher process and where its output goes."""

    process: subprocess.Popen[bytes]
    directory: Path
    output: Path
    errors: Path

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def error_text(self) -> str:
        return self.errors.read_text(errors="replace")

    def wait(self, deadline_seconds: float = PATIENCE_SECONDS) -> int:
        return self.process.wait(deadline_seconds)


Launch = Callable[..., Launcher]


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped archive, with its modules compiled beside their sources.

    The shipped one has sources alone, for any Python: each launcher and each of its children compiles them. Hundreds
    start in these tests. Another Python than this one passes by what is compiled here.
    """
    folder = tmp_path_factory.mktemp("archive")
    path = folder / "run.pyz"
    write_archive(SOURCE, path)
    with zipfile.ZipFile(path, "a") as archive:
        for name in archive.namelist():
            compiled = py_compile.compile(
                archive.extract(name, folder),
                str(folder / "compiled"),
                dfile=f"{path}/{name}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            archive.write(str(compiled), f"{name}c")
    return path


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls") / "first")


@pytest.fixture
def coordinator(authority: Authority) -> Iterator[ScriptedCoordinator]:
    scripted = ScriptedCoordinator(authority, free_port())  # a second one may take its place
    yield scripted
    scripted.close()


@pytest.fixture
def new_authority(tmp_path: Path) -> Callable[[], Authority]:
    """Another authority, unknown to the launchers so far."""
    return lambda: make_authority(tmp_path / "second-authority")


@pytest.fixture
def new_coordinator() -> Iterator[Callable[..., ScriptedCoordinator]]:
    """A coordinator in the place of one that was closed."""
    started: list[ScriptedCoordinator] = []

    def start(authority: Authority, port: int) -> ScriptedCoordinator:
        started.append(ScriptedCoordinator(authority, port))
        return started[-1]

    yield start
    for scripted in started:
        scripted.close()


@pytest.fixture
def launch(archive: Path, coordinator: ScriptedCoordinator, tmp_path: Path) -> Iterator[Launch]:
    """Start launchers; at the end they and everything below them are killed."""
    started: list[Launcher] = []

    def start(*command: str, stdout: Any = None, patient: bool = False, **environment: str) -> Launcher:
        directory = tmp_path / f"launcher-{len(started)}"
        directory.mkdir()
        (directory / "token").write_text(TOKEN + "\n")
        launcher = Launcher(None, directory, directory / "stdout", directory / "stderr")  # type: ignore[arg-type]
        settings = {
            "MUSTER_COORDINATOR": f"https://127.0.0.1:{coordinator.port}",
            "MUSTER_COORDINATOR_NAME": NAME,
            "MUSTER_TOKEN_FILE": str(directory / "token"),
            "MUSTER_CA_FILE": str(coordinator.authority.ca),
            "MUSTER_POD_IP": "127.0.0.1",
            "MUSTER_WORKER_INDEX": str(len(started)),
            "MUSTER_DIRECTORY": str(directory),
            "MUSTER_SCAN_SECONDS": "0.3",
            "TEST_DIRECTORY": str(tmp_path),
            **environment,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "PYTHON"))}
        python = [os.environ.get("MUSTER_TEST_PYTHON", sys.executable), "-I", *(["-c", PATIENT] if patient else [])]
        with launcher.errors.open("wb") as errors, launcher.output.open("wb") as output:
            launcher.process = subprocess.Popen(
                [*python, str(archive), "--", *command],
                env={**kept, **{name: value for name, value in settings.items() if value}},
                stdin=subprocess.DEVNULL,
                stdout=stdout or output,
                stderr=errors,
                cwd=tmp_path,
            )
        started.append(launcher)
        return launcher

    yield start
    for launcher in started:
        if launcher.process.poll() is None:
            launcher.process.send_signal(signal.SIGCONT)
            launcher.process.terminate()
            try:
                launcher.process.wait(10)
            except subprocess.TimeoutExpired:
                launcher.process.kill()
                launcher.process.wait()


@pytest.fixture
def run_python(launch: Launch) -> Launch:
    """Start a launcher whose ranks run this Python text."""

    def start(text: str, **environment: Any) -> Launcher:
        return launch(sys.executable, "-S", "-c", text, **environment)

    return start


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until
