"""A replica of the operator: the shipped process on simulated ports, which can be killed between any two of its
steps."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from muster.api.installation import InstallationProfile
from muster.controller import pattern_child
from muster.controller.bus import Key
from muster.controller.dependencies import Dependencies
from muster.controller.operator import Operator
from muster.controller.patterns import StepPatterns
from muster.controller.ports import Ports
from muster.controller.settings import Settings
from muster.coordinator.server import CoordinatorServer
from muster.decision.decided import Decided
from muster.health.node_decision import NodeDecision
from muster.kube.client import Client
from muster.kube.lease import LeaderLease
from simulate.client import SimulatedClient, Way
from simulate.loop import whose
from simulate.network import API
from simulate.surroundings import Surroundings

PORT = 8443
LARGE_LAUNCHER_COUNT = 2048  # launchers, each of which reports every 4 s


def task_factory(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """Tasks belong to the replica that made them: they end when it does."""
    task = asyncio.Task(work, loop=loop, **options)
    replica = whose.get()
    if isinstance(replica, Replica):
        replica.tasks[task] = None
        task.add_done_callback(replica.ended)
        if not replica.alive:
            task.cancel()
    return task


class Replica:
    """One process.

    Attributes:
        place: in the network.
        listens: whether launchers that reach it are answered.
        parked: see `Pausable`.

    Args:
        exited: called when it has exited by itself.
        profile: of the installation.
    """

    def __init__(
        self, around: Surroundings, number: int, exited: Callable[[], None], profile: InstallationProfile
    ) -> None:
        self.around = around
        self._exited = exited
        self.name = f"operator-{number}"
        self.place = f"replica-{number}"
        self.address = f"10.255.0.{number % 250}"
        self.alive = True
        self.listens = False
        # In the order in which they were made: a set would have another in each process.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.parked: list[asyncio.Handle] | None = None
        stream = functools.partial(around.stream, "way", self.name)
        self.way = Way(stream, self._reaches_api, asked=around.asked)
        settings = Settings(
            pod_name=self.name,
            pod_ip=self.address,
            identity=self.name,
            launcher_image="muster/launcher:1",
            coordinator_url="https://coordinator:8443",
            coordinator_name="coordinator",
            checker_namespace="muster-check",
            agent_namespace="muster-agent",
            profile=profile,
        )
        token = whose.set(self)
        try:
            client = SimulatedClient(around.server, self.way, around.loop.time)
            self.operator = Operator(client, settings, self._dependencies())
            around.loop.create_task(self.operator.start())
        finally:
            whose.reset(token)

    def _dependencies(self) -> Dependencies:
        """What differs from the shipped process. Nobody reads the history; the simulated API server admits
        everything."""
        return Dependencies(
            clock=self.around.loop.time,
            wall_clock=self.around.wall_clock,
            cpu_clock=lambda: 0.0,
            end=self._exits,
            server_version=_simulated_version,
            make_ports=self._make_ports,
            make_step_patterns=_TriedHere,
            least_launchers=lambda: LARGE_LAUNCHER_COUNT if self.around.is_large else 0,
            keeps_history=False,
            checks_installation=False,
        )

    def _make_ports(
        self, _client: Client, _settings: Settings, _server: CoordinatorServer, lease: LeaderLease
    ) -> Ports:
        return _SimulatedPorts(self, lease)  # type: ignore[return-value]

    @property
    def leads(self) -> bool:
        """Whether it may write."""
        return self.alive and self.operator.lease.leading

    @property
    def answers(self) -> bool:
        """Whether what reaches it is looked at."""
        return self.listens and self.parked is None

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = self.listens = False
        self.resume()
        for task in list(self.tasks):
            task.cancel()
        self.around.journal.note("replica", f"{self.name} is dead")

    def ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def pause(self) -> None:
        """SIGSTOP: nothing of it moves, and its connections stay."""
        if self.alive and self.parked is None:
            self.parked = []
            self.around.journal.note("replica", f"{self.name} stands still")

    def resume(self) -> None:
        """SIGCONT: it goes on where it was, and knows nothing of the time between."""
        if self.parked is not None:
            self.around.loop.resume(self)

    def _exits(self, code: int) -> None:
        self.around.journal.note("replica", f"{self.name} exits with code {code}")
        self.kill()
        self._exited()

    def _reaches_api(self) -> bool:
        around = self.around
        return self.alive and around.api_is_up and around.network.connects(self.place, API)


async def _simulated_version(_client: Client) -> str:
    return "simulated"


class _TriedHere(StepPatterns):
    """Step patterns as the shipped child tries them, in this process: simulated time passes while no process
    answers."""

    async def _try(self, pattern: str) -> str:
        return pattern_child.problem_of(pattern)


class _SimulatedPorts:
    """How a replica is reached."""

    bundle = "the authority"

    def __init__(self, replica: Replica, lease: LeaderLease) -> None:
        self._replica = replica
        self._lease = lease

    async def open(
        self,
        not_healthy: Callable[[], str],
        not_ready: Callable[[], str],
        kept: Callable[[Key], Sequence[Decided]],
        kept_of_node: Callable[[str], Sequence[NodeDecision]],
    ) -> None:
        """Nobody asks."""

    async def close(self) -> None:
        """Nobody asks."""

    async def stand_by(self) -> None:
        await asyncio.sleep(1.0)
        self._listen()
        await asyncio.Event().wait()

    async def lead(self) -> None:
        self._listen()

    def _listen(self) -> None:
        self._replica.listens = self._replica.alive
        if self._replica.listens:
            self._lease.address = f"{self._replica.address}:{PORT}"

    async def publish(self) -> None:
        """Checkers are not simulated."""
        await asyncio.Event().wait()

    async def renew(self, renewed: Callable[[], None]) -> None:
        """Certificates are good for ever."""
        await asyncio.Event().wait()
