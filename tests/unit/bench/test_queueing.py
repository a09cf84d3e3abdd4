"""The bench of the queue: its jobs are as published, its fleet gives no node twice, and its peers do what they are
named after."""

import pytest
from bench.queueing import shipped
from bench.queueing.cluster import (
    CHECKPOINT_SECONDS,
    RESTART_SECONDS,
    NodeSeconds,
    Policy,
    Run,
    Simulation,
    an_empty_cluster,
    simulate,
)
from bench.queueing.outcome import SHOWN_BY_PRIORITY, fairness, figures_of, percentile, summary, table
from bench.queueing.policies import Conservative, Easy, Estimates, Fifo, NoReservations, Oracle, Profile
from bench.queueing.published import KALOS, PHILLY, SEREN
from bench.queueing.shipped import ALL_NODES, Muster
from bench.queueing.workload import (
    CLUSTERS,
    DAY,
    GPUS_PER_NODE,
    WARM_UP_DAYS,
    WORKLOADS,
    Job,
    draw,
    most_work,
    published_classes,
    quantile,
)

EVERY_POLICY = [
    Muster,
    lambda: Muster(Estimates(2), by_priority=True),
    Fifo,
    NoReservations,
    lambda: Easy(1),
    lambda: Easy(2),
    lambda: Easy(2, by_priority=True),
    lambda: Conservative(2),
    Oracle,
]
HOUR = 3600.0
A_DAY = 1.0


def a_job(name: str, nodes: int, hours: float, arrival: float = 0.0, **changes: object) -> Job:
    return Job(name, "team", arrival, nodes, hours * HOUR, **({"estimate_seconds": hours * HOUR} | changes))  # type: ignore[arg-type]


def starts(policy: Policy, *jobs: Job, nodes: int = 8) -> dict[str, float]:
    """When each job had its nodes for the first time, in hours."""
    runs = simulate(policy, jobs, nodes, A_DAY, None).runs
    return {run.job.name: round(run.first_start / HOUR, 2) for run in runs if run.first_start is not None}


# Six of eight nodes are busy for four hours. `wide` needs all; behind it are two jobs of one node.
BLOCKED = (
    a_job("busy", 6, 4),
    a_job("wide", 8, 1, arrival=1),
    a_job("short", 1, 3, arrival=2),
    a_job("long", 1, 9, arrival=3),
)


def test_first_in_first_out_lets_no_job_pass() -> None:
    assert starts(Fifo(), *BLOCKED) == {"busy": 0, "wide": 4, "short": 5, "long": 5}


def test_without_reservations_every_job_passes() -> None:
    assert starts(NoReservations(), *BLOCKED) == {"busy": 0, "short": 0, "long": 0, "wide": 9}


def test_easy_lets_a_job_pass_that_ends_before_the_first_could_start() -> None:
    assert starts(Easy(1), *BLOCKED) == {"busy": 0, "short": 0, "wide": 4, "long": 5}


def test_easy_lets_a_job_pass_that_leaves_the_first_enough_nodes() -> None:
    jobs = (a_job("busy", 6, 4), a_job("wide", 7, 1, arrival=1), *BLOCKED[2:])
    assert starts(Easy(1), *jobs) == {"busy": 0, "short": 0, "long": 0, "wide": 4}
    two = (*jobs, a_job("longer", 1, 9, arrival=4))
    assert starts(Easy(1), *two)["wide"] == 4, "only one of the eight is left over"


def test_easy_believes_estimates() -> None:
    busy, wide, _, long = BLOCKED
    too_long = a_job("short", 1, 3, arrival=2, estimate_seconds=5 * HOUR)
    assert starts(Easy(1), busy, wide, too_long, long) == {"busy": 0, "wide": 4, "short": 5, "long": 5}
    assert starts(Easy(5), *BLOCKED)["short"] == 0, "all are wrong by as much: busy is said to take 20 hours, short 15"


