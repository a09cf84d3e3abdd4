"""Who waits, for what, and for how long: the queue's order, and that no wait goes on without a word.

What is promised is in docs/queueing.md and docs/troubleshooting.md. Judged is what is written: records, and what people
are told. Troubles of the API server and the operator excuse everybody while they last, and for as long as the bound
afterwards.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from muster.api.fleetpolicy import Queueing
from muster.api.gang import MAX_SHORT_ESTIMATES
from muster.api.trainingjob import Checkpoint
from muster.placement.reasons import INSUFFICIENT_NODES, TOPOLOGY_UNSATISFIED
from muster.queueing.limits import BEHIND_IN_QUEUE
from muster.queueing.preemption import WAITING_FOR_PREEMPTION
from muster.record.attempts import ASSEMBLY_TIMED_OUT
from muster.record.preemptions import PREEMPTED
from muster.recovery.budgets import BACK_OFF_LIMIT_SECONDS
from muster.status.report import ASSEMBLING
from muster.world.views import JOB_UID_LABEL
from simulate.apiserver import Key, Object
from simulate.machines import Machine
from simulate.surroundings import Surroundings
from simulate.violation import Hold

LOOK_SECONDS = 20.0
# A plan is made every 15 s at the latest, another replica leads after as long, and a status is written at once.
TOLD_SECONDS = 60.0
# What a start waits for is named after a minute (`muster.lifecycle.start_wait`).
NAMED_SECONDS = 120.0
# Late evidence waits for launchers that do not answer, until they are given up.
SETTLED_SECONDS = 600.0
# By a clock that has stepped a pause ends after the longest one there is (`muster.recovery.holds`).
STEPPED_SECONDS = 3600.0
# Nodes that are free and sound are used by the first who waits for so many.
USED_SECONDS = 150.0
# A job whose node is taken away begins to leave it within so many, whatever else it has to settle first.
LEFT_SECONDS = 150.0
# From a plan to its last write: what gangs take meanwhile in place of lost nodes the plan may have had for others.
WRITTEN_SECONDS = 2.0
# Pods that end have their grace of 30 s.
PODS_END_SECONDS = 30.0
_FOR_NODES = frozenset({INSUFFICIENT_NODES, TOPOLOGY_UNSATISFIED, BEHIND_IN_QUEUE, WAITING_FOR_PREEMPTION})


class _Start(NamedTuple):
    """Where a start is; it is counted from the time in the record, which is later once old ranks are proved dead."""

    attempt: int
    time: str
    has_gone: bool


class Waits:
    """Looks at those who wait.

    Attributes:
        priority_of: of a job, by namespace and name.
        limited: namespaces with a limit of their own: who is behind there may be so because of that.
    """

    def __init__(self, around: Surroundings, machines: Mapping[str, Machine], hold: Hold) -> None:
        self._around = around
        self._machines = machines
        self._hold = hold
        self.priority_of: Callable[[Key], int] = lambda _: 0
        self.limited: Collection[str] = ()
        self._is_quiet = False
        self._quiet_since = 0.0
        self._is_on = False
        self._clear_since = 0.0  # no trouble of the operator since then
        self._queued: dict[str, float] = {}  # uid -> since when it is told to wait for nodes
        self._attempts: dict[str, tuple[_Start, float]] = {}  # uid -> what it is at, and since when
        self._states: dict[str, tuple[str, float]] = {}  # uid -> reason that it is told, and since when
        self._records: dict[str, Object] = {}
        self._leaves: dict[str, tuple[Object, float]] = {}
        self._held: dict[str, tuple[str, float]] = {}  # uid -> the time in the record of a hold, and since when
        self._replaced: list[tuple[float, set[str]]] = []  # when nodes were taken in place of lost ones, and which
        self._charged: set[str] = set()  # namespaces that lost their place (`muster.queueing.charges`): not judged
        self._usable: dict[str, float] = {}  # uid of the first in the queue -> since when there are nodes for it
        self._deleted: dict[str, float] = {}  # nodes that are being deleted -> since when
        self._awaiting: dict[str, float] = {}  # uid -> since when others are said to give way to it
        self._blocked: dict[
            str, float
        ] = {}  # uid -> since when those have its nodes that owe them, and none is told to leave
        self._unserved: set[str] = set()  # preemptible jobs that gave way, and since then no other has got nodes
        self._left: dict[str, set[str]] = {}  # uid -> nodes that it has left for others, while none has taken any
        self._lent: dict[str, set[str]] = {}  # uid -> nodes that it has held since some were lent to it

    def begin(self, priority_of: Callable[[Key], int], limited: Collection[str]) -> None:
        """Judge from now on."""
        self.priority_of, self.limited, self._is_on = priority_of, limited, True
        self._around.agenda.after(LOOK_SECONDS, self._inspect)

    def excuse(self, seconds: float) -> None:
        """For so long the operator may be behind."""
        self._clear_since = max(self._clear_since, self._around.agenda.now + seconds)

    def calm(self) -> None:
        """Trouble is over; whatever was an excuse is none any more."""
        self._clear_since, self._is_quiet = min(self._clear_since, self._around.agenda.now), True
        self._quiet_since = self._around.agenda.now

    # What is written.

    def job_written(self, before: Object | None, after: Object | None) -> None:
        value = after or before
        assert value is not None
        uid, now = value["metadata"]["uid"], self._around.agenda.now
        if after is None:
            for kept in (self._queued, self._states, self._usable, self._awaiting, self._blocked):
                kept.pop(uid, None)
            return
        status = after.get("status") or {}
        if not self._waits_for_nodes(after):
            self._queued.pop(uid, None)
        else:
            self._queued.setdefault(uid, now)
        if "stands behind" in _running(status).get("message", ""):
            self._charged.add(after["metadata"]["namespace"])
        if _running(status).get("reason") == WAITING_FOR_PREEMPTION:
            self._awaiting.setdefault(uid, now)
        elif uid in self._awaiting:
            self._inspect_awaiting(after)
            del self._awaiting[uid]
        told = f"{status.get('state', '')} {status.get('reason', '')} {_running(status).get('reason', '')}"
        if self._states.get(uid, ("", 0.0))[0] != told:
            self._states[uid] = told, now

    def _waits_for_nodes(self, job: Object) -> bool:
        """Whether it is told that it waits for nodes that others have, and for nothing else."""
        status = job.get("status") or {}
        reason = _running(status).get("reason")
        if not status.get("waiting") or reason not in _FOR_NODES or job["spec"].get("suspend"):
            return False
        return reason != BEHIND_IN_QUEUE or job["metadata"]["namespace"] not in self.limited

    def record_written(self, before: Object | None, after: Object | None) -> None:
        """A record has changed, or is gone."""
        value, now = after or before, self._around.agenda.now
        assert value is not None
        uid = value["spec"]["jobUid"]
        if after is None:
            for kept in (self._attempts, self._leaves, self._held, self._records, self._lent):
                kept.pop(uid, None)
            return
        self._records[uid] = after
        spec = after["spec"]
        if spec["reason"] == ASSEMBLY_TIMED_OUT and not spec["members"]:
            self._charged.add(after["metadata"]["namespace"])
        start = _Start(spec["attempt"], spec["time"], bool(spec.get("start")))
        if uid not in self._attempts or self._attempts[uid][0] != start:
            self._attempts[uid] = start, now
        leave = spec.get("evacuation")
        if leave is None:
            self._leaves.pop(uid, None)
        elif self._leaves.get(uid, ({}, 0.0))[0].get("since") != leave["since"]:
            self._leaves[uid] = leave, now
        held = spec.get("heldFailure")
        if held is None or held.get("over"):
            self._held.pop(uid, None)
        elif self._held.get(uid, ("", 0.0))[0] != held["since"]:
            self._held[uid] = held["since"], now
        self._gives_way(before, after)
        if _members(before):
            self._replaced = [each for each in self._replaced if now - each[0] <= WRITTEN_SECONDS]
            self._replaced.append((now, _nodes(after) - _nodes(before)))
        # A gang that waits for nodes in place of lost ones comes before all others, with none left as well.
        if self._is_on and not _members(before) and _nodes(after):
            self._in_order(after)
            self._takes_over(after)
            if spec.get("backfilled"):
                self._inspect_passing(after)
        if spec.get("backfilled"):
            self._lent.setdefault(uid, set()).update(_nodes(after))
        else:
            self._lent.pop(uid, None)

    def _gives_way(self, before: Object | None, after: Object) -> None:
        """A preemptible job gives way again only after another has got nodes since it did."""
        uid, job = after["spec"]["jobUid"], self._job(after["spec"]["jobUid"])
        if job is not None and not _is_preemptible(job) and _nodes(after) - _nodes(before):
            self._unserved.clear()
        if job is not None and self._is_on and after["spec"].get("backfilled"):
            self._inspect_asked(job, before, after)
        if job is not None and _members(before) and not _members(after) and after["spec"]["reason"] == PREEMPTED:
            is_vain = uid in self._unserved and self._is_quiet
            self._hold("no job gives way twice for nothing", not is_vain, f"{_name(job)}: {after['spec']['attempt']}")
            self._unserved.add(uid)
            self._left[uid] = _nodes(before)
            if not self._is_on or _is_preemptible(job) or before is None:
                return
            if before["spec"].get("backfilled"):
                self._inspect_passed(job, before, after)
            else:
                self._inspect_outranked(job, after)

    def _takes_over(self, gang: Object) -> None:
        """A gang gets nodes that others have left for it: it comes before them. So none leaves for the other in turn.

        What a job leaves may also go to one that passes others, or to a preemptible one.
        """
        uid, job, nodes = gang["spec"]["jobUid"], self._job(gang["spec"]["jobUid"]), _nodes(gang)
        self._left.pop(uid, None)
        if job is None or _is_preemptible(job) or gang["spec"].get("backfilled"):
            return
        for giver in [giver for giver, left in self._left.items() if left & nodes]:
            del self._left[giver]
            other = self._job(giver)
            if other is None or not self._is_quiet or self._is_charged(job) or self._is_charged(other):
                continue
            is_before = self._place(job, replaces=False) < self._place(other, replaces=False)
            self._hold("who gives way stands behind", is_before, f"{_name(other)} has left for {_name(job)}")

    def _inspect_passing(self, gang: Object) -> None:
        """A gang passes others: it has said when it ends, and its namespace may still be trusted. Or it returns to
        nodes that were lent to it, before its pods have left them: it passes none then, and keeps them for no time."""
        spec, namespace, name = gang["spec"], gang["metadata"]["namespace"], gang["metadata"]["name"]
        if not spec.get("backfillUntil"):
            returns = bool(self._lent.get(spec["jobUid"], set()) & _nodes(gang)) and not spec.get("lentUntil")
            self._hold("who passes has said when it ends", returns, f"{name}: {sorted(_nodes(gang))}")
            return
        gangs = (other for other in self._records.values() if other["metadata"]["namespace"] == namespace)
        short = sum(len(other["spec"].get("shortEstimates") or ()) for other in gangs)
        is_trusted = short < MAX_SHORT_ESTIMATES
        self._hold("who passes is trusted to end in time", is_trusted, f"{name}: {short} estimates were short")

    def _inspect_asked(self, job: Object, before: Object | None, after: Object) -> None:
        """A job that has passed others is asked to leave: its time is over, or a gang lacks a node."""
        leave = after["spec"].get("evacuation") or {"reason": ""}
        if leave["reason"] != PREEMPTED or before is None or before["spec"].get("evacuation"):
            return
        is_over = _lent_until(after["spec"]) <= datetime.fromisoformat(leave["since"])
        others = filter(self._lacks_nodes, self._around.server.all("trainingjobs"))
        replaces = any(_members(self._record(other)) for other in others)
        is_judged = self._clear_since <= self._around.agenda.now and not self._around.clock_has_stepped
        self._hold("who passes keeps what is lent to it", is_over or replaces or not is_judged, _name(job))

    def _inspect_passed(self, job: Object, before: Object, after: Object) -> None:
        """A job that has passed others gives its nodes back: one of them, which lacks nodes, is why."""
        lacking = [other for other in self._around.server.all("trainingjobs") if self._lacks_nodes(other)]
        place = self._place(job, replaces=False)
        first = [other for other in lacking if self._place(other, replaces=bool(_members(self._record(other)))) < place]
        is_judged = self._clear_since <= self._around.agenda.now and not any(map(self._is_charged, [job, *lacking]))
        self._hold("who passes gives way to those before only", bool(first) or not is_judged, _name(job))
        was, now = (len(gang["spec"].get("shortEstimates") or ()) for gang in (before, after))
        if now > was:
            spec = before["spec"]
            asked, until = map(datetime.fromisoformat, (spec["evacuation"]["since"], spec["backfillUntil"]))
            self._hold("an estimate is short only once it is over", asked > until, f"{_name(job)}: {asked}")

    def _inspect_outranked(self, job: Object, record: Object) -> None:
        """A job has left nodes of its own: one of a higher priority that lacks nodes is why, and not too often.

        A status may not say yet that it waits.
        """
        lacking = filter(self._lacks_nodes, self._around.server.all("trainingjobs"))
        higher = [other for other in lacking if self._priority(other) > self._priority(job)]
        is_behind = self._clear_since > self._around.agenda.now  # what it leaves for may have gone
        self._hold("priority preempts from above only", bool(higher) or is_behind, _name(job))
        count = len(record["spec"]["preemptions"])
        self._hold("no job is preempted too often", count <= Queueing().preemption.preemptions_per_day, _name(job))

    def _lacks_nodes(self, job: Object) -> bool:
        is_over = (job.get("status") or {}).get("completion") or job["spec"].get("suspend")
        return not is_over and not _is_complete(self._record(job))

    def _priority(self, job: Object) -> int:
        return self.priority_of((job["metadata"]["namespace"], job["metadata"]["name"]))

    def _in_order(self, gang: Object) -> None:
        """A gang has got its nodes: nobody who comes before it has waited for them."""
        spec = gang["spec"]
        job = self._job(spec["jobUid"])
        if job is None:
            return
        nodes, now = _nodes(gang), self._around.agenda.now
        replaced = set().union(*(taken for at, taken in self._replaced if now - at <= WRITTEN_SECONDS))
        place = self._place(job, replaces=False)
        for uid, since in self._queued.items():
            if uid == spec["jobUid"] or now - max(since, self._clear_since) < TOLD_SECONDS:
                continue
            other = self._job(uid)
            record = self._record(other) if other is not None else None
            if other is None or self._is_charged(job) or self._is_charged(other) or _is_preemptible(other):
                continue
            if (_is_preemptible(job) or spec.get("backfilled")) and now - self._awaiting.get(uid, now) < TOLD_SECONDS:
                continue  # it may have what is kept for those that cannot start
            if spec.get("backfilled") and other["spec"].get("queueing", {}).get("expectedDurationSeconds"):
                continue  # those pass first that have waited longest for their length
            if _is_complete(record) or place < self._place(other, replaces=bool(_members(record))):
                continue
            useless = set((record or {"spec": {}})["spec"].get("excludedNodes") or ()) | _nodes(record)
            wanted, had = nodes - useless, replaced - useless
            # One plan had nodes for both, and those of the first went to gangs that come before all.
            if wanted and len(had) < other["spec"]["nodes"] - len(_nodes(record)):
                text = (
                    f"{_name(job)} gets {sorted(wanted)}, for which {_name(other)} has waited for {now - since:.0f} s"
                )
                self._around.agenda.after(TOLD_SECONDS, functools.partial(self._still_waits, uid, since, now, text))

    def _still_waits(self, uid: str, since: float, then: float, text: str) -> None:
        """Whether somebody who was passed over then was so: one plan can have nodes for both."""
        waits = self._queued.get(uid) == since and self._clear_since <= then
        self._hold("who comes first is served first", not waits, f"{text}, and waits a minute later")

    def _place(self, job: Object, *, replaces: bool) -> tuple[bool, bool, int, str, str]:
        """In the queue, as docs/queueing.md has it."""
        return (
            _is_preemptible(job),
            not replaces,
            -self._priority(job),
            job["metadata"]["creationTimestamp"],
            _name(job),
        )

    # What goes on.

    def _inspect(self) -> None:
        nodes = (node["metadata"] for node in self._around.server.all("nodes"))
        deleted = [node["name"] for node in nodes if "deletionTimestamp" in node]
        self._deleted = {name: self._deleted.get(name, self._around.agenda.now) for name in deleted}
        jobs = list(self._around.server.all("trainingjobs"))
        for job in jobs:
            if not (job.get("status") or {}).get("completion"):
                self._inspect_one(job)
        if self._is_quiet:
            self._inspect_nodes()
        self._around.agenda.after(LOOK_SECONDS, self._inspect)

    def _inspect_one(self, job: Object) -> None:
        uid, status, record = job["metadata"]["uid"], job.get("status") or {}, self._record(job)
        name = _name(job)
        told, since = self._states.get(uid, ("", 0.0))
        seconds = self._lasted(since)
        running = _running(status).get("reason", "")
        self._hold("who waits is told why", bool(status.get("reason")) or seconds < TOLD_SECONDS, f"{name}: {status}")
        stepped = STEPPED_SECONDS if self._around.clock_has_stepped else 0.0
        for reason, bound in (
            ("AwaitingEvidence", SETTLED_SECONDS),
            ("CrashLoopBackOff", BACK_OFF_LIMIT_SECONDS + TOLD_SECONDS + stepped),
        ):
            self._hold(
                "a pause has an end", running != reason or seconds < bound, f"{name}: {told} for {seconds:.0f} s"
            )
        if uid in self._awaiting:
            self._inspect_awaiting(job)
        if record is None:
            return
        spec = record["spec"]
        attempt, (_, begun) = spec["attempt"], self._attempts[uid]
        seconds = self._lasted(begun)
        self._hold(
            "people are told of the attempt under way",
            status.get("attempt", 0) == attempt or seconds < TOLD_SECONDS,
            f"{name}: attempt {attempt} for {seconds:.0f} s, and told is {status.get('attempt')}",
        )
        if spec["members"] and not spec.get("start"):
            self._hold(
                "a start that takes long names what it waits for",
                seconds < NAMED_SECONDS or running not in ("", ASSEMBLING),
                f"{name}: attempt {attempt} has not begun after {seconds:.0f} s: {told}",
            )
        if uid in self._held:
            self._inspect_hold(name, job, self._held[uid][1])
        if uid in self._leaves:
            self._inspect_evacuation(name, job, *self._leaves[uid])
        elif spec.get("start"):
            self._inspect_deleted_nodes(name, record, begun)

    def _inspect_deleted_nodes(self, name: str, record: Object, begun: float) -> None:
        """Of a job that trains, and is not about to leave."""
        for node in _nodes(record) & self._deleted.keys():
            seconds = self._lasted(max(begun, self._deleted[node]))
            self._hold(
                "a node that is taken away for good is left",
                seconds < LEFT_SECONDS,
                f"{name} trains on {node}, which has been deleted for {seconds:.0f} s",
            )

    def _inspect_evacuation(self, name: str, job: Object, leave: Object, since: float) -> None:
        timeout = _save_timeout(job)
        seconds = self._lasted(since)
        stepped = STEPPED_SECONDS if self._around.clock_has_stepped else 0.0
        reason = (job.get("status") or {}).get("reason", "")
        self._hold(
            "a planned evacuation has an end",
            seconds < timeout + TOLD_SECONDS + stepped or reason not in ("", leave["reason"]),
            f"{name} is to leave {leave.get('nodes') or 'all nodes'} within {timeout} s, and has not for "
            f"{seconds:.0f} s: {reason}",
        )

    def _inspect_hold(self, name: str, job: Object, since: float) -> None:
        seconds, bound = self._lasted(since), job["spec"]["recovery"]["holdSeconds"]
        if self._around.clock_has_stepped:  # back, at most to a minute before the hold
            bound += bound + TOLD_SECONDS
        self._hold(
            "a failure is held no longer than asked for",
            seconds < bound + TOLD_SECONDS,
            f"{name} has been held for {seconds:.0f} s",
        )

    def _inspect_nodes(self) -> None:
        """In the quiet: the first who waits has fewer sound nodes left than it needs."""
        waiting = [
            job for job in map(self._job, self._queued) if job is not None and not _is_complete(self._record(job))
        ]
        if not waiting or any(map(self._is_charged, waiting)):
            self._usable.clear()
            return
        first = min(waiting, key=lambda job: self._place(job, replaces=bool(_members(self._record(job)))))
        uid, record = first["metadata"]["uid"], self._record(first)
        useless = set((record or {"spec": {}})["spec"].get("excludedNodes") or ())
        free = self.free_nodes() - useless
        needs = first["spec"]["nodes"] - len(_nodes(record))
        if len(free) < needs:
            self._usable.clear()
            self._inspect_blocked(first, needs, self.free_nodes(besides=self._owing(first)) - useless)
            return
        self._usable = {uid: self._usable.get(uid, self._around.agenda.now)}
        seconds = self._lasted(max(self._usable[uid], self._queued[uid]))
        self._hold(
            "nodes that are free are used by the first who waits",
            seconds < USED_SECONDS,
            f"{_name(first)} needs {needs}, and {sorted(free)} have been free "
            f"for {seconds:.0f} s: {first.get('status', {}).get('waiting')}",
        )

    def _inspect_blocked(self, first: Object, needs: int, nodes: Collection[str]) -> None:
        """The first who waits would have these nodes if those gave way that owe it theirs."""
        uid = first["metadata"]["uid"]
        if _is_preemptible(first) or len(nodes) < needs or uid in self._awaiting:
            self._blocked.clear()
            return
        self._blocked = {uid: self._blocked.get(uid, self._around.agenda.now)}
        seconds = self._lasted(max(self._blocked[uid], self._queued[uid]))
        self._hold(
            "no job waits behind those that owe it nodes",
            seconds < USED_SECONDS,
            f"{_name(first)} needs {needs}, would have {sorted(nodes)} for {seconds:.0f} s, and none gives way: "
            f"{first.get('status', {}).get('waiting')}",
        )

    def _owing(self, first: Object) -> set[str]:
        """The uids of jobs that owe their nodes to one that waits."""
        jobs = self._around.server.all("trainingjobs")
        return {job["metadata"]["uid"] for job in jobs if _is_preemptible(job) or self._has_passed(job, first)}

    def _has_passed(self, job: Object, first: Object) -> bool:
        """Whether a job holds nodes that were reserved for one that comes before it, and lent until now."""
        spec, replaces = (self._record(job) or {"spec": {}})["spec"], bool(_members(self._record(first)))
        is_over = replaces or _lent_until(spec) <= self._around.server.clock()
        place = self._place(first, replaces=replaces)
        return bool(spec.get("backfilled")) and is_over and place < self._place(job, replaces=False)

    def _inspect_awaiting(self, job: Object) -> None:
        """Other jobs give way to it: in the quiet it starts within one leave."""
        if not self._is_quiet:
            return
        leaving = filter(self._may_give_way, self._around.server.all("trainingjobs"))
        bound = max(map(_save_timeout, leaving), default=0) + PODS_END_SECONDS + USED_SECONDS
        seconds = self._lasted(max(self._awaiting[job["metadata"]["uid"]], self._quiet_since))
        self._hold(
            "who waits for others to give way starts within one leave",
            seconds < bound,
            f"{_name(job)} has waited for {seconds:.0f} s",
        )

    def _may_give_way(self, job: Object) -> bool:
        """Whether it is preemptible, or leaves for another job."""
        spec = (self._record(job) or {"spec": {"reason": ""}})["spec"]
        return _is_preemptible(job) or PREEMPTED in (spec["reason"], (spec.get("evacuation") or {}).get("reason"))

    def free_nodes(self, besides: Collection[str] = ()) -> set[str]:
        """Nodes of which nothing says that they are taken, or not sound.

        Args:
            besides: uids of jobs whose nodes count as free.
        """
        server = self._around.server
        sick = {
            health["metadata"]["name"]
            for health in server.all("nodehealths")
            if (health.get("status") or {}).get("state", "Healthy") not in ("Healthy", "Unknown")
            or (health.get("spec") or {}).get("lost")
            or ((health.get("spec") or {}).get("override") or {}).get("decision") == "Cordon"
        }
        taken = {
            pod["spec"].get("nodeName")
            for pod in server.all("pods")
            if pod["status"].get("phase") not in _ENDED and pod["metadata"]["labels"].get(JOB_UID_LABEL) not in besides
        }
        besides = {*besides, *self._ended_jobs()}  # the records of these name their nodes for ever
        for gang in server.all("gangs"):
            unfenced_workers = gang["spec"].get("unfencedWorkers") or ()
            taken |= {unfenced_worker.get("node") for unfenced_worker in unfenced_workers}
            if gang["spec"]["jobUid"] not in besides:
                taken |= _nodes(gang)
        sound = {name for name, machine in self._machines.items() if machine.in_touch and machine.is_ready}
        return sound - sick - taken

    def _ended_jobs(self) -> set[str]:
        jobs = self._around.server.all("trainingjobs")
        return {job["metadata"]["uid"] for job in jobs if (job.get("status") or {}).get("completion")}

    def _is_charged(self, job: Object) -> bool:
        return job["metadata"]["namespace"] in self._charged

    def _lasted(self, since: float) -> float:
        """For how long something has, while the operator had no trouble."""
        return self._around.agenda.now - max(since, self._clear_since)

    def _job(self, uid: str) -> Object | None:
        return next((job for job in self._around.server.all("trainingjobs") if job["metadata"]["uid"] == uid), None)

    def _record(self, job: Object) -> Object | None:
        return self._records.get(job["metadata"]["uid"])


_ENDED = ("Succeeded", "Failed")


def _name(job: Object) -> str:
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"


def _is_preemptible(job: Object) -> bool:
    return bool((job["spec"].get("queueing") or {}).get("preemptible"))


def _save_timeout(job: Object) -> int:
    checkpoint = job["spec"].get("checkpoint") or {}
    return int(checkpoint.get("saveTimeoutSeconds", Checkpoint().save_timeout_seconds))


def _running(status: Mapping[str, Any]) -> Mapping[str, str]:
    """The condition of this type."""
    return next((condition for condition in status.get("conditions") or () if condition["type"] == "Running"), {})


def _members(gang: Object | None) -> list[Object]:
    return list(gang["spec"]["members"]) if gang is not None else []


def _nodes(gang: Object | None) -> set[str]:
    return {member["node"] for member in _members(gang) if member.get("node")}


def _is_complete(gang: Object | None) -> bool:
    """Whether it has all nodes that it needs."""
    return bool(_members(gang)) and all(member.get("node") for member in _members(gang))


def _lent_until(spec: Object) -> datetime:
    """Until when a job that has passed others keeps its nodes, by its record; for no time if it does not say."""
    return datetime.fromisoformat(spec["lentUntil"]) if spec.get("lentUntil") else datetime.min.replace(tzinfo=UTC)
