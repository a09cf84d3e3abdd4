"""`python -m bench.health`: hundreds of nodes fall sick within one second, into build/bench/health.json.

A control plane with as many KWOK nodes as asked for. Every second node has an agent: one process speaks as all of them,
each with the token of its own node, under the shipped rights and admission policy. The other nodes have conditions. Run
A, with the budget raised: every sick node is tainted; timed from the sending of the evidence to the watch event. Run B,
with the default budget and twice as many sick nodes as it allows, for two causes (the agents' and the conditions'):
exactly the part for what is not certain is tainted, and for no cause more than one may have. Run C is run A while one
pod of each of 100 gangs fails within the same second. Before each run nothing is remembered against any node, and the
operator is started anew. `bare` is the same number of taints by one raw client that decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.api import NotThereError, Object
from bench.bed import NAMESPACE, PODS, ROOT, Bed, documents
from bench.child import Child
from bench.facts import facts
from bench.nodepods import enrol, share
from bench.peers.muster import Muster, training_job
from bench.processes import cpu_seconds, peak_mebibytes, reset_peaks, spent
from bench.sick.requests import nodes_by_verdict, requests_made, writes
from bench.sick.taintwatch import TaintWatch
from bench.sick.verdicts import TAINT, Sick, beyond, choose, delays, is_tainted, let_through, medians, wrong_verdicts
from bench.writes import writes_between
from localcluster.api import wait_for
from localcluster.errors import LocalClusterError
from localcluster.kwok import KwokControlPlane
from localcluster.kwok import fleet as fleet_nodes
from muster.api.fleetpolicy import DEFAULT_BUDGETS
from muster.health.budgets import OF_FLEET, Budgets, Share

OUTPUT = ROOT / "build" / "bench" / "health.json"
NODES, BAD, GANGS, RUNS = 2048, 200, 100, 3
_GANG_SIZE = 2
SECONDS = 1.0
GOALS = {"p50": 1.0, "p99": 5.0}
_AGENTS = "muster-agent"
_BARE_TAINT = "bench.muster.dev/bare"
_BARE_CONNECTIONS = 32
_SETTLED_SECONDS = 300.0
_QUIET_SECONDS = 3.0
_POLL_SECONDS = 1.0
_HEALTHS = "/apis/muster.dev/v1alpha1/nodehealths"
_WIDE = [{"nodes": "100%"}]


@dataclass
class Ward:
    """The cluster, who speaks about its nodes, and which nodes have an agent."""

    bed: Bed
    speaker: Child
    nodes: list[str]
    lain: set[str]
    gangs: int = 0
    """How many gangs run, of each of which a pod fails when the nodes fall sick."""

    @property
    def agents(self) -> list[str]:
        """The nodes that have an agent."""
        return self.nodes[::2]


@dataclass(frozen=True)
class Outcome:
    """What one run gave."""

    delays: dict[str, float] | None
    wrong: list[str]
    tainted: int
    requests: dict[str, int]
    cpu_s: float
    rss_mb: float


def main() -> None:
    """Run what the command line asks for, and show it."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        measured = measure(arguments.nodes, arguments.bad, arguments.gangs, arguments.runs)
    except KeyboardInterrupt:
        sys.exit("stopped: nothing is written")
    except LocalClusterError as error:
        sys.exit(str(error))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({**facts(), **measured}, indent=1) + "\n")
    took, budget = measured["evidence_to_taint_seconds"], measured["budget_run"]
    print(
        f"{measured['bad_nodes']} of {measured['nodes']} nodes: tainted after {took['p50']} s (p50), {took['p99']} s "
        f"(p99), {measured['taints_per_second']} a second; beside {measured['gangs']} failing gangs: "
        f"{measured['beside_gangs_seconds']['p50']} s, {measured['beside_gangs_seconds']['p99']} s; "
        f"bare: {measured['bare']['p50']} s, "
        f"{measured['bare']['p99']} s, {measured['bare']['taints_per_second']} a second"
    )
    print(f"wrong verdicts: {measured['wrong_verdicts']}; budget of {budget['budget']}: {budget['tainted']} tainted")
    print(f"written: {os.path.relpath(arguments.output)}")
    missed = [f"{name} {took[name]} s is above {goal} s" for name, goal in GOALS.items() if took[name] > goal]
    if measured["wrong_verdicts"] or any(tainted != budget["budget"] for tainted in budget["runs"]):
        missed.append("a verdict is wrong, or the budget was not kept")
    if missed:
        sys.exit("; ".join(missed))


