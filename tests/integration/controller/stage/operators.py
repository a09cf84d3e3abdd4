"""The test's end of an operator process: start, arm, kill, wait for its death, read its figures."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from localcluster.controlplane import free_port
from localcluster.patience import PATIENCE_SECONDS
from monitoring.scrape import scrape_now
from muster.controller.operator import LEASE_NAME
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import NotFound
from stage.hand import patiently

SERVER = Path(__file__).with_name("operator_server.py")
NAME = "muster-coordinator.{namespace}.svc"
SAMPLE = re.compile(
    r'^muster_api_requests_total\{code="(\d+)",resource="([^"]+)",verb="([A-Z]+)"\} (\S+)$', re.MULTILINE
)


class ForkServer:
    """One process that has imported everything and forks operators; ends with its context."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, text=True, env=environment, cwd="/"
        )

    def fork(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)


@dataclass
class OperatorProcess:
    """One operator.

    Attributes:
        token: of a user that may read its metrics.
        writes: every write it has begun and finished since it was armed, e.g. `before POST pods 2`.
    """

    probe_port: int
    metrics_port: int
    token: str
    worlds_port: int
    log: Path
    pid: int = 0
    writes: list[str] = field(default_factory=list)
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    _connected: asyncio.Event = field(default_factory=asyncio.Event)
    _armed: asyncio.Event = field(default_factory=asyncio.Event)
    _writer: asyncio.StreamWriter | None = None

    async def arm(self, fatal: str = "") -> None:
        """Count writes anew, and die at the point `fatal`: `<before or after> <verb> <resource> <which one>`."""
        self._armed.clear()
        self._say({"do": "arm", "fatal": fatal})
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._armed.wait()

    async def stop(self) -> None:
        """Stop it gracefully."""
        self._say({"do": "stop"})
        await self.death()

    async def kill(self) -> None:
        if not self.dead.is_set():
            os.kill(self.pid, signal.SIGKILL)
        await self.death()

    async def death(self, seconds: float = PATIENCE_SECONDS) -> None:
        async with asyncio.timeout(seconds):
            await self.dead.wait()

    async def requests(self) -> dict[str, float]:
        """Requests to the API server so far, by `<verb> <resource> <code>`; without those about who reads this."""
        found = SAMPLE.findall(await self.metrics())
        return {
            f"{verb} {resource} {code}": float(value)
            for code, resource, verb, value in found
            if resource not in ("tokenreviews", "subjectaccessreviews")
        }

    async def metrics(self) -> str:
        """All of them, in Prometheus' text."""
        status, text = await asyncio.to_thread(scrape_now, self.metrics_port, self.token)
        assert status == 200, text
        return text

    async def worlds(self, namespace: str, job: str) -> list[str]:
        """What it shows of its last decisions about a job, a line for each."""
        url = f"http://127.0.0.1:{self.worlds_port}/worlds/{namespace}/{job}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return (await answer.text()).splitlines() if answer.status == 200 else []

    async def served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take in what the process says until it ends."""
        self._writer = writer
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if "write" in message:
                    self.writes.append(message["write"])
                elif "pid" in message:
                    self.pid = message["pid"]
                    self._connected.set()
                else:
                    self.writes.clear()  # here: what it tells next may be here already, and belongs to the new count
                    self._armed.set()
        self.dead.set()
        self._connected.set()
        writer.close()

    async def connected(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._connected.wait()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\n")


class Operators:
    """Starts operators of one installation: one namespace, one address for launchers."""

    def __init__(self, server: ForkServer, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.url = f"https://127.0.0.1:{free_port()}"
        self.started: list[OperatorProcess] = []
        self._server = server
        self._kubeconfig = kubeconfig
        self._token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
        self._folder = folder
        self._listeners: list[asyncio.Server] = []

    async def start(self, fatal: str = "") -> OperatorProcess:
        """Start one, armed to die at the point `fatal`."""
        number = len(self.started)
        log = self._folder / f"operator-{number}.log"
        process = OperatorProcess(free_port(), free_port(), self._token, free_port(), log)
        control = self._folder / f"control-{number}"
        self._listeners.append(await asyncio.start_unix_server(process.served, control))
        self.started.append(process)
        settings = {
            "namespace": self.namespace,
            "identity": f"operator-{number}",
            "launcher_image": "example.org/launcher:1",
            "coordinator_url": self.url,
            "coordinator_name": NAME.format(namespace=self.namespace),
            "coordinator_port": int(self.url.rpartition(":")[2]),
            "probe_port": process.probe_port,
            "metrics_port": process.metrics_port,
            "worlds_port": process.worlds_port,
        }
        self._server.fork(
            {
                "control": str(control),
                "kubeconfig": str(self._kubeconfig),
                "fatal": fatal,
                "log": str(process.log),
                "settings": settings,
            }
        )
        await process.connected()
        return process

    async def succeed(self, api: Client, fatal: str = "") -> OperatorProcess:
        """Start one after the death of the one before, as if that one's lease had run out; armed as by `start`."""
        with contextlib.suppress(NotFound):
            await patiently(lambda: api.delete(paths.leases(self.namespace, LEASE_NAME)))
        return await self.start(fatal)

    async def close(self) -> None:
        for process in self.started:
            await process.kill()
        for listener in self._listeners:
            listener.close()
