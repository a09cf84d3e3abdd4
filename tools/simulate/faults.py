"""Faults as data: what happens to which object, when, and for how long. A list of them and a seed are a whole life."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from muster.api.base import rfc3339
from muster.api.nodehealth import Decision
from muster.kube.errors import ApiError
from muster.kube.informer import READ_TIMEOUT_SECONDS
from muster.world.views import JOB_UID_LABEL
from simulate.apiserver import Where
from simulate.fault import FOR_EVER, FOR_GOOD, RESOURCES, Fault, Kind, MissedError, Undo
from simulate.life import Life
from simulate.machines import Machine
from simulate.network import API, STORAGE
from simulate.replica import Replica
from simulate.worker import Container

T = TypeVar("T")


def _workers(life: Life, fault: Fault) -> list[Container]:
    """The workers that a fault hits: of its job, in the order of their names."""
    return fault.hit(_workers_of(life, fault.job))


def _workers_of(life: Life, job: str) -> list[Container]:
    trainer = life.trainer_of(job)
    found = [
        worker for machine in life.machines.values() for worker in machine.workers.values() if worker.trainer is trainer
    ]
    _some(found)
    return sorted(found, key=lambda worker: worker.name)


def _nodes(life: Life, fault: Fault) -> list[str]:
    """The nodes that a fault hits: of those on which its job runs, in the order of its workers, or of all."""
    if not fault.job:
        return fault.hit(list(life.machines))
    return fault.hit(list(dict.fromkeys(worker.machine.name for worker in _workers_of(life, fault.job))))


def _some(things: Sequence[T]) -> Sequence[T]:
    if not things:
        raise MissedError
    return things


def _of_rank(change: Callable[[Any], None]) -> Callable[[Life, Fault], None]:
    def does(life: Life, fault: Fault) -> None:
        hit = [worker for worker in _workers(life, fault) if worker.machine.runs]
        for rank in _some([rank for worker in hit for rank in worker.ranks if rank.alive]):
            change(rank)

    return does


def _hang(rank: Any) -> None:
    rank.hung = True


def _revert(life: Life, fault: Fault) -> None:
    trainer = life.trainer_of(fault.job)
    attempt = trainer.attempts.get(trainer.newest_started)
    if attempt is None or not attempt.goes_back(int(fault.amount)):
        raise MissedError


def _unkillable(life: Life, fault: Fault) -> Undo:
    ranks = [rank for worker in _workers(life, fault) for rank in worker.ranks if rank.alive]
    for rank in _some(ranks):
        rank.unkillable = rank.hung = True

    def undo() -> None:
        for rank in ranks:
            rank.unkillable = False
            if rank.is_doomed or rank.worker.is_over:
                rank.kill()

    return undo


def _delete_pods(life: Life, fault: Fault, grace: int | None = None) -> None:
    options = {} if grace is None else {"gracePeriodSeconds": grace}
    for worker in _workers(life, fault):
        _delete(life, worker.namespace, worker.name, options)


def _force_delete_pods(life: Life, fault: Fault) -> None:
    _delete_pods(life, fault, grace=0)


def _out_of_memory(life: Life, fault: Fault) -> None:
    for worker in _some([worker for worker in _workers(life, fault) if worker.machine.runs]):
        worker.run_out_of_memory()


def _freeze_container(life: Life, fault: Fault) -> Undo:
    workers = [worker for worker in _workers(life, fault) if not worker.is_frozen]
    for worker in _some(workers):
        worker.freeze()
    return each(workers, lambda worker: None if worker.machine.frozen else worker.thaw())


def _power_cut(life: Life, fault: Fault) -> Undo:
    machines = [life.machines[name] for name in _nodes(life, fault) if life.machines[name].powered]
    for machine in _some(machines):
        machine.cut_power()
    return each(machines, lambda machine: machine.boot_up())


def _freeze_nodes(life: Life, fault: Fault) -> Undo:
    machines = [life.machines[name] for name in _nodes(life, fault) if life.machines[name].powered]
    for machine in _some(machines):
        machine.freeze()
    return each(machines, lambda machine: machine.thaw())


def _stop_kubelets(life: Life, fault: Fault) -> Undo:
    machines = [life.machines[name] for name in _nodes(life, fault) if life.machines[name].kubelet_runs]
    _some(machines)

    def runs(value: bool) -> None:
        for machine in machines:
            machine.kubelet_runs = value
            machine.notice()

    runs(False)
    return lambda: runs(True)


def _cut(life: Life, ours: list[str], theirs: Iterable[str], *, one_way: bool = False) -> Undo:
    theirs = [place for place in theirs if place not in ours]
    life.network.cut(ours, theirs, one_way=one_way)

    def undo() -> None:
        life.network.heal(ours, theirs)
        for name in ours:
            if name in life.machines:
                life.machines[name].notice()

    return undo


def _cut_off_all(life: Life, fault: Fault) -> Undo:
    return _cut(life, _nodes(life, fault), life.places())


def _cut_off_but_storage(life: Life, fault: Fault) -> Undo:
    return _cut(life, _nodes(life, fault), [place for place in life.places() if place != STORAGE])


def _cut_outwards(life: Life, fault: Fault) -> Undo:
    return _cut(life, _nodes(life, fault), [place for place in life.places() if place != STORAGE], one_way=True)


def _cut_from_operator(life: Life, fault: Fault) -> Undo:
    return _cut(life, _nodes(life, fault), [place for place in life.places() if place.startswith("replica")])


def _cut_from_each_other(life: Life, fault: Fault) -> Undo:
    return _cut(life, _nodes(life, fault), list(life.machines))


def _cut_from_api(life: Life, fault: Fault) -> Undo:
    return _cut(life, _nodes(life, fault), [API])


def _cordon(life: Life, fault: Fault) -> Undo:
    names = _nodes(life, fault)

    def change(value: bool | None) -> None:
        for name in names:
            life.server.change("nodes", "", name, {"spec": {"unschedulable": value}})

    change(True)
    return lambda: change(None)


def _drain(life: Life, fault: Fault) -> Undo:
    undo = _cordon(life, fault)
    for name in _nodes(life, fault):
        for pod in life.pods_on(name):
            _delete(life, pod["metadata"]["namespace"], pod["metadata"]["name"], {})
    return undo


def _take_off(life: Life, fault: Fault) -> Undo:
    """As autoscalers and clouds do: the Node is marked, its machine goes, and in the end another one has its name.

    With an amount it is a spot machine, which goes so many seconds after the mark; else a Node that is deleted, the
    machine of which goes when no worker is there any more.
    """
    names = [name for name in _nodes(life, fault) if life.machines[name].powered]
    mark = (_SPOT_INTERRUPTION if fault.amount else _DISRUPTED) | {"effect": "NoSchedule"}
    taken = set(_some(names))

    def others(name: str) -> list[Any]:
        node = next(each for each in life.server.all("nodes") if each["metadata"]["name"] == name)
        return [taint for taint in node["spec"].get("taints") or () if taint["key"] != mark["key"]]

    for name in names:
        life.server.change("nodes", "", name, {"spec": {"taints": [*others(name), mark]}})
        if not fault.amount:
            since = rfc3339(life.wall_clock())
            metadata = {"deletionTimestamp": since, "finalizers": ["karpenter.sh/termination"]}
            life.server.change("nodes", "", name, {"metadata": metadata})

    def go() -> None:
        for name in list(taken):
            if fault.amount or not any(map(_is_worker, life.pods_on(name))):
                taken.discard(name)
                life.machines[name].cut_power()
        if taken:
            life.agenda.after(1.0, go)

    def undo() -> None:
        taken.clear()
        for name in names:
            life.machines[name].boot_up()
            metadata = {} if fault.amount else {"deletionTimestamp": None, "finalizers": None}
            life.server.change("nodes", "", name, {"metadata": metadata, "spec": {"taints": others(name) or None}})

    life.agenda.after(fault.amount or 1.0, go)
    return undo


def _is_worker(pod: Mapping[str, Any]) -> bool:
    return JOB_UID_LABEL in (pod["metadata"].get("labels") or {}) and pod["status"].get("phase") not in (
        "Succeeded",
        "Failed",
    )


_SPOT_INTERRUPTION = {"key": "aws-node-termination-handler/spot-itn", "value": "spot-itn-0f1e2d3c"}
_DISRUPTED = {"key": "karpenter.sh/disrupted"}


def _stall_storage(life: Life, fault: Fault) -> Undo:
    names, directory = _nodes(life, fault), life.directory_of(fault.job)
    directory.stalls.update(names)
    return lambda: directory.stalls.difference_update(names)


def _lag_storage(life: Life, fault: Fault) -> Undo:
    names, directory = _nodes(life, fault), life.directory_of(fault.job)
    directory.lag_seconds.update(dict.fromkeys(names, fault.amount))

    def undo() -> None:
        directory.lagged_at = life.agenda.now
        for name in names:
            directory.lag_seconds.pop(name, None)

    return undo


def _fill_storage(life: Life, fault: Fault) -> Undo:
    directory = life.directory_of(fault.job)
    directory.full = True

    def undo() -> None:
        directory.full = False

    return undo


def _api_away(life: Life, _fault: Fault) -> Undo:
    life.api_is_up = False
    life.server.end_watches()

    def undo() -> None:
        life.api_is_up = True
        for machine in life.machines.values():
            machine.notice()

    return undo


def _of_way(begin: Callable[[Any, Fault], None], end: Callable[[Any, Fault], None]) -> Callable[[Life, Fault], Undo]:
    """What happens on the way of one replica to the API server; who comes after it is not concerned."""

    def does(life: Life, fault: Fault) -> Undo:
        ways = [one.way for one in _replicas(life, fault)]
        for way in ways:
            begin(way, fault)
        return each(ways, lambda way: end(way, fault))

    return does


def _replicas(life: Life, fault: Fault) -> Sequence[Replica]:
    """The leader first."""
    alive = sorted((one for one in life.replicas if one.alive), key=lambda one: (not one.leads, one.name))
    return fault.hit_replicas(_some(alive))


def _leader(life: Life) -> Replica:
    if life.leader is None:
        raise MissedError
    return life.leader


def _kill_leader(life: Life, _fault: Fault) -> None:
    life.kill_replica(_leader(life))


def _kill_all(life: Life, _fault: Fault) -> None:
    for one in _some([one for one in life.replicas if one.alive]):
        life.kill_replica(one)


def _pause_leader(life: Life, _fault: Fault) -> Undo:
    leader = _leader(life)
    leader.pause()
    return leader.resume


def _cut_leader(life: Life, fault: Fault) -> Undo:
    others = [API] if fault.number % 2 else list(life.machines)
    return _cut(life, [_leader(life).place], others)


def _suspend(life: Life, fault: Fault) -> Undo:
    life.edit(fault.job, {"suspend": True})
    return lambda: life.edit(fault.job, {"suspend": False})


def _ask_to_save(life: Life, fault: Fault) -> None:
    """A user asks a job to save and go on, by a new name each time."""
    life.edit(fault.job, {"checkpoint": {"saveRequest": f"at {life.age_seconds:.2f}"}})


def _avoid_nodes(life: Life, fault: Fault) -> Undo:
    """A user has a job leave nodes, until that is undone."""
    life.edit(fault.job, {"placement": {"avoidNodes": _some(_nodes(life, fault))}})
    return lambda: life.edit(fault.job, {"placement": {"avoidNodes": []}})


def _edit(life: Life, fault: Fault) -> Undo:
    """A change that leaves the gang as it is."""
    before = life.job(fault.job)["spec"].get("recovery")
    life.edit(fault.job, {"recovery": {**(before or {}), "hardwareRestartsPerDay": int(fault.amount)}})
    return lambda: life.edit(fault.job, {"recovery": before})


def _replace_job(life: Life, fault: Fault) -> None:
    life.replace(fault.job)


def _delete_record(life: Life, fault: Fault) -> None:
    """Somebody deletes a job's Gang, as troubleshooting tells those whose record cannot be read."""
    if not life.delete_record(fault.job):
        raise MissedError