def measure(nodes: int, bad: int, gangs: int, runs: int) -> dict[str, Any]:
    """All figures."""
    _say(f"{nodes} nodes ...")
    with KwokControlPlane.temporary_with(nodes) as cluster, _ward(cluster, nodes) as ward:
        sick, raised, beside, bare = choose(ward.nodes, bad), list[Outcome](), list[Outcome](), list[dict[str, float]]()
        for _ in range(runs):  # in turn: what else the machine does meanwhile meets both
            raised.append(_run(ward, sick, {"enforcement": "Nodes", "budgets": _WIDE}, len(sick)))
            with _gangs(ward, gangs):
                beside.append(_run(ward, sick, {"enforcement": "Nodes", "budgets": _WIDE}, len(sick)))
            bare.append(_bare(ward, sick))
        share = Budgets.from_policy(DEFAULT_BUDGETS, OF_FLEET).in_window(nodes)
        budget = let_through(share)
        many = choose(ward.nodes, 2 * budget)
        kept = [_run(ward, many, {"enforcement": "Nodes"}, budget, share) for _ in range(runs)]
    took = [run.delays for run in raised if run.delays is not None]
    took_beside = [run.delays for run in beside if run.delays is not None]
    if len(took) < runs or len(took_beside) < runs:
        raise LocalClusterError("not every sick node was tainted: see above")
    middle, middle_beside = medians(took), medians(took_beside)
    costs = medians([{"cpu_s": run.cpu_s, "writes": writes(run.requests) / bad} for run in raised])
    return {
        "nodes": nodes,
        "bad_nodes": bad,
        "gangs": gangs,
        "wrong_verdicts": sum(len(run.wrong) for run in (*raised, *beside, *kept)),
        "evidence_to_taint_seconds": {"p50": middle["p50"], "p99": middle["p99"]},
        "beside_gangs_seconds": {"p50": middle_beside["p50"], "p99": middle_beside["p99"]},
        "stored_to_taint_seconds": {"p50": middle["stored_p50"], "p99": middle["stored_p99"]},
        "taints_per_second": middle["taints_per_second"],
        "sending_seconds": middle["sending_seconds"],
        "budget_run": {
            "tainted": kept[-1].tainted,
            "budget": budget,
            "bad_nodes": len(many),
            "runs": [run.tainted for run in kept],
        },
        "api_writes_per_node": costs["writes"],
        "rss_mb": round(max(run.rss_mb for run in (*raised, *kept)), 1),
        "cpu_s": costs["cpu_s"],
        "bare": {**medians(bare), "connections": _BARE_CONNECTIONS},
        "goals": GOALS,
        "runs": [
            {**took_, "requests": run.requests, "cpu_s": run.cpu_s, "rss_mb": run.rss_mb}
            for took_, run in zip(took, raised, strict=True)
        ],
        "beside_gangs_runs": took_beside,
        "bare_runs": bare,
    }


@contextmanager
def _ward(cluster: KwokControlPlane, nodes: int) -> Iterator[Ward]:
    bed = Bed(cluster, nodes)
    names = [node.name for node in fleet_nodes(nodes)]
    Muster(bed, "Direct", "Plain").install()
    with tempfile.TemporaryDirectory(prefix="muster-bench-tokens-") as folder:
        started = time.monotonic()
        _enrol(bed, names[::2], Path(folder))
        log = cluster.directory / "logs" / "evidence.log"
        arguments = [bed.connection.server, str(bed.connection.ca), folder]
        with closing(Child("bench.sick.evidence", arguments, {"BENCH_TOKEN": bed.connection.token}, log)) as speaker:
            speaker.ask({"boot": names[::2]})
            _say(f"{len(names[::2])} agents: {time.monotonic() - started:.0f} s")
            yield Ward(bed, speaker, names, set())


