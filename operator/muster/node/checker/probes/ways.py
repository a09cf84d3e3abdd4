"""Tests whether each node of a pair reaches the other one.

gloo and NCCL connect in one direction, by the order of ranks. A node that accepts no connections would pass with every
node to which it connects itself; with the others it would look like a bad link. So each node listens on the order's
port, at the address by which it reaches the other, and connects to the other once. The kernel answers, and nothing is
read. Both ends learn the result from the first sum (reduce.py). Where another process has the port of a node, that
direction is not tested.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any, Optional

_KEY = "muster/way/%d"
_POLL_SECONDS = 0.05
SAYS_SECONDS = 10.0
"""How long a node waits for the other one's address, which is put as soon as they have met."""
CONNECT_SECONDS = 5.0
"""The limit of one connection; the kernel tries three times within it."""


def address_to(host: str, port: int) -> str:
    """Return the address from which this machine reaches another, or itself.

    Raises:
        RuntimeError: there is no route.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise RuntimeError("no way to %s: %s" % (host, error)) from error


def listen(store: Any, node_rank: int, host: str, port: int) -> Optional[socket.socket]:
    """Listen on the port and write the address into the store, for the other node of the pair. Return None where the
    node cannot listen.

    Args:
        store: the torch store in which both nodes have met.
        node_rank: rank of this node.
        host: address of the first node.
        port: to listen on.
    """
    key = _KEY % node_rank
    address = address_to(host, port)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, port))
        listener.listen()
    except OSError:  # another process has the port: that of the other node where both are one machine
        listener.close()
        store.set(key, "")
        return None
    store.set(key, address)
    return listener


def problem(store: Any, node_rank: int, port: int) -> str:
    """Return why the other node, of rank `node_rank`, cannot be reached; "" where it can, or has put no address."""
    key = _KEY % node_rank
    until = time.monotonic() + SAYS_SECONDS
    while not store.check([key]):
        if time.monotonic() >= until:
            return ""
        time.sleep(_POLL_SECONDS)
    address = store.get(key).decode()
    if not address:
        return ""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(socket.create_connection((address, port), CONNECT_SECONDS))
        except OSError as error:
            return "no connection to %s port %d: %s" % (address, port, error)
    return ""
