"""Keeps one launcher for each worker pod that runs, does to them what happens to their pods, and makes faults."""

import asyncio
import contextlib
import functools
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bench.launchers import pods
from bench.launchers.channel import Endpoint, own_address
from bench.launchers.control import FailRanks, Restore, Silence
from bench.launchers.pods import WorkerPod
from bench.launchers.reporter import Launcher
from bench.launchers.training import Pace, Training
from bench.launchers.worker import Identity, Worker
from muster.kube.client import Client
from muster.kube.errors import Conflict, NotFound, ServerError, TooManyRequests, Unreachable
from muster.kube.informer import Informer
from muster.protocol.messages import Peer

API_CALLS_AT_ONCE = 32
RETRY_SECONDS = 0.2
PORTS = range(1024, 65536)

# Prints one event: its name and its fields.
Emit = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Options:
    """What to serve and how.

    Attributes:
        coordinator: https address of the leader.
        server_name: name in its certificate; "" = the one that Muster has written into the pod.
        ca_pem: authorities to trust; "" = those in the ConfigMap of the job.
        namespace: of the pods; "" = all.
    """

    coordinator: str
    server_name: str
    ca_pem: str
    namespace: str
    pace: Pace


@dataclass(slots=True)
class _Running:
    """A launcher that was begun for a pod."""

    pod: WorkerPod
    task: asyncio.Task[None]
    launcher: Launcher | None = None  # None until its token is there
    leaving: bool = False