def _enrol(bed: Bed, nodes: Sequence[str], folder: Path) -> None:
    """The agents' rights, and for each node a pod and a token that is bound to it, as the kubelet would ask for it."""
    base = ROOT / "manifests" / "base"
    bed.apply([each for each in documents(base / "agent.yaml") if each["kind"] == "Namespace"])
    for name in ("agent-rbac.yaml", "agent-admission.yaml"):
        bed.apply(documents(base / name))
    enrol(bed, _AGENTS, "muster/agent:bench", nodes, folder)


def _run(ward: Ward, sick: Sequence[Sick], health: Object, tainted: int, share: Share | None = None) -> Outcome:
    """The nodes fall sick under a policy that has so many of them tainted, and no more of a cause than one may have of
    this budget; ends when the operator has nothing more to write."""
    _heal(ward)
    system = Muster(ward.bed, "Direct", "Plain", health)
    system.begin()
    try:
        _wait_running(ward, ward.gangs * _GANG_SIZE)
        # At its start the operator writes down that the nodes with an agent are well.
        well = {"Healthy": len(ward.agents), "Unknown": len(ward.nodes) - len(ward.agents)}
        wait_for(
            lambda: well.items() <= nodes_by_verdict(system.metrics()).items(), "every node judged", _SETTLED_SECONDS
        )
        _wait_quiet(system)
        ward.lain |= {each.node for each in sick}
        with closing(TaintWatch(ward.bed.connect(), TAINT)) as watch:
            outcome = _observe(ward, system, watch, sick, tainted, share)
    finally:
        system.end()
    return outcome


def _observe(
    ward: Ward, system: Muster, watch: TaintWatch, sick: Sequence[Sick], wanted: int, share: Share | None
) -> Outcome:
    pids = system.managers()
    before, asked = cpu_seconds(pids), requests_made(system.metrics())
    reset_peaks(pids.values())
    order = {"sick": [[each.node, each.by] for each in sick], "seconds": SECONDS}
    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(_fail_gangs, ward)
        times: dict[str, tuple[float, float]] = ward.speaker.ask(order)
        failing.result()
    sent = {node: moment for node, (moment, _) in times.items()}
    watch.wait(lambda tainted: len(tainted) >= wanted, _SETTLED_SECONDS)
    cpu = sum(spent(before, cpu_seconds(pids)).values())
    _wait_quiet(system, events=wanted == len(sick))
    if watch.broken:
        raise LocalClusterError(f"the watch of the nodes broke ({watch.broken}): run it again")
    tainted = watch.tainted()
    after = requests_made(system.metrics())
    memory = peak_mebibytes(pids.values())
    connection, all_out = ward.bed.connection, wanted == len(sick)
    wrong = wrong_verdicts(sick, connection.get(_HEALTHS)["items"], connection.get("/api/v1/nodes")["items"], all_out)
    wrong += beyond(share, sick, tainted) if share is not None else []
    took = None
    if all_out and sent.keys() <= tainted.keys():
        stored = delays({node: moment for node, (_, moment) in times.items()}, tainted)
        took = delays(sent, tainted) | {"stored_p50": stored["p50"], "stored_p99": stored["p99"]}
    outcome = Outcome(took, wrong, len(tainted), writes_between(asked, after), round(cpu, 2), round(memory, 1))
    _print_outcome("A" if all_out else "B", outcome)
    return outcome


@contextmanager
def _gangs(ward: Ward, count: int) -> Iterator[None]:
    """So many gangs are asked for before, and gone after."""
    jobs = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/trainingjobs"
    names = [f"beside-{number:03}" for number in range(count)]
    for name in names:
        job = training_job(_GANG_SIZE, "Plain")
        ward.bed.connection.post(jobs, {**job, "metadata": {"name": name}})
    ward.gangs = count
    yield
    ward.gangs = 0
    for name in names:
        ward.bed.connection.delete(f"{jobs}/{name}", {"propagationPolicy": "Background"})
    _wait_running(ward, 0)


def _wait_running(ward: Ward, count: int) -> None:
    """Until so many pods of gangs run, and there are no others."""

    def running() -> bool:
        pods = ward.bed.connection.get(PODS)["items"]
        return [pod["status"].get("phase") for pod in pods] == ["Running"] * count

    wait_for(running, f"{count} running pods of gangs", _SETTLED_SECONDS)


