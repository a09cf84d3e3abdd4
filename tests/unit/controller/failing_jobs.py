"""The loop over nodes with records of jobs, and an owner of many jobs that all fail."""

from datetime import datetime
from typing import Any

from tests.unit.controller.health_stage import NOW, Stage
from tests.unit.counting import CountedWork

from muster.api.base import ObjectMeta
from muster.api.gang import FaultClass, Gang, GangIncident, GangSpec, Level, Resume
from muster.world.fleet import Suspicion
from muster.world.names import gang_name


class Jobs(Stage):
    """The stage of node health with records of jobs, and checkers that have passed tests."""

    def __init__(self, **preflight: Any) -> None:
        super().__init__()
        self.passed: dict[str, datetime] = {}
        self.clock = 0.0
        self.words: list[tuple[str, str, str]] = []
        for part in (self.nodes.reconciler, self.nodes.worlds, self.nodes.failures, self.nodes.queue):
            part._clock = lambda: self.clock
        self.nodes.failures._deep_pass_age_seconds = lambda node: (
            (self.now - self.passed[node]).total_seconds() if node in self.passed else None
        )
        record = self.told.record

        def told(about: Any, kind: str, reason: str, note: str) -> None:
            self.words.append((about.kind, reason, note))
            record(about, kind, reason, note)

        self.told.record = told  # type: ignore[method-assign]

    def job(self, name: str, *failures: tuple[str, datetime], uid: str = "", **changes: Any) -> None:
        """A job whose ranks have failed on these nodes, and that has got on after each time."""
        namespace, short = name.split("/")
        values: dict[str, Any] = {
            "level": Level.IN_PLACE,
            "fault_class": FaultClass.APPLICATION,
            "reason": "RankFailed",
        }
        values |= {"settled": True, "other_workers": 0, "exit_code": 1, "message": "last lines: secret"} | changes
        incidents = [
            GangIncident(attempt=n + 1, node=node, time=moment, step=n, **values)
            for n, (node, moment) in enumerate(failures)
        ]
        spec = GangSpec(
            job_uid=uid or f"uid-{name}",
            attempt=len(incidents) + 1,
            time=self.now,
            level=Level.START,
            reason="Created",
            incidents=incidents,
            checkpoint=Resume(step=1000, path="/ckpt"),
        )
        self.api.version += 1
        metadata = ObjectMeta(
            name=gang_name(short, spec.job_uid),
            namespace=namespace,
            uid=f"gang-{uid or name}",
            resource_version=str(self.api.version),
        )
        self.cluster.gangs.store.assume(Gang(metadata=metadata, spec=spec))

    def gone(self, name: str) -> None:
        namespace, short = name.split("/")
        self.cluster.gangs.store.assume_deleted((namespace, gang_name(short, f"uid-{name}")), f"gang-{name}")

    def doubt(self, node: str) -> Suspicion | None:
        return self.cluster.fleet.suspicion_of(node)


async def an_owner_who_fails_everywhere_costs_little(count: int) -> None:
    """So many jobs of one owner, each on a node of its own: he is not heard, and each further failure is looked at
    quickly."""
    jobs = Jobs()
    jobs.policy()
    jobs.add(*(f"n{i}" for i in range(count + 100)))
    for number in range(count):
        jobs.job(f"team-a/job-{number}", *[(f"n{number}", NOW)] * 8)
    await jobs.look()
    assert [jobs.doubt(f"n{number}") for number in range(count)] == [None] * count
    steps = []
    for number in range(10):
        jobs.job(f"team-a/more-{number}", (f"n{count + number}", NOW))
        with CountedWork() as counted:
            await jobs.nodes.reconciler.reconcile()
        steps.append(counted.steps)
    assert max(steps) < 5_000 * count, "each of the nodes is judged once, since the owner is not heard from now on"
    assert max(steps[1:]) < 190 * count + 5_000
