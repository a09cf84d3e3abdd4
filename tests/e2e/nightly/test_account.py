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

from monitoring.live import Prometheus
from muster.cli.kubeconfig import find
from muster.cli.page import Served, forwarding
from testbed import figures
from testbed.bed import PAGE_NAMESPACE, ROOT, Bed
from testbed.jobs import Job
from testbed.kube import wait_until

TRAINER = ["--steps=400", "--step-seconds=0.1", "--checkpoint-every=10", "--hold-at=390"]
# Reports carry ages in place of times: on a machine with much else to do, that is so exact.
SECONDS = 2.0
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
        job = submit("accounted", trainer=TRAINER, progress={"stepTimeoutSeconds": 6})
        faults = [
            suffered(job, 1, 25, "R0", lambda: job.signal_rank(1)),
            suffered(job, 2, 45, "R0b", lambda: delete_pod(job, 2)),
            suffered(job, 3, 65, "R0", lambda: job.signal_rank(0, signal.SIGSTOP)),
        ]
        lost = [lost_steps(job, fault.attempt) for fault in faults]
        assert all(each > 0 for each in lost)
        wait_until("Prometheus to have the last of it", lambda: counted(prometheus, job) == (3, sum(lost)), 90)
    assert job.completion()["result"] == "Succeeded"
    status = job.status()

    # Against what happened.
    differences = []
    for fault, steps, incident in zip(faults, lost, status["incidents"], strict=True):
        first = [line["wall"] for line in job.events("step", fault.attempt + 1)]
        differences.append((told(incident, "faultTime") - fault.made, told(incident, "resumedTime") - min(first)))
        assert (incident["attempt"], incident["level"], incident["lostSteps"]) == (fault.attempt, fault.level, steps)
    keep(differences)
    assert all(abs(each) <= SECONDS for pair in differences for each in pair), differences

    # Wherever one looks.
    report = json.loads(asked(bed, "report", f"{job.namespace}/{job.name}", "--output", "json"))
    assert report["wallSeconds"] == sum(each["seconds"] for each in report["buckets"])
    assert report["lostSteps"] == sum(lost) == status["goodput"]["lostSteps"]
    shown = wait_until("the page to have the end", lambda: ended(page(f"/api/jobs/{job.namespace}/{job.name}")), 30)
    assert shown["incidents"] == status["incidents"]
    for name in ("buckets", "lostSteps", "ettr", "mttfHours", "recoverySeconds"):
        assert shown["report"].get(name) == report.get(name), name
    (kept,) = [
        row for row in wait_until("the history", lambda: page("/api/report?days=7")["tables"], 60)[-1]["rows"]
        if row[0] == f"{job.namespace}/{job.name}"
    ]  # fmt: skip
    assert kept[5] == "3"


def told(incident: dict[str, Any], moment: str) -> float:
    return datetime.fromisoformat(incident[moment]).timestamp()


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


def keep(differences: list[tuple[float, float]]) -> None:
    """What was measured, for whoever publishes it."""
    folder = ROOT / "build" / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    seconds = [{"fault": round(fault, 3), "resumed": round(resumed, 3)} for fault, resumed in differences]
    (folder / "account.json").write_text(json.dumps(seconds, indent=2) + "\n")
