"""Starts operators as processes of their own, by fork, so that one costs milliseconds and can really be killed.

Each line on standard input is a request; each one forks a child that runs an Operator. The child tells every write to
a Unix socket, and ends there and then (`os._exit`, as a SIGKILL would end it) at the write it was armed for.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from collections import Counter
from typing import Any

from muster.api.fleethours import CONFIG_MAP
from muster.controller.main import configure_logging
from muster.controller.operator import Operator
from muster.controller.settings import Settings
from muster.kube.client import Client
from muster.kube.paths import resource_of

KILLED = 137


class Writes:
    """Counts the writes of each kind since it was armed, tells them, and ends the process at the chosen one."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._counts: Counter[str] = Counter()
        self._fatal = ""

    def arm(self, fatal: str) -> None:
        self._counts.clear()
        self._fatal = fatal

    def __call__(self, verb: str, path: str, moment: str) -> None:
        if CONFIG_MAP in path:  # it comes by the clock, whatever becomes of jobs
            return
        kind = f"{moment} {verb} {resource_of(path)}"
        self._counts[kind] += 1
        point = f"{kind} {self._counts[kind]}"
        if point == self._fatal:
            os._exit(KILLED)
        tell(self._writer, {"write": point})


def tell(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


async def operate(request: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_unix_connection(request["control"])
    client = await Client.connect(request["kubeconfig"])
    writes = Writes(writer)
    writes.arm(request["fatal"])
    client.on_write = writes
    operator = Operator(client, Settings(**request["settings"]))
    tell(writer, {"pid": os.getpid()})
    await operator.start()
    while line := await reader.readline():
        message = json.loads(line)
        if message["do"] == "stop":
            await operator.stop()
            break
        writes.arm(message["fatal"])
        tell(writer, {"armed": message["fatal"]})
    os._exit(0)


def child(request: dict[str, Any]) -> None:
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    configure_logging("DEBUG")
    asyncio.run(operate(request))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                child(json.loads(line))
            except Exception:  # noqa: BLE001 - whatever it is, the log has to tell it
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)


if __name__ == "__main__":
    main()
