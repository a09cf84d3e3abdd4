"""`python -m simulate.day FILE`: a day of a small fleet with faults, as Prometheus would have scraped it.

It is for the test of the alerts. The operator that ships runs in simulated time; what it shows Prometheus is noted each
minute, in the notation of `promtool test rules`. The faults and the minute of each stand in FAULTS. The same sources
make the same file; a later version of the operator need not make the same, so the file is recorded once and kept.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from muster.controller import jobfigures
from simulate import faults
from simulate.apiserver import Where
from simulate.fault import Fault
from simulate.hashes import fix_hashes
from simulate.life import POLICY, Life
from simulate.surroundings import key_of
from simulate.training import Script

SEED = 7
NODES = 6
MINUTES = 24 * 60
MINUTE = 60.0
# What the rules ask for, of what the leader shows. The agents are no Pods here, so nothing says whether they are Ready.
SHOWN = (
    "muster_breaker_open",
    "muster_checkpoint_concern",
    "muster_fleet_policy_unreadable",
    "muster_job_failed_timestamp_seconds",
    "muster_job_state",
    "muster_job_step_seconds",
    "muster_job_time_seconds",
    "muster_job_unsaved_seconds",
    "muster_job_waiting_since_timestamp_seconds",
    "muster_launchers",
    "muster_node_offence_score",
    "muster_reconcile_failures_total",
    "muster_workers_refused",
)
ENDLESS = 10**9
NO_PATTERN = {"stepPattern": "step (unclosed"}


def users(life: Life) -> None:
    """What the people of the fleet have submitted at its first minute."""
    daily = Script(total_steps=ENDLESS, step_seconds=10.0, checkpoint_every=60, save_seconds=20.0)
    life.submit("pretrain", 2, daily)
    hourly = Script(total_steps=ENDLESS, step_seconds=20.0, checkpoint_every=180, save_seconds=30.0)  # an hour
    life.submit("hourly", 1, hourly)
    life.submit("plain", 1, Script(total_steps=ENDLESS, step_seconds=20.0), launch={"mode": "Plain"}, checkpoint={})


def _fault(kind: str, minutes: float = 0.0, **of: Any) -> Callable[[Life], None]:
    """A fault of the simulator, and its end after so many minutes."""

    def does(life: Life) -> None:
        undo = faults.begin(life, Fault(life.agenda.now, kind, seconds=minutes * MINUTE, **of))
        if undo is not None and minutes:
            life.agenda.after(minutes * MINUTE, undo)

    return does


def _submit(name: str, nodes: int, script: Script | None = None, **spec: Any) -> Callable[[Life], None]:
    def does(life: Life) -> None:
        life.submit(name, nodes, script, **spec)

    return does


def _delete(name: str) -> Callable[[Life], None]:
    def does(life: Life) -> None:
        namespace, short = key_of(name)
        life.server.delete(Where("trainingjobs", namespace, short, ""), {"propagationPolicy": "Background"})

    return does


def _standby(life: Life) -> None:
    """A replica ends, and no node takes its pod for 40 minutes."""
    one = next(each for each in life.replicas if each is not life.leader)
    one.kill()
    life.replicas.remove(one)
    life.agenda.after(40 * MINUTE, life.start_replica)


def _both(life: Life) -> None:
    """Both replicas end, and no node takes their pods for ten minutes."""
    for one in list(life.replicas):
        one.kill()
    life.replicas.clear()
    life.agenda.after(10 * MINUTE, life.start_replica)
    life.agenda.after(10 * MINUTE, life.start_replica)


def _slow(life: Life) -> None:
    """A node slows its gang by half for two hours."""
    script = life.trainer_of("pretrain").script
    script.step_seconds *= 1.5
    life.agenda.after(120 * MINUTE, lambda: setattr(script, "step_seconds", script.step_seconds / 1.5))


def _policy(life: Life) -> None:
    """An administrator applies a FleetPolicy with a field that is none, past an API server without its schema."""
    life.server.patch(POLICY, {"spec": {"queueing": "strict"}}, "merge")
    life.agenda.after(30 * MINUTE, lambda: life.govern({}))


# At each minute what is done, and does it.
FAULTS: dict[int, tuple[str, Callable[[Life], None]]] = {
    10: ("a tenant submits a job with a step pattern that is none", _submit("typo", 1, progress=NO_PATTERN)),
    25: ("the node of a worker loses its power for 20 minutes", _fault("PowerCut", 20, job="pretrain")),
    60: ("the API server is away for ten minutes", _fault("ApiAway", 10)),
    80: (
        "a tenant submits a job whose program fails after three steps, with two restarts",
        _submit("broken", 1, Script(total_steps=ENDLESS, crashes_after=3), recovery={"maxRestarts": 2}),
    ),
    95: ("the leader is killed and starts anew", _fault("LeaderKilled")),
    110: ("a replica is gone for 40 minutes", _standby),
    160: ("both replicas are gone for ten minutes", _both),
    200: ("the tenant deletes the job with the step pattern", _delete("typo")),
    240: ("a rank hangs", _fault("RankHangs", job="pretrain")),
    270: ("a node is drained", _fault("Drain", 30, job="hourly")),
    300: ("the checkpoint directory is full for 150 minutes", _fault("StorageFull", 150, job="pretrain")),
    500: (
        "a tenant submits a job whose program fails after three steps, with many restarts",
        _submit("flaky", 1, Script(total_steps=ENDLESS, crashes_after=3), recovery={"maxRestarts": 1000}),
    ),
    580: ("the tenant deletes it", _delete("flaky")),
    600: ("a node slows its gang by half for two hours", _slow),
    780: ("a tenant submits a job that has to wait for two nodes", _submit("wide", 4, Script(total_steps=ENDLESS))),
    840: ("the tenant deletes it", _delete("wide")),
    860: ("five of six nodes lose their power for 90 minutes", _fault("PowerCut", 90, count=5)),
    1010: ("a FleetPolicy cannot be read for 30 minutes", _policy),
    1100: ("a user suspends a job for an hour", _fault("Suspended", 60, job="pretrain")),
    1200: ("a GPU falls off the bus of a node, which is rebooted", _fault("NodeSick", 20, job="pretrain", amount=79)),
    1290: ("it does so again", _fault("NodeSick", 20, job="pretrain", amount=79)),
    1380: ("a pod of a healthy job is deleted", _fault("PodDeleted", job="hourly")),
}


def recorded() -> dict[str, object]:
    """The day: faults by minute, and a value of each series for each minute, None where it was not there."""
    life = Life(SEED, nodes=NODES)
    life.is_large = True  # else launchers would say every second that nothing is new
    users(life)
    series: dict[str, list[float | None]] = defaultdict(lambda: [None] * MINUTES)
    for minute in range(MINUTES):
        if minute in FAULTS:
            FAULTS[minute][1](life)
        life.run(MINUTE)
        _scrape(life, series, minute)
    life.close()
    return {
        "faults": {str(minute): text for minute, (text, _) in FAULTS.items()},
        "series": {name: _notation(values) for name, values in sorted(series.items())},
    }


def _scrape(life: Life, series: dict[str, list[float | None]], minute: int) -> None:
    """Each replica shows whether it leads; figures of jobs and nodes are the leader's."""
    leader = life.leader
    for place, one in enumerate(life.replicas):
        if one.alive:
            series[f'muster_is_leader{{instance="{place}"}}'][minute] = float(one is leader)
    if leader is None:
        return
    # All replicas are in this process, and the one that was made last would be shown.
    jobfigures._collector.figures = leader.operator.reconciler._figures  # noqa: SLF001
    epoch = life.server.clock().timestamp() - MINUTE * (minute + 1)  # promtool's time begins at 0
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name in SHOWN:
                labels = ", ".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                is_time = sample.name.endswith("_timestamp_seconds")
                value = sample.value - epoch if is_time else sample.value
                series[f"{sample.name}{{{labels}}}"][minute] = round(value, 3)


def _notation(values: list[float | None]) -> str:
    """As promtool reads them: `1x3` is four times 1, `_x2` twice nothing, `stale` ends what was there."""
    tokens: list[str] = []
    place = 0
    while place < len(values):
        value, end = values[place], place
        while end + 1 < len(values) and values[end + 1] == value:
            end += 1
        count = end - place + 1
        if value is None and place and values[place - 1] is not None:
            tokens.append("stale")
            count -= 1
        if value is None:
            tokens += [f"_x{count}"] if count else []
        else:
            tokens.append(f"{value:.12g}x{count - 1}")
        place = end + 1
    return " ".join(tokens)


def main() -> None:
    """Record it into the file that is named."""
    Path(sys.argv[1]).write_text(json.dumps(recorded(), indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    fix_hashes("simulate.day")
    main()
