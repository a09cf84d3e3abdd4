"""Metrics as the shipped ServiceMonitor reads them."""

import base64
import socket
import ssl
from pathlib import Path
from typing import Any

import yaml

from localcluster.patience import PATIENCE_SECONDS

MONITORS = Path(__file__).resolve().parents[3] / "manifests/components/monitoring/monitors.yaml"
READER = "muster-metrics-reader"


def trusted(installation: Any) -> tuple[ssl.SSLContext, str]:
    """What the ServiceMonitor trusts, and under which name."""
    monitor = next(each for each in yaml.safe_load_all(MONITORS.read_text()) if each["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    tls, secret = endpoint["tlsConfig"], endpoint["tlsConfig"]["ca"]["secret"]
    held = installation.get("secret", secret["name"], f"--namespace={monitor['metadata']['namespace']}")["data"]
    return ssl.create_default_context(cadata=base64.b64decode(held[secret["key"]]).decode()), tls["serverName"]


def read(installation: Any, port: int, token: str) -> tuple[int, str]:
    trust, name = trusted(installation)

    login = f"Authorization: Bearer {token}\r\n" if token else ""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as plain,
        trust.wrap_socket(plain, server_hostname=name) as connection,
    ):
        connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n{login}\r\n".encode())
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()
