"""What jobs are charged for, from all that was ever written into their records: nothing twice, and nothing that was not
there.

Budgets count incidents (`muster.recovery.budgets`). So each incident is to be there once, and to go back to a fault of
the story; which one is not known, so as many are matched as can be: an incident that is left over was counted twice, or
for nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.api.gang import FaultClass
from muster.api.trainingjob import Recovery
from muster.record.incidents import MAX_INCIDENTS
from muster.recovery.budgets import APPLICATION_EXHAUSTED, HARDWARE_EXHAUSTED, NOT_OWN_DOING, OWN_DOING
from simulate.apiserver import Object
from simulate.fault import Fault, Kind
from simulate.surroundings import Surroundings
from simulate.violation import Hold

Incident = Mapping[str, Any]

# Until what has happened at one moment has been seen, and until the last of what follows from what has lasted.
SEEN_SECONDS = 300.0
SLOWLY_SEEN_SECONDS = 1500.0  # a hang, and a death that nobody tells the others
# What lasts may take the same worker again, on another node or after a restart; each takes its time.
AGAIN_SECONDS = 30.0
# A checkpoint is listed within so long, and what a node that lags sees later; what nobody has listed refunds nothing.
LISTED_SECONDS = 40.0
_DEFAULT = Recovery()
_BUDGETS: Mapping[str, tuple[Collection[FaultClass], str, int]] = {
    APPLICATION_EXHAUSTED: (OWN_DOING, "applicationRestartsPerDay", _DEFAULT.application_restarts_per_day),
    HARDWARE_EXHAUSTED: (NOT_OWN_DOING, "hardwareRestartsPerDay", _DEFAULT.hardware_restarts_per_day),
}
_SLOWLY_SEEN = frozenset({"RankHangs", "RankUnkillable"})


@dataclass(slots=True)
class _Charge:
    """An incident as the record has it now, and when it was first there."""

    at: float
    incident: Incident


@dataclass(slots=True)
class _Hit:
    """A fault that has hit, for as many incidents as may go back to it still.

    Attributes:
        seen_seconds: how long after its end it has been seen at the latest, by an operator without troubles.
        over: when it has been, if the operator has none.
        late: until when it may not have been, because of the operator's troubles or since nobody hears those who know.
    """

    fault: Fault
    kind: Kind
    begun: float
    seen_seconds: float
    over: float
    late: float
    left: int

    @property
    def until(self) -> float:
        """Whatever is charged later goes back to something else."""
        return max(self.over, self.late)


@dataclass(slots=True)
class _JobHistory:
    """What one job was charged, and when it saved."""

    charges: dict[int, _Charge] = field(default_factory=dict)  # by attempt
    saved: list[tuple[float, int]] = field(default_factory=list)  # when, step


class Trail:
    """All incidents of all jobs, by uid."""

    def __init__(self, around: Surroundings, hold: Hold) -> None:
        self._around = around
        self._hold = hold
        self._histories: dict[str, _JobHistory] = {}
        self._hits: list[_Hit] = []
        self._unseen: list[_Hit] = []  # those of them that may not have been seen yet
        self._troubled_until = 0.0  # the operator may be away until then, or deaf

    def published(self, uid: str, step: int) -> None:
        self._of(uid).saved.append((self._around.agenda.now, step))

    def fault(self, fault: Fault, kind: Kind) -> None:
        now, lasts = self._around.agenda.now, bool(fault.seconds)
        seen = SLOWLY_SEEN_SECONDS if fault.kind in _SLOWLY_SEEN else SEEN_SECONDS
        if fault.kind == "ContainerFrozen" or kind.of_nodes:
            self.excuse(fault.seconds)  # launchers there may have something to tell, and nobody hears it
        times = fault.count * (2 + int(min(fault.seconds, 1e6) / AGAIN_SECONDS)) if lasts else 1
        hit = _Hit(fault, kind, now, seen, now + fault.seconds + seen, self._troubled_until + seen, times)
        self._hits.append(hit)
        self._unseen.append(hit)

    def excuse(self, seconds: float) -> None:
        """For so long the operator may not be told, and charge what it has not seen yet afterwards."""
        now = self._around.agenda.now
        if now + seconds <= self._troubled_until:  # which all know that have not been seen yet
            return
        self._troubled_until = now + seconds
        self._unseen = [hit for hit in self._unseen if hit.until >= now]
        for hit in self._unseen:
            hit.late = max(hit.late, self._troubled_until + hit.seen_seconds)

    def calm(self) -> None:
        now = self._around.agenda.now
        self._troubled_until = min(self._troubled_until, now)
        for hit in self._hits:
            hit.late = min(hit.late, now + hit.seen_seconds)

    def repaired(self, fault: Fault) -> None:
        """It is over, which it was to be much later."""
        for hit in self._hits:
            if hit.fault is fault:
                hit.over = self._around.agenda.now + hit.seen_seconds

    def written(self, before: Object | None, after: Object) -> None:
        spec, name = after["spec"], after["metadata"]["name"]
        had = list((before or {"spec": {}})["spec"].get("incidents") or ())
        has = list(spec.get("incidents") or ())
        if before is None or had == has:
            self._hold("an incident is counted once", before is not None or not has, f"{name} begins with {has}")
            return
        known = {_identity(incident): incident for incident in had}
        new = [incident for incident in has if _identity(incident) not in known]
        kept = [incident for incident in has if _identity(incident) in known]
        grown = spec["attempt"] == before["spec"]["attempt"] + 1 and len(new) == 1
        is_next = not new or (grown and new[0]["attempt"] == before["spec"]["attempt"] and has[-1] is new[0])
        self._hold(
            "an incident is counted once",
            is_next and len(has) == len({incident["attempt"] for incident in has}),
            f"{name}: attempt {before['spec']['attempt']} is followed by {spec['attempt']} with "
            f"{_incident_text(new)} after {_incident_text(had)}",
        )
        gone = len(had) - len(kept)
        self._hold(
            "no incident is forgotten",
            gone == 0 or len(has) == MAX_INCIDENTS,
            f"{name}: of {_incident_text(had)} are left {_incident_text(kept)}",
        )
        for incident in kept:
            self._changed(name, known[_identity(incident)], incident)
        history = self._of(spec["jobUid"])
        for incident in has:
            charge = history.charges.get(incident["attempt"])
            if charge is None:
                history.charges[incident["attempt"]] = _Charge(self._around.agenda.now, incident)
            else:
                charge.incident = incident

    def _changed(self, name: str, had: Incident, has: Incident) -> None:
        """Late evidence can take the blame from the program, and not put it there."""
        may = had["faultClass"] == has["faultClass"] or had["faultClass"] in OWN_DOING
        self._hold(
            "late evidence takes blame from the program",
            may and (has.get("settled", False) or not had.get("settled", False)),
            f"{name}: {_incident_text([had])} has become {_incident_text([has])}",
        )

    # At the end.

    def judge(self, name: str) -> None:
        """Whether each incident of a job whose program is sound goes back to a fault of its own."""
        charges = list(self._of(self._around.job(name)["metadata"]["uid"]).charges.values())
        both = [charge for charge in charges if charge.incident["faultClass"] in {*OWN_DOING, *NOT_OWN_DOING}]
        self._match("a fault is charged once", name, both, [h for h in self._hits if not h.kind.spares_training])
        own = [charge for charge in charges if charge.incident["faultClass"] in OWN_DOING]
        programs = [hit for hit in self._hits if not hit.kind.spares_program]
        self._match("hardware uses up no restart of the program", name, own, programs)

    def _match(self, rule: str, name: str, charges: Iterable[_Charge], hits: Iterable[_Hit]) -> None:
        left = {id(hit): hit.left for hit in hits}
        about = [hit for hit in hits if hit.fault.job in ("", name) or hit.kind.of_nodes]
        for charge in sorted(charges, key=lambda charge: charge.at):
            could = [hit for hit in about if left[id(hit)] and hit.begun <= charge.at <= hit.until]
            self._hold(
                rule,
                bool(could),
                f"{name} at {charge.at:.1f}: {_incident_text([charge.incident])}, and no fault is left for it",
            )
            left[id(min(could, key=lambda hit: hit.until))] -= 1

    def ended(self, job: Object) -> None:
        """A job has just ended: who has used up a budget must have done so in view of what was truly saved."""
        reason = job["status"]["completion"]["reason"]
        if reason not in _BUDGETS:
            return
        classes, name, most = _BUDGETS[reason]
        history, now = self._of(job["metadata"]["uid"]), self._around.agenda.now
        directory = self._around.directories[job["metadata"]["uid"]]
        lag = max(directory.lag_seconds.values(), default=0.0)
        is_looked_for = (job["spec"].get("checkpoint") or {}).get("directory")  # else a program saves for itself alone
        there = {save.step for save in directory.whole().values()} if is_looked_for else ()
        saved = {step: at for at, step in history.saved if step in there}
        listed = [(at, step) for step, at in saved.items() if at < now - LISTED_SECONDS - lag]
        left = [
            charge.incident
            for charge in history.charges.values()
            if charge.incident["faultClass"] in classes
            and not any(at > charge.at and step > _furthest(charge.incident) for at, step in listed)
        ]
        budget = (job["spec"].get("recovery") or {}).get(name, most)
        self._hold(
            "who fails for a budget has used it up",
            len(left) > budget,
            f"{job['metadata']['name']} may be restarted {budget} times, and {len(left)} have not been refunded: "
            f"{_incident_text(left)}",
        )

    def _of(self, uid: str) -> _JobHistory:
        return self._histories.setdefault(uid, _JobHistory())


def _furthest(incident: Incident) -> int:
    return max(incident.get(name) or 0 for name in ("step", "checkpointStep", "resumedStep"))


def _identity(incident: Incident) -> tuple[int, str]:
    return incident["attempt"], incident["time"]


def _incident_text(incidents: Iterable[Incident]) -> str:
    return str(
        [f"{i['attempt']}: {i['reason']} {i['faultClass']} {i.get('message', '')[:100]}" for i in incidents][-4:]
    )
