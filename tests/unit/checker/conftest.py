"""A coordinator that scripts checkers over real TLS, and real checkers whose zygote has a double for torch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.unit.preflight_probes.conftest import write_double

from localcluster.patience import PATIENCE_SECONDS
from muster.kube.certificates import new_authority, new_serving
from muster.protocol.checks import CHECK_PATH, CheckDirective, CheckReport, decode_check_report
from muster.protocol.messages import digest, encode

ROOT = Path(__file__).resolve().parents[3]
NAME = "coordinator.muster.test"
# Every probe of a CPU profile at once; an all-reduce meets its partners through the coordinator, and may be told to go
# on for ever.
HOOK = """
import os, select, socket, time
from muster.node.checker.probes import catalog, nvml, outcome
from muster.node.checker.probes.meeting import Meeting

nvml.load = lambda: None

def probe(**figures):
    return lambda worker: figures

def reduce(worker):
    order = worker.order
    figures = {"best_bus_gb_per_s": 2.5, "segments": 5000, "segments_again": 5}
    sizes = [{"bytes": size, **figures} for size, _ in order["sizes"]]
    found = {"backend": "gloo", "world": worker.crew_size * order["nodes"], "sizes": sizes}
    if order["nodes"] == 1:
        return found
    worker.phase("connect")
    others = []
    meeting = Meeting(worker.send_line, order["meeting"], order["node_rank"], 60.0)
    meeting.gather(order["nodes"])
    if order["node_rank"] == 0:
        with socket.create_server((order["master"], 0)) as server:
            meeting.set("port", b"%d" % server.getsockname()[1])
            while len(others) < order["nodes"] - 1:
                others.append(server.accept()[0])
    else:
        others.append(socket.create_connection((order["master"], int(meeting.get("port")))))
    worker.phase("all-reduce")
    for other in others:
        other.sendall(b"x")
    if not all([other.recv(1) for other in others]):
        raise outcome.ProblemError(outcome.OTHER_ENDED, "connection closed by peer")
    if os.path.exists(os.environ["HANG"]):
        select.select(others, [], [])
        raise outcome.ProblemError(outcome.OTHER_ENDED, "connection closed by peer")
    return found

def put(name, run):
    import dataclasses
    catalog.PROBES[name] = dataclasses.replace(catalog.PROBES[name], run=run, conclude=None)

put("Context", probe(context_seconds=0.1))
put("Gemm", probe(best_tflops=1.5, size=512))
put("Bandwidth", probe(best_gb_per_s=9.0))
put("Pattern", probe(best_gb_per_s=3.0))
put("Bits", probe(passes=2))
put("HostCopies", probe(to_device={"best_gb_per_s": 4.0}, from_device={"best_gb_per_s": 5.0}))
put("AllReduce", reduce)
"""


class Coordinator:
    """Tells every checker, known by its token, its own directive; holds answers as the real one does."""

    def __init__(self, directory: Path) -> None:
        self.changed = threading.Condition()
        self.directives: dict[str, CheckDirective] = {}
        self.reports: dict[str, CheckReport] = {}
        self.refused: list[str] = []
        now = datetime.now(UTC)
        authority = new_authority(now)
        serving = new_serving(authority, (NAME,), now)
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(authority.certificate)
        (directory / "tls.pem").write_bytes(serving.certificate)
        (directory / "tls.key").write_bytes(serving.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "tls.pem", directory / "tls.key")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        coordinator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                assert self.path == CHECK_PATH
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = coordinator.answer(self.headers["Authorization"].removeprefix("Bearer "), body)
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        return Handler

    def answer(self, node: str, body: bytes) -> bytes:
        try:
            report = decode_check_report(body)
        except ValueError as error:
            self.refused.append(str(error))
            raise
        with self.changed:
            if node not in self.reports or report.sequence > self.reports[node].sequence:
                self.reports[node] = report
            self.changed.notify_all()
            until = time.monotonic() + report.hold_seconds
            while True:
                directive = self._met(node, report, self.directives.get(node, CheckDirective()))
                left = until - time.monotonic()
                if left <= 0 or digest(directive) != report.directive_seen:  # type: ignore[arg-type]
                    return encode(directive)
                self.changed.wait(left)

    def _met(self, node: str, report: CheckReport, directive: CheckDirective) -> CheckDirective:
        """The directive with what checkers that have the same order have put; `report` counts where none is kept."""
        meeting = self.reports.get(node, report).meeting
        if meeting not in {order.id for order in directive.orders}:
            return directive
        others = [other for name, other in sorted(self.reports.items()) if name != node and other.meeting == meeting]
        return replace(directive, meeting=meeting, puts=tuple(put for other in others for put in other.puts))

    def tell(self, node: str, **directive: Any) -> None:
        with self.changed:
            self.directives[node] = CheckDirective(**directive)
            self.changed.notify_all()

    def wait_for(self, node: str, condition: Callable[[CheckReport], Any]) -> CheckReport:
        with self.changed:
            found = self.changed.wait_for(
                lambda: node in self.reports and condition(self.reports[node]), PATIENCE_SECONDS
            )
            assert found, self.reports.get(node)
            assert not self.refused
            return self.reports[node]

    def forget(self, node: str) -> None:
        """A new process of this node counts anew."""
        with self.changed:
            self.reports.pop(node, None)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    found = Coordinator(tmp_path)
    yield found
    found.close()


class Nodes:
    """Checkers as processes, one for each node, with a double for torch unless there is a command for the zygote."""

    def __init__(self, directory: Path, coordinator: Coordinator, zygote: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self._arguments = ["--zygote", *zygote] if zygote else []
        self.hang = directory / "hang"
        self._coordinator = coordinator
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if zygote:
            return
        write_double(directory, HOOK)

    def start(self, name: str, **environment: str) -> None:
        home = self.directory / name
        home.mkdir(exist_ok=True)
        (home / "token").write_text(name)
        own = {
            "PYTHONPATH": os.pathsep.join([str(self.directory), str(ROOT / "operator")]),
            "HANG": str(self.hang),
            "MUSTER_COORDINATOR": f"https://127.0.0.1:{self._coordinator.port}",
            "MUSTER_COORDINATOR_NAME": NAME,
            "MUSTER_TOKEN_FILE": str(home / "token"),
            "MUSTER_CA_FILE": str(self._coordinator.ca),
            "MUSTER_ADDRESS": "127.0.0.1",
            "MUSTER_RUN": str(home / "run"),
            "MUSTER_LIB": str(home / "lib"),
            "MUSTER_LISTEN": "127.0.0.1:0",
        }
        log = (home / "log").open("ab")
        self._processes[name] = subprocess.Popen(
            [os.environ.get("MUSTER_TEST_PYTHON", sys.executable), "-m", "muster.node.checker", *self._arguments],
            env={**os.environ, **own, **environment},
            stderr=log,
        )
        log.close()

    def stop(self, name: str) -> int:
        """End it as Kubernetes does; its exit code."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_SECONDS)
        self._coordinator.forget(name)
        return code

    def kill(self, name: str) -> None:
        """End it as a power cut does; what it has started goes with it."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(PATIENCE_SECONDS)

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        lines = (self.directory / name / "log").read_text().splitlines()
        return [
            found for line in lines if line.startswith("{") for found in [json.loads(line)] if found["event"] == event
        ]

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(PATIENCE_SECONDS)


@pytest.fixture
def nodes(tmp_path: Path, coordinator: Coordinator) -> Iterator[Nodes]:
    found = Nodes(tmp_path, coordinator)
    yield found
    found.kill_all()
