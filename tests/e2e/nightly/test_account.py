"""What a job's account says of known faults, against a log of what really happened, and the same wherever one looks."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.faults import ENDLESS, end
from tests.e2e.trainer_log import Reference, reckon

from monitoring.live import Prometheus
from muster.cli.kubeconfig import find
from muster.cli.page import Served, forwarding
from testbed import figures
from testbed.bed import PAGE_NAMESPACE, ROOT, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

TRAINER = [*ENDLESS, "--checkpoint-every=40", "--keep=20"]
# Reports carry ages in place of times: on a machine with much else to do, that is so exact.
SECONDS = 2.0
# Launchers date a line when they read it. So the first and the newest step of each attempt may be off by this together.
ATTEMPT_SECONDS = 1.0
# Each bucket is in whole seconds; of the productive ones this job has compute alone.
WHOLE_SECONDS = 1.0
BROKEN_OFF_STEPS = 2  # the step that a failure breaks off is lost, too: at most the time of two
PRODUCTIVE = ("compute", "inputWait", "communication")
Submit = Callable[..., Job]


class Known(NamedTuple):
    """A fault that was made.

    Attributes:
        attempt: the one that it ended.
        made: when, by the machine's clock.
        level: how it has to be repaired.
    """

    attempt: int
    made: float
    level: str


@pytest.fixture
def page(bed: Bed) -> Iterator[Callable[[str], Any]]:
    """`page(path)`: what the page, in a container of its own, answers an administrator."""
    bed.install_page()
    target = find(str(bed.kubectl.kubeconfig), None)
    try:
        with forwarding(target, PAGE_NAMESPACE, Served()) as (port, _):

            def asked(path: str) -> Any:
                header = {"Authorization": f"Bearer {bed.cluster.api.token}"}
                with urllib.request.urlopen(
                    urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=header),
                    timeout=30,
                ) as answer:
                    return json.load(answer)

            yield asked
    finally:
        bed.uninstall_page()


def suffered(job: Job, attempt: int, step: int, level: str, fault: Callable[[], None]) -> Known:
    """Make a fault once this attempt has come so far, and wait until all train again."""
    job.wait_step(step, attempt)
    made = time.time()
    fault()
    assert job.wait_training_again(attempt).attempt == attempt + 1
    return Known(attempt, made, level)


def delete_pod(job: Job, index: int) -> None:
    job.bed.kubectl("delete", "pod", "-n", job.namespace, job.pods()[index]["metadata"]["name"], "--wait=false")


def lost_steps(job: Job, attempt: int) -> int:
    """How many steps of an attempt had to be made again, as the trainers' own logs have it."""
    return job.step(attempt) - (min(line["step"] for line in job.events("step", attempt + 1)) - 1)


def test_known_faults_are_told_as_they_were_and_alike_everywhere(
    bed: Bed, submit: Submit, page: Callable[[str], Any], tmp_path: Path
) -> None:
    with figures.watched(bed, tmp_path) as prometheus:
        before = time.time()
        job = submit("accounted", trainer=TRAINER, progress={"stepTimeoutSeconds": 6})
        created = (before + time.time()) / 2
        faults = [
            suffered(job, 1, 60, "R0", lambda: job.signal_rank(1)),
            suffered(job, 2, 100, "R0b", lambda: delete_pod(job, 2)),
            suffered(job, 3, 140, "R0", lambda: job.signal_rank(0, signal.SIGSTOP)),
        ]
        lost = [lost_steps(job, fault.attempt) for fault in faults]
        assert all(each > 0 for each in lost)
        wait_until("Prometheus to have the last of it", lambda: counted(prometheus, job) == (3, sum(lost)))
        job.wait_step(job.step() + 300)
        running = wait_until("all to be of one moment", lambda: at_one_moment(bed, page, prometheus, job))
    at_the_moment = reckon(job.lines(), created, moment(running["time"]))
    end(job)
    assert job.completion()["result"] == "Succeeded"
    status = job.status()

    # Against what happened.
    differences = []
    for fault, steps, incident in zip(faults, lost, status["incidents"], strict=True):
        first = [line["wall"] for line in job.events("step", fault.attempt + 1)]
        differences.append((moment(incident["faultTime"]) - fault.made, moment(incident["resumedTime"]) - min(first)))
        assert (incident["attempt"], incident["level"], incident["lostSteps"]) == (fault.attempt, fault.level, steps)
    report = json.loads(asked(bed, "report", f"{job.namespace}/{job.name}", "--output", "json"))
    at_the_end = reckon(job.lines(), created)
    off = {"running": differ(running, at_the_moment), "ended": differ(report, at_the_end)}
    keep(differences, off)
    assert all(abs(each) <= SECONDS for pair in differences for each in pair), differences
    assert {
        when: {name: each for name, each in found.items() if abs(each[0]) > each[1]} for when, found in off.items()
    } == {"running": {}, "ended": {}}
    assert running["lostSteps"] == at_the_moment.lost_steps == sum(lost) == at_the_end.lost_steps
    assert report["steps"] == at_the_end.steps == job.step()

    # Wherever one looks.
    assert report["wallSeconds"] == sum(each["seconds"] for each in report["buckets"])
    assert report["lostSteps"] == sum(lost) == status["goodput"]["lostSteps"]
    shown = wait_until("the page to have the end", lambda: ended(page(f"/api/jobs/{job.namespace}/{job.name}")))
    assert shown["incidents"] == status["incidents"]
    for name in ("buckets", "lostSteps", "ettr", "mttfHours", "recoverySeconds"):
        assert shown["report"].get(name) == report.get(name), name
    (kept,) = [
        row for row in wait_until("the history", lambda: page("/api/report?days=7")["tables"])[-1]["rows"]
        if row[0] == f"{job.namespace}/{job.name}"
    ]  # fmt: skip
    assert kept[5] == "3"


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def spent(report: dict[str, Any], *buckets: str) -> float:
    return sum(each["seconds"] for each in report["buckets"] if each["bucket"] in buckets)


