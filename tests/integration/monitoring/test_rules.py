"""The alerts, by Prometheus's own promtool: each fires when it should, and nothing fires beside it or before its
time."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.prometheus import programs

ROOT = Path(__file__).resolve().parents[3]
JOB = 'namespace="ns", job_name="llama"'
LEADER, STANDBY = ('muster_is_leader{instance="a"}', "1x1000"), ('muster_is_leader{instance="b"}', "0x1000")
DAYS = 86400
HEALTHY = (
    LEADER,
    STANDBY,
    ('muster_agent_write_errors_total{node="n1", reason="Refused"}', "0x1000"),
    ('muster_agent_write_errors_total{node="n2", reason="Refused"}', "0x1000"),
    ('muster_agent_write_errors_total{node="n1", reason="Unavailable"}', "0x99 0+1x10 10x890"),
    ('muster_agent_write_errors_total{node="n2", reason="Unavailable"}', "0x99 0+1x10 10x890"),
    ('muster_reports_total{code="200"}', "0+500x1000"),
    ('muster_reports_total{code="401"}', "0+5000x1000"),
    ('muster_reports_total{code="403"}', "0+5000x1000"),
    ('muster_workers_refused{instance="a", scope="Fleet"}', "0x1000"),
    ('muster_workers_refused{instance="b", scope="Fleet"}', "0x1000"),
    ('muster_workers_refused{instance="a", scope="Namespace"}', "400x1000"),
    ('muster_workers_refused{instance="a", scope="Unproven"}', "400x1000"),
    ('muster_launchers{instance="a"}', "100x1000"),
    ('muster_launchers{instance="b"}', "0x1000"),
    ('muster_reports_total{code="421"}', "0+5000x1000"),
    ('muster_reports_total{code="503"}', "0+5000x1000"),
    ('muster_history_writes_total{outcome="written"}', "0+1x1000"),
    ('muster_history_writes_total{outcome="failed"}', "0x99 0+1x5 5x895"),
    ('muster_history_writes_total{outcome="lost"}', "3x1000"),
    ("muster_history_waiting", "0x1000"),
    ('muster_history_unreadable{instance="a", configmap="muster-fleet-hours"}', "0x1000"),
    ('muster_certificate_expiry_timestamp_seconds{instance="a"}', f"{14 * DAYS}x1000"),
    ('process_resident_memory_bytes{instance="a"}', "1.7e9x1000"),
    ('muster_memory_limit_bytes{instance="a"}', "2.1e9x1000"),
    ('process_resident_memory_bytes{instance="b"}', "1.7e9x1000"),
    ('muster_memory_limit_bytes{instance="b"}', "0x1000"),
    ('muster_node_agents{state="Silent"}', "2x1000"),
    ('muster_node_agents{state="Ready"}', "98x1000"),
    ("muster_nodes_without_agent", "5x1000"),  # of a hundred and five
    ("muster_jobs_without_metrics", "0x1000"),
    ("muster_breaker_open", "0x1000"),
    ('muster_clock_ahead_seconds{instance="a"}', "4.9x9 3600x9 -2x900"),
    ("muster_fleet_policy_unreadable", "0x1000"),
    ('muster_admission_policy_missing{policy="muster-records"}', "0x99 1x5 0x895"),  # while an overlay is applied
    ('muster_definition_outdated{instance="b", resource="gangs"}', "0x99 1x3 0x895"),  # an upgrade
    ('muster_reconcile_failures_total{reason="Conflict"}', "0+1x1000"),
    ('muster_node_offence_score{node="n1"}', "1.6x1000"),
    (f'muster_job_state{{{JOB}, state="Running", reason="Training"}}', "1x1000"),
    (f'muster_job_time_seconds{{{JOB}, bucket="queued"}}', "90000x1000"),
    (f'muster_job_time_seconds{{{JOB}, bucket="compute"}}', "0+57x1000"),
    (f'muster_job_time_seconds{{{JOB}, bucket="restarting"}}', "0+3x1000"),
)

Series = tuple[tuple[str, str], ...]


def state(name: str, reason: str, values: str = "1x1000") -> tuple[str, str]:
    return f'muster_job_state{{{JOB}, state="{name}", reason="{reason}"}}', values


def errors_of_agent(number: int, reason: str, values: str) -> tuple[str, str]:
    return f'muster_agent_write_errors_total{{node="n{number}", reason="{reason}"}}', values


# alert, and a remark -> what makes it fire, the minute before which it must not, and the one at which it must
FIRES: dict[str, tuple[Series, int, int]] = {
    "MusterNoLeader": ((('muster_is_leader{instance="a"}', "1x9 0x900"), STANDBY), 11, 13),
    "MusterReplicaMissing": ((LEADER, ('muster_is_leader{instance="b"}', "0x9 stale")), 24, 26),
    "MusterLaunchersRefused": (
        (
            LEADER,
            STANDBY,
            ('muster_launchers{instance="a"}', "300x1000"),  # those of pods that no record names among them
            ('muster_workers_refused{instance="a", scope="Fleet"}', "0x60 100x900"),
            ('muster_namespace_workers_refused{instance="a", namespace="ns"}', "_x61 100x900"),
        ),
        65,
        67,
    ),
    "MusterWorkersRefused": (
        (
            LEADER,
            STANDBY,
            ('muster_launchers{instance="a"}', "0x1000"),
            ('muster_workers_refused{instance="a", scope="Fleet"}', "0x1000"),
            ('muster_workers_refused{instance="a", scope="Namespace"}', "0x60 100x900"),
            ('muster_namespace_workers_refused{instance="a", namespace="ns"}', "_x61 100x900"),
        ),
        65,
        67,
    ),
    "MusterLaunchersRefused, and none is heard": (
        (
            LEADER,
            STANDBY,
            ('muster_launchers{instance="a"}', "0x1000"),
            ('muster_workers_refused{instance="a", scope="Fleet"}', "2x1000"),
        ),
        4,
        6,
    ),
    "MusterHistoryLost": (
        (LEADER, STANDBY, ('muster_history_writes_total{outcome="lost"}', "0x9 1x900")),
        9,
        16,
    ),
    "MusterHistoryLost, unreadable": (
        (LEADER, STANDBY, ('muster_history_unreadable{instance="a", configmap="muster-fleet-hours"}', "0x9 1x900")),
        14,
        16,
    ),
    "MusterCertificateEndsSoon": (
        (LEADER, STANDBY, ('muster_certificate_expiry_timestamp_seconds{instance="a"}', f"{3 * DAYS + 3600}x1000")),
        74,
        77,
    ),
    "MusterMemoryNearLimit": (
        (
            LEADER,
            STANDBY,
            ('process_resident_memory_bytes{instance="a"}', "1e9x9 1.9e9x900"),
            ('muster_memory_limit_bytes{instance="a"}', "2.1e9x1000"),
        ),
        19,
        21,
    ),
    "MusterAgentsRefused": (
        (
            LEADER,
            STANDBY,
            *(errors_of_agent(number, "Refused", "0x9 0+1x900") for number in (1, 2)),
            errors_of_agent(3, "Refused", "0x1000"),
            *(errors_of_agent(number, "Unavailable", "0x1000") for number in (1, 2, 3)),
        ),
        34,
        37,
    ),
    "MusterAgentsCutOff": (
        (
            LEADER,
            STANDBY,
            *(errors_of_agent(number, "Unavailable", "0x9 0+1x900") for number in (1, 2)),
            errors_of_agent(3, "Unavailable", "0x1000"),
            *(errors_of_agent(number, "Refused", "0x1000") for number in (1, 2, 3)),
        ),
        34,
        37,
    ),
    "MusterJobFailed": ((LEADER, STANDBY, (f"muster_job_failed_timestamp_seconds{{{JOB}}}", "_x10 600x900")), 10, 12),
    "MusterReconcileFailing": (
        (LEADER, STANDBY, ('muster_reconcile_failures_total{reason="KeyError"}', "0+6x1000")),
        14,
        30,
    ),
    "MusterAdmissionPolicyMissing": (
        (LEADER, STANDBY, ('muster_admission_policy_missing{policy="muster-records"}', "0x9 1x900")),
        24,
        26,
    ),
    "MusterDefinitionsOutdated": (
        (LEADER, STANDBY, ('muster_definition_outdated{instance="b", resource="gangs"}', "0x9 1x900")),
        14,
        16,
    ),
    "MusterFleetPolicyUnreadable": ((LEADER, STANDBY, ("muster_fleet_policy_unreadable", "1x1000")), 4, 6),
    "MusterClockOff": ((LEADER, STANDBY, ('muster_clock_ahead_seconds{instance="a"}', "-6x1000")), 14, 16),
    "MusterBreakerHolds": ((LEADER, STANDBY, ("muster_breaker_open", "1x1000")), 9, 11),
    "MusterAgentsSilent": (
        (
            LEADER,
            STANDBY,
            ('muster_node_agents{state="Silent"}', "6x1000"),
            ('muster_node_agents{state="Ready"}', "94x1000"),
        ),
        14,
        17,
    ),
    "MusterAgentsMissing": (
        (
            LEADER,
            STANDBY,
            ('muster_node_agents{state="Silent"}', "0x1000"),
            ('muster_node_agents{state="Ready"}', "94x1000"),
            ('muster_nodes_without_agent{instance="a"}', "0x9 6x900"),
            ('muster_nodes_without_agent{instance="b"}', "0x1000"),
        ),
        39,
        42,
    ),
    "MusterJobsWithoutMetrics": ((LEADER, STANDBY, ("muster_jobs_without_metrics", "0x9 1x900")), 24, 27),
    "MusterNodeFlapping": ((LEADER, STANDBY, ('muster_node_offence_score{node="n1"}', "1.9x1000")), 9, 11),
    "MusterJobEttrLow": (
        (
            LEADER,
            STANDBY,
            state("Running", "Training"),
            (f'muster_job_time_seconds{{{JOB}, bucket="compute"}}', "0+40x1000"),
            (f'muster_job_time_seconds{{{JOB}, bucket="lostWork"}}', "0+20x1000"),
        ),
        150,
        175,
    ),
    "MusterStraggler": (
        (LEADER, STANDBY, state("Running", "Training"), (f"muster_job_step_seconds{{{JOB}}}", "1x199 1.3x800")),
        229,
        231,
    ),
    "MusterStepsStopped": ((LEADER, STANDBY, state("Running", "StepsStopped")), 4, 6),
    "MusterNoNewCheckpoint": (
        (LEADER, STANDBY, (f'muster_checkpoint_concern{{{JOB}, reason="NoNewCheckpoint"}}', "1x1000")),
        4,
        6,
    ),
    "MusterNoNewCheckpoint, never one": (
        (
            LEADER,
            STANDBY,
            state("Running", "NoCheckpointSeen", "_x10 1x1000"),
            (f"muster_job_unsaved_seconds{{{JOB}}}", "0+60x1000"),
        ),
        125,
        127,
    ),
    "MusterCheckpointSpaceLow": (
        (LEADER, STANDBY, (f'muster_checkpoint_concern{{{JOB}, reason="CheckpointSpaceLow"}}', "1x1000")),
        4,
        6,
    ),
    "MusterJobCrashLoop": (
        (
            LEADER,
            STANDBY,
            state("Recovering", "CrashLoopBackOff", "1 _ _ 1 _ _ 1 _ _ 1 _ _ 1 stale"),
            state("Running", "Training", "_ 1 1 _ 1 1 _ 1 1 _ 1 1 _ 1x100"),
        ),
        4,
        12,
    ),
    "MusterJobStalled": ((LEADER, STANDBY, state("Stalled", "CheckpointsNotListed")), 4, 6),
    "MusterJobNotTraining": (
        (
            LEADER,
            STANDBY,
            state("Recovering", "NodeLost"),
            (f"muster_job_waiting_since_timestamp_seconds{{{JOB}}}", "0x1000"),
            (f'muster_job_time_seconds{{{JOB}, bucket="compute"}}', "9000x1000"),
        ),
        29,
        32,
    ),
}
QUIET: dict[str, Series] = {
    "a healthy fleet": HEALTHY,
    "a first wait for nodes, however long": (
        LEADER,
        STANDBY,
        state("Pending", "InsufficientNodes"),
        (f"muster_job_waiting_since_timestamp_seconds{{{JOB}}}", "0x1000"),
    ),
    "steps that are slow at first, vary by a tenth, and are long for a while": (
        LEADER,
        STANDBY,
        state("Running", "Training"),
        (f"muster_job_step_seconds{{{JOB}}}", "9x20 1x40 1.1x40 1x200 2x25 1x600"),
    ),
    "a job that was slow and waits": (
        LEADER,
        STANDBY,
        state("Recovering", "NodeLost"),
        (f"muster_job_step_seconds{{{JOB}}}", "1x100 2x900"),
    ),
    "a change of leader": (
        ('muster_is_leader{instance="a"}', "1x300 stale"),
        ('muster_is_leader{instance="b"}', "0x301 1x600"),
        ('muster_is_leader{instance="c"}', "_x303 0x600"),
        (f'muster_job_time_seconds{{{JOB}, bucket="compute", instance="a"}}', "0+60x300 stale"),
        (f'muster_job_time_seconds{{{JOB}, bucket="compute", instance="b"}}', "_x302 18120+60x600"),
    ),
    "a Plain job, of whose time nobody knows": (
        LEADER,
        STANDBY,
        state("Running", "Running"),
        (f'muster_job_time_seconds{{{JOB}, bucket="starting"}}', "0+60x5 300x995"),
        (f'muster_job_time_seconds{{{JOB}, bucket="unknown"}}', "0x5 0+60x995"),
    ),
    "a start of twenty minutes": (
        LEADER,
        STANDBY,
        state("Running", "Training"),
        (f'muster_job_time_seconds{{{JOB}, bucket="starting"}}', "0+60x20 1200x980"),
        (f'muster_job_time_seconds{{{JOB}, bucket="compute"}}', "0x20 0+60x980"),
    ),
    "a job that saves hourly": (
        LEADER,
        STANDBY,
        state("Running", "NoCheckpointSeen", "_x10 1x50 stale"),
        state("Running", "Training", "1x10 _x50 1x940"),
        (f"muster_job_unsaved_seconds{{{JOB}}}", " ".join(["0+60x59"] * 16)),
    ),
    "a job that failed two hours ago": (
        LEADER,
        STANDBY,
        (f"muster_job_failed_timestamp_seconds{{{JOB}}}", "-7200x1000"),
    ),
    "a job that was made anew under its name": (
        LEADER,
        STANDBY,
        (f'muster_job_time_seconds{{{JOB}, bucket="compute"}}', "0+60x300 0+60x600"),
    ),
}
DAY = ROOT / "tests/data/alerts/day.json"
TYPO, FAILED = ("MusterJobStalled", "warning", "typo"), ("MusterJobFailed", "warning", "broken")
NO_LEADER, REPLICA = ("MusterNoLeader", "critical", ""), ("MusterReplicaMissing", "warning", "")
UNSAVED, SLOW = ("MusterNoNewCheckpoint", "warning", "pretrain"), ("MusterStraggler", "warning", "pretrain")
DOWN = tuple(("MusterJobNotTraining", "warning", job) for job in ("hourly", "pretrain"))
WASTED = tuple(("MusterJobEttrLow", "warning", job) for job in ("hourly", "pretrain"))
# Minute of the day -> the alerts that fire then, each with its severity and job. The faults stand in the file.
TROUBLE: dict[int, tuple[tuple[str, str, str], ...]] = {
    9: (),
    20: (TYPO,),
    35: (TYPO,),
    59: (TYPO,),
    67: (NO_LEADER,),
    90: (TYPO, FAILED),
    100: (TYPO, FAILED),
    130: (TYPO, FAILED, REPLICA),
    155: (TYPO,),
    167: (NO_LEADER,),
    178: (TYPO,),
    210: (),
    250: (),  # a rank that hung is killed, and the gang resumes
    290: (),  # a node that is drained is left
    390: (UNSAVED,),
    460: (),
    520: (("MusterJobFailed", "warning", "flaky"),),
    570: (),
    660: (SLOW,),
    740: (),
    830: (),  # a job waits for its turn
    900: DOWN,
    1000: WASTED,
    1020: (*WASTED, ("MusterFleetPolicyUnreadable", "warning", "")),
    1045: WASTED,
    1280: WASTED[:1],
    1300: (),  # a GPU has fallen off the bus twice
    1435: (),
}
QUIET_AT = (5, 60, 300, 305, 330, 400, 600)


@pytest.fixture(scope="module")
def promtool() -> str:
    return str(programs() / "promtool")


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "manifests/components/monitoring/rules.yaml").read_text())["spec"]
    return found


def firing(minute: int, *alerts: str) -> dict[str, Any]:
    """That at this minute these alerts fire, once each, and no other."""
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts],
    }


GPU_COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def recorded(minute: int, watts: float, gpus: int) -> list[dict[str, Any]]:
    """That at this minute the job's accelerators are so many, and use so much power."""
    names = ("muster_job_power_watts:sum", watts), ("muster_job_metered_gpus:count", gpus)
    return [
        {
            "expr": f"namespace_job_name:{name}",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f"namespace_job_name:{name}{{{JOB}}}", "value": value}],
        }
        for name, value in names
    ]


