"""An API server that takes what one node agent sends it and remembers the last: no cluster, no rights, no schema."""

import json
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Sink:
    """Serves until the process ends; no object is there at first.

    Attributes:
        environment: what an agent has to be told to find it, files in `folder` included.
        status: of the NodeHealth, as it was applied last.
        writes: how many applies there were.
    """

    def __init__(self, folder: Path) -> None:
        outer = self
        self.writes = 0
        self.status: dict[str, Any] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(200 if outer.status else 404, {"status": outer.status})

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.writes += 1
                outer.status = body.get("status", {})
                self._answer(200, body)

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Silent."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certificate(folder))
        server = HTTPServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (folder / "token").write_text("sink")
        self.environment = {
            "MUSTER_API_SERVER": f"https://127.0.0.1:{server.server_address[1]}",
            "MUSTER_CA_FILE": str(folder / "ca.crt"),
            "MUSTER_TOKEN_FILE": str(folder / "token"),
            "MUSTER_LISTEN": "127.0.0.1:0",
        }


def _certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that signs itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sink")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path
