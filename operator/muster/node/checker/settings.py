"""Reads the checker's settings from its environment.

Tests: tests/unit/checker/test_keeping.py.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Tuple

from muster.protocol.channel import Endpoint, host_and_port


class SettingsError(Exception):
    """A variable is missing or cannot be used; the message says which, and what it should be."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The checker's settings; each has the variable that sets it."""

    endpoint: Endpoint
    """MUSTER_COORDINATOR: `https://host:port`, required; MUSTER_COORDINATOR_NAME: the name in its certificate, by
    default that host; MUSTER_TOKEN_FILE and MUSTER_CA_FILE: required, read again when they change."""
    address: str
    """MUSTER_ADDRESS: the address at which checkers of other nodes reach this one (the downward API's status.hostIP).
    Required."""
    run_directory: str
    """MUSTER_RUN: for files that hold until the next boot; /run/muster-check by default."""
    lib_directory: str
    """MUSTER_LIB: for files that hold longer; /var/lib/muster-check by default."""
    storage_directory: str
    """MUSTER_STORAGE: where the storage probe writes a file and removes it; by default no storage is probed."""
    sysfs: str
    """MUSTER_SYSFS: root of sysfs."""
    boot_id_file: str
    """MUSTER_BOOT_ID_FILE"""
    listen: Tuple[str, int]
    """MUSTER_LISTEN: `address:port` of /healthz and /metrics; 127.0.0.1:9476 by default."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        SettingsError: one of them is missing or unusable.
    """
    url = _required(environment, "MUSTER_COORDINATOR")
    try:
        host, port = host_and_port(url)
    except ValueError:
        raise SettingsError("MUSTER_COORDINATOR is %r: set it to https://HOST:PORT" % url) from None
    name = environment.get("MUSTER_COORDINATOR_NAME") or host
    token, ca = _required(environment, "MUSTER_TOKEN_FILE"), _required(environment, "MUSTER_CA_FILE")
    storage = environment.get("MUSTER_STORAGE", "")
    if storage and not storage.startswith("/"):
        raise SettingsError("MUSTER_STORAGE is %r: set it to an absolute path, or leave it out" % storage)
    return Settings(
        endpoint=Endpoint(host, port, name, token, ca),
        address=_required(environment, "MUSTER_ADDRESS"),
        run_directory=environment.get("MUSTER_RUN") or "/run/muster-check",
        lib_directory=environment.get("MUSTER_LIB") or "/var/lib/muster-check",
        storage_directory=storage,
        sysfs=environment.get("MUSTER_SYSFS") or "/sys",
        boot_id_file=environment.get("MUSTER_BOOT_ID_FILE") or "/proc/sys/kernel/random/boot_id",
        listen=_address(environment.get("MUSTER_LISTEN") or "127.0.0.1:9476"),
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsError("%s is empty: the manifest of the DaemonSet muster-check sets it" % name)
    return value


def _address(text: str) -> Tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SettingsError("MUSTER_LISTEN is %r: set it to ADDRESS:PORT" % text)
    return host.strip("[]"), int(port)
