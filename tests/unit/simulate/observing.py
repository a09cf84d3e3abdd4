"""A fleet that an operator of profile observe looks after, with faults at random, for as long as a test wants.

The FleetPolicy asks for all that the profile leaves out. What only a real API server brings about this does not see:
tests/integration/install/test_profiles.py reads the audit log of one.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from muster.api.installation import InstallationProfile
from muster.api.rights import granted
from simulate.fault import MissedError
from simulate.faults import KINDS, begin, draw
from simulate.life import POLICY, Life

# What happens to machines, to the operator and on the way to the API server: no job is there to hit.
WITHOUT_JOBS = [name for name, kind in KINDS.items() if not kind.of_job]
LONGEST_FAULT_SECONDS = 1800.0
ASKED_FOR = {
    "health": {"enforcement": "Nodes", "nodeCondition": True, "budgets": [], "repair": {"actions": ["Replace"]}},
    "preflight": {"profile": "Quick"},
}

# The methods of a verb; one that is not here reads.
METHODS = {"create": {"POST"}, "update": {"PUT"}, "patch": {"PATCH"}, "delete": {"DELETE"}}
WRITES = {
    (method, right.resource)
    for grant in granted(InstallationProfile.OBSERVE)
    for rule in grant.rules
    for right in rule.rights()
    for method in METHODS.get(right.verb, ())
}


@contextmanager
def observed(seed: int, hours: float, faults_per_hour: float) -> Iterator[Life]:
    """A life of so many hours, with 8 nodes."""
    life = Life(seed, profile=InstallationProfile.OBSERVE)
    try:
        life.server.patch(POLICY, {"spec": ASKED_FOR}, "merge")
        chance = random.Random(seed)
        at = chance.expovariate(faults_per_hour)
        while at < hours:
            life.agenda.after(at * 3600, lambda at=at: _hit(life, chance, at * 3600))
            at += chance.expovariate(faults_per_hour)
        life.run(hours * 3600)
        yield life
    finally:
        life.close()


def _hit(life: Life, chance: random.Random, at: float) -> None:
    fault = draw(chance, at, [""], WITHOUT_JOBS)
    with suppress(MissedError):
        undo = begin(life, fault)
        if undo is not None:
            life.agenda.after(min(fault.seconds, LONGEST_FAULT_SECONDS), undo)


def writes(life: Life) -> set[tuple[str, str]]:
    """What the operator wrote, as verb and resource."""
    return {asked for asked in life.asked if asked[0] != "GET"}


def reasons(life: Life) -> set[str]:
    """Those of all Events."""
    return {event["reason"] for event in life.server.all("events")}