def _sicken(life: Life, fault: Fault) -> Undo:
    """Until somebody reboots them."""
    machines = [life.machines[name] for name in _nodes(life, fault) if life.machines[name].runs]
    for machine in _some(machines):
        machine.sicken(int(fault.amount))

    def reboot(machine: Machine) -> None:
        machine.cut_power()
        machine.boot_up()

    return each(machines, reboot)


def _withhold(life: Life, fault: Fault) -> Undo:
    nodes = _nodes(life, fault)
    for node in nodes:
        life.decide(node, Decision.CORDON)
    return each(nodes, lambda node: life.decide(node, Decision.RELEASE))


def _step_clock(life: Life, fault: Fault) -> None:
    life.step_clock(fault.amount)


def _end_watches(life: Life, _fault: Fault) -> None:
    life.server.end_watches()


def _silence_watches(life: Life, fault: Fault) -> Undo:
    """A device between forgets connections: both ends hold them for open, and nothing comes. So it goes with new
    ones."""
    life.server.silent.add(fault.resource)
    return lambda: life.server.silent.discard(fault.resource)


def _roughen(life: Life, fault: Fault) -> Undo:
    """A network that loses single packets, or brings them twice, late and in another order; what has connections does
    not feel it."""
    life.network.lost = fault.amount

    def undo() -> None:
        life.network.lost = 0.0

    return undo