class Fleet:
    """All launchers; `run()` until cancelled."""

    def __init__(self, client: Client, options: Options, emit: Emit) -> None:
        self._client = client
        self._options = options
        self._emit = emit
        self._counts: Counter[str] = Counter()
        self._running: dict[str, _Running] = {}  # by pod uid
        self._trainings: dict[str, Training] = {}
        self._over: set[str] = set()  # uids of pods that are there and whose launchers have ended
        self._exits: dict[str, Counter[int]] = {}  # job uid -> exit codes of its launchers
        self._alive: Counter[str] = Counter()  # job uid -> launchers that are alive
        self._dark_nodes: set[str] = set()
        self._dark_pods: set[str] = set()
        self._ports = itertools.cycle(PORTS)
        self._addresses = itertools.cycle(range(1 << 16, 1 << 20))  # the checkers have those before
        self._talking: set[tuple[str, int]] = set()  # addresses of the launchers that answer pings
        self._silent_since: dict[tuple[str, int], float] = {}
        self._api_calls = asyncio.Semaphore(API_CALLS_AT_ONCE)
        self._trust: dict[str, str] = {}  # job uid -> authorities
        self._trusting = asyncio.Lock()
        self._group = asyncio.TaskGroup()
        self._informer = Informer(client, pods.worker_pods(options.namespace))
        self._informer.store.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Serve until cancelled; an error that nobody expects ends everything."""
        async with self._group as group:
            group.create_task(self._informer.run())
            await self._informer.synced.wait()
            self._emit("watching", pods=len(self._informer.store))

    # Faults

    def fail_ranks(self, command: FailRanks) -> int:
        """Returns in how many pods ranks have failed."""
        wanted = set(command.pods)
        found = [one for one in self._running.values() if one.pod.name in wanted and one.launcher]
        return sum(one.launcher.fail(command.exit_code) for one in found if one.launcher)

    def silence(self, command: Silence) -> int:
        """Returns how many launchers have ended; those that would begin there later never do."""
        self._dark_pods.update(command.pods)
        if command.node:
            self._dark_nodes.add(command.node)
        found = [one for one in self._running.values() if self._is_dark(one.pod)]
        for one in found:
            self._cut(one)
        return len(found)

    def restore(self, command: Restore) -> bool:
        """Returns whether the node was silent."""
        dark = command.node in self._dark_nodes
        self._dark_nodes.discard(command.node)
        return dark

    def statistics(self) -> dict[str, Any]:
        """Launchers, reports so far by outcome, and what this process has used."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        times = os.times()
        return {
            "launchers": sum(one.launcher is not None for one in self._running.values()),
            "reports": dict(self._counts),
            "cpu_seconds": round(times.user + times.system, 2),
            "rss_mb": round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1),
        }

    # Pods

    def _pod_changed(self, old: WorkerPod | None, new: WorkerPod | None) -> None:
        pod = new or old
        assert pod is not None
        one = self._running.get(pod.uid)
        if one is not None:
            if new is None or new.over:
                self._cut(one)
            elif new.deleting and not one.leaving:
                one.leaving = True
                self._spawn(self._exit(one))
        elif new is not None and new.runs and new.uid not in self._over and not self._is_dark(new):
            self._begin(new)
        if new is None:
            self._over.discard(pod.uid)
            self._dark_pods.discard(pod.name)

    def _is_dark(self, pod: WorkerPod) -> bool:
        return pod.node in self._dark_nodes or pod.name in self._dark_pods

    def _begin(self, pod: WorkerPod) -> None:
        self._running[pod.uid] = one = _Running(pod, self._spawn(self._live(pod)))
        self._alive[pod.job_uid] += 1
        one.task.add_done_callback(lambda _: self._gone(one))

    def _gone(self, one: _Running) -> None:
        """A launcher has ended, in whatever way."""
        pod = one.pod
        del self._running[pod.uid]
        if self._informer.store.get((pod.namespace, pod.name)) is not None:
            self._over.add(pod.uid)
        if one.launcher is not None:
            self._fall_silent(one.launcher)
        self._alive[pod.job_uid] -= 1
        if not self._alive[pod.job_uid] and pod.job_uid in self._exits:
            codes = self._exits.pop(pod.job_uid)
            self._emit("exit", job=pod.job_uid, workers=codes.total(), exit_codes=dict(codes))

    def _cut(self, one: _Running) -> None:
        """Its container or its node is gone: nothing more is said."""
        if one.launcher is not None:
            one.launcher.worker.kill(time.monotonic())
            self._fall_silent(one.launcher)
        one.task.cancel()

    def _fall_silent(self, launcher: Launcher) -> None:
        where = (launcher.worker.identity.address, launcher.worker.identity.peer_port)
        if where in self._talking:
            self._talking.discard(where)
            self._silent_since[where] = time.monotonic()

    async def _live(self, pod: WorkerPod) -> None:
        """One launcher's life; the container ends with it."""
        try:
            endpoint = await self._endpoint(pod)
            token = await self._token(pod)
        except (NotFound, Conflict):
            return  # the pod is gone already, or one of that name has come after it
        identity = Identity(pod.uid, pod.address, next(self._ports))
        where = (identity.address, identity.peer_port)
        self._talking.add(where)
        self._silent_since.pop(where, None)
        worker = Worker(identity, self._training(pod), self._options.pace, self._silence_of)
        launcher = self._running[pod.uid].launcher = Launcher(worker, endpoint, token, self._counts)
        code = await launcher.run()
        self._exits.setdefault(pod.job_uid, Counter())[code] += 1
        self._spawn(self._report_end(pod, code))

    async def _exit(self, one: _Running) -> None:
        """SIGTERM: the ranks end, one last report, and the launcher is no more."""
        one.task.cancel()
        if one.launcher is not None:
            await one.launcher.leave()
            self._fall_silent(one.launcher)

    def _training(self, pod: WorkerPod) -> Training:
        if pod.job_uid not in self._trainings:
            directory = pod.environment.get(pods.DIRECTORY_VARIABLE, "")
            tell = functools.partial(self._tell, pod.job_uid)
            self._trainings[pod.job_uid] = Training(self._options.pace, directory, tell)
        return self._trainings[pod.job_uid]

    def _tell(self, job_uid: str, what: str, attempt: int, workers: int) -> None:
        self._emit(what, job=job_uid, attempt=attempt, workers=workers)

    def _silence_of(self, peer: Peer) -> float | None:
        where = (peer.address, peer.port)
        return None if where in self._talking else self._silent_since.get(where, 0.0)

    # The API server, in place of the kubelet

    async def _endpoint(self, pod: WorkerPod) -> Endpoint:
        name = self._options.server_name or pod.environment[pods.NAME_VARIABLE]
        found = _endpoint(self._options.coordinator, name, self._options.ca_pem or await self._authorities(pod))
        return replace(found, source=own_address(next(self._addresses)))

    async def _authorities(self, pod: WorkerPod) -> str:
        """The authorities that the pods of a job trust, asked for once; a kubelet waits for the ConfigMap, too."""
        async with self._trusting:
            while pod.job_uid not in self._trust:
                try:
                    answer = await self._asked(lambda: self._client.get(pods.trust_path(pod)))
                    self._trust[pod.job_uid] = str(msgspec.json.decode(answer)["data"]["ca.crt"])
                except NotFound:
                    await asyncio.sleep(RETRY_SECONDS)
            return self._trust[pod.job_uid]

    async def _report_end(self, pod: WorkerPod, exit_code: int) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self._asked(lambda: self._client.patch(pods.status_path(pod), pods.ended_status(pod, exit_code)))

    async def _token(self, pod: WorkerPod) -> str:
        answer = await self._asked(lambda: self._client.post(pods.token_path(pod), pods.token_request(pod)))
        return str(msgspec.json.decode(answer)["status"]["token"])

    async def _asked(self, call: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Ask, as often as it takes while the API server is away."""
        while True:
            try:
                async with self._api_calls:
                    return await call()
            except (Unreachable, ServerError, TooManyRequests):
                await asyncio.sleep(RETRY_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(work)


@functools.lru_cache(maxsize=64)
def _endpoint(url: str, server_name: str, ca_pem: str) -> Endpoint:
    return Endpoint.of(url, server_name, ca_pem)
