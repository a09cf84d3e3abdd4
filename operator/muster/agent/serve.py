"""/healthz and /metrics over plain HTTP, for the kubelet and Prometheus; a few lines instead of a library."""

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer

Metric = tuple[str, str, str, Iterable[tuple[dict[str, str], float]]]
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


def serve(address: tuple[str, int], healthy: Callable[[], bool], metrics: Callable[[], Iterable[Metric]]) -> int:
    """Serve from a thread; answers the port.

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
                self._answer(200 if well else 503, "ok\n" if well else "the agent has stopped looking\n")
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

    server = HTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 5.0}, name="http", daemon=True).start()
    return int(server.server_address[1])
