"""`python -m bench.burnin`: how long gangs take from bound to proved beyond their probes, into build/bench/burnin.json.

KWOK nodes, the shipped operator with the rights of its manifests, simulated launchers, and on each node a simulated
checker: muster.node.checker's own core and lines with a token of its own, over TLS; its probes take as long as they are
told to.

The floor is the probes' own time: the tests that were made, in the order in which they were made, if no word between
operator and checkers had taken any time. What is above it is called orchestration, and this machine's load is in it.
Beside it stands the exchange: one word of every checker at the same moment, and its answer, when there is nothing to
decide.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import queue
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from bench import cases
from bench.api import Object
from bench.bed import NAMESPACE, ROOT, Bed, documents
from bench.child import Child
from bench.facts import facts
from bench.figures import figure
from bench.nodepods import enrol
from bench.peers.muster import Muster, training_job
from bench.podwatch import PodWatch, latest
from bench.processes import cpu_seconds, machine_seconds, spent
from bench.sick.requests import requests_made, writes
from bench.writes import writes_between
from localcluster.api import wait_for
from localcluster.errors import LocalClusterError
from localcluster.kwok import KwokControlPlane
from localcluster.kwok import fleet as fleet_nodes

OUTPUT = ROOT / "build" / "bench" / "burnin.json"
SIZES = (64, 512, 2048)
RUNS = 3
NODE_SECONDS, PAIR_SECONDS = 20.0, 3.0
GOALS = {512: 1.0, 2048: 3.0}
WRITES_PER_MEMBER = 0.05  # none for each, that is: a few for the gang
FIGURES = (
    "bound_s",
    "proved_s",
    "own_s",
    "orchestration_s",
    "operator_cpu_s",
    "checkers_cpu_s",
    "cpu_s",
    "others_cpu_s",
    "late_s",
    "exchange_s",
    "exchanges",
    "writes",
)
_CHECKERS = "muster-check"
_TRUST = f"/api/v1/namespaces/{_CHECKERS}/configmaps/muster-coordinator"
_GANGS = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/gangs"
_HEARD_SECONDS = 300.0
_PROVED_SECONDS = 120.0
_TOLD_SECONDS = 60.0
_EXCHANGES = 5

Run = dict[str, Any]


class Proving(Muster):
    """A job whose nodes are tested each time."""

    settings: ClassVar[Mapping[str, str]] = {"MUSTER_CHECKER_NAMESPACE": _CHECKERS}

    def submit(self) -> None:
        """Create the TrainingJob."""
        job = training_job(self.bed.size, "Managed")
        job["spec"]["preflight"] = {"profile": "Quick", "maxAgeSeconds": 0}
        self.bed.connection.post(f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs", job)

    def pids(self) -> dict[str, int]:
        """The operator, and who plays the launchers."""
        assert self._launchers is not None
        return {**self.managers(), "launchers": self._launchers.pid}


class Checkers:
    """The process that plays all checkers, and the thread that reads what it says."""

    def __init__(self, bed: Bed, coordinator: str, tokens: Path, pace: tuple[float, float]) -> None:
        ca = bed.cluster.directory / "coordinator-ca.crt"
        wait_for(lambda: _written(bed, ca), "the operator's authority in the checkers' namespace", _HEARD_SECONDS)
        arguments = ["--coordinator", coordinator, "--server-name", "muster-coordinator.muster-system.svc"]
        arguments += ["--ca", str(ca), "--tokens", str(tokens)]
        arguments += ["--node-seconds", str(pace[0]), "--pair-seconds", str(pace[1])]
        log = bed.cluster.directory / "logs" / "checkers.log"
        self._process = Child("bench.checkers", arguments, {}, log)
        self._told: queue.Queue[Object] = queue.Queue()
        threading.Thread(target=self._read, name="checkers", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def forget(self) -> None:
        """A new burn-in begins."""
        self._process.tell({"forget": True})

    def told(self) -> Object:
        """What was tested since."""
        return self._asked({"tell": True})

    def exchanged(self) -> float:
        """Seconds that one word of all at once and its answer take, the median of several."""
        seconds: list[float] = self._asked({"exchange": _EXCHANGES})["seconds"]
        return statistics.median(seconds)

    def _asked(self, command: Object) -> Object:
        self._process.tell(command)
        try:
            return self._told.get(timeout=_TOLD_SECONDS)
        except queue.Empty:
            where = "logs/checkers.log of the control plane"
            raise LocalClusterError(f"the simulated checkers say nothing: see {where}") from None

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _read(self) -> None:
        for event in self._process.says():
            if event.get("event") in ("told", "exchanged"):
                self._told.put(event)


class BurnIn(msgspec.Struct):
    """What of a Gang's spec.burnIn speaks against its nodes."""

    failures: list[Any] = []
    untested: list[str] = []


