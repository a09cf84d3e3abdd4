"""The operator's metrics on a real API server with real tokens, read as the shipped ServiceMonitor reads them."""

import base64
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

MONITORS = Path(__file__).resolve().parents[3] / "manifests/components/monitoring/monitors.yaml"
READER = "muster-metrics-reader"


@pytest.fixture
def scraper(installation: Any, namespace: str) -> Iterator[Callable[..., str]]:
    """`scraper(name, may_read=...)`: a token of a service account of its own."""
    bindings = []

    def made(name: str, *, may_read: bool) -> str:
        here = f"--namespace={namespace}"
        installation.kubectl("create", "serviceaccount", name, here)
        if may_read:
            bindings.append(f"{namespace}-{name}")
            account = f"--serviceaccount={namespace}:{name}"
            installation.kubectl("create", "clusterrolebinding", bindings[-1], f"--clusterrole={READER}", account)
        return str(installation.kubectl("create", "token", name, here)).strip()

    yield made
    for binding in bindings:
        installation.kubectl("delete", "clusterrolebinding", binding)


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
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        trust.wrap_socket(plain, server_hostname=name) as connection,
    ):
        connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n{login}\r\n".encode())
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def test_a_token_with_the_right_and_no_other_reads_metrics(
    installation: Any, scraper: Callable[..., str], wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()
    port = replica.metrics_port
    prometheus, tenant = scraper("prometheus", may_read=True), scraper("tenant", may_read=False)
    assert read(installation, port, "")[0] == 401
    assert read(installation, port, "forged")[0] == 401
    status, text = read(installation, port, tenant)
    assert (status, READER in text) == (403, True)
    # A right is in effect a moment after its binding, and a refusal is kept for a while: the first answer may be one.
    status, text = wait_until(lambda: _allowed(read(installation, port, prometheus)), "the right counts")
    assert "\nmuster_is_leader 1.0\n" in text
    (expiry,) = re.findall(r"^muster_certificate_expiry_timestamp_seconds (\S+)$", text, re.MULTILINE)
    assert 13 < (float(expiry) - time.time()) / 86400 <= 14
    assert replica.get("/metrics")[0] == 404, "nothing is told without a token"
    codes = {(each["resource"], each["code"]) for each in map(dict, replica.samples("muster_api_requests_total"))}
    assert ("subjectaccessreviews", "201") in codes
    assert not [resource for resource, code in codes if code == "403"]


def _allowed(answer: tuple[int, str]) -> tuple[int, str] | None:
    return answer if answer[0] == 200 else None


def test_a_standby_guards_its_metrics_alike(
    installation: Any, scraper: Callable[..., str], wait_until: Callable[..., Any]
) -> None:
    installation.start_leader()
    standby = installation.start(installation.operator_pods()[1])
    wait_until(lambda: standby.samples("muster_is_leader"), "it has the certificates")
    assert read(installation, standby.metrics_port, "")[0] == 401
    assert read(installation, standby.metrics_port, scraper("tenant", may_read=False))[0] == 403