def a_case(series: Iterable[tuple[str, str]], expected: list[dict[str, Any]], name: str = "") -> dict[str, Any]:
    """Samples of each minute, and what has to be so."""
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series],
        "promql_expr_test": expected,
    }


def rules_pass(
    promtool: str, rules: dict[str, Any], folder: Path, *cases: dict[str, Any], evaluated: str = "1m"
) -> None:
    """Evaluate the rules so often on the samples of each case."""
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    document = {"rule_files": ["rules.yml"], "evaluation_interval": evaluated, "tests": list(cases)}
    (folder / "tests.yml").write_text(yaml.safe_dump(document))
    tested = subprocess.run(
        [promtool, "test", "rules", str(folder / "tests.yml")], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def without_energy(rules: dict[str, Any]) -> dict[str, Any]:
    """The rules that alerts need: no alert reads a record of energy, and those take the longest to evaluate."""
    return {"groups": [group for group in rules["groups"] if group["name"] != "muster-energy"]}


def test_the_power_of_a_job_is_that_of_the_nodes_that_it_holds(
    promtool: str, rules: dict[str, Any], tmp_path: Path
) -> None:
    """Two nodes of two GPUs: 400 W and 600 W by the counter in mJ, 300 W and 500 W by the gauge. From minute 20 on
    another job holds b, too. From minute 40 on the job holds a node of 700 W by the counter of Muster's agent."""
    series = [
        (f'{GPU_COUNTER}{{gpu="0", UUID="x", Hostname="a", pod="p"}}', "0+24000000x100"),
        (f'{GPU_COUNTER}{{gpu="1", UUID="y", Hostname="a"}}', "0+36000000x100"),
        (f'{GPU_COUNTER}{{gpu="0", UUID="z", Hostname="of-others"}}', "0+36000000x100"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="0", hostname="a"}', "999x100"),
        ('muster_gpu_energy_joules_total{gpu="GPU-x", node="a"}', "0+59940x100"),
        ('muster_gpu_energy_joules_total{gpu="GPU-w", node="d"}', "0+42000x100"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="0", hostname="d"}', "999x100"),
        (f'muster_job_node{{{JOB}, node="d"}}', "_x40 1x60"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="0", hostname="b"}', "300x100"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="1", hostname="b"}', "500x100"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="2", hostname="b"}', "9223372036854775794x100"),
        (f'muster_job_node{{{JOB}, node="a", instance="old"}}', "1x100"),
        (f'muster_job_node{{{JOB}, node="a", instance="new"}}', "_x5 1x95"),
        (f'muster_job_node{{{JOB}, node="b"}}', "_x10 1x90"),
        ('muster_job_node{namespace="ns", job_name="next", node="b"}', "_x20 1x80"),
    ]
    expected = [*recorded(8, 1000, 2), *recorded(15, 1800, 4), *recorded(30, 1000, 2), *recorded(50, 1700, 3)]
    rules_pass(promtool, rules, tmp_path, a_case(series, expected), evaluated="30s")


