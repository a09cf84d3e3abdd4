"""One test's whole world: a namespace with jobs, nodes with their hand, an installation of operators; and how to
wait."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from localcluster.patience import PATIENCE_SECONDS
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import ApiError, NotFound
from muster.world.names import gang_name
from stage.hand import Hand, Object, job_manifest, patiently
from stage.launcher import Training
from stage.operators import Operators

LOOK_SECONDS = 0.02


class Scene:
    """What tests act on and look at."""

    def __init__(self, api: Client, hand: Hand, operators: Operators) -> None:
        self.api = api
        self.hand = hand
        self.operators = operators
        self.namespace = hand.namespace
        self.ledger = hand.ledger

    async def add_nodes(self, count: int, prefix: str, racks: int = 1) -> list[str]:
        names = [f"{prefix}-{number}" for number in range(count)]
        await asyncio.gather(
            *(self.hand.add_node(name, rack=f"{prefix}-r{n % racks}", block=prefix) for n, name in enumerate(names))
        )
        return names

    @contextlib.asynccontextmanager
    async def policy(self, spec: Object) -> AsyncIterator[None]:
        """The fleet's policy, which lets every namespace train, says this besides meanwhile."""
        path = paths.muster("fleetpolicies", name="default")
        await patiently(lambda: self.api.patch(path, {"spec": spec}))
        try:
            yield
        finally:
            await patiently(lambda: self.api.patch(path, {"spec": dict.fromkeys(spec)}))

    async def create_job(
        self, name: str = "job", nodes: int = 3, training: Object | None = None, **spec: Any
    ) -> Training:
        made = self.hand.train(name, nodes=nodes, **(training or {}))
        await self.create(job_manifest(name, nodes, **spec))
        return made

    async def create(self, manifest: Object) -> Object:
        path = paths.muster("trainingjobs", namespace=self.namespace)
        return await patiently(lambda: self.api.post(path, manifest))

    async def job(self, name: str = "job") -> Object:
        path = paths.muster("trainingjobs", namespace=self.namespace, name=name)
        return await patiently(lambda: self.api.get(path))

    async def patch_job(self, spec: Object, name: str = "job") -> None:
        path = paths.muster("trainingjobs", namespace=self.namespace, name=name)
        await patiently(lambda: self.api.patch(path, {"spec": spec}))

    async def delete_job(self, name: str = "job") -> None:
        path = paths.muster("trainingjobs", namespace=self.namespace, name=name)
        await patiently(lambda: self.api.delete(path, {"propagationPolicy": "Background"}))

    async def gang(self, name: str = "job") -> Object | None:
        """The spec of the job's record."""
        job = await self.job(name)
        path = paths.muster("gangs", namespace=self.namespace, name=gang_name(name, job["metadata"]["uid"]))
        try:
            spec: Object = (await patiently(lambda: self.api.get(path)))["spec"]
            return spec
        except NotFound:
            return None

    async def listed(self, path: str) -> list[Object]:
        items: list[Object] = (await patiently(lambda: self.api.get(path)))["items"]
        return items

    async def pods(self) -> list[Object]:
        return await self.listed(paths.core("pods", namespace=self.namespace))

    async def events(self) -> list[Object]:
        return await self.listed(paths.group("events.k8s.io/v1", "events", namespace=self.namespace))

    async def condition(self, kind: str, name: str = "job") -> tuple[str, str, str]:
        """Status, reason and message; empty while the condition is not there."""
        for condition in (await self.job(name)).get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    async def eventually(
        self, what: str, check: Callable[[], Awaitable[Any] | Any], seconds: float = PATIENCE_SECONDS
    ) -> Any:
        """Look until `check` gives something true, which is returned."""
        until = time.monotonic() + seconds
        while True:
            found = check()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            if time.monotonic() > until:
                raise AssertionError(f"{what}: not within {seconds:.0f} s\n{await self.describe()}")
            await asyncio.sleep(LOOK_SECONDS)

    async def training_at(self, attempt: int, training: Training) -> None:
        """Wait until every rank runs in this attempt and has come to where it is held."""
        await self.eventually(
            f"attempt {attempt} trains",
            lambda: (
                sum(launcher.rank_alive and launcher.attempt == attempt for launcher in training.launchers.values())
                == training.nodes
                and training.step == training.hold_at
            ),
        )

    async def told_step(self, training: Training) -> None:
        """Wait until the operator knows how far the training is: an earlier checkpoint is no new one then."""
        await self.eventually(
            f"the operator knows of step {training.hold_at}",
            lambda: any(launcher.told_step == training.hold_at for launcher in training.launchers.values()),
        )

    async def state(self, wanted: str, name: str = "job", seconds: float = PATIENCE_SECONDS) -> Object:
        """Wait until the job's status shows this state."""

        async def reached() -> Object | None:
            job = await self.job(name)
            return job if job.get("status", {}).get("state") == wanted else None

        found: Object = await self.eventually(f"{name} is {wanted}", reached, seconds)
        return found

    async def recovered(self, attempt: int, name: str = "job") -> Object:
        """Wait until the job's status tells of this attempt, running."""

        async def told() -> Object | None:
            job = await self.job(name)
            status = job.get("status", {})
            return job if (status.get("attempt"), status.get("state")) == (attempt, "Running") else None

        found: Object = await self.eventually(f"{name} tells of attempt {attempt}", told)
        return found

    async def succeeded(self, name: str = "job") -> Object:
        """Wait until the job has succeeded and its workers have exited."""
        job = await self.state("Succeeded", name)
        await self.eventually("workers have exited", self.all_exited)
        return job

    async def all_exited(self) -> bool:
        return all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in await self.pods())

    async def describe(self) -> str:
        """What an angry person wants to know."""
        parts: list[str] = []
        with contextlib.suppress(ApiError):
            jobs = await self.listed(paths.muster("trainingjobs", namespace=self.namespace))
            gangs = await self.listed(paths.muster("gangs", namespace=self.namespace))
            parts += [f"job {job['metadata']['name']}: {job.get('status')}" for job in jobs]
            parts += [f"gang: {gang['spec']}" for gang in gangs]
            for pod in await self.pods():
                status, metadata = pod["status"], pod["metadata"]
                parts.append(f"pod {metadata['name']}: {status['phase']} {metadata.get('deletionTimestamp', '')}")
        for worker in self.hand.workers.values():
            if worker.launcher:
                launcher = worker.launcher
                parts.append(f"launcher {worker.name}: {launcher.state} {launcher.attempt} {launcher.answers[-8:]}")
        for process in self.operators.started:
            tail = process.log.read_text().splitlines()[-25:] if process.log.exists() else []
            state = "dead" if process.dead.is_set() else "alive"
            parts.append("\n".join([f"{process.log.name} is {state}, writes {process.writes[-12:]}", *tail]))
        return "\n".join(parts)
