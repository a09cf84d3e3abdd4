"""`python -m bench.flood`: what 64 hostile clients take of an event loop, into build/bench/flood.json.

Two processes, one after the other: the operator with its ports of probes, metrics, and launchers and checkers; and the
page. Their loops have nothing else to do than to count their turns, one each millisecond. The operator has the figures
of 500 jobs. The API server's answers about tokens are played. The process has one core and the clients have the others,
so that the figures say what the process loses and not what the machine shares. Beside the clients, a kubelet asks for
/healthz twice a second, at an address that only one kind of clients shares. A launcher at another one connects as
often, each time as another pod.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from prometheus_client import generate_latest

from bench.bed import ROOT
from bench.facts import facts
from muster.api.goodput import Bucket, Goodput
from muster.api.trainingjob import TrainingJobStatus
from muster.controller.jobfigures import JobFigures
from muster.controller.metrics import PATH, guarded_metrics
from muster.controller.settings import SWITCH_SECONDS
from muster.coordinator.auth import AuthError, Caller
from muster.coordinator.hub import Hub
from muster.coordinator.probes import LoopHeartbeat
from muster.coordinator.server import CoordinatorServer, load_pair, server_context
from muster.kube.access import Access
from muster.kube.certificates import new_authority, new_serving
from muster.page.main import serving_page
from muster.page.seen import Seen
from muster.page.server import Page
from muster.protocol import messages
from muster.protocol.messages import REPORT_PATH, WAIT, Directive, Report
from muster.serve import Server

OUTPUT = ROOT / "build" / "bench" / "flood.json"
GOAL = 0.5
CLIENTS, JOBS, SECONDS = 64, 500, 10
TURN_SECONDS = 0.001
READER = "reader"
KUBELET = "127.0.0.2"
KUBELET_SECONDS = 0.5
PROBE_SECONDS = 2.0  # the timeout of the shipped probes
LAUNCHER = "127.0.0.3"
LAUNCHER_POD = "launcher-"
LAUNCHER_SECONDS = 3.0  # a launcher waits so long for its handshake
NODE_CONNECTIONS = 200  # a second, of a pod with the network of the node
_HELD = 1000  # half-open connections of the clients together
_GET = "GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n{header}\r\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """What each client does again and again.

    Attributes:
        port: to which port of the process.
        path: what it asks for; "": it asks for nothing.
        bearer: with which token; "?": with another one each time.
        opening: it connects by TLS, without it, or only says the first words of TLS and waits for an answer; or it
            hangs up without waiting.
        addresses: from how many addresses; 0: from the kubelet's.
        pause_seconds: between two connections of a client; 0: as fast as it is let.
    """

    port: str
    path: str = ""
    bearer: str = ""
    opening: str = "TLS"
    addresses: int = 1
    pause_seconds: float = 0.0


OPERATOR, PAGE = "operator", "page"
KINDS = {
    OPERATOR: {
        "probes": Kind("probes", "/healthz", opening="plain"),
        "half-open probes": Kind("probes", opening="plain"),
        "half-open probes from the node's own address": Kind(
            "probes", opening="plain", addresses=0, pause_seconds=CLIENTS / NODE_CONNECTIONS
        ),
        "probes from 64 addresses": Kind("probes", "/healthz", opening="plain", addresses=CLIENTS),
        "half-open metrics": Kind("metrics", opening="plain"),
        "metrics without TLS": Kind("metrics", "/metrics", opening="plain"),
        "metrics without a token": Kind("metrics", "/metrics"),
        "metrics with unknown tokens": Kind("metrics", "/metrics", "?"),
        "metrics with the right": Kind("metrics", "/metrics", READER),
        "half-open coordinator": Kind("coordinator", opening="plain"),
        "handshakes": Kind("coordinator", opening="hello"),
        "handshakes from 64 addresses": Kind("coordinator", opening="hello", addresses=CLIENTS),
        "hellos": Kind("coordinator", opening="hang up", addresses=CLIENTS),
        "reports with unknown tokens": Kind("coordinator", REPORT_PATH, "?", addresses=CLIENTS),
    },
    PAGE: {
        "half-open page": Kind("page", opening="plain"),
        "handshakes with the page": Kind("page", opening="hello", addresses=CLIENTS),
        "the page without a token": Kind("page", "/"),
        "the page's figures with unknown tokens": Kind("page", "/api/jobs", "?", addresses=CLIENTS),
    },
}


def main() -> int:
    """Measure; 1 when the goal was missed."""
    arguments = _arguments()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("the operator and its clients need a core each: give this at least two")
    rows: dict[str, dict[str, float]] = {}
    for process, kinds in KINDS.items():
        wanted = [name for name in kinds if arguments.only in f"{process} {name}"]
        if wanted:
            rows |= _rows(process, wanted, cores, arguments.seconds)
    worst = min(row["share"] for row in rows.values())
    met = worst >= GOAL and all(row["probes_failed"] == row["launchers_failed"] == 0 for row in rows.values())
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"facts": facts(), "rows": rows, "goal": GOAL, "met": met}, indent=2) + "\n")
    print(f"the loop keeps {100 * worst:.0f} % of its turns at worst; written: {OUTPUT.relative_to(ROOT)}")
    return 0 if met else 1


def _rows(name: str, wanted: list[str], cores: list[int], seconds: float) -> dict[str, dict[str, float]]:
    """Figures of one process by kind of client."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = multiprocessing.Pipe()
    process = spawn.Process(target=_operate, args=(theirs, cores[0], name), daemon=True)
    process.start()
    os.sched_setaffinity(0, cores[1:])
    ports = ours.recv()
    asking = {"probe": _probe, "launcher": _report} if name == OPERATOR else {"probe": _probe}
    beside: dict[str, Connection] = {}
    processes = [process]
    for each, ask in asking.items():
        beside[each], asked = multiprocessing.Pipe()
        processes.append(spawn.Process(target=_ask, args=(asked, ask, ports), daemon=True))
        processes[-1].start()
    rows: dict[str, dict[str, float]] = {}
    for kind in wanted:
        # Beside each kind nobody, before and after: the machine may have other work.
        quiet, row, again = (
            asyncio.run(_measure(ours, beside, ports, each, seconds)) for each in (None, KINDS[name][kind], None)
        )
        turns = quiet["turns_per_second"] + again["turns_per_second"]
        rows[kind] = {
            **row,
            "undisturbed": round(turns / 2),
            "undisturbed_core": quiet["core"],
            "share": round(2 * row["turns_per_second"] / turns, 3),
        }
        print(f"{kind}: {', '.join(f'{key} {value:g}' for key, value in rows[kind].items())}", flush=True)
    for started in processes:
        started.kill()
    os.sched_setaffinity(0, cores)
    return rows