def _forget_history(life: Life, fault: Fault) -> None:
    resources = (*RESOURCES[:3], "nodes", "leases")
    life.server.forget_history(resources[fault.number % len(resources)])
    life.server.end_watches()


def _remove_newest(life: Life, fault: Fault) -> None:
    """Somebody removes the newest checkpoint; older ones are left."""
    path, _ = _newest_to_spare(life, fault)
    life.directory_of(fault.job).remove(path, life.agenda.now)


def _lose_shard(life: Life, fault: Fault) -> None:
    """A clean-up or a broken disk takes one file of the newest checkpoint; its marker stays."""
    path, ranks = _newest_to_spare(life, fault)
    life.directory_of(fault.job).lose_shard(path, fault.number % ranks, life.agenda.now)


def _newest_to_spare(life: Life, fault: Fault) -> tuple[str, int]:
    """The path of the newest complete checkpoint and how many ranks have saved it, where there is another one."""
    whole = life.directory_of(fault.job).whole()
    if len(whole) < 2:
        raise MissedError
    path = max(whole, key=lambda path: whole[path].step)
    return path, whole[path].ranks


def _refuse(way: Any, fault: Fault) -> None:
    way.refuses[("", fault.resource)] = int(fault.amount)


def _refuse_no_more(way: Any, fault: Fault) -> None:
    way.refuses.pop(("", fault.resource), None)