class _Spec(msgspec.Struct, rename="camel"):
    start: Any = None
    burn_in: BurnIn | None = None


class _Gang(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Gang


class StartWatch:
    """When the go of a gang was seen, since it was last forgotten.

    Attributes:
        failed_nodes: nodes that failed or were left untested, as the record then says; none where all have passed.
    """

    def __init__(self, bed: Bed) -> None:
        self._connection = bed.connect()
        self._changed = threading.Condition()
        self._at: float | None = None
        self.failed_nodes: list[Any] = []
        self._decode = msgspec.json.Decoder(_Event).decode
        threading.Thread(target=self._follow, name="gang watch", daemon=True).start()

    def forget(self) -> None:
        """Wait for another one."""
        with self._changed:
            self._at = None

    def wait(self, deadline_seconds: float) -> float | None:
        """When (time.time()) the go was seen; None: not in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._at is not None, deadline_seconds)
            return self._at

    def _follow(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):  # the control plane ends
            for line in self._connection.watch(_GANGS, {"timeoutSeconds": 86400}):
                self._note_event(time.time(), self._decode(line))

    def _note_event(self, now: float, event: _Event) -> None:
        if event.type != "DELETED" and event.object.spec.start is not None:
            with self._changed:
                self._at, self.failed_nodes = self._at or now, failed_nodes(event.object.spec.burn_in)
                self._changed.notify_all()


def failed_nodes(burn_in: BurnIn | None) -> list[Any]:
    """Who was not proved: failures, and names of nodes that were left untested."""
    return [] if burn_in is None else [*burn_in.failures, *burn_in.untested]


def main() -> None:
    """Run what the command line asks for, and show it."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known, rows = facts(), list[Object]()
    settings = {"node_seconds": arguments.node_seconds, "pair_seconds": arguments.pair_seconds, "profile": "Quick"}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        for size in arguments.sizes:
            rows.append(_size(size, arguments))
            document = {**known, "settings": settings, "goals": {"orchestration_s": GOALS}, "results": rows}
            arguments.output.write_text(json.dumps(document, indent=1) + "\n")
    except KeyboardInterrupt:
        sys.exit("stopped: what was measured until now is kept")
    except LocalClusterError as error:
        sys.exit(str(error))
    print(f"written: {os.path.relpath(arguments.output)}")
    missed = [words for row in rows for words in _missed(row)]
    if missed:
        sys.exit("; ".join(missed))


def _missed(row: Object) -> list[str]:
    size, found = row["size"], []
    goal = GOALS.get(size)
    if goal is not None and row["orchestration_s"]["median"] > goal:
        found.append(f"{size} members: orchestration {row['orchestration_s']['median']} s is above {goal} s")
    if row["writes"]["max"] > max(8, WRITES_PER_MEMBER * size):
        found.append(f"{size} members: {row['writes']['max']} API writes")
    return found


def _size(size: int, arguments: argparse.Namespace) -> Object:
    """The row of one size."""
    _say(f"{size} nodes ...")
    pace = (arguments.node_seconds, arguments.pair_seconds)
    with (
        KwokControlPlane.temporary_with(size) as cluster,
        tempfile.TemporaryDirectory(prefix="muster-bench-tokens-") as folder,
    ):
        bed, tokens = Bed(cluster, size), Path(folder)
        manifest = documents(ROOT / "manifests" / "components" / "checkers" / "checker.yaml")
        bed.apply([each for each in manifest if each["kind"] in ("Namespace", "ServiceAccount")])
        account = f"/api/v1/namespaces/{_CHECKERS}/serviceaccounts/{_CHECKERS}"
        wait_for(lambda: bool(cluster.api.get(account)), "the checkers' service account", 30)
        enrol(
            bed, _CHECKERS, "muster/burn-in:bench", [node.name for node in fleet_nodes(size)], tokens, coordinator=True
        )
        system = Proving(bed, "Direct", "Managed")
        system.begin()
        try:
            with (
                closing(Checkers(bed, system.coordinator, tokens, pace)) as checkers,
                closing(PodWatch(bed.connect(), NAMESPACE)) as watch,
            ):
                heard = f'muster_checkers{{state="Ready"}} {float(size)}'
                wait_for(lambda: heard in system.metrics(), f"{size} checkers heard", _HEARD_SECONDS)
                stage, go = cases.Stage(system, watch), StartWatch(bed)
                runs = [_run(stage, system, checkers, go) for _ in range(arguments.runs)]
        finally:
            system.end()
    return {"size": size, **{name: figure(run[name] for run in runs) for name in FIGURES}, "runs": runs}


def _run(stage: cases.Stage, system: Proving, checkers: Checkers, go: StartWatch) -> Run:
    """One gang from its job to its go."""
    cases.wait_quiet(stage)
    system.prepare()
    checkers.forget()
    go.forget()
    size, since = stage.size, time.time()
    system.submit()
    _until(lambda: stage.watch.present >= size and all(pod.bound for pod in stage.watch.pods().values()), "all bound")
    pids = {**system.bed.cluster.pids(), **system.pids(), "checkers": checkers.pid, "bench": os.getpid()}
    before, machine, asked = cpu_seconds(pids), machine_seconds(), requests_made(system.metrics())
    at = go.wait(_PROVED_SECONDS)
    if at is None:
        raise LocalClusterError(f"a gang of {size} was not proved within {_PROVED_SECONDS:.0f} s")
    if go.failed_nodes:
        raise LocalClusterError(f"a gang of {size} was not proved: {go.failed_nodes}")
    costs, everything = spent(before, cpu_seconds(pids)), machine_seconds() - machine
    made = writes_between(asked, requests_made(system.metrics()))
    told, exchange = checkers.told(), checkers.exchanged()
    bound = latest((pod.bound for pod in stage.watch.pods().values()), since)
    cases.remove(stage)
    assert bound is not None
    proved = at - since - bound
    run = {
        "bound_s": bound,
        "proved_s": proved,
        "own_s": told["own_seconds"],
        "orchestration_s": proved - told["own_seconds"],
        "operator_cpu_s": costs["muster"],
        "checkers_cpu_s": costs["checkers"],
        "cpu_s": sum(costs.values()),
        "others_cpu_s": everything - sum(costs.values()),
        "late_s": told["late_seconds"],
        "exchange_s": exchange,
        "exchanges": (proved - told["own_seconds"]) / exchange,
        "writes": float(writes(made)),
        "operator_requests": made,
        "cpu_by_process_s": {name: round(seconds, 2) for name, seconds in costs.items()},
        "rounds": [_since(row, since + bound) for row in told["rounds"]],
        "reports": told["counts"],
    }
    _say(f"  {size}: " + ", ".join(f"{name} {run[name]:.2f}" for name in FIGURES))
    _say(
        "    "
        + "; ".join(
            f"round {row['round']}: {row['first_began']} to {row['last_began']}, {row['last_ended']}"
            for row in run["rounds"]
        )
    )
    _say(f"    {run['cpu_by_process_s']} {run['reports']} {made}")
    return run


def _since(row: Mapping[str, Any], start: float) -> Object:
    """The times of a round, in seconds since the last pod was bound."""
    times = ("first_began", "last_began", "last_ended")
    return {name: round(value - start, 3) if name in times else value for name, value in row.items()}


def _until(condition: Callable[[], bool], what: str) -> None:
    wait_for(condition, what, cases.START_SECONDS)


def _written(bed: Bed, path: Path) -> bool:
    """Whether the operator has written its authority; then it is in the file."""
    found = bed.cluster.api.get(_TRUST)
    if not found:
        return False
    path.write_text(found["data"]["ca.crt"])
    return True


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.burnin", description=__doc__)
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help=f"members, default {','.join(map(str, SIZES))}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each size, default {RUNS}")
    parser.add_argument("--node-seconds", type=float, default=NODE_SECONDS, help="that the probes of a node take")
    parser.add_argument("--pair-seconds", type=float, default=PAIR_SECONDS, help="that the test of a pair takes")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


def _sizes(text: str) -> Sequence[int]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    main()
