"""Whether the first node of a pair reaches the second one, too.

To meet, the second connects to the first. A node that takes no connections would pass with everybody whom it connects to itself, and with
the others it would look like a bad link. So the second listens on the same port, and the first connects there, once; the kernel
answers. Both ends learn what came of it from the first sum (reduce.py). Where the second is older and says no address, or
somebody else has its port, nothing is looked at.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any, Optional

_KEY = "muster/second"
_POLL_SECONDS = 0.05
SAYS_SECONDS = 2.0
"""So long the first waits for the second one's address: it is told as soon as they have met."""
CONNECT_SECONDS = 5.0
"""In that time the kernel tries three times."""


def address_to(host: str, port: int) -> str:
    """The address from which this machine reaches another, or itself.

    Raises:
        RuntimeError: there is no way.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise RuntimeError("no way to %s: %s" % (host, error)) from error


def listen(store: Any, host: str, port: int) -> Optional[socket.socket]:
    """On the second node: listen on the port, and tell the first one where. None where that cannot be.

    Args:
        store: where they have met; torch's.
        host: of the first.
    """
    address = address_to(host, port)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.bind((address, port))
        found.listen()
    except OSError:  # somebody has it, the first node itself where both are one machine
        found.close()
        store.set(_KEY, "")
        return None
    store.set(_KEY, address)
    return found


def problem(store: Any, port: int) -> str:
    """On the first node: why the second one cannot be reached; "" where it can, or has not said where."""
    until = time.monotonic() + SAYS_SECONDS
    while not store.check([_KEY]):
        if time.monotonic() >= until:
            return ""
        time.sleep(_POLL_SECONDS)
    address = store.get(_KEY).decode()
    if not address:
        return ""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(socket.create_connection((address, port), CONNECT_SECONDS))
        except OSError as error:
            return "no connection to %s port %d: %s" % (address, port, error)
    return ""