def _lag(way: Any, fault: Fault) -> None:
    way.watch_lag_seconds[fault.resource] = fault.amount


def _lag_no_more(way: Any, fault: Fault) -> None:
    way.watch_lag_seconds.pop(fault.resource, None)


def _lag_and_reopen(life: Life, fault: Fault) -> Undo:
    """A watch has the lag with which it was opened."""
    undo = _of_way(_lag, _lag_no_more)(life, fault)
    life.server.end_watches(lambda watch: watch.resource == fault.resource or not fault.resource)

    def end() -> None:
        undo()
        life.server.end_watches(lambda watch: watch.resource == fault.resource or not fault.resource)

    return end


def _slow(way: Any, fault: Fault) -> None:
    way.slow_seconds = fault.amount


def _slow_no_more(way: Any, _fault: Fault) -> None:
    way.slow_seconds = 0.0


SHORT, LONG = (1.0, 30.0), (5.0, 200.0)

KINDS: Mapping[str, Kind] = {
    "RankExits": Kind(
        _of_rank(lambda rank: rank.exit(3, "ValueError: the loss is NaN")), of_job=True, on_cluster="signal"
    ),
    "RankKilled": Kind(_of_rank(lambda rank: rank.kill()), of_job=True, on_cluster="signal"),
    "RankHangs": Kind(_of_rank(_hang), of_job=True, on_cluster="signal"),
    "StepsGoBack": Kind(_revert, (0.0, 0.0), (5.0, 15.0, 50.0), of_job=True, spares_program=True, spares_training=True),
    "RankUnkillable": Kind(_unkillable, SHORT, of_job=True),
    "PodDeleted": Kind(_delete_pods, of_job=True, on_cluster="kubectl", spares_program=True),
    "PodForceDeleted": Kind(_force_delete_pods, of_job=True, on_cluster="kubectl", spares_program=True),
    "OutOfMemory": Kind(_out_of_memory, of_job=True, on_cluster="signal"),
    "ContainerFrozen": Kind(_freeze_container, LONG, of_job=True, on_cluster="freezer"),
    "PowerCut": Kind(_power_cut, LONG, of_nodes=True, on_cluster="node", spares_program=True),
    "NodeFrozen": Kind(_freeze_nodes, LONG, of_nodes=True, on_cluster="freezer", spares_program=True),
    "KubeletStops": Kind(_stop_kubelets, LONG, of_nodes=True, on_cluster="signal", spares_program=True),
    "CutOff": Kind(_cut_off_all, LONG, of_nodes=True, on_cluster="packets"),
    "CutOffButStorage": Kind(_cut_off_but_storage, LONG, of_nodes=True, on_cluster="packets"),
    "CutOutwards": Kind(_cut_outwards, LONG, of_nodes=True, on_cluster="packets"),
    "CutFromOperator": Kind(_cut_from_operator, LONG, of_nodes=True, on_cluster="packets", spares_program=True),
    "CutFromEachOther": Kind(_cut_from_each_other, LONG, of_nodes=True, on_cluster="packets"),
    "CutFromApi": Kind(_cut_from_api, LONG, of_nodes=True, on_cluster="packets", spares_program=True),
    "Cordon": Kind(_cordon, LONG, of_nodes=True, on_cluster="kubectl", spares_program=True),
    "Drain": Kind(_drain, LONG, of_nodes=True, on_cluster="kubectl", spares_program=True),
    "NodeRemoved": Kind(_take_off, LONG, (0.0, 120.0), of_nodes=True, spares_program=True),
    "StorageStalls": Kind(_stall_storage, LONG, of_job=True),
    "StorageLags": Kind(_lag_storage, LONG, (1.0, 5.0, 30.0), of_job=True),
    "StorageFull": Kind(_fill_storage, SHORT, of_job=True),
    "CheckpointRemoved": Kind(_remove_newest, of_job=True, on_cluster="files"),
    "ShardLost": Kind(_lose_shard, of_job=True, on_cluster="files"),
    "ApiAway": Kind(_api_away, LONG, on_cluster="process", spares_program=True, spares_training=True),
    "ApiSlow": Kind(
        _of_way(_slow, _slow_no_more),
        LONG,
        (0.5, 2.0, 8.0),
        on_cluster="proxy",
        spares_program=True,
        spares_training=True,
    ),
    "ApiRefuses": Kind(
        _of_way(_refuse, _refuse_no_more),
        SHORT,
        (409.0, 429.0, 500.0, 503.0),
        on_cluster="proxy",
        spares_program=True,
        spares_training=True,
    ),
    "AnswersLost": Kind(
        _of_way(lambda way, f: way.loses_answers.add(f.resource), lambda way, f: way.loses_answers.discard(f.resource)),
        SHORT,
        on_cluster="proxy",
        spares_program=True,
        spares_training=True,
    ),
    "WatchLags": Kind(
        _lag_and_reopen, LONG, (0.5, 3.0, 20.0), on_cluster="proxy", spares_program=True, spares_training=True
    ),
    "WatchesEnd": Kind(_end_watches, on_cluster="proxy", spares_program=True, spares_training=True),
    "WatchesSilent": Kind(
        _silence_watches, LONG, spares_program=True, spares_training=True, lingers_seconds=READ_TIMEOUT_SECONDS
    ),
    "PingsLost": Kind(_roughen, LONG, (0.05, 0.2, 0.4), spares_program=True, spares_training=True),
    "HistoryForgotten": Kind(_forget_history, spares_program=True, spares_training=True),
    "LeaderKilled": Kind(_kill_leader, on_cluster="signal", spares_program=True, spares_training=True),
    "OperatorsKilled": Kind(_kill_all, on_cluster="signal", spares_program=True, spares_training=True),
    "LeaderCutOff": Kind(_cut_leader, LONG, on_cluster="packets", spares_program=True, spares_training=True),
    "LeaderPaused": Kind(_pause_leader, LONG, on_cluster="signal", spares_program=True, spares_training=True),
    "Suspended": Kind(_suspend, LONG, of_job=True, on_cluster="kubectl", spares_program=True),
    "SaveAsked": Kind(_ask_to_save, of_job=True, spares_program=True, spares_training=True),
    "NodesAvoided": Kind(_avoid_nodes, LONG, of_job=True, spares_program=True),
    "JobEdited": Kind(
        _edit, LONG, (90.0, 99.0), of_job=True, on_cluster="kubectl", spares_program=True, spares_training=True
    ),
    "JobReplaced": Kind(_replace_job, of_job=True, on_cluster="kubectl", spares_program=True),
    "RecordDeleted": Kind(_delete_record, of_job=True, spares_program=True),
    "NodeSick": Kind(_sicken, LONG, (31.0, 48.0, 63.0, 79.0), of_nodes=True, on_cluster="files", spares_program=True),
    "NodeWithheld": Kind(_withhold, LONG, of_nodes=True, on_cluster="kubectl", spares_program=True),
    "ClockSteps": Kind(
        _step_clock, (0.0, 0.0), (-3600.0, -5.0, 5.0, 3600.0), spares_program=True, spares_training=True
    ),
}


