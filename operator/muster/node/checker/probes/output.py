"""Reads what a probe prints as it comes, keeps the first and last lines, and forgets the rest.

Only NCCL's own log names its transport; so the transport is read here, where every line passes.

Tests: tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import re
from typing import Set

FLOOD_BYTES = 64 * 1024 * 1024
"""More than any probe prints: a debug log of NCCL with eight ranks has a few hundred KiB."""
_KEPT_BYTES = 2048
_MAX_LINE_BYTES = 4096
_MAX_TRANSPORTS = 16
# "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", "via NET/IB/0(1)/GDRDMA/Shared" (by the card of another
# rank), "via NET/AWS Libfabric/3/GDRDMA", "via P2P/CUMEM/read", "via P2P/indirect/1[1]", "via SHM/direct/direct".
_VIA = re.compile(rb"NCCL INFO .*\bvia ([A-Z][A-Z0-9]+)(?:/([A-Za-z_][A-Za-z0-9_ ]*))?([^\n]*)")
_DIRECT = b"/GDRDMA"
# "NCCL INFO Using network IB": printed once, also where no channel needs it.
_NETWORK = re.compile(rb"NCCL INFO Using network ([A-Za-z0-9_ ]+)")


class Output:
    """The bounded memory of one output stream."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.transports: Set[str] = set()
        self.networks: Set[str] = set()
        self._first = b""
        self._last = b""
        self._line = b""

    def feed(self, data: bytes) -> None:
        """Add newly read data."""
        self.read_bytes += len(data)
        room = _KEPT_BYTES - len(self._first)
        self._first += data[:room]
        self._last = (self._last + data[room:])[-_KEPT_BYTES:] if room < len(data) else self._last
        if b"\n" not in data:
            self._line = (self._line + data)[-_MAX_LINE_BYTES:]
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._check_line(line[:_MAX_LINE_BYTES])
        self._line = self._line[-_MAX_LINE_BYTES:]

    def _check_line(self, line: bytes) -> None:
        if b"NCCL INFO" not in line:
            return
        via, network = _VIA.search(line), _NETWORK.search(line)
        if via and len(self.transports) < _MAX_TRANSPORTS:
            # The card and its owner are left out: they differ from channel to channel.
            words = [word.decode("ascii").strip() for word in via.group(1, 2) if word]
            self.transports.add("/".join(words + ["GDRDMA"] * (_DIRECT in via.group(3))))
        if network and len(self.networks) < _MAX_TRANSPORTS:
            self.networks.add(network.group(1).decode("ascii").strip())

    @property
    def flooded(self) -> bool:
        """Whether the probe prints without end."""
        return self.read_bytes > FLOOD_BYTES

    @property
    def tail(self) -> str:
        """Return the last lines, and the first ones where they are different."""
        between = b"\n[...]\n" if self.read_bytes > len(self._first) + len(self._last) else b""
        return (self._first + between + self._last).decode("utf-8", "replace").strip()