def differ(report: dict[str, Any], log: Reference) -> dict[str, tuple[float, float]]:
    """By how much each figure of a report differs from the trainers' log, and by how much it may."""
    edges, finishing = log.attempts * ATTEMPT_SECONDS, spent(report, "finishing")
    productive = edges + log.uncertain + WHOLE_SECONDS
    wall = SECONDS + WHOLE_SECONDS
    broken_off = (log.attempts - 1) * BROKEN_OFF_STEPS * log.median
    return {
        "productive": (spent(report, *PRODUCTIVE) - log.productive, productive),
        "productive and saves": (
            spent(report, *PRODUCTIVE, "checkpointStall") - log.productive - log.stalled,
            edges + 2 * WHOLE_SECONDS,
        ),
        "lostWork": (spent(report, "lostWork") - log.lost, edges + broken_off + WHOLE_SECONDS),
        "wall": (report["wallSeconds"] - finishing - log.wall, wall),
        "ettr": (report["ettr"] - log.ettr(finishing), (productive + wall) / log.wall),
    }


def at_one_moment(bed: Bed, page: Callable[[str], Any], prometheus: Prometheus, job: Job) -> dict[str, Any] | None:
    """The report of a job that runs, once Prometheus, command line and page have the same published figures."""
    of_job = f'{{namespace="{job.namespace}",job_name="{job.name}"}}'
    scraped = {
        row["metric"]["bucket"]: float(row["value"][1])
        for row in prometheus.now(f"max by (bucket) (muster_job_time_seconds{of_job})")
    }
    report: dict[str, Any] = json.loads(asked(bed, "report", f"{job.namespace}/{job.name}", "--output", "json"))
    shown = page(f"/api/jobs/{job.namespace}/{job.name}")["report"]
    ettr = prometheus.now(f"max(muster_job_ettr_ratio{of_job})")
    if not {sum(scraped.values())} == {report["wallSeconds"]} == {shown["wallSeconds"]} or not ettr:
        return None
    if float(ettr[0]["value"][1]) != report["ettr"]:  # the next figures were scraped meanwhile
        return None
    assert scraped == {each["bucket"]: each["seconds"] for each in report["buckets"]}
    for name in ("buckets", "lostSteps", "steps", "ettr", "gpuHours", "unsavedSeconds"):
        assert shown.get(name) == report.get(name), name
    return report


def counted(prometheus: Prometheus, job: Job) -> tuple[float, float]:
    """Failures and lost steps of the job, as a scrape has them."""
    of_job = f'{{namespace="{job.namespace}",job_name="{job.name}"}}'
    found = [prometheus.now(f"max(muster_job_{name}{of_job})") for name in ("failures_total", "lost_steps_total")]
    first, second = (float(rows[0]["value"][1]) if rows else 0.0 for rows in found)
    return first, second


def asked(bed: Bed, *arguments: str) -> str:
    done = bed.muster(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(shown: dict[str, Any]) -> dict[str, Any] | None:
    return shown if shown["job"]["state"] == "Succeeded" else None


def keep(differences: list[tuple[float, float]], off: dict[str, dict[str, tuple[float, float]]]) -> None:
    """What was measured, for whoever publishes it."""
    folder = ROOT / "build" / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    measured = {
        "incidents": [{"fault": round(fault, 3), "resumed": round(resumed, 3)} for fault, resumed in differences],
        **{
            when: {name: {"off": round(each, 3), "within": round(most, 3)} for name, (each, most) in found.items()}
            for when, found in off.items()
        },
    }
    (folder / "account.json").write_text(json.dumps(measured, indent=2) + "\n")
