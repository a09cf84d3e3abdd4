"""A second process for Prometheus to scrape, beside the operator of a test: what takes days or sick machines, told by
hand.

Everything goes through what is shipped: the classes that keep rows of jobs, saves and offenders, the client library's
metrics as the code registers them, and the agent's method that says its figures. Every second all of it grows.
"""

import sys
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server

from monitoring.page import registered
from muster.api.nodehealth import Offences
from muster.api.throughput import Throughput
from muster.api.trainingjob import TrainingJobStatus
from muster.controller.jobfigures import JobFigures
from muster.controller.offenders import Offenders
from muster.coordinator.figures import CheckFigures
from muster.goodput.prices import Prices
from muster.node.agent.agent import Agent
from muster.protocol.checks import NODE, CheckAnswer, CheckReport, ProbeReport
from muster.serve import Server, exposition, open_metrics

# What queries name; of every other label the value is its own name.
LABELS = {
    "bucket": "compute",
    "code": "403",
    "informer": "nodes",
    "level": "rack",
    "node": "n-1",
    "outcome": "Pass",
    "pool": "h200",
    "profile": "Quick",
    "reason": "Xid79",
    "resource": "pods",
    "state": "Degraded",
    "verb": "GET",
}
THROUGHPUT = Throughput(tokens_per_step=400_000, parameters=7_000_000_000)
PRICES = Prices(2.5, currency="EUR")
KEPT_BY_CLASSES = (
    "muster_job_",
    "muster_jobs",
    "muster_checkpoint_",
    "muster_check_figure",
    "muster_check_probe",
    "muster_node_offence",
)


def now() -> datetime:
    return datetime.now(UTC)


def status(began: datetime) -> TrainingJobStatus:
    """Of a job that has trained, has failed, and waits; all of its saves are a concern."""
    ago, seconds = began - timedelta(hours=3), int((now() - began).total_seconds())
    amounts = {"queued": 60, "compute": 9000 + seconds, "lostWork": 600 + seconds, "restarting": 120 + seconds}
    step = 1000 + seconds
    save = {
        "step": step,
        "bytes": 2**40,
        "saveSeconds": 30,
        "stallSeconds": 2,
        "durableSeconds": 45,
        "freeBytes": 2**42,
    }
    concerns = ("NoNewCheckpoint", "CheckpointSpaceLow", "SavesTakeLonger")
    return TrainingJobStatus.model_validate(
        {
            "state": "Recovering",
            "reason": "CrashLoopBackOff" if seconds % 4 else "NodeLost",
            "step": step,
            "nodes": ["by-hand"],
            "checkpoint": {
                "step": step,
                "path": "/checkpoints/1",
                "time": ago,
                "saves": [save],
                "concerns": [{"reason": reason, "message": "look", "since": ago} for reason in concerns],
            },
            "conditions": [{"type": "Running", "status": "False", "reason": "NodeLost", "lastTransitionTime": ago}],
            "goodput": {
                "creationTime": ago,
                "countedUntil": now(),
                "seconds": amounts,
                "gpuSeconds": {bucket: 16 * value for bucket, value in amounts.items()},
                "ettrPermille": 870,
                "ettrAfterQueuePermille": 880,
                "failures": 3 + seconds // 2,
                "lostSteps": 600 + seconds,
                "steps": step,
                "gpuModel": "NVIDIA-H200",
                "stepMilliseconds": 990,
                "stepP90Milliseconds": 1010,
            },
        }
    )


def tell_all(seconds: int) -> None:
    """Every metric that no class of its own keeps: gauges 1, counters and histograms grow."""
    for name in registered():
        if name.startswith(KEPT_BY_CLASSES):
            continue
        metric = REGISTRY._names_to_collectors[name]
        labels = cast("Any", metric)._labelnames
        row = cast("Any", metric).labels(*(LABELS.get(label, label) for label in labels)) if labels else metric
        match metric:
            case Gauge():
                row.set(1)
            case Counter():
                row.inc()
            case Histogram():
                row.observe(0.01 * (1 + seconds % 50))


def answer(figures: CheckFigures, seconds: int) -> None:
    """A node has tested itself."""
    order = f"order-{seconds}"
    probe = ProbeReport(probe="gemm-bf16", outcome="Result", figure=600.0 + seconds % 50, unit="TFLOPS", seconds=3.0)
    figures.given("n-1", [order], [])
    told = CheckAnswer(order=order, kind=NODE, outcome="Result", probes=(probe,))
    figures.heard("n-1", [order], CheckReport(sequence=seconds, model="H200", answers=(told,)))


def main() -> None:
    port, agent_port, namespace, job = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
    began, key = now(), (namespace, job)
    jobs, probes = JobFigures(prices=lambda: PRICES), CheckFigures()
    offenders = Offenders(lambda: 604800, now)
    offenders.set_account("n-1", Offences(score="2.5", as_of=began))
    gpus = SimpleNamespace(answering=7, expected=8, figures={})
    agent = SimpleNamespace(
        _kinds={"Xid": 1},
        _gpus=gpus,
        _nvml=SimpleNamespace(hangs=0, starts=1),
        _log=SimpleNamespace(lines=0, skipped_bytes=0),
        _writer=SimpleNamespace(writes=1, errors=0, refused=0),
    )
    start_http_server(port, "127.0.0.1")
    metrics = open_metrics(lambda: exposition(Agent.metrics(cast("Agent", agent))))
    Server(("127.0.0.1", agent_port), {"/metrics": metrics})
    for seconds in range(10_000):
        tell_all(seconds)
        jobs.set_status(key, status(began), THROUGHPUT)
        answer(probes, seconds)
        agent._writer.errors = agent._nvml.hangs = seconds
        gpus.figures["GPU-0"] = {
            "power_mw": 650_000.0,
            "energy_mj": 650_000.0 * seconds,
            "margin": 22.0,
            "clock_reasons": 0.0,
            "pcie_replays": float(seconds),
            "ecc_corrected": float(seconds),
            "ecc_uncorrected": float(seconds),
        }
        time.sleep(1)


if __name__ == "__main__":
    main()
