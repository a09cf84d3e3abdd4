"""`python -m bench.goodput`: what accounting costs the operator of 500 jobs with 16,384 workers, into
build/bench/goodput.json.

The shipped decisions are made of jobs that train, at the pace that ships: each when its plan asks for it and when its
launchers tell of steps, its status written back as the performer would. Jobs fail meanwhile, far more often than
machines do. What accounting takes of the processor is read around the functions that do nothing else:

    told         the figures and incidents for the status, in each decision
    committed    the account of a record that is committed: a failure, and the go after it
    written      the figures as JSON in each write of a status, and back again when the watch brings it
    scraped      the rows for Prometheus, as often as the shipped PodMonitor asks for them
    noted        the note of all running jobs, each five minutes

How large a record becomes is told, too, and that more failures do not make it larger: an account is bounded, and so is
the list of incidents.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from bench.bed import ROOT
from bench.facts import facts
from muster.api.base import ObjectMeta
from muster.api.endedjob import Ending
from muster.api.gang import AttemptStart, Gang, GangSpec, Level, Member, Resume
from muster.api.goodput import MAX_STRETCHES, Account, Bucket, Fingerprint, Goodput, Segment
from muster.api.trainingjob import TrainingJob
from muster.controller.history import NOTE_SECONDS, packed
from muster.controller.jobfigures import JobFigures
from muster.controller.perform import PROGRESS_WRITE_SECONDS
from muster.coordinator.hub import STEP_NEWS_SECONDS
from muster.decision import accounted
from muster.goodput.history import ended_job_record as kept
from muster.goodput.history import last_known
from muster.lifecycle import repair
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.protocol.messages import RUNNING, RankReport
from muster.recovery.failure import Failure, Kind
from muster.world.fleet import Fleet
from muster.world.job import JobWorld, PodAges, TemplateVerdict, VerdictKind
from muster.world.names import gang_name, pod_name
from muster.world.views import ContainerView, LauncherView, NodeView, PodView

OUTPUT = ROOT / "build" / "bench" / "goodput.json"
SIZES = ((4, 2048), (8, 512), (16, 128), (64, 16), (128, 4), (232, 2), (48, 1))
"""Jobs of so many workers: 500 with 16,384."""
SECONDS = 301.0
"""With one note of all jobs in them."""
FAILURES_PER_HOUR = 120.0
"""Of all jobs; 2,048 nodes of eight accelerators at Llama 3's rate have 0.3, 16,384 have 2.6."""
SCRAPE_SECONDS = 30.0
"""`interval` in manifests/components/monitoring/monitors.yaml."""
STEP_SECONDS = 2.0
GOALS = {"core_percent": 2.0, "record_growth_percent": 1.0}
GPUS = 8
MANY_FAILURES = 600
SETTINGS = WorkerSettings("launcher:1", "https://coordinator:8443", "coordinator", "PEM", "nvidia.com/gpu")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
AGE_SECONDS = 7 * 86_400.0
"""Of each job when it is first looked at."""


