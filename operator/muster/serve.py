"""/healthz, /readyz and /metrics over plain HTTP, for the kubelet and Prometheus; a few lines instead of a library.

The agent and the checker have them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Callable, Dict, Iterable, Tuple, Type

Metric = Tuple[str, str, str, Iterable[Tuple[Dict[str, str], float]]]
"""Name, type, help, and the values by label."""

_REQUEST_SECONDS = 2.0  # without a byte
_CONNECTION_SECONDS = 10.0
_MOST_CONNECTIONS = 16


def exposition(metrics: Iterable[Metric]) -> str:
    """Prometheus' text format."""
    lines = []
    for name, kind, help_text, values in metrics:
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
        for labels, value in values:
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{inner}}} {value:.17g}" if inner else f"{name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Server(ThreadingMixIn, HTTPServer):
    """Of either kind of address; the one that stands for all serves both, where the node has both.

    Anybody on the node's network may connect: who says nothing, or a byte now and then, is cut off in time, and at once where
    there are many, so that the kubelet is answered and nobody is restarted for a client's sake.
    """

    daemon_threads = True

    def __init__(self, address: Tuple[str, int], handler: Type[BaseHTTPRequestHandler]) -> None:
        host, port = address
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - that is what was asked for
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._open: Dict[Any, float] = {}  # since when, oldest first
        self._guard = threading.Lock()
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind, whatever the node's default for new sockets is."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer from a thread; the oldest of too many makes room."""
        with self._guard:
            self._open[request] = time.monotonic()
            crowd = list(self._open)[:-_MOST_CONNECTIONS]
        _cut_off(crowd)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It is over."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called with each turn: cut off who takes too long."""
        with self._guard:
            late = [each for each, since in self._open.items() if time.monotonic() - since > _CONNECTION_SECONDS]
        _cut_off(late)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is its client's affair."""


def _cut_off(connections: Iterable[Any]) -> None:
    for each in connections:
        with contextlib.suppress(OSError):  # it has just ended
            each.shutdown(socket.SHUT_RDWR)


def serve(
    address: Tuple[str, int],
    healthy: Callable[[], bool],
    sick: str,
    metrics: Callable[[], Iterable[Metric]],
    not_ready: Callable[[], str] = lambda: "",
) -> int:
    """Serve from a thread; answers the port.

    Args:
        address: host, of IPv4 or IPv6, and port; no host: all addresses of the node; port 0: any.
        healthy: whether the program is alive.
        sick: what to say where it is not.
        metrics: what it measures.
        not_ready: why nobody should rely on it now; "" when all is well.

    Raises:
        OSError: the address cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_GET(self) -> None:
            """Answer."""
            if self.path == "/metrics":
                self._answer(200, exposition(metrics()))
            elif self.path == "/healthz":
                well = healthy()
                self._answer(200 if well else 503, "ok\n" if well else "%s\n" % sick)
            elif self.path == "/readyz":
                why = not_ready()
                self._answer(503 if why else 200, "%s\n" % (why or "ok"))
            else:
                self._answer(404, "there are /healthz, /readyz and /metrics\n")

        def _answer(self, status: int, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Requests are not logged."""

    server = _Server(address, Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 5.0}, name="http", daemon=True).start()
    return int(server.server_address[1])