def test_easy_reserves_in_the_domain_that_is_complete_first() -> None:
    jobs = (
        a_job("left", 8, 2, level="rack"),
        a_job("right", 6, 9, level="rack"),
        a_job("rack", 8, 1, arrival=1, level="rack"),
        a_job("long", 2, 20, arrival=2),
    )
    assert starts(Easy(1), *jobs, nodes=16) == {"left": 0, "right": 0, "long": 0, "rack": 2}


# EASY protects the first of the queue alone: `next` is delayed by `late`, which conservative backfill does not allow.
SECOND = (
    a_job("busy", 5, 2),
    a_job("first", 4, 2, arrival=1),
    a_job("next", 7, 2, arrival=2),
    a_job("late", 1, 9, arrival=3),
    a_job("later", 1, 9, arrival=4),
)


def test_conservative_backfill_delays_no_job_of_the_queue() -> None:
    assert starts(Easy(1), *SECOND)["next"] == 9
    assert starts(Conservative(1), *SECOND) == {"busy": 0, "first": 2, "next": 4, "late": 0, "later": 6}


def test_a_profile_finds_the_first_gap() -> None:
    profile = Profile(0, 2, [(4, 3), (6, 3)])
    assert profile.earliest(2, 100, 0) == 0
    assert profile.earliest(5, 100, 0) == 4
    profile.reserve(5, 4, 1)
    assert profile.earliest(2, 5, 0) == 5, "all are taken from four to five"
    assert profile.earliest(2, 4, 0) == 0
    assert profile.earliest(9, 1, 0) == float("inf")


def test_the_oracle_stops_large_jobs_for_small_ones() -> None:
    assert starts(Oracle(), a_job("large", 8, 9), a_job("small", 1, 1, arrival=HOUR)) == {"large": 0, "small": 1}
    runs = simulate(Oracle(), [a_job("large", 8, 9), a_job("small", 1, 1, arrival=HOUR)], 8, A_DAY, None).runs
    assert [(run.ended, run.waited) for run in runs] == [(10 * HOUR, HOUR), (2 * HOUR, 0)]


def test_muster_reserves_what_a_waiting_job_could_use() -> None:
    assert starts(Muster(), *BLOCKED) == {"busy": 0, "wide": 4, "short": 5, "long": 5}
    plans = Muster()
    starts(plans, *BLOCKED)
    assert len(plans.plans) == len(plans.longest_steps) > 0
    assert all(longest <= whole for longest, whole in zip(plans.longest_steps, plans.plans, strict=True))


def test_preemptible_jobs_give_way_where_no_node_is_free() -> None:
    jobs = a_job("whole", 8, 9, preemptible=True), a_job("next", 1, 1, arrival=HOUR)
    assert starts(Muster(None, ALL_NODES), *jobs) == {"whole": 0, "next": 1}


def test_a_job_of_high_priority_takes_the_nodes_of_another() -> None:
    jobs = a_job("low", 8, 9), a_job("high", 8, 1, arrival=HOUR, high=True)
    assert starts(Muster(Estimates(1)), *jobs) == {"low": 0, "high": 9}
    policy = Muster(Estimates(1), by_priority=True)
    low, high = simulate(policy, jobs, 8, A_DAY, None).runs
    assert (high.first_start, high.ended) == (HOUR, 2 * HOUR)
    assert (low.ended, low.waited) == (10 * HOUR + RESTART_SECONDS, HOUR)
    assert policy.preempted == {"low": [HOUR]}


def test_a_job_of_high_priority_preempts_no_other_of_high_priority() -> None:
    jobs = a_job("first", 8, 9, high=True), a_job("next", 8, 1, arrival=HOUR, high=True)
    assert starts(Muster(Estimates(1), by_priority=True), *jobs) == {"first": 0, "next": 9}


def test_a_job_has_its_nodes_for_a_while_before_it_is_preempted() -> None:
    soon, later = a_job("soon", 8, 1, arrival=300, high=True), a_job("later", 8, 1, arrival=900)
    assert starts(Muster(Estimates(1), by_priority=True), a_job("low", 8, 9), soon, later)["soon"] == 0.25