class _Reviews:
    """The API server knows everybody, and one user may read metrics."""

    async def post(self, path: str, body: Any, **_: Any) -> bytes:
        await asyncio.sleep(TURN_SECONDS)
        if path.endswith("tokenreviews"):
            token = body["spec"]["token"]
            return json.dumps({"status": {"authenticated": True, "user": {"username": token}}}).encode()
        return json.dumps({"status": {"allowed": body["spec"]["user"] == READER}}).encode()


def _come_first() -> None:
    """Let other work of the machine take no time of this process, where that is allowed."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


class _Tokens:
    """Tokens of launchers are good."""

    def known(self, authorization: str) -> Caller | None:
        name = authorization.partition(" ")[2]
        return Caller("tenant", name, name, "node", "node-uid") if name.startswith(LAUNCHER_POD) else None

    async def verify(self, authorization: str) -> Caller:
        caller = self.known(authorization)
        if caller is None:
            raise AuthError("the token is signed with a key that the API server does not publish")
        return caller


def _ask(parent: Connection, ask: Any, ports: dict[str, int]) -> None:
    """The kubelet or a launcher. Answers each message with how long its requests have taken since the one before."""
    _come_first()
    latencies: list[float] = []
    while True:
        latencies.append(ask(ports))
        if parent.poll(KUBELET_SECONDS):
            parent.recv()
            parent.send(latencies)
            latencies = []


def _operate(parent: Connection, core: int, name: str) -> None:
    os.sched_setaffinity(0, [core])
    _come_first()
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(_tick(parent, name))


async def _tick(parent: Connection, name: str) -> None:
    """Answers each message with the turns of the loop so far, seconds of the core, and the time."""
    beat, turns = LoopHeartbeat(str, str), 0
    probes = Server(("", 0), beat.endpoints(), node=frozenset({KUBELET}))
    async with beat.running(), _operator() if name == OPERATOR else _page() as ports:
        parent.send({"probes": probes.port, **ports})
        while True:
            if parent.poll():
                parent.recv()
                parent.send((turns, time.process_time(), time.monotonic()))
            await asyncio.sleep(TURN_SECONDS)
            turns += 1


@contextlib.asynccontextmanager
async def _operator() -> AsyncIterator[dict[str, int]]:
    figures, now = JobFigures(), datetime.now(UTC)
    account = Goodput(
        creation_time=now,
        counted_until=now,
        seconds={each.value: 900 for each in Bucket},
        gpu_seconds={"compute": 7200},
    )
    for number in range(JOBS):
        status = TrainingJobStatus(state="Running", reason="Training", goodput=account, step=number)
        figures.set_status((f"tenant-{number % 20}", f"job-{number}"), status)
    reviews: Any = _Reviews()
    serving, context = new_serving(new_authority(now), ("it",), now), server_context()
    load_pair(context, serving.certificate, serving.key)
    loop = asyncio.get_running_loop()
    metrics = Server(("", 0), {PATH: guarded_metrics(Access(reviews), generate_latest, loop)}, context)
    wait = Directive(kind=WAIT, attempt=1, reason="waiting for the others")
    coordinator = CoordinatorServer(Hub(), _Tokens(), lambda caller: wait, lambda caller: True, lambda: "")
    port = await coordinator.start("", 0, serving.certificate, serving.key)
    yield {"metrics": metrics.port, "coordinator": port}


@contextlib.asynccontextmanager
async def _page() -> AsyncIterator[dict[str, int]]:
    idle: Any = None
    reviews: Any = _Reviews()
    now = datetime.now(UTC)
    serving, context = new_serving(new_authority(now), ("it",), now), server_context()
    load_pair(context, serving.certificate, serving.key)
    async with serving_page(Page(Seen(idle), Access(reviews), idle, idle), "", 0, context) as port:
        yield {"page": port}


async def _measure(
    process: Connection, beside: dict[str, Connection], ports: dict[str, int], kind: Kind | None, seconds: float
) -> dict[str, float]:
    count = [0]
    clients = [asyncio.create_task(_attack(ports, kind, n, count)) for n in range(CLIENTS) if kind is not None]
    await asyncio.sleep(1)
    for each in beside.values():
        await asyncio.to_thread(_asked, each)
    before = await asyncio.to_thread(_asked, process)
    opened = count[0]
    await asyncio.sleep(seconds)
    after = await asyncio.to_thread(_asked, process)
    opened = count[0] - opened
    latencies = {name: await asyncio.to_thread(_asked, each) for name, each in beside.items()}
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    span = after[2] - before[2]
    return {
        "turns_per_second": round((after[0] - before[0]) / span),
        "core": round((after[1] - before[1]) / span, 3),
        "connections_per_second": round(opened / span),
        "probe_ms_at_worst": round(1000 * max(latencies["probe"])),
        "probes_failed": sum(each > PROBE_SECONDS for each in latencies["probe"]),
        "launcher_ms_at_worst": round(1000 * max(latencies.get("launcher", [0.0]))),
        "launchers_failed": sum(each > LAUNCHER_SECONDS for each in latencies.get("launcher", [])),
    }


def _asked(process: Connection) -> Any:
    process.send(None)
    return process.recv()


def _probe(ports: dict[str, int]) -> float:
    """How long the kubelet waits for a 200; for ever when it gets none."""
    began = time.monotonic()
    with contextlib.suppress(OSError):
        target = ("127.0.0.1", ports["probes"])
        with socket.create_connection(target, 2 * PROBE_SECONDS, source_address=(KUBELET, 0)) as connection:
            connection.sendall(_GET.format(path="/healthz", header="").encode())
            if connection.recv(4096).startswith(b"HTTP/1.1 200 "):
                return time.monotonic() - began
    return 1000.0


def _report(ports: dict[str, int]) -> float:
    """How long a launcher waits for a 200 by a new connection, as a pod that has had none; for ever when it gets
    none."""
    began = time.monotonic()
    body = messages.encode(Report(sequence=1, state=messages.IDLE))
    head = f"POST {REPORT_PATH} HTTP/1.1\r\n{_bearer(LAUNCHER_POD + secrets.token_hex(8))}"
    target = ("127.0.0.1", ports["coordinator"])
    with (
        contextlib.suppress(OSError),
        socket.create_connection(target, 2 * LAUNCHER_SECONDS, source_address=(LAUNCHER, 0)) as plain,
        _trust().wrap_socket(plain) as connection,
    ):
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if connection.recv(4096).startswith(b"HTTP/1.1 200 "):
            return time.monotonic() - began
    return 1000.0


def _trust() -> ssl.SSLContext:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


def _bearer(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n"


def _hello() -> bytes:
    """The first words of TLS, which make the server compute its part of the handshake."""
    answers, words = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        _trust().wrap_bio(answers, words).do_handshake()
    return words.read()


async def _attack(ports: dict[str, int], kind: Kind, number: int, count: list[int]) -> None:
    trust, hello = _trust() if kind.opening == "TLS" else None, _hello()
    source = (f"127.0.1.{1 + number % kind.addresses}" if kind.addresses else KUBELET, 0)
    held: list[asyncio.StreamWriter] = []
    while True:
        await asyncio.sleep(kind.pause_seconds)
        count[0] += 1
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", ports[kind.port], ssl=trust, local_addr=source, family=socket.AF_INET
            )
            if kind.opening in ("hello", "hang up"):
                writer.write(hello)
                if kind.opening == "hello":
                    await reader.read(1)
            elif not kind.path:
                held.append(writer)
                if len(held) > _HELD // CLIENTS:
                    held.pop(0).transport.abort()
                continue
            else:
                bearer = secrets.token_hex(16) if kind.bearer == "?" else kind.bearer
                method = "POST" if kind.path == REPORT_PATH else "GET"
                request = _GET.format(path=kind.path, header=_bearer(bearer) if bearer else "")
                writer.write(request.replace("GET", method, 1).replace("\r\n", "\r\nContent-Length: 0\r\n", 1).encode())
                await reader.read()
            writer.transport.abort()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each kind of client")
    parser.add_argument("--only", default="", help="the kinds with this in their names")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
