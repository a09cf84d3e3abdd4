"""Read the settings of one installation of the page from environment variables, with defaults that fit the
manifests.

Tests: tests/unit/page/test_server.py.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.serve import node_addresses


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the page's process.

    Attributes:
        tls: folder with tls.crt and tls.key (MUSTER_PAGE_TLS). None: plain HTTP, at the loopback address alone, for
            `kubectl port-forward` or a proxy in the same pod: tokens never go over a network in the clear.
        port: where it is served (MUSTER_PAGE_PORT); 0: any.
        probe_port: port of /healthz, /readyz and /metrics (MUSTER_PROBE_PORT); 0: any.
        node_addresses: from where the kubelet's probes come (HOST_IPS, and the pod's default gateway).
    """

    tls: Path | None = None
    port: int = 8444
    probe_port: int = 8080
    node_addresses: frozenset[str] = frozenset()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Read the environment.

        Raises:
            SystemExit: a setting does not parse; says which.
        """
        tls = environment.get("MUSTER_PAGE_TLS", "")
        return cls(
            tls=Path(tls) if tls else None,
            port=_port(environment, "MUSTER_PAGE_PORT", 8444),
            probe_port=_port(environment, "MUSTER_PROBE_PORT", 8080),
            node_addresses=node_addresses(environment),
        )


def _port(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, str(default))
    if not (value.isascii() and value.isdigit()) or int(value) > 65535:
        raise SystemExit(f"{name} is {value!r}: give a port, 0 to 65535")
    return int(value)