def test_a_job_is_preempted_three_times_a_day() -> None:
    high = [a_job(f"high-{hour}", 8, 1, arrival=hour * HOUR, high=True) for hour in (1, 3, 5, 7)]
    policy = Muster(Estimates(1), by_priority=True)
    begun = starts(policy, a_job("low", 8, 14), *high)
    assert [round(begun[job.name]) for job in high] == [1, 3, 5, 17]
    assert policy.preempted == {"low": [HOUR, 3 * HOUR, 5 * HOUR]}


def test_easy_by_priority_changes_the_order_alone() -> None:
    jobs = a_job("low", 8, 9), a_job("old", 8, 1, arrival=1), a_job("high", 8, 1, arrival=HOUR, high=True)
    assert starts(Easy(1), *jobs) == {"low": 0, "old": 9, "high": 10}
    assert starts(Easy(1, by_priority=True), *jobs) == {"low": 0, "high": 9, "old": 10}


def test_waits_by_priority_are_shown_where_a_queue_preempts() -> None:
    jobs = draw("kalos", 1, 64, 2, 0.9)

    def headings(policy: Policy) -> set[object]:
        figures = figures_of(simulate(policy, jobs, 64, 2, None), policy, 2)
        return {column.header for column in table("", {policy.name: summary([figures])}).columns}

    assert headings(Muster(Estimates(2), by_priority=True)) - headings(Easy(2)) == {*SHOWN_BY_PRIORITY.values()}


