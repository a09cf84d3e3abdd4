"""`python -m bench.top`: how long `kubectl muster top --once` takes to tell of 500 jobs, into build/bench/top.json.

The jobs of `bench.goodput` on a real API server, each with what the shipped decisions tell of it after it has failed 16
times. The shipped command is run as a person runs it, from its start to its end, and beside it, as the least that
anything can take, kubectl reads the same list.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.api import Connection
from bench.bed import ROOT
from bench.facts import facts
from bench.goodput import SIZES, Job, a_job, fail, plan_of
from localcluster.controlplane import ControlPlane
from muster.world.fleet import Fleet

OUTPUT = ROOT / "build" / "bench" / "top.json"
GOAL_SECONDS = 1.0
RUNS = 7
FAILURES = 16


def main() -> int:
    """Measure; 1 when the goal was missed."""
    arguments = _arguments()
    with ControlPlane.temporary() as control_plane:
        _kubectl(control_plane, "apply", "-f", str(ROOT / "crds"))
        _kubectl(control_plane, "wait", "--for=condition=Established", "crd", "--all")
        jobs = _fill(control_plane)
        rows = measure(control_plane, arguments.runs)
    found = {"jobs": jobs, **rows, "goal_s": GOAL_SECONDS, "met": rows["top"]["seconds"] <= GOAL_SECONDS}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"facts": facts(), **found}, indent=2) + "\n")
    for name, row in rows.items():
        told = f"{row['seconds']:.2f} s ({row['least']:.2f} to {row['most']:.2f}), {row['cpu_s']:.2f} s of a core"
        print(f"{jobs} jobs, {name}: {told}, {row['output_bytes']} bytes printed")
    print(f"written: {OUTPUT.relative_to(ROOT)}")
    return 0 if found["met"] else 1


def measure(control_plane: ControlPlane, runs: int) -> dict[str, dict[str, float]]:
    """Medians of the command and of kubectl, in turn."""
    kubeconfig = ("--kubeconfig", str(control_plane.kubeconfig))
    commands = {
        "top": (sys.executable, "-m", "muster.cli", "top", "--once", *kubeconfig),
        "kubectl": (str(control_plane.kubectl), "get", "trainingjobs", "-A", "-o", "json", *kubeconfig),
    }
    measured: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            measured[name].append(_run(command))
    rows = {}
    for name, each in measured.items():
        seconds = [one[0] for one in each]
        rows[name] = {
            "seconds": round(statistics.median(seconds), 3),
            "least": round(min(seconds), 3),
            "most": round(max(seconds), 3),
            "cpu_s": round(statistics.median(one[1] for one in each), 3),
            "output_bytes": each[0][2],
        }
    return rows


def _run(command: Sequence[str]) -> tuple[float, float, int]:
    """Seconds by the clock, of a core, and what it printed in bytes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        printed = len(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, printed


def _fill(control_plane: ControlPlane) -> int:
    """Have the jobs there, with their status; how many."""
    connection = Connection(control_plane.api.server, control_plane.api.token, control_plane.api.ca)
    sizes = [size for count, size in SIZES for _ in range(count)]
    jobs = [a_job(number, size) for number, size in enumerate(sizes)]
    for namespace in sorted({each.key[0] for each in jobs}):
        connection.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for each in jobs:
        namespace, name = each.key
        path = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
        connection.post(path, _job(each))
        connection.patch(f"{path}/{name}/status", {"status": told(each)})
    return len(jobs)


def told(each: Job) -> Mapping[str, Any]:
    """The status of a job that has failed again and again, and trains."""
    fleet = Fleet.from_parts(nodes=each.nodes)
    for number in range(FAILURES):
        fail(each, 60.0 * (number + 1), fleet)
    while True:
        plan = plan_of(each.world(60.0 * (FAILURES + 2), fleet))
        if not plan.commits:
            assert plan.status is not None
            return plan.status.to_json()
        each.take(plan)


def _job(each: Job) -> dict[str, Any]:
    body = each.job.to_json()
    namespace, name = each.key
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": body["spec"],
    }


def _kubectl(control_plane: ControlPlane, *arguments: str) -> None:
    command = [str(control_plane.kubectl), f"--kubeconfig={control_plane.kubeconfig}", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.top", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each command, default {RUNS}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
