"""/healthz and /metrics over plain HTTP, for the kubelet and Prometheus; a few lines instead of a library.

The agent and the checker have them.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Callable, Dict, Iterable, Tuple, Type

Metric = Tuple[str, str, str, Iterable[Tuple[Dict[str, str], float]]]
"""Name, type, help, and the values by label."""

_REQUEST_SECONDS = 2.0


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


class _Server(HTTPServer):
    """Of either kind of address; the one that stands for all serves both, where the node has both."""

    def __init__(self, address: Tuple[str, int], handler: Type[BaseHTTPRequestHandler]) -> None:
        host, port = address
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - that is what was asked for
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind, whatever the node's default for new sockets is."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(
    address: Tuple[str, int], healthy: Callable[[], bool], sick: str, metrics: Callable[[], Iterable[Metric]]
) -> int:
    """Serve from a thread; answers the port.

    Args:
        address: host, of IPv4 or IPv6, and port; no host: all addresses of the node; port 0: any.
        healthy: whether the program is alive.
        sick: what to say where it is not.
        metrics: what it measures.

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
            else:
                self._answer(404, "there are /healthz and /metrics\n")

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
