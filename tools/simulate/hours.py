"""`python -m simulate.hours FILE`: three hours of a small fleet with faults, as Prometheus would have scraped it, for
the test of the alerts.

The operator that ships runs in simulated time; what it shows Prometheus is noted each minute, in the notation of
`promtool test rules`. The faults and the minute of each stand in FAULTS. The same sources make the same file; a later
version of the operator need not make the same, so the file is recorded once and kept.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from prometheus_client import REGISTRY

from muster.controller import jobfigures
from simulate.hashes import fix_hashes
from simulate.life import Life
from simulate.training import Script

SEED = 7
NODES = 6
MINUTES = 3 * 60
MINUTE = 60.0
# What the rules ask for, of what the leader shows.
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
    "muster_node_offence_score",
)
ENDLESS = 10**9


def users(life: Life) -> None:
    """What the people of the fleet have submitted at its first minute."""
    daily = Script(total_steps=ENDLESS, step_seconds=10.0, checkpoint_every=60, save_seconds=20.0)
    life.submit("pretrain", 2, daily)
    hourly = Script(total_steps=ENDLESS, step_seconds=20.0, checkpoint_every=180, save_seconds=30.0)  # an hour
    life.submit("hourly", 1, hourly)
    life.submit("plain", 1, Script(total_steps=ENDLESS, step_seconds=20.0), launch={"mode": "Plain"}, checkpoint={})


def _typo(life: Life) -> None:
    life.submit("typo", 1, progress={"stepPattern": "step (unclosed"})


def _broken(life: Life) -> None:
    life.submit("broken", 1, Script(total_steps=ENDLESS, crashes_after=3), recovery={"maxRestarts": 2})


def _dies(life: Life) -> None:
    node = _node_of(life, "pretrain")
    life.machines[node].cut_power()
    life.agenda.after(20 * MINUTE, life.machines[node].boot_up)


def _api(life: Life) -> None:
    life.api_is_up = False
    life.agenda.after(10 * MINUTE, lambda: setattr(life, "api_is_up", True))


def _leader(life: Life) -> None:
    if life.leader is not None:
        life.kill_replica(life.leader)


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


FAULTS: dict[int, tuple[str, Callable[[Life], None]]] = {
    10: ("a tenant submits a job with a step pattern that is none", _typo),
    25: ("the node of a worker loses its power for 20 minutes", _dies),
    60: ("the API server is away for ten minutes", _api),
    80: ("a tenant submits a job whose program fails after three steps", _broken),
    95: ("the leader is killed and starts anew", _leader),
    110: ("a replica is gone for 40 minutes", _standby),
    160: ("both replicas are gone for ten minutes", _both),
}


def _node_of(life: Life, name: str) -> str:
    return str(life.job(name)["status"]["nodes"][0])


def recorded() -> dict[str, object]:
    """The hours: faults by minute, and a value of each series for each minute, None where it was not there."""
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
    fix_hashes("simulate.hours")
    main()