class Meter:
    """What parts of the code take of the processor, in this thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def of(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, measured."""

        def measured(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return act(*arguments, **named)
            finally:
                self.seconds[name] += time.thread_time() - begun
                self.calls[name] += 1

        return measured


@dataclass
class Job:
    """A job that trains.

    Attributes:
        since: when its ranks began, in seconds of the bench.
        base: the step from which they went on.
    """

    job: TrainingJob
    record: GangSpec
    pods: dict[str, PodView]
    nodes: dict[str, NodeView]
    since: float
    base: int
    written_at: float = float("-inf")
    version: int = 1
    uids: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.job.metadata.namespace, self.job.metadata.name

    def step(self, now: float) -> int:
        """The newest finished one."""
        return self.base + max(int((now - self.since) / STEP_SECONDS), 1)

    def world(self, now: float, fleet: Fleet) -> JobWorld:
        """As the operator would see it."""
        step = self.step(now)
        view = LauncherView(
            heard_age_seconds=0.5,
            attempt=self.record.attempt,
            state=RUNNING,
            ranks=(RankReport(0, 0, alive=True),),
            step=step,
            first_step=self.base + 1,
            step_age_seconds=now - self.since - (step - self.base) * STEP_SECONDS,
            first_step_age_seconds=now - self.since - STEP_SECONDS,
            started_age_seconds=now - self.since,
            step_seconds=STEP_SECONDS,
            step_p90_seconds=STEP_SECONDS,
            input_wait_seconds=(step - self.base) * 0.01,
            checkpoint_stall_seconds=(step - self.base) * 0.01,
            peer_port=9000,
            talking_age_seconds=3600.0,
            fence_file_id="one",
        )
        gang = Gang(
            metadata=ObjectMeta(name=gang_name(self.key[1], self.job.metadata.uid), resource_version=str(self.version)),
            spec=self.record,
        )
        old = {pod.uid: PodAges(AGE_SECONDS, AGE_SECONDS) for pod in self.pods.values()}
        return JobWorld(
            now=moment(now),
            job=self.job,
            gang=gang,
            pods=self.pods,
            launchers=dict.fromkeys(self.uids, view),
            fleet=fleet,
            leader_age_seconds=AGE_SECONDS,
            attempt_age_seconds=now - self.since,
            start_age_seconds=now - self.since,
            pod_ages=old,
            template_verdict=TemplateVerdict(VerdictKind.ACCEPTED, self.job.metadata.generation),
        )

    def take(self, plan: Plan) -> None:
        """The record as it has been written now."""
        (spec,) = (action.spec for action in plan.actions if isinstance(action, CommitGang))
        self.record = GangSpec.model_validate(spec.to_json())
        self.version += 1


def main() -> int:
    """Measure; 1 where a goal is missed."""
    arguments = _arguments()
    measured = {**measure(arguments.seconds), **growth(), "goals": GOALS}
    missed = [f"{name}: {measured[name]}, goal {goal}" for name, goal in GOALS.items() if measured[name] > goal]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({**facts(), **measured}, indent=1) + "\n")
    parts = ", ".join(f"{name} {share} %" for name, share in measured["core_percent_of"].items())
    print(
        f"{measured['jobs']} jobs of {measured['workers']} workers for {measured['seconds']:.0f} s: accounting takes "
        f"{measured['core_percent']} % of a core ({parts}); all of {measured['decisions']} decisions "
        f"{measured['core_percent_of_deciding']} %"
    )
    print(
        f"a record of one worker after {MANY_FAILURES} failures: {measured['record_bytes']} bytes, of which the "
        f"account {measured['account_bytes']}; after twice as many {measured['record_growth_percent']} % more"
    )
    print(f"written: {OUTPUT.relative_to(ROOT)}")
    if missed:
        print("missed: " + "; ".join(missed))
    return 1 if missed else 0


def measure(seconds: float, sizes: tuple[tuple[int, int], ...] = SIZES) -> dict[str, Any]:
    """What accounting takes in so many seconds of these jobs."""
    meter = Meter()
    jobs = [a_job(number, size) for number, size in enumerate(size for count, size in sizes for _ in range(count))]
    fleet = Fleet.from_parts(nodes={name: node for each in jobs for name, node in each.nodes.items()})
    figures = JobFigures()
    registry = CollectorRegistry()
    registry.register(_Scraped(figures))
    due = [(STEP_NEWS_SECONDS * number / len(jobs), number) for number in range(len(jobs))]
    heapq.heapify(due)
    failures = [
        (number + 0.5) * 3600.0 / FAILURES_PER_HOUR for number in range(int(seconds * FAILURES_PER_HOUR / 3600.0))
    ]
    scrapes = [SCRAPE_SECONDS * (number + 1) for number in range(int(seconds / SCRAPE_SECONDS))]
    notes = [NOTE_SECONDS * (number + 1) for number in range(int(seconds / NOTE_SECONDS))]
    scrape, note = meter.of("scraped", generate_latest), meter.of("noted", _note)
    decisions = 0
    with _metered(meter):
        deciding = meter.of("deciding", plan_of)
        while due[0][0] < seconds:
            now, number = heapq.heappop(due)
            each = jobs[number]
            while scrapes and scrapes[0] <= now:
                scrapes.pop(0)
                scrape(registry)
            while notes and notes[0] <= now:
                notes.pop(0)
                note(jobs)
            if failures and failures[0] <= now:
                failures.pop(0)
                fail(each, now, fleet)
            plan = deciding(each.world(now, fleet))
            decisions += 1
            if plan.commits:
                each.take(plan)
                heapq.heappush(due, (now, number))
                continue
            assert plan.status is not None
            figures.set_status(each.key, plan.status)
            if now - each.written_at >= PROGRESS_WRITE_SECONDS:
                each.written_at = now
                assert plan.status.goodput is not None
                _write(meter, plan.status.goodput)
                each.job = each.job.model_copy(update={"status": plan.status})
            heapq.heappush(due, (now + min(STEP_NEWS_SECONDS, plan.wake_in_seconds or STEP_NEWS_SECONDS), number))
    of = {name: meter.seconds[name] for name in ("told", "committed", "written", "scraped", "noted")}
    return {
        "jobs": len(jobs),
        "workers": sum(len(each.uids) for each in jobs),
        "seconds": seconds,
        "failures_per_hour": FAILURES_PER_HOUR,
        "decisions": decisions,
        "calls": dict(meter.calls),
        "core_percent": round(100 * sum(of.values()) / seconds, 2),
        "core_percent_of": {name: round(100 * taken / seconds, 3) for name, taken in of.items()},
        "core_percent_of_deciding": round(100 * meter.seconds["deciding"] / seconds, 2),
    }


