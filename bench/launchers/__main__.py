"""`python -m bench.launchers`: events go to standard output, commands come from standard input, a line of JSON each."""

import argparse
import asyncio
import contextlib
import gc
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import structlog

from bench.launchers.channel import save_memory
from bench.launchers.control import CommandError, FailRanks, Restore, Silence, Statistics, parse
from bench.launchers.fleet import Fleet, Options
from bench.launchers.training import Pace
from muster.kube.client import Client

GARBAGE_THRESHOLD = 50_000


def main() -> None:
    """Run until a signal."""
    arguments = _arguments()
    save_memory()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # standard output is for events
    gc.set_threshold(GARBAGE_THRESHOLD)  # hardly any cycles are made here, and thousands of tasks are looked through
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(arguments))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.launchers", description=__doc__)
    pace = Pace()
    parser.add_argument("--kubeconfig", required=True, help="of an administrator: tokens of pods are asked for")
    parser.add_argument("--coordinator", required=True, help="https://host:port of the leader")
    parser.add_argument("--server-name", default="", help="name in its certificate (default: the one in the pod)")
    parser.add_argument("--ca", type=Path, help="authorities to trust (default: those in the job's ConfigMap)")
    parser.add_argument("--namespace", default="", help="of the worker pods (default: all)")
    parser.add_argument("--step-seconds", type=float, default=pace.step_seconds)
    parser.add_argument("--checkpoint-steps", type=int, default=pace.checkpoint_steps)
    parser.add_argument("--scan-seconds", type=float, default=pace.scan_seconds)
    parser.add_argument("--reclaim-seconds", type=float, default=pace.reclaim_seconds)
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, this.cancel)
    options = Options(
        coordinator=arguments.coordinator,
        server_name=arguments.server_name,
        ca_pem=arguments.ca.read_text() if arguments.ca else "",
        namespace=arguments.namespace,
        pace=Pace(
            step_seconds=arguments.step_seconds,
            checkpoint_steps=arguments.checkpoint_steps,
            scan_seconds=arguments.scan_seconds,
            reclaim_seconds=arguments.reclaim_seconds,
        ),
    )
    client = await Client.connect(arguments.kubeconfig)
    fleet = Fleet(client, options, emit)
    threading.Thread(target=_read_commands, args=(fleet, loop), name="commands", daemon=True).start()
    try:
        await fleet.run()
    finally:
        await client.close()


def _read_commands(fleet: Fleet, loop: asyncio.AbstractEventLoop) -> None:
    """Hand over each line of the input; its end is no reason to end. Unbuffered: a lock would hold up the exit."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stream:
        for line in stream:
            try:
                loop.call_soon_threadsafe(_obey, fleet, line.decode("utf-8", "replace"))
            except RuntimeError:  # the loop has ended
                return


def _obey(fleet: Fleet, line: str) -> None:
    try:
        command = parse(line)
    except CommandError as error:
        emit("error", message=str(error))
        return
    match command:
        case FailRanks():
            emit("failed_ranks", pods=fleet.fail_ranks(command))
        case Silence():
            emit("silenced", launchers=fleet.silence(command))
        case Restore():
            emit("restored", was_silent=fleet.restore(command))
        case Statistics():
            emit("statistics", **fleet.statistics())


def emit(event: str, **fields: Any) -> None:
    """Print one event with its time, in seconds since the epoch."""
    print(json.dumps({"event": event, **fields, "time": round(time.time(), 4)}), flush=True)


if __name__ == "__main__":
    main()