def begin(life: Life, fault: Fault) -> Undo | None:
    """Make a fault now; returns what ends it.

    Raises:
        MissedError: there is nothing that it could hit: nobody leads, or the job is yet to come, or has ended and this
            does not begin it anew.
    """
    if fault.job and (not life.knows(fault.job) or (fault.kind != "JobReplaced" and life.has_ended(fault.job))):
        raise MissedError
    return KINDS[fault.kind].does(life, fault)


# Kinds that meet in one matter: what one of them begins another one makes worse.
THEMES: Mapping[str, Sequence[str]] = {
    "operator": [name for name, kind in KINDS.items() if kind.spares_training],
    "views": [
        *("WatchLags", "WatchesEnd", "WatchesSilent", "HistoryForgotten", "AnswersLost", "ApiRefuses", "LeaderKilled"),
        *("PodDeleted", "PodForceDeleted", "RankKilled", "Suspended", "JobReplaced"),
    ],
    "leaders": [
        *("LeaderKilled", "LeaderPaused", "LeaderCutOff", "OperatorsKilled", "ApiAway"),
        *("RankKilled", "PodDeleted", "PowerCut", "CutFromOperator", "CutOff"),
    ],
    "storage": [
        *("StorageStalls", "StorageLags", "StorageFull", "CheckpointRemoved", "ShardLost"),
        *("RankKilled", "PodDeleted", "Suspended", "CutOff", "CutFromOperator", "LeaderKilled"),
    ],
    "partitions": [
        *("CutOff", "CutOffButStorage", "CutOutwards", "CutFromOperator", "CutFromEachOther", "CutFromApi"),
        *("PingsLost", "NodeFrozen", "ContainerFrozen", "RankKilled", "LeaderKilled", "StorageStalls"),
    ],
    "machines": [
        *("PowerCut", "NodeFrozen", "KubeletStops", "NodeSick", "NodeWithheld", "Cordon", "Drain", "OutOfMemory"),
        *("NodeRemoved", "RankKilled", "LeaderKilled"),
    ],
    "people": [
        *("Suspended", "JobEdited", "JobReplaced", "Cordon", "Drain", "NodeWithheld", "PodDeleted", "PodForceDeleted"),
        *("CheckpointRemoved", "ApiAway", "LeaderKilled", "RecordDeleted", "SaveAsked", "NodesAvoided"),
    ],
}


