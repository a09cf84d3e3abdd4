"""Measures all-reduces inside a node, between two nodes, or over a whole gang: one probe; `nodes` says which.

Each node runs one process per device. The statistics come from measurements with gloo on busy machines. The best of
many small repeats shows a slow link best (the median needs a fault three times worse). TCP's retransmitted segments
show a lossy link, which no time shows below 5 % loss.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py, tests/unit/preflight_probes/test_ways.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import statistics
import struct
import time
from datetime import timedelta
from typing import Any, Dict, Tuple

from muster.node.checker.probes import ways
from muster.node.checker.probes.bursts import significant
from muster.node.checker.probes.meeting import Meeting, store_of
from muster.node.checker.probes.outcome import COULD_NOT_CONNECT, WRONG, ProblemError, of_network
from muster.node.checker.probes.worker import Worker

_SIOCGIFADDR = 0x8915
_FLOAT_BYTES = 4
_PERIOD = 7
_PAIR = 2
_LONG_SECONDS = 3600.0
_MAX_MESSAGE_CHARACTERS = 300
CONNECT = "connect"
GROUP = "group"
REDUCE = "all-reduce"
LEAVE = "leave"
CONNECTED = (GROUP, REDUCE, LEAVE)
"""Phases in which the members had met: an end in one of them is not a failure to connect."""


def all_reduce(worker: Worker) -> Dict[str, Any]:
    """Measure rates of all-reduces by size.

    `sizes`: [bytes, repeats]. `nodes` and `node_rank`: number of nodes and rank of this one. With more than one node,
    `master` is an address of node rank 0, which determines the interface; at `port` two nodes connect to each other
    once (ways.py); through the file `meeting` the nodes find each other (meeting.py). With one node, `rendezvous` is a
    file of its own instead. `wait_seconds` bounds each wait of gloo (not the whole: data that trickle in never end it).
    """
    order = worker.order
    phase = CONNECT
    worker.open_device()
    group: Any = None
    listener = None
    try:
        world, rank = order["nodes"] * worker.crew_size, order["node_rank"] * worker.crew_size + _local_rank(worker)
        began = time.monotonic()
        worker.phase(CONNECT)
        store, interface = _store(worker, rank, world)
        speaks = order["nodes"] == _PAIR and rank % worker.crew_size == 0
        if speaks:
            listener = ways.listen(store, order["node_rank"], order["master"], order["port"])
        worker.phase(GROUP)
        phase = GROUP
        group = worker.torch.distributed
        backend = "nccl" if worker.cuda else "gloo"
        # NCCL's own watchdog would kill the process at its time-out: the deadline from outside gives better evidence.
        limit = _LONG_SECONDS if worker.cuda else float(order["wait_seconds"])
        group.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=limit))
        unreached = ways.problem(store, 1 - order["node_rank"], order["port"]) if speaks else ""
        # All members learn of it: a member that just ended would make the others look like its victims.
        is_unreached = worker.torch.zeros(1, device=worker.device).add_(1.0 if unreached else 0.0)
        group.all_reduce(is_unreached)
        worker.wait()
        if float(is_unreached[0]) and not unreached:
            unreached = "the other node of the pair cannot connect to this one"
        met = time.monotonic() - began
        worker.phase(REDUCE)
        phase = REDUCE
        rows = [] if unreached else order["sizes"]
        sizes = [_measure(worker, group, rank, world, size, repeats) for size, repeats in rows]
        worker.phase(LEAVE)
        # The first member to finish must not close the connection of the others.
        with contextlib.suppress(RuntimeError):
            group.barrier()
            worker.wait()
    except RuntimeError as error:  # every error of torch's communication is a RuntimeError
        message = "%s: %s" % (phase, str(error)[:_MAX_MESSAGE_CHARACTERS])
        raise ProblemError(of_network(str(error), phase in CONNECTED), message) from error
    finally:
        if listener is not None:
            listener.close()
    if unreached:
        raise ProblemError(COULD_NOT_CONNECT, "%s: %s" % (CONNECT, unreached))
    figures = {
        "backend": backend,
        "interface": interface,
        "world": world,
        "rank": rank,
        "met_seconds": significant(met),
        "sizes": sizes,
    }
    wrong = sum(size["wrong_words"] for size in sizes)
    if wrong:
        raise ProblemError(WRONG, "%d words of the sums are wrong" % wrong, figures)
    return figures


def _local_rank(worker: Worker) -> int:
    devices = worker.order["devices"]
    return int(devices.index(worker.index)) if devices else worker.index


def _store(worker: Worker, rank: int, world: int) -> Tuple[Any, str]:
    """Return the store where the members meet, and the interface that they use."""
    order, distributed = worker.order, worker.torch.distributed
    if order["nodes"] == 1:
        interface = "lo"
        store = distributed.FileStore(order["rendezvous"], world)
    else:
        interface = interface_to(order["master"], order["port"])
        meeting = Meeting(worker.send_line, order["meeting"], rank, float(order["wait_seconds"]))
        meeting.gather(world)
        store = store_of(worker.torch, meeting)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "=" + interface)
    return store, interface


def _measure(worker: Worker, group: Any, rank: int, world: int, size_bytes: int, repeats: int) -> Dict[str, Any]:
    """Repeat one all-reduce, each time with fresh data; the first and the last sum are checked.

    The sums are of small whole numbers, exact in float32 up to millions of ranks.
    """
    torch, count = worker.torch, max(1, size_bytes // _FLOAT_BYTES)
    base = torch.arange(count, device=worker.device).remainder_(_PERIOD).to(torch.float32)
    extra = sum(other % 4 for other in range(world))
    data, seconds, wrong = torch.empty_like(base), [], 0
    segments_before = segments()
    for turn in range(repeats):
        torch.add(base, rank % 4, out=data)
        worker.wait()
        began = time.monotonic()
        group.all_reduce(data)
        worker.wait()
        seconds.append(time.monotonic() - began)
        if turn in (0, repeats - 1):
            wrong += int(torch.ne(data, base * world + extra).sum())
    segments_after = segments()
    best = min(seconds)
    # What crosses the slowest link (nccl-tests, doc/PERFORMANCE.md): 2 (n - 1) / n of the data.
    bus = 2 * (world - 1) / world * size_bytes / best / 1e9
    ordered = sorted(seconds)
    return {
        "bytes": size_bytes,
        "repeats": repeats,
        "best_seconds": significant(best),
        "median_seconds": significant(statistics.median(seconds)),
        "p95_seconds": significant(ordered[int(0.95 * (len(ordered) - 1))]),
        "best_bus_gb_per_s": significant(bus),
        "segments": segments_after[0] - segments_before[0],
        "segments_again": segments_after[1] - segments_before[1],
        "wrong_words": wrong,
    }


def segments() -> Tuple[int, int]:
    """Return the TCP segments that this network namespace has sent, and has retransmitted. Zeros where the kernel has
    no counters."""
    try:
        with open("/proc/net/snmp", encoding="ascii") as file:
            head, values = (line.split() for line in file if line.startswith("Tcp:"))
    except (OSError, ValueError):
        return 0, 0
    counters = dict(zip(head, values))
    return int(counters["OutSegs"]), int(counters["RetransSegs"])


def interface_to(address: str, port: int) -> str:
    """Return the network interface by which this machine reaches an address, its own included; "" where none has the
    address.

    Raises:
        RuntimeError: there is no route.
    """
    own = ways.address_to(address, port)
    for _, name in socket.if_nameindex():
        if own in _addresses(name):
            return name
    return ""


def _addresses(interface: str) -> "list[str]":
    addresses = []
    # The interface may have no address of this family.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        addresses.append(socket.inet_ntoa(answer[20:24]))
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return addresses
    return addresses + [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0])) for fields in lines if fields[-1] == interface
    ]
