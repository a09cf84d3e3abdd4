"""Does what Muster's RepairRequests ask for, by running a command of yours for each: one file, Python 3.11 or later, no
packages.

    repair.py --actions Reset,Reboot -- /hook/hook.sh

The command gets NODE, ACTION and REASON in its environment and the whole request as JSON on standard input. It ends
with 0 when the machine has been repaired, and with anything else when that has failed; its last line of output is told
to people. Nothing has to be proved here: a node comes back when Muster's agent has looked at it (and the burn-in has
passed, where the FleetPolicy asks for one).

What is taken on is marked InProgress first, against the version that was read: either Muster takes the request back or
this takes it on, never both. After a restart a request that this had taken on is run again, so that the command has to
bear that.
"""

import argparse
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

COLLECTION = "/apis/muster.dev/v1alpha1/repairrequests"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MINE = "examples/repair: "
CHANGED = (404, 409)  # it is gone, or another client has written to it


class Api:
    """The API server, as far as it is needed. Every call raises urllib.error.URLError or OSError if it does not answer
    well."""

    def __init__(self, server: str, token_file: Path, ca_file: Path):
        self._server, self._token_file = server, token_file
        self._tls = ssl.create_default_context(cafile=str(ca_file))

    def requests(self) -> list[dict]:
        """All there are; they are few."""
        return self._call("GET", COLLECTION)["items"]

    def tell(self, request: dict, phase: str, message: str, only_if_unchanged: bool = False) -> None:
        """Write the status, of this very object: one that was made anew meanwhile is another."""
        wanted = ("uid", "resourceVersion") if only_if_unchanged else ("uid",)
        body = {
            "metadata": {key: request["metadata"][key] for key in wanted},
            "status": {"phase": phase, "message": (MINE + message)[:1000]},
        }
        self._call("PATCH", f"{COLLECTION}/{request['metadata']['name']}/status", body)

    def _call(self, method: str, path: str, body: dict | None = None) -> dict:
        headers = {
            "Authorization": f"Bearer {self._token_file.read_text().strip()}",  # it is renewed now and then
            "Content-Type": "application/merge-patch+json",
        }
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self._server + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(call, context=self._tls, timeout=30) as answer:
            return json.load(answer)


def is_due(request: dict, actions: list[str]) -> bool:
    """Whether to begin with a request: no system has begun, or this program had before it was restarted."""
    status = request.get("status") or {}
    if request["spec"]["action"] not in actions:
        return False
    phase = status.get("phase")
    return not phase or (phase == "InProgress" and status.get("message", "").startswith(MINE))


def run_hook(request: dict, command: list[str], timeout_seconds: float) -> tuple[str, str]:
    """Phase and message, from how the command ends."""
    spec = request["spec"]
    words = {"NODE": spec["node"], "ACTION": spec["action"], "REASON": spec.get("reason", "")}
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(request),
            env={**os.environ, **words},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        return "Failed", f"{command[0]} has not ended within {timeout_seconds:.0f} s"
    except OSError as error:
        return "Failed", f"{command[0]} could not be run: {error}"
    last = (ended.stdout.strip().splitlines() or [""])[-1]
    if ended.returncode:
        return "Failed", f"{command[0]} ended with {ended.returncode}: {last}"
    return "Done", last or "done"


class Repairs:
    """What is being done now."""

    def __init__(self, api: Api, command: list[str], actions: list[str], at_once: int, timeout_seconds: float):
        self._api, self._command, self._actions = api, command, actions
        self._at_once, self._timeout_seconds = at_once, timeout_seconds
        self._pool = ThreadPoolExecutor(max_workers=at_once)
        self._running: dict[str, Future] = {}  # by uid

    def look(self) -> None:
        """Begin with whatever is due, the oldest first, as far as there is room."""
        self._running = {uid: work for uid, work in self._running.items() if not work.done()}
        due = [each for each in self._api.requests() if is_due(each, self._actions)]
        for request in sorted(due, key=lambda each: each["metadata"]["creationTimestamp"]):
            uid = request["metadata"]["uid"]
            if uid in self._running or len(self._running) >= self._at_once:
                continue
            try:
                self._api.tell(request, "InProgress", f"{request['spec']['action']} begins", only_if_unchanged=True)
            except urllib.error.HTTPError as error:
                if error.code not in CHANGED:
                    raise
                continue
            print(f"{request['spec']['action']} of {request['spec']['node']} begins", flush=True)
            self._running[uid] = self._pool.submit(self._repair, request)

    def _repair(self, request: dict) -> None:
        phase, message = run_hook(request, self._command, self._timeout_seconds)
        print(f"{request['spec']['action']} of {request['spec']['node']}: {phase}: {message}", flush=True)
        while True:  # until it is told: Muster keeps off the node for as long
            try:
                self._api.tell(request, phase, message)
                return
            except urllib.error.HTTPError as error:
                if error.code in CHANGED:
                    return
                print(f"not told yet: {error}", file=sys.stderr, flush=True)
            except (OSError, ValueError) as error:
                print(f"not told yet: {error}", file=sys.stderr, flush=True)
            time.sleep(5)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actions", default="Reboot", help="what the command can do, e.g. Reset,Reboot")
    parser.add_argument("--at-once", type=int, default=2, help="machines at most")
    parser.add_argument("--timeout-seconds", type=float, default=1800, help="for one run of the command")
    parser.add_argument("--period-seconds", type=float, default=10, help="between two looks at the requests")
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", "localhost"),
        os.environ.get("KUBERNETES_SERVICE_PORT", "6443"),
    )
    parser.add_argument("--server", default=f"https://{f'[{host}]' if ':' in host else host}:{port}")
    parser.add_argument("--token-file", type=Path, default=ACCOUNT / "token")
    parser.add_argument("--ca-file", type=Path, default=ACCOUNT / "ca.crt")
    parser.add_argument("command", nargs="+", help="after --")
    given = parser.parse_args(arguments)
    api = Api(given.server, given.token_file, given.ca_file)
    repairs = Repairs(api, given.command, given.actions.split(","), given.at_once, given.timeout_seconds)
    while True:
        try:
            repairs.look()
        except (OSError, ValueError) as error:  # also an answer that was no good
            print(f"requests not looked at: {error}", file=sys.stderr, flush=True)
        time.sleep(given.period_seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