def growth(failures: int = MANY_FAILURES) -> dict[str, float]:
    """How large a record of one worker becomes by failures, and by how much more of as many again."""
    each = a_job(0, 1)
    fleet = Fleet.from_parts(nodes=each.nodes)

    def after(first: int) -> int:
        for number in range(first, first + failures):
            fail(each, 60.0 * (number + 1), fleet)
        return _bytes(each.record)

    size = after(0)
    account = each.record.account
    assert account is not None
    more = round(100 * (after(failures) / size - 1), 2)
    return {"record_bytes": size, "account_bytes": _bytes(account), "record_growth_percent": more}


def a_job(number: int, workers: int) -> Job:
    """A job that has trained for a week, with as full an account as there can be."""
    name, uid = f"job-{number}", f"00000000-0000-4000-8000-{number:012d}"
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1", "command": ["train"]}]}}
    begun = moment(-AGE_SECONDS)
    metadata = {
        "name": name,
        "namespace": f"team-{number % 20}",
        "uid": uid,
        "creationTimestamp": begun,
        "generation": 1,
    }
    spec = {"nodes": workers, "gpusPerNode": GPUS, "template": template, "checkpoint": {"directory": "/checkpoints"}}
    job = TrainingJob.model_validate({"metadata": metadata, "spec": spec})
    names = [f"n{number}-{index}" for index in range(workers)]
    uids = [f"pod-{number}-{index}" for index in range(workers)]
    members = [
        Member(index=index, rank=index, node=node, incarnation=1, pod_uid=uids[index])
        for index, node in enumerate(names)
    ]
    base = 1000 * MAX_STRETCHES
    record = GangSpec(
        job_uid=uid,
        attempt=20,
        time=moment(-3600.0),
        level=Level.IN_PLACE,
        reason="RankFailed",
        members=members,
        start=AttemptStart(
            time=moment(-3600.0),
            master_address="10.0.0.1",
            master_port=20001,
            resume=Resume(step=base, path=f"/checkpoints/{base}"),
        ),
        account=_account(begun, workers),
    )
    pods = {pod.name: pod for pod in (_pod(job, index, node, uids[index]) for index, node in enumerate(names))}
    nodes = {node: _node(node) for node in names}
    return Job(job, record, pods, nodes, -3600.0, base, uids=uids)


def moment(seconds: float) -> datetime:
    """The wall clock at a second of the bench."""
    return EPOCH + timedelta(seconds=seconds)


def _account(begun: datetime, workers: int) -> Account:
    """Up to an hour before the bench begins; each bucket has something."""
    wall = round((AGE_SECONDS - 3600.0) * 1000)
    work = [1_000_000 * (number + 1) for number in range(MAX_STRETCHES)]
    stretches = [
        Segment(
            after_step=1000 * number,
            step=1000 * (number + 1),
            gpus=GPUS * workers,
            milliseconds={Bucket.COMPUTE: amount},
        )
        for number, amount in enumerate(work)
    ]
    amounts = {str(bucket): 10_000_000 for bucket in Bucket}
    amounts[Bucket.COMPUTE] = sum(work)
    amounts[Bucket.UNKNOWN] += wall - sum(amounts.values())
    prints = [
        Fingerprint(
            attempt=5 * number,
            image=f"sha256:{number:064x}",
            gpu_model="NVIDIA-H200",
            driver="580.95.05",
            environment="0" * 16,
            revision="f" * 40,
        )
        for number in range(4)
    ]
    return Account(
        creation_time=begun,
        counted_until=moment(-3600.0),
        milliseconds=amounts,
        gpu_milliseconds={name: GPUS * workers * amount for name, amount in amounts.items()},
        segments=stretches,
        has_run=True,
        has_steps=True,
        failures=19,
        lost_steps=1900,
        first_checkpoint_milliseconds=900_000,
        fingerprints=prints,
    )