@pytest.mark.parametrize(
    ("broken", "working"),
    [
        pytest.param(
            [f'{GPU_COUNTER}{{gpu="0", Hostname="a"}}'],
            [('muster_gpu_energy_joules_total{gpu="GPU-x", node="a"}', "0+30000x100")],
            id="DCGM's counter stands still, and the agent's works",
        ),
        pytest.param(
            [f'{GPU_COUNTER}{{gpu="0", Hostname="a"}}', 'muster_gpu_energy_joules_total{gpu="GPU-x", node="a"}'],
            [('DCGM_FI_DEV_POWER_USAGE{gpu="0", hostname="a"}', "500x100")],
            id="both counters stand still, and the gauge works",
        ),
    ],
)
def test_a_counter_that_stands_still_hides_no_source_that_works(
    promtool: str, rules: dict[str, Any], tmp_path: Path, broken: list[str], working: list[tuple[str, str]]
) -> None:
    """500 W of one accelerator; DCGM shows what it does not know as 9223372036854775794."""
    series = [
        *[(each, "9223372036854775794x100") for each in broken],
        *working,
        (f'muster_job_node{{{JOB}, node="a"}}', "1x100"),
    ]
    rules_pass(promtool, rules, tmp_path, a_case(series, recorded(15, 500, 1)), evaluated="30s")