def draw(
    random: Random, at: float, jobs: Sequence[str], kinds: Sequence[str] = tuple(KINDS), aimed: float = 0.0
) -> Fault:
    """A fault at random; of those that hit nodes this share hits the nodes of a job."""
    name = random.choice(kinds)
    kind = KINDS[name]
    seconds = round(random.uniform(*kind.seconds), 1)
    if seconds and random.random() < 0.1:
        seconds = FOR_EVER
    return Fault(
        at=round(at, 2),
        kind=name,
        job=random.choice(jobs) if kind.of_job or (aimed and kind.of_nodes and random.random() < aimed) else "",
        number=random.randrange(24),
        count=random.choice((1, 1, 1, 1, 2, 3, 4, 5, 6, 8)),
        seconds=seconds,
        amount=random.choice(kind.amounts),
    )


# What one node of those that there are can have for good: the jobs have to get on without it.
_FOR_GOOD = ("PowerCut", "NodeFrozen", "CutOff", "CutOffButStorage", "CutFromOperator", "CutFromApi", "KubeletStops")


def draw_for_good(random: Random, at: float) -> Fault:
    """One that is never repaired."""
    return Fault(round(at, 2), random.choice(_FOR_GOOD), number=random.randrange(24), seconds=FOR_GOOD)


def _delete(life: Life, namespace: str, name: str, options: Mapping[str, Any]) -> None:
    """A person deletes a pod, which may be gone by then."""
    with contextlib.suppress(ApiError):
        life.server.delete(Where("pods", namespace, name, ""), options)


def each(things: Iterable[Any], change: Callable[[Any], object]) -> Undo:
    """Do this to all of them, later."""

    def undo() -> None:
        for thing in things:
            change(thing)

    return undo
