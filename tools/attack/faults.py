"""How each of the simulator's faults is made on real nodes; its target is chosen as the simulator does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attack import proxy
from attack.checks import Removal, Thaw
from attack.packets import Cut, between
from attack.processes import Worker, workers_of
from attack.stage import NAMESPACE, Job, NotMadeError, Stage
from attack.way import Way
from localcluster import cgroups
from localcluster.errors import LocalClusterError
from localcluster.layout import CONTROL_PLANE_ADDRESS
from muster.node.checkpoint.manifest import MANIFEST_NAME
from simulate.fault import Fault, Undo
from simulate.faults import each
from testbed.bed import SYSTEM_NAMESPACE

BUDGET = "hardwareRestartsPerDay"
Maker = Callable[[Stage, Fault], Undo | None]


def _job(stage: Stage, fault: Fault) -> Job:
    if fault.job not in stage.jobs:
        raise NotMadeError(f"there is no job {fault.job!r} here")
    return stage.jobs[fault.job]


def _workers(stage: Stage, fault: Fault) -> list[Worker]:
    return fault.hit(_running(stage, fault))


def _running(stage: Stage, fault: Fault) -> list[Worker]:
    found = workers_of(_job(stage, fault).full_name)
    if not found:
        raise NotMadeError(f"no worker of {fault.job} runs")
    return found


def _nodes(stage: Stage, fault: Fault) -> tuple[str, ...]:
    if not fault.job:
        return tuple(fault.hit(stage.nodes))
    return tuple(fault.hit(list(dict.fromkeys(worker.node for worker in _running(stage, fault)))))


def _networks(stage: Stage, nodes: Iterable[str]) -> list[str]:
    return [network for node in nodes for network in stage.bed.cluster.networks_of(node)]


# --- processes --------------------------------------------------------------------------------------------------------


def _of_rank(number: signal.Signals) -> Maker:
    def make(stage: Stage, fault: Fault) -> None:
        ranks = [worker.rank for worker in _workers(stage, fault) if worker.rank is not None]
        if not ranks:
            raise NotMadeError(f"no rank of {fault.job} runs there")
        _signal(ranks, number)

    return make


def _kill_containers(stage: Stage, fault: Fault) -> None:
    _signal([worker.launcher for worker in _workers(stage, fault)], signal.SIGKILL)


def _freeze_containers(stage: Stage, fault: Fault) -> Undo:
    found = [(worker.node, cgroups.frozen_group_of(worker.launcher)) for worker in _workers(stage, fault)]
    groups = [(node, file) for node, file in found if file is not None]
    for _, file in groups:
        cgroups.set_frozen(file, True)

    def undo() -> None:
        for node, file in groups:
            stage.thaws.append(Thaw(node, time.monotonic()))
            cgroups.set_frozen(file, False)

    return undo


def _signal_operators(stage: Stage, pods: Sequence[Mapping[str, Any]], number: signal.Signals) -> list[int]:
    cluster, pids = stage.bed.cluster, []
    for pod in pods:
        node, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
        if node:
            pids += [found.pid for found in cluster.pids_of(node, SYSTEM_NAMESPACE, name, "operator")]
    if not pids:
        raise NotMadeError("no operator runs")
    _signal(pids, number)
    return pids


def _kill_leader(stage: Stage, _fault: Fault) -> None:
    _signal_operators(stage, [stage.leader()], signal.SIGKILL)


def _kill_all(stage: Stage, _fault: Fault) -> None:
    _signal_operators(stage, stage.operators(), signal.SIGKILL)


def _pause_leader(stage: Stage, _fault: Fault) -> Undo:
    pids = _signal_operators(stage, [stage.leader()], signal.SIGSTOP)
    return lambda: _signal(pids, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


# --- nodes ------------------------------------------------------------------------------------------------------------


def _cut_power(stage: Stage, fault: Fault) -> Undo:
    cluster, nodes = stage.bed.cluster, _nodes(stage, fault)
    for node in nodes:
        # What is frozen takes no signal on control groups of version 1: a node would never be off.
        thaw = threading.Timer(0.3, cgroups.thaw_below, (cluster.id, node))
        thaw.start()
        cluster.power_off(node)
        thaw.cancel()

    def boot(node: str) -> None:
        cluster.boot(node)
        stage.packets.renew(node)
        with suppress(LocalClusterError):  # its devices are told once it is Ready; the repair waits for that again
            cluster.power_on(node)

    return each(nodes, boot)


def _those_on(stage: Stage, fault: Fault, do: Callable[[str], object]) -> tuple[str, ...]:
    """The nodes to which this was done: one that is off cannot be hit."""
    done = []
    for node in _nodes(stage, fault):
        with suppress(LocalClusterError):
            do(node)
            done.append(node)
    if not done:
        raise NotMadeError("no node is on there")
    return tuple(done)


def _freeze_nodes(stage: Stage, fault: Fault) -> Undo:
    """The kernel that all nodes share goes on answering for them: so their packets are lost as well."""
    cluster = stage.bed.cluster
    frozen = _those_on(stage, fault, cluster.freeze_node)
    connect = _lose(stage, Cut(frozen, ("",), ("",)))

    def undo() -> None:
        for node in frozen:
            stage.thaws.append(Thaw(node, time.monotonic()))
            cluster.thaw_node(node)
        connect()

    return undo


def _stop_kubelets(stage: Stage, fault: Fault) -> Undo:
    cluster = stage.bed.cluster
    stopped = _those_on(stage, fault, cluster.freeze_kubelet)

    def run(node: str) -> None:
        with suppress(LocalClusterError):
            cluster.thaw_kubelet(node)

    return each(stopped, run)


def _cordon(stage: Stage, fault: Fault) -> Undo:
    nodes = _nodes(stage, fault)
    for node in nodes:
        stage.kubectl("cordon", node)
    return each(nodes, lambda node: _persist(stage, "uncordon", node))


def _drain(stage: Stage, fault: Fault) -> Undo:
    undo, nodes = _cordon(stage, fault), _nodes(stage, fault)
    words = ("drain", *nodes, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    # It asks again for as long as the job's disruption budget says no; the person has better things to do.
    with stage.bed.kubectl.stream(*words) as drain, suppress(subprocess.TimeoutExpired):
        drain.wait(min(fault.seconds, 20.0))
    return undo


# --- the network ------------------------------------------------------------------------------------------------------


def _lose(stage: Stage, *cuts: Cut) -> Undo:
    for cut in cuts:
        stage.packets.lose(cut)
    return each(cuts, stage.packets.heal)


def _cut_off(stage: Stage, fault: Fault, *, one_way: bool = False) -> Undo:
    """From all others; what they send each other arrives. Storage has a network of its own here."""
    nodes = _nodes(stage, fault)
    inside = ", ".join(_networks(stage, nodes))
    arriving = () if one_way else (f"ip saddr != {{ {inside} }}",)
    return _lose(stage, Cut(nodes, arriving, (f"ip daddr != {{ {inside} }}",)))


def _cut_outwards(stage: Stage, fault: Fault) -> Undo:
    return _cut_off(stage, fault, one_way=True)


def _cut_from_operator(stage: Stage, fault: Fault) -> Undo:
    addresses = stage.operator_addresses()
    if not addresses:
        raise NotMadeError("no operator has an address")
    return _lose(stage, between(_nodes(stage, fault), addresses, but=[]))


def _cut_from_each_other(stage: Stage, fault: Fault) -> Undo:
    nodes = _nodes(stage, fault)
    others = [node for node in stage.nodes if node not in nodes]
    if not others:
        raise NotMadeError("there are no others")
    # A replica of the operator is no part of its node in stories.
    return _lose(stage, between(nodes, _networks(stage, others), but=stage.operator_addresses()))


def _cut_from_api(stage: Stage, fault: Fault) -> Undo:
    # By TCP only: names are served at the same address, and go on being found.
    match = f"ip {{way}} {CONTROL_PLANE_ADDRESS} meta l4proto tcp"
    cut = Cut(_nodes(stage, fault), (match.format(way="saddr"),), (match.format(way="daddr"),))
    return _lose(stage, cut)


def _cut_leader(stage: Stage, fault: Fault) -> Undo:
    leader = stage.leader()
    node, address = leader["spec"]["nodeName"], leader["status"]["podIP"]
    others = [CONTROL_PLANE_ADDRESS] if fault.number % 2 else _networks(stage, stage.nodes)
    there = ", ".join(others)
    cut = Cut((node,), (f"ip daddr {address} ip saddr {{ {there} }}",), (f"ip saddr {address} ip daddr {{ {there} }}",))
    return _lose(stage, cut)


# --- people and storage -----------------------------------------------------------------------------------------------


def _delete_pods(*options: str) -> Maker:
    def make(stage: Stage, fault: Fault) -> None:
        for worker in _workers(stage, fault):
            stage.kubectl("delete", "pod", "-n", NAMESPACE, worker.pod, "--wait=false", "--ignore-not-found", *options)

    return make


def _suspend(stage: Stage, fault: Fault) -> Undo:
    patch = ("patch", "tj", "-n", NAMESPACE, _job(stage, fault).full_name, "--type=merge", "-p")
    stage.kubectl(*patch, '{"spec":{"suspend":true}}')
    return lambda: _persist(stage, *patch, '{"spec":{"suspend":false}}')


def _edit(stage: Stage, fault: Fault) -> Undo:
    """A change that leaves the gang as it is."""
    which = (_job(stage, fault).full_name, "-n", NAMESPACE)
    budget = stage.kubectl("get", "tj", *which, "-o", f"jsonpath={{.spec.recovery.{BUDGET}}}")

    def words(value: int) -> tuple[str, ...]:
        return ("patch", "tj", *which, "--type=merge", "-p", json.dumps({"spec": {"recovery": {BUDGET: value}}}))

    stage.kubectl(*words(int(fault.amount)))
    return lambda: _persist(stage, *words(int(budget)))


def _replace_job(stage: Stage, fault: Fault) -> None:
    job = _job(stage, fault)
    stage.kubectl("delete", "tj", "-n", NAMESPACE, job.full_name, "--wait=false")
    _tried(lambda: stage.create(job.document))


def _withhold(stage: Stage, fault: Fault) -> Undo:
    nodes = _nodes(stage, fault)
    for node in nodes:
        stage.muster("cordon", node, "--reason", "as I say")
    return each(nodes, lambda node: _tried(lambda: stage.muster("release", node, "--reason", "as I say")))


def _sicken(stage: Stage, fault: Fault) -> Undo:
    """Until somebody reboots them. No process ends by that: of a boot the agent sees its id alone."""
    nodes, faults = _nodes(stage, fault), stage.bed.faults
    for node in nodes:
        faults.xid(node, int(fault.amount))
    return each(nodes, faults.reboot)


def _remove_newest(stage: Stage, fault: Fault) -> None:
    newest = _newest_to_spare(stage, fault)
    hidden = newest.with_name(f".removed-{newest.name}-{time.monotonic_ns()}")
    newest.rename(hidden)
    shutil.rmtree(hidden)


def _lose_shard(stage: Stage, fault: Fault) -> None:
    files = sorted(path for path in _newest_to_spare(stage, fault).iterdir() if path.name != MANIFEST_NAME)
    files[fault.number % len(files)].unlink(missing_ok=True)


def _newest_to_spare(stage: Stage, fault: Fault) -> Path:
    """The newest checkpoint, which nobody has to go on from any more."""
    job = _job(stage, fault)
    lost = {gone.step for gone in job.removals}
    folders = {int(path.name[5:]): path for path in (job.folder / "checkpoints").glob("step-*")}
    steps = sorted(folders.keys() - lost)
    if len(steps) < 2:
        raise NotMadeError("there is nothing that could be spared")
    # Said before it is done: what begins at this moment may have seen either.
    job.removals.append(Removal(steps[-1], time.monotonic()))
    return folders[steps[-1]]


# --- the API server ---------------------------------------------------------------------------------------------------


def _api_away(stage: Stage, fault: Fault) -> Undo:
    """It is killed, or stands still with all connections open."""
    cluster = stage.bed.cluster
    if stage.api_away.is_set():
        raise NotMadeError("the API server is away")
    stage.api_away.set()
    stands_still = bool(fault.number % 2)
    (cluster.pause_control_plane if stands_still else cluster.stop_apiserver)()

    def undo() -> None:
        (cluster.resume_control_plane if stands_still else cluster.start_apiserver)()
        stage.api_away.clear()

    return undo


def _on_the_way(what: str, *, reopens: bool = False) -> Maker:
    """To one replica, the leader first, or to all: later ones are not concerned."""

    def make(stage: Stage, fault: Fault) -> Undo:
        way = _way(stage)
        addresses: Sequence[str] = stage.operator_addresses()
        if fault.number % 3:
            leader = stage.leader()["status"]["podIP"]
            addresses = fault.hit_replicas(sorted(addresses, key=lambda address: address != leader))
        resource = fault.resource if what != proxy.SLOW else ""
        wrong = way.begin(what, addresses, resource, fault.amount)
        if reopens:  # a watch has the lag with which it was opened
            way.end(way.begin(proxy.END, addresses, resource, 0))

        def undo() -> None:
            way.end(wrong)
            if reopens:
                way.end(way.begin(proxy.END, addresses, resource, 0))

        return undo

    return make


def _end_watches(stage: Stage, _fault: Fault) -> None:
    way = _way(stage)
    way.end(way.begin(proxy.END, [], "", 0))


def _way(stage: Stage) -> Way:
    if stage.way is None:
        raise NotMadeError("no fault proxy is in front of the API server")
    return stage.way


MAKERS: Mapping[str, Maker] = {
    "RankExits": _of_rank(signal.SIGUSR1),
    "RankKilled": _of_rank(signal.SIGKILL),
    "RankHangs": _of_rank(signal.SIGSTOP),
    "OutOfMemory": _kill_containers,
    "ContainerFrozen": _freeze_containers,
    "PodDeleted": _delete_pods(),
    "PodForceDeleted": _delete_pods("--grace-period=0", "--force"),
    "PowerCut": _cut_power,
    "NodeFrozen": _freeze_nodes,
    "KubeletStops": _stop_kubelets,
    "CutOff": _cut_off,
    "CutOffButStorage": _cut_off,
    "CutOutwards": _cut_outwards,
    "CutFromOperator": _cut_from_operator,
    "CutFromEachOther": _cut_from_each_other,
    "CutFromApi": _cut_from_api,
    "Cordon": _cordon,
    "Drain": _drain,
    "LeaderKilled": _kill_leader,
    "OperatorsKilled": _kill_all,
    "LeaderPaused": _pause_leader,
    "LeaderCutOff": _cut_leader,
    "Suspended": _suspend,
    "ApiAway": _api_away,
    "ApiSlow": _on_the_way(proxy.SLOW),
    "ApiRefuses": _on_the_way(proxy.REFUSE),
    "AnswersLost": _on_the_way(proxy.LOSE),
    "WatchLags": _on_the_way(proxy.LAG, reopens=True),
    "WatchesEnd": _end_watches,
    "CheckpointRemoved": _remove_newest,
    "ShardLost": _lose_shard,
    "JobEdited": _edit,
    "JobReplaced": _replace_job,
    "NodeWithheld": _withhold,
    "NodeSick": _sicken,
}


ON_THE_WAY = {"ApiSlow", "ApiRefuses", "AnswersLost", "WatchLags", "WatchesEnd"}
"""Those that take the fault proxy."""


def make(stage: Stage, fault: Fault) -> Undo | None:
    """Make a fault now; returns what ends it.

    Raises:
        NotMadeError: there is nothing now that it could hit.
    """
    try:
        return MAKERS[fault.kind](stage, fault)
    except (LocalClusterError, OSError) as error:
        raise NotMadeError(str(error)) from error


def _persist(stage: Stage, *command: str) -> None:
    _tried(lambda: stage.kubectl(*command))


def _tried(do: Callable[[], object]) -> None:
    """A person who tries until it is done."""
    until = time.monotonic() + 120
    while True:
        try:
            do()
        except NotMadeError:
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return