def test_alerts_fire_when_they_should_and_only_then(promtool: str, rules: dict[str, Any], tmp_path: Path) -> None:
    assert {name.partition(",")[0] for name in FIRES} == {
        rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    }
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    checked = subprocess.run(
        [promtool, "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    cases = [
        a_case(series, [firing(before), firing(at, name.partition(",")[0])], name)
        for name, (series, before, at) in FIRES.items()
    ]
    cases += [a_case(series, [firing(minute) for minute in QUIET_AT], name) for name, series in QUIET.items()]
    rules_pass(promtool, without_energy(rules), tmp_path, *cases)


def test_in_a_day_with_faults_each_trouble_has_its_alert_and_nothing_else_has_one(
    promtool: str, rules: dict[str, Any], tmp_path: Path
) -> None:
    """A day of the shipped operator in simulated time, recorded once by `python -m simulate.day`."""
    recorded = json.loads(DAY.read_text())
    expected = [firing_of(minute, *alerts) for minute, alerts in TROUBLE.items()]
    rules_pass(promtool, without_energy(rules), tmp_path, a_case(recorded["series"].items(), expected))


def firing_of(minute: int, *alerts: tuple[str, str, str]) -> dict[str, Any]:
    """That at this minute these alerts fire, of this severity and for these jobs, and no other."""
    labels = [
        f'{{alertname="{alert}", severity="{severity}"' + (f', job_name="{job}"}}' if job else "}")
        for alert, severity, job in alerts
    ]
    return {
        "expr": 'group by (alertname, severity, job_name) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": each, "value": 1} for each in labels],
    }
