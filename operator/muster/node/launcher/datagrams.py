"""The launcher's UDP socket behind a thin port: it never blocks, and trouble is the same as a lost packet.

Tests: tests/unit/launcher/test_pure.py.
"""

from __future__ import annotations

import socket
from typing import Optional, Tuple

Address = Tuple[str, int]
_MAX_BYTES = 256


class Datagrams:
    """A non-blocking UDP socket on a free port."""

    def __init__(self, pod_ip: str) -> None:
        family = socket.AF_INET6 if ":" in pod_ip else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(("", 0))
        self.port = int(self._socket.getsockname()[1])
        self.descriptor = self._socket.fileno()

    def receive(self) -> Optional[Tuple[bytes, Address]]:
        """The next packet and its sender's address; None if there is none, or an ICMP error for an earlier packet."""
        try:
            data, sender = self._socket.recvfrom(_MAX_BYTES)
        except OSError:
            return None
        return data, (str(sender[0]), int(sender[1]))

    def send(self, data: bytes, target: Address) -> None:
        """Send a packet to an IP address. A packet to a host name is dropped, because looking the name up can hang."""
        if not _is_address(target[0]):
            return
        try:
            self._socket.sendto(data, target)
        except (OSError, OverflowError):  # no route, a full buffer
            return


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except OSError:
            continue
        return True
    return False