def _pod(job: TrainingJob, index: int, node: str, uid: str) -> PodView:
    owner = job.metadata.uid
    return PodView(
        job.metadata.namespace,
        pod_name(job.metadata.name, owner, index, 1),
        uid,
        1,
        owner_uid=owner,
        job_uid=owner,
        index=index,
        incarnation=1,
        node=node,
        phase="Running",
        pod_ip="10.0.0.1",
        created=moment(-AGE_SECONDS),
        containers=(ContainerView("main", running=True),),
    )


def _node(name: str) -> NodeView:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    return NodeView(
        name, f"uid-of-{name}", 1, labels, ready=True, boot_id="boot-1", allocatable={"nvidia.com/gpu": GPUS}
    )


def plan_of(world: JobWorld) -> Plan:
    """What the operator performs."""
    return accounted.plan_with_goodput(world, decide(world, SETTINGS))


def fail(each: Job, now: float, fleet: Fleet) -> None:
    """A rank fails, and the gang starts again from its newest checkpoint: both are committed as they would be."""
    world = each.world(now, fleet)
    node = each.record.members[0].node
    failure = Failure(Kind.RANK_FAILED, Level.IN_PLACE, 0, node, "exit code 1", exit_code=1, age_seconds=1.0)
    each.take(accounted.plan_with_goodput(world, commit(world, repair.after_failures(world, each.record, [failure]))))
    resume = each.step(now) - 10
    go = AttemptStart(
        time=moment(now + 1.0),
        master_address="10.0.0.1",
        master_port=20001,
        resume=Resume(step=resume, path=f"/checkpoints/{resume}"),
    )
    ended = [
        one if one.resumed_step is not None else one.model_copy(update={"resumed_step": resume})
        for one in each.record.incidents
    ]
    world = each.world(now + 1.0, fleet)
    started = each.record.model_copy(update={"start": go, "incidents": ended})
    each.take(accounted.plan_with_goodput(world, commit(world, started)))
    each.base, each.since = resume, now + 1.0


def _write(meter: Meter, figures: Goodput) -> None:
    """The figures' part in a write: on the way out, and when the watch brings them back."""

    def there_and_back() -> None:
        Goodput.model_validate(json.loads(json.dumps(figures.to_json())))

    meter.of("written", there_and_back)()


def _note(jobs: list[Job]) -> str:
    """All running jobs in one ConfigMap."""
    listed = []
    for each in jobs:
        gang = Gang(metadata=ObjectMeta(name="gang"), spec=each.record)
        figures = last_known(each.job, gang)
        if figures is not None:
            listed.append(kept(each.job, gang, figures, Ending.UNKNOWN).to_json())
    return packed(listed)


class _Scraped:
    """The figures of this bench alone, for a registry of its own."""

    def __init__(self, figures: JobFigures) -> None:
        self._figures = figures

    def collect(self) -> Any:
        """All rows."""
        return self._figures.collected()


@contextlib.contextmanager
def _metered(meter: Meter) -> Iterator[None]:
    """The functions that do the accounting are measured wherever the shipped code calls them."""
    places: list[tuple[Any, str, str]] = [
        (accounted, "goodput_of_status", "told"),
        (accounted, "incidents_of_status", "told"),
        (accounted, "with_account", "committed"),
    ]
    before = [getattr(where, name) for where, name, _ in places]
    for (where, name, part), act in zip(places, before, strict=True):
        setattr(where, name, meter.of(part, act))
    try:
        yield
    finally:
        for (where, name, _), act in zip(places, before, strict=True):
            setattr(where, name, act)


def _bytes(part: Any) -> int:
    return len(json.dumps(part.to_json(), separators=(",", ":")))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.goodput", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of the jobs' lives, default {SECONDS:.0f}")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