@pytest.mark.parametrize("make", [Muster, lambda: Muster(Estimates(2)), lambda: Muster(None, ALL_NODES)])
def test_a_plan_of_the_first_jobs_starts_what_the_whole_plan_starts(
    make: type[Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = draw("kalos", 2, 64, 4, 0.9, required=0.5)

    def begun(first: int) -> list[float | None]:
        monkeypatch.setattr(shipped, "FIRST_JOBS", first)
        return [run.first_start for run in simulate(make(), jobs, 64, 4, 2).runs]

    assert begun(2) == begun(len(jobs))


@pytest.mark.parametrize("make", EVERY_POLICY)
def test_node_time_is_conserved_and_all_work_is_done(make: type[Policy]) -> None:
    """A node that was given twice would stop the simulation."""
    jobs = draw("kalos", 3, 64, 4, 0.9, required=0.5)
    simulation = Simulation(an_empty_cluster(64), make(), jobs, 4, failures=3)
    simulation.run()
    seconds = simulation.cluster.seconds
    assert seconds.working + seconds.stalled + seconds.free + seconds.down == pytest.approx(64 * 4 * DAY)
    assert simulation.cluster.failures > 0
    assert len(simulation.cluster.free) + len(simulation.cluster.down) == 64
    for run in simulation.runs:
        assert run.ended is not None
        assert run.ended >= run.job.arrival + run.waited + run.job.seconds - 1


def test_the_same_seed_gives_the_same_figures() -> None:
    def figures(seed: int) -> dict[str, float]:
        jobs = draw("kalos", seed, 64, 2, 0.9)
        return figures_of(simulate(Easy(2), jobs, 64, 2, seed), None, 2)

    assert figures(1) == figures(1) != figures(2)


def test_a_failure_costs_the_work_since_the_last_checkpoint() -> None:
    job = a_job("job", 2, 10)
    simulation = Simulation(an_empty_cluster(8), Fifo(), [job], A_DAY, None)
    moment = 2.5 * CHECKPOINT_SECONDS
    simulation._at(moment, 2, "n0000")
    simulation.run()
    (run,) = simulation.runs
    assert simulation.cluster.lost == 2 * 0.5 * CHECKPOINT_SECONDS
    assert run.ended == job.seconds + 0.5 * CHECKPOINT_SECONDS + 300, "and a restart, on another node at once"


def test_most_work_is_what_jobs_could_do_from_their_arrival_on() -> None:
    jobs = (a_job("whole", 8, 12), a_job("long", 1, 30), a_job("late", 7, 3, arrival=23 * HOUR))
    assert most_work(jobs, 8, DAY) == (8 * 12 + 24 + 7) * HOUR
    assert most_work(jobs, 8, 2 * DAY) == (8 * 12 + 30 + 7 * 3) * HOUR


def test_most_work_is_no_more_than_all_nodes_do() -> None:
    jobs = (a_job("whole", 8, 12), a_job("long", 1, 30), a_job("late", 8, 3, arrival=22 * HOUR))
    assert most_work(jobs, 8, 12 * HOUR) == 8 * 12 * HOUR
    assert most_work(jobs, 8, DAY) == (8 * 12 + 22 + 8 * 2) * HOUR


@pytest.mark.parametrize("failures", [None, 3])
@pytest.mark.parametrize("load", [0.7, 1.3])
@pytest.mark.parametrize("make", EVERY_POLICY)
def test_no_queue_does_more_than_is_possible(make: type[Policy], load: float, failures: int | None) -> None:
    jobs = draw("kalos", 3, 64, 4, load)
    simulation = simulate(make(), jobs, 64, 4, failures)
    assert 0 < simulation.cluster.done <= most_work(jobs, 64, (WARM_UP_DAYS + 4) * DAY)
    figures = figures_of(simulation, None, 4)
    assert figures["working_percent"] <= figures["possible_percent"]


def test_what_is_possible_is_counted_as_what_works() -> None:
    begin, end = WARM_UP_DAYS * DAY, (WARM_UP_DAYS + 4) * DAY
    jobs = [job for job in draw("kalos", 3, 64, 4, 0.9) if begin <= job.arrival]
    figures = figures_of(simulate(Easy(1), jobs, 64, 4, None), None, 4)
    assert figures["possible_percent"] == pytest.approx(100 * most_work(jobs, 64, end) / (64 * 4 * DAY))


def test_jobs_are_as_published() -> None:
    assert quantile(SEREN.shorter, 0.5) == pytest.approx(122, rel=0.1), "the published medians"
    assert quantile(KALOS.shorter, 0.5) == pytest.approx(124, rel=0.1)
    assert quantile(PHILLY.shorter, 0.5) == pytest.approx(874, rel=0.1)
    assert [each.nodes for each in published_classes("kalos")] == [1, 2, 4, 8, 16, 32, 64, 128]
    for name, cluster in CLUSTERS.items():
        place = 3  # eight GPUs
        of_jobs = (cluster.smaller[place] - cluster.smaller[place - 1]) / 100
        of_time = (cluster.time[place] - cluster.time[place - 1]) / 100
        mean = cluster.gpu_seconds * of_time / (cluster.jobs * of_jobs * GPUS_PER_NODE)
        one = published_classes(name)[0]
        assert sum(one.seconds) / len(one.seconds) > mean, f"{name}: those that are too short are left out"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_load_is_what_was_asked_for(workload: str) -> None:
    jobs = draw(workload, 1, 256, 3, 0.85)
    asked = 0.85 * 256 * (WARM_UP_DAYS + 3) * DAY
    assert sum(job.nodes * job.seconds for job in jobs) == pytest.approx(asked, rel=0.01)
    assert max(job.nodes for job in jobs) <= 128
    assert [job.arrival for job in jobs] == sorted(job.arrival for job in jobs)


def test_one_job_in_ten_has_a_high_priority() -> None:
    jobs = draw("kalos", 1, 256, 30, 0.85)
    assert sum(job.high for job in jobs) == pytest.approx(len(jobs) / 10, rel=0.2)


def test_fairness_is_one_where_all_namespaces_wait_alike() -> None:
    def a_run(namespace: str, waited: float) -> Run:
        return Run(Job("job", namespace, 0, 1, HOUR, HOUR), 0, waited=waited)

    assert fairness([a_run("a", HOUR), a_run("b", HOUR)]) == pytest.approx(1.0)
    assert fairness([a_run("a", 0), a_run("b", 8 * HOUR)]) == pytest.approx(10**2 / (2 * (1 + 81)))


def test_a_percentile_is_a_measured_value() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(100), 0.99) == 99
    assert NodeSeconds().working == 0
