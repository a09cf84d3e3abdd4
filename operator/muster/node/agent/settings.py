"""Reads the agent's settings from its environment. Every path is per node, because test nodes share a kernel."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.serve import node_addresses

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class SettingsError(Exception):
    """A variable is missing or cannot be used; the message says which, and what it should be."""


@dataclass(frozen=True)
class Settings:
    """The agent's settings; each has the variable that sets it."""

    node: str
    """MUSTER_NODE: name of this node (the downward API's spec.nodeName). Required."""
    api_server: str
    """MUSTER_API_SERVER: `https://host:port`; in a pod KUBERNETES_SERVICE_HOST and _PORT say it."""
    token_file: Path
    """MUSTER_TOKEN_FILE: bearer token, read again for every request."""
    ca_file: Path
    """MUSTER_CA_FILE: the authorities that may sign the API server's certificate."""
    kernel_log: Path
    """MUSTER_KERNEL_LOG: /dev/kmsg, or a file in its format or in syslog's."""
    sysfs: Path
    """MUSTER_SYSFS: root of sysfs."""
    proc: Path
    """MUSTER_PROC: root of procfs, as the node's own processes see it."""
    boot_id_file: Path
    """MUSTER_BOOT_ID_FILE"""
    system_uuid_file: Path
    """MUSTER_SYSTEM_UUID_FILE: of the mainboard."""
    mounts_file: Path
    """MUSTER_MOUNTS_FILE: the node's own mounts."""
    thresholds_file: Path | None
    """MUSTER_THRESHOLDS: JSON with values for the table in thresholds.py; none by default."""
    expected_gpus: int | None
    """MUSTER_EXPECTED_GPUS: how many GPUs the node must have; by default the most that it has had."""
    expected_ports: int | None
    """MUSTER_EXPECTED_IB_PORTS: how many InfiniBand ports must be up; by default those that were up in this boot."""
    node_addresses: frozenset[str]
    """HOST_IPS (the downward API's status.hostIPs), and the pod's default gateway: the addresses from which the
    kubelet's probes come."""
    listen: tuple[str, int]
    """MUSTER_LISTEN: `address:port` of /healthz, /readyz and /metrics; 127.0.0.1:9475 by default. `[::1]:9475` means
    IPv6, `:9475` all addresses of both kinds, port 0 any port."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        SettingsError: one of them is missing or unusable.
    """
    node = environment.get("MUSTER_NODE", "")
    if not node:
        raise SettingsError("MUSTER_NODE is empty: set it to spec.nodeName by the downward API")
    proc = Path(environment.get("MUSTER_PROC", "/proc"))
    sysfs = Path(environment.get("MUSTER_SYSFS", "/sys"))
    thresholds = environment.get("MUSTER_THRESHOLDS", "")
    return Settings(
        node=node,
        api_server=_server(environment),
        token_file=Path(environment.get("MUSTER_TOKEN_FILE", str(_ACCOUNT / "token"))),
        ca_file=Path(environment.get("MUSTER_CA_FILE", str(_ACCOUNT / "ca.crt"))),
        kernel_log=Path(environment.get("MUSTER_KERNEL_LOG", "/dev/kmsg")),
        sysfs=sysfs,
        proc=proc,
        boot_id_file=Path(environment.get("MUSTER_BOOT_ID_FILE", str(proc / "sys/kernel/random/boot_id"))),
        system_uuid_file=Path(environment.get("MUSTER_SYSTEM_UUID_FILE", str(sysfs / "class/dmi/id/product_uuid"))),
        mounts_file=Path(environment.get("MUSTER_MOUNTS_FILE", str(proc / "1/mounts"))),
        thresholds_file=Path(thresholds) if thresholds else None,
        expected_gpus=_count(environment, "MUSTER_EXPECTED_GPUS"),
        expected_ports=_count(environment, "MUSTER_EXPECTED_IB_PORTS"),
        node_addresses=node_addresses(environment),
        listen=_address(environment.get("MUSTER_LISTEN", "127.0.0.1:9475")),
    )


def _server(environment: Mapping[str, str]) -> str:
    server = environment.get("MUSTER_API_SERVER", "")
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not server and not host:
        raise SettingsError("MUSTER_API_SERVER is empty and this is no pod: set it to https://HOST:PORT")
    server = server or (f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    if not server.startswith("https://"):
        raise SettingsError(f"MUSTER_API_SERVER is {server!r}: it has to begin with https://")
    return server.rstrip("/")


def _count(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    if text and not text.isdecimal():
        raise SettingsError(f"{name} is {text!r}: set it to a whole number, or leave it out")
    return int(text) if text else None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"MUSTER_LISTEN is {text!r}: set it to ADDRESS:PORT")
    return host.strip("[]"), int(port)