def _fail_gangs(ward: Ward) -> None:
    """A pod of each gang fails."""
    pods = ward.bed.connection.get(PODS)["items"]
    first = {pod["metadata"]["labels"]["muster.dev/job"]: pod["metadata"]["name"] for pod in pods}

    def some(mine: Sequence[str]) -> None:
        for pod in mine:
            with suppress(NotThereError):  # its gang had a node that fell sick, and has left it already
                ward.bed.fail([pod])

    if first:
        share(some, list(first.values()))


def _bare(ward: Ward, sick: Sequence[Sick]) -> dict[str, float]:
    """One raw client taints as many nodes, and takes the taints away again."""
    _heal(ward)
    api = ward.bed.connection
    nodes = [each.node for each in sick]
    arguments = [api.server, str(api.ca), str(_BARE_CONNECTIONS)]
    log = ward.bed.cluster.directory / "logs" / "taints.log"
    with (
        closing(Child("bench.sick.taints", arguments, {"BENCH_TOKEN": api.token}, log)) as client,
        closing(TaintWatch(ward.bed.connect(), _BARE_TAINT)) as watch,
    ):
        client.ask({"nodes": [], "key": ""})  # its connections are there
        sent: dict[str, float] = client.ask({"nodes": nodes, "key": _BARE_TAINT})
        if not watch.wait(lambda tainted: len(tainted) >= len(nodes), _SETTLED_SECONDS) or watch.broken:
            raise LocalClusterError("the raw client's taints were not seen: see logs/taints.log of the control plane")
        took = delays(sent, watch.tainted())
        client.ask({"nodes": nodes, "key": ""})
    _say(f"  bare: {_delays_text(took)}")
    return took


def _heal(ward: Ward) -> None:
    """Every node that was sick is new: no record, no taint, another boot, a condition that is fine. No operator
    runs."""
    lain = sorted(ward.lain)
    ward.lain.clear()
    listed = {each["metadata"]["name"]: each for each in ward.bed.connection.get("/api/v1/nodes")["items"]}

    def some(mine: Sequence[str]) -> None:
        with closing(ward.bed.connect()) as connection:
            for node in mine:
                connection.delete(f"{_HEALTHS}/{node}")
                if is_tainted(listed[node]):
                    kept = [taint for taint in listed[node]["spec"]["taints"] if taint["key"] != TAINT]
                    connection.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": kept}})

    share(some, lain)
    agents = set(ward.agents)
    ward.speaker.ask({"boot": [node for node in lain if node in agents]})
    ward.speaker.ask({"well": [node for node in lain if node not in agents]})


def _wait_quiet(system: Muster, *, events: bool = True) -> None:
    """Until the operator has written nothing for a while; its Events, ten a second, are waited for only if asked."""
    state = {"writes": -1, "since": time.monotonic()}

    def quiet() -> bool:
        counts, now = requests_made(system.metrics()), time.monotonic()
        made = writes(
            counts if events else {key: count for key, count in counts.items() if not key.endswith(" events")}
        )
        if made != state["writes"]:
            state.update(writes=made, since=now)
        time.sleep(_POLL_SECONDS)
        return now - state["since"] >= _QUIET_SECONDS

    wait_for(quiet, "an operator that has nothing to write", _SETTLED_SECONDS)


def _print_outcome(name: str, outcome: Outcome) -> None:
    took = _delays_text(outcome.delays) if outcome.delays else ""
    _say(
        f"  {name}: {took} {outcome.tainted} tainted, {len(outcome.wrong)} wrong, {outcome.cpu_s} s of CPU, "
        f"{outcome.rss_mb} MiB, {outcome.requests}"
    )
    for line in outcome.wrong[:5]:
        _say(f"    {line}")


def _delays_text(took: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in took.items())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    parser.add_argument("--bad", type=int, default=BAD, help=f"nodes that fall sick in run A, default {BAD}")
    parser.add_argument("--gangs", type=int, default=GANGS, help=f"of which a pod fails in run C, default {GANGS}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each kind, default {RUNS}")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
