"""Keeps a live copy of one kind: listed in pages, then watched, with our own writes applied over what the watch has
shown.

Every resourceVersion of a kind comes from one counter, so three numbers decide what is newer: the object's own, the one
in the store, and the position of the stream. What is older than the store never replaces it; what is older than the
stream never comes back (it has been deleted or replaced since). A list shorter than the store deletes what is gone.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import structlog
from prometheus_client import Counter, Gauge

from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.namespaces import NODE_LEASES
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.kube import decode, jitter, paths
from muster.kube.client import Client
from muster.kube.decode import Key, Meta, Raw, Undecodable
from muster.kube.errors import ApiError, Gone, NotFound, Unreachable, from_status
from muster.kube.pages import pages
from muster.kube.template_shares import TemplateShares
from muster.world.quotas import QuotaView
from muster.world.views import JOB_UID_LABEL, NodeView, OccupantView, PodView

T = TypeVar("T")

SERVER_TIMEOUT_SECONDS = 300
READ_TIMEOUT_SECONDS = 75.0  # bookmarks come about once a minute: a stream silent for longer is dead
MAX_BACKOFF_SECONDS = 10.0
# Events that are read together cost less, and one by one they would be decided no sooner. Nothing waits for an agent's
# Pod.
GATHER_SECONDS = 0.02
GATHER_AGENTS_SECONDS = 0.5
# Each kubelet reports every five minutes that nothing has changed: with 16,384 kubelets that is one every 18 ms.
GATHER_NODE_SECONDS, MAX_GATHER_SECONDS = 1 / 65_536, 0.25
RESUMES_BEFORE_LIST = 3
READ_AGAIN_SECONDS = 15.0
ABSENT_SECONDS = 30.0
"""Pause after which a kind that is not installed is asked for again."""
AGENT_NAME = "muster-agent"  # the label app.kubernetes.io/name of the DaemonSet's Pods

log = structlog.get_logger()
_lists = Counter("muster_informer_lists_total", "Full lists that an informer has made.", ["informer"])
_objects = Gauge("muster_informer_objects", "Objects that an informer holds.", ["informer"])
_unreadable = Counter(
    "muster_unreadable_objects_total",
    "Objects, and changes of them, that could not be read; the log names them.",
    ["informer"],
)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What to list and watch, and how to decode it."""

    name: str
    path: str
    decode: Callable[[Raw], T]
    meta: Callable[[T], Meta]
    query: Mapping[str, str] = field(default_factory=dict)
    keep: Callable[[T], bool] = lambda _: True  # an object for which this is false is dropped after decoding
    index: Callable[[T], Hashable] = lambda _: None
    bare: Callable[[Raw], T] | None = None  # decodes the identity of one that `decode` cannot read
    gather_seconds: float = GATHER_SECONDS  # events within this time of each other are read together
    gather_each_seconds: float = 0.0  # or this long for each stored object, up to MAX_GATHER_SECONDS
    may_be_absent: bool = False  # where the kind is not installed, it has no objects


Subscriber = Callable[[T | None, T | None], None]
Clock = Callable[[], float]


class Store(Generic[T]):
    """The objects of one kind by (namespace, name). Only the event loop's thread may use it."""

    def __init__(self, kind: Kind[T]) -> None:
        self._position = 0  # the stream, or a list, has shown everything up to this resourceVersion
        self._kind = kind
        self._objects: dict[Key, tuple[Meta, T]] = {}
        self._index: dict[Hashable, dict[Key, T]] = {}
        self._subscribers: list[Subscriber[T]] = []
        # Objects that are known to be gone before the stream shows it, as they were last seen.
        self._deleted: dict[Key, Meta] = {}

    def get(self, key: Key) -> T | None:
        """Return the object, or None."""
        entry = self._objects.get(key)
        return entry[1] if entry else None

    def values(self) -> list[T]:
        """Return every object, in no order."""
        return [value for _, value in self._objects.values()]

    def by_index(self, value: Hashable) -> list[T]:
        """Return the objects whose index function gives this value, in no order."""
        return list(self._index.get(value, {}).values())

    def __len__(self) -> int:
        return len(self._objects)

    def subscribe(self, callback: Subscriber[T]) -> None:
        """Call back with (old, new) on each change, in order; it must not write to the store. Its errors are logged."""
        self._subscribers.append(callback)

    def assume(self, value: T) -> None:
        """Apply the answer to our own write to the store: it holds until the stream shows something newer."""
        meta = self._kind.meta(value)
        if meta.resource_version > self._position:  # otherwise the stream is already past it
            self._store(meta, value)

    def read_again(self, value: T) -> None:
        """Replace a version that could not be read when it was first seen, or an older one."""
        meta = self._kind.meta(value)
        entry = self._objects.get(meta.key)
        if entry is not None and entry[0].uid == meta.uid and entry[0].resource_version <= meta.resource_version:
            self._store(meta, value, force=True)

    def assume_deleted(self, key: Key, uid: str) -> None:
        """Remove an object that the API server has just reported as gone (not one that is only Terminating)."""
        entry = self._objects.get(key)
        if entry is not None and entry[0].uid == uid:  # otherwise the stream has shown it already
            self._deleted[key] = entry[0]
            self._remove(key)

    def apply(self, event_type: str, value: T) -> None:
        """Apply one event of the stream: ADDED, MODIFIED or DELETED. An event that a list has already shown changes
        nothing."""
        meta = self._kind.meta(value)
        if meta.resource_version <= self._position:
            return
        if event_type == "DELETED":
            if meta.key in self._deleted and self._deleted[meta.key].uid == meta.uid:
                del self._deleted[meta.key]
            self._remove_older(meta)
        else:
            self._store(meta, value)
        self.advance(meta.resource_version)

    def advance(self, resource_version: int) -> None:
        """Note that the stream has shown everything up to this resourceVersion (of an event or a bookmark)."""
        self._position = max(self._position, resource_version)

    def replace(self, values: Iterable[T], resource_version: int) -> None:
        """Apply a full list as of resource_version: objects that it lacks are gone, except those newer than the
        list."""
        if resource_version < self._position:  # the server's history went back (etcd restored): believe the server
            self._deleted.clear()
            floor = None
        else:
            floor = resource_version
        listed: set[Key] = set()
        uids: set[str] = set()
        for value in values:
            meta = self._kind.meta(value)
            listed.add(meta.key)
            uids.add(meta.uid)
            self._store(meta, value, force=floor is None)
        for key, (meta, _) in list(self._objects.items()):
            if key not in listed and (floor is None or meta.resource_version <= floor):
                self._remove(key)
        for key, deleted in list(self._deleted.items()):
            if deleted.uid not in uids and deleted.resource_version <= resource_version:
                del self._deleted[key]
        self._position = resource_version

    def catch_up(self, values: Iterable[T], resource_version: int) -> None:
        """Apply a full list that was read beside the stream, unless the stream is already newer."""
        if resource_version > self._position:
            self.replace(values, resource_version)

    def _store(self, meta: Meta, value: T, *, force: bool = False) -> None:
        deleted = self._deleted.get(meta.key)
        if deleted is not None and (meta.uid == deleted.uid or meta.resource_version <= deleted.resource_version):
            return
        if not self._kind.keep(value):
            self._remove_older(meta)
            return
        entry = self._objects.get(meta.key)
        if entry is not None and not force and meta.resource_version <= entry[0].resource_version:
            return
        old = entry[1] if entry else None
        if entry is not None:
            self._unindex(meta.key, entry[1])
        self._objects[meta.key] = (meta, value)
        at = self._kind.index(value)
        if at is not None:
            self._index.setdefault(at, {})[meta.key] = value
        self._changed(old, value)

    def _remove_older(self, meta: Meta) -> None:
        entry = self._objects.get(meta.key)
        if entry is not None and entry[0].resource_version <= meta.resource_version:
            self._remove(meta.key)

    def _remove(self, key: Key) -> None:
        _, old = self._objects.pop(key)
        self._unindex(key, old)
        self._changed(old, None)

    def _unindex(self, key: Key, value: T) -> None:
        at = self._kind.index(value)
        bucket = self._index.get(at)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._index[at]

    def _changed(self, old: T | None, new: T | None) -> None:
        for callback in self._subscribers:
            try:
                callback(old, new)
            except Exception:  # the change stands, and the other objects must not suffer from the error
                _unreadable.labels(self._kind.name).inc()
                log.exception("change not taken in", informer=self._kind.name, key=self._key_of(new or old))

    def _key_of(self, value: T | None) -> Key | None:
        return self._kind.meta(value).key if value is not None else None


class Informer(Generic[T]):
    """Keeps a Store up to date with the API server. Start `run()` as a task; decide nothing before `synced` is set."""

    def __init__(self, client: Client, kind: Kind[T], clock: Clock = time.monotonic) -> None:
        self.kind = kind
        self.store: Store[T] = Store(kind)
        self.synced = asyncio.Event()
        self.is_absent = False  # whether the kind is not installed, for one that may be absent
        self._client = client
        self._clock = clock
        self._listing = asyncio.Lock()
        self._count = _objects.labels(kind.name)
        self.last_contact = clock()  # when this informer last received something readable from the API server
        self._position: str | None = None  # resourceVersion to resume from; None: list first
        self._failures = 0

    @property
    def name(self) -> str:
        """Return the name of the kind."""
        return self.kind.name

    def note_listed(self, number: int) -> None:
        """Count a list, and publish how many objects it had."""
        _lists.labels(self.kind.name).inc()
        self._count.set(number)

    def read(self, data: Raw) -> T:
        """Decode the object, or only its identity: an object that cannot be read must not hide the others."""
        try:
            return self.kind.decode(data)
        except Exception as error:
            if self.kind.bare is None:
                raise
            value = self.kind.bare(data)
            _unreadable.labels(self.kind.name).inc()
            log.warning("unreadable", informer=self.kind.name, key=self.kind.meta(value).key, error=str(error))
            return value

    def assume(self, answer: bytes) -> T:
        """Apply the API server's answer to our own POST, PUT or PATCH to the store; return it decoded."""
        value = self.read(answer)
        self.store.assume(value)
        return value

    def assume_delete(self, key: Key, uid: str, answer: bytes) -> None:
        """Apply the API server's answer to our own DELETE of the object with this uid to the store."""
        if decode.is_gone(answer):
            self.store.assume_deleted(key, uid)
        else:
            self.store.assume(self.read(answer))

    def last_contact_age_seconds(self) -> float:
        """Return the seconds since this informer last received something readable. A healthy stream has a bookmark a
        minute."""
        return self._clock() - self.last_contact

    async def refresh(self) -> None:
        """List the kind, so that the store is at least as new as the API server is now.

        Raises:
            ApiError: the kind could not be listed.
            ValueError: a listed object cannot be read.
        """
        async with self._listing:
            values, version = await self._read()
            self.store.catch_up(values, int(version))

    async def run(self) -> None:
        """List and watch until cancelled. Errors are logged and retried, with a growing and jittered pause."""
        while True:
            started = self._clock()
            try:
                if self._position is None:
                    await self._list()
                await self._watch()
                error: Exception | None = None
            except Gone as gone:
                error, self._position = gone, None
            except NotFound as absent:
                error, self._position = absent, None
                if self.kind.may_be_absent:
                    if not self.synced.is_set():
                        log.info("kind not installed", informer=self.kind.name)
                    self.last_contact, self.is_absent = self._clock(), True
                    self.synced.set()
                    await asyncio.sleep(ABSENT_SECONDS)
                    continue
            except ApiError as refused:
                error = refused
                # A stream that broke is resumed; one that cannot be opened or resumed is listed again.
                if not isinstance(refused, Unreachable) or self._failures >= RESUMES_BEFORE_LIST:
                    self._position = None
            except Exception as unreadable:  # noqa: BLE001
                # Not even its identity can be read. Skipping it would hide an occupant: stay visibly stale instead.
                error, self._position = unreadable, None
            if error is None and self._clock() - started > 1.0:
                self._failures = 0
                continue
            self._failures += 1
            pause = jitter.uniform(0.5, 1.0) * min(0.1 * 2**self._failures, MAX_BACKOFF_SECONDS)
            if error is not None:
                log.warning(
                    "informer interrupted", informer=self.kind.name, error=str(error), retry_seconds=round(pause, 1)
                )
            await asyncio.sleep(pause)

    async def _list(self) -> None:
        async with self._listing:  # of two lists the older one must not come last
            values, version = await self._read()
            self.store.replace(values, int(version))
        self._position = version
        self.last_contact, self.is_absent = self._clock(), False
        self._count.set(len(self.store))
        self.synced.set()

    async def _read(self) -> tuple[list[T], str]:
        """Return all objects, and the resourceVersion of the list. The request names no resourceVersion, which means
        the newest.

        Raises:
            Gone: the list took longer than the API server keeps its first page; begin again.
        """
        values: list[T] = []
        version = ""
        async for page in pages(self._client, self.kind.path, self.kind.query):
            values.extend(value for value in map(self.read, page.items or ()) if self.kind.keep(value))
            version = page.metadata.resource_version
        _lists.labels(self.kind.name).inc()
        return values, version

    async def _watch(self) -> None:
        query: dict[str, str | int] = {
            **self.kind.query,
            "resourceVersion": self._position or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": int(SERVER_TIMEOUT_SECONDS * jitter.uniform(0.9, 1.1)),
        }
        of_all = min(len(self.store) * self.kind.gather_each_seconds, MAX_GATHER_SECONDS)
        gather = max(self.kind.gather_seconds, of_all)
        lines = self._client.watch(
            self.kind.path, query, read_timeout_seconds=READ_TIMEOUT_SECONDS, gather_seconds=gather
        )
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._apply_line(line)
                self.last_contact = self._clock()
                self._failures = 0

    def _apply_line(self, line: bytes) -> None:
        event = decode.watch_event(line)
        if event.type == "ERROR":
            raise from_status(0, bytes(event.object))
        if event.type == "BOOKMARK":
            version = decode.resource_version(event.object)
            self.store.advance(version)
        else:
            value = self.read(event.object)
            version = self.kind.meta(value).resource_version
            self.store.apply(event.type, value)
            self._count.set(len(self.store))
        self._position = str(version)


class Pods(Informer[T]):
    """An informer of pods that starts once nodes have been listed: what a pod takes depends on what nodes offer."""

    def __init__(self, client: Client, kind: Kind[T], clock: Clock, nodes: Informer[Any] | None) -> None:
        super().__init__(client, kind, clock)
        self._nodes = nodes

    async def run(self) -> None:
        """List and watch until cancelled."""
        if self._nodes is not None:
            await self._nodes.synced.wait()
        await super().run()


def worker_pods(
    client: Client,
    clock: Clock = time.monotonic,
    offered: Container[str] = frozenset(),
    nodes: Informer[Any] | None = None,
) -> Informer[PodView]:
    """Return an informer of Muster's own pods, by namespace and uid of their job, the finished ones included. `offered`
    are the resources that nodes offer.

    Pods that only carry the label are there, too, but indexed under no job: any tenant can create thousands of them.
    """
    return Pods(
        client,
        Kind(
            "worker_pods",
            paths.core("pods"),
            partial(decode.pod, offered=offered),
            decode.flat_meta,
            query={"labelSelector": JOB_UID_LABEL},
            index=lambda pod: (pod.namespace, pod.job_uid) if pod.owner_uid == pod.job_uid else None,
            bare=decode.bare_pod,
        ),
        clock,
        nodes,
    )


def occupant_pods(
    client: Client,
    clock: Clock = time.monotonic,
    offered: Container[str] = frozenset(),
    nodes: Informer[Any] | None = None,
    *,
    with_workers: bool = False,
) -> Informer[OccupantView]:
    """Return an informer of all pods on nodes, Terminating ones included, without finished ones. `offered` are the
    resources that nodes offer. Pods labelled as workers are left out unless `with_workers`.

    A pod that finishes leaves the selector, which the watch reports as DELETED.
    """
    query = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    if not with_workers:
        query["labelSelector"] = f"!{JOB_UID_LABEL}"
    return Pods(
        client,
        Kind(
            "occupant_pods",
            paths.core("pods"),
            partial(decode.occupant, offered=offered),
            decode.flat_meta,
            query=query,
            keep=lambda pod: bool(pod.node),
            bare=decode.bare_occupant,
        ),
        clock,
        nodes,
    )


def agent_pods(client: Client, namespace: str, clock: Clock = time.monotonic) -> Informer[decode.AgentPod]:
    """Return an informer of the Pods of the nodes' agents, by node. Only a user that may create Pods in their namespace
    can imitate one."""
    kind = Kind(
        "agent_pods",
        paths.core("pods", namespace=namespace),
        decode.agent_pod,
        decode.flat_meta,
        query={"labelSelector": f"app.kubernetes.io/name={AGENT_NAME}"},
        keep=lambda pod: bool(pod.node),
        index=lambda pod: pod.node,
        bare=decode.bare_agent_pod,
        gather_seconds=GATHER_AGENTS_SECONDS,
    )
    return Informer(client, kind, clock)


def nodes(client: Client, clock: Clock = time.monotonic) -> Informer[NodeView]:
    """Every node; its key is ("", name)."""
    kind = Kind(
        "nodes",
        paths.core("nodes"),
        decode.node,
        decode.node_meta,
        bare=decode.bare_node,
        gather_each_seconds=GATHER_NODE_SECONDS,
    )
    return Informer(client, kind, clock)


def node_leases(client: Client, clock: Clock = time.monotonic) -> Informer[decode.NodeLease]:
    """Return an informer of the kubelets' heartbeats, to be listed and not watched (`muster.kube.nodeleases`). The key
    is ("kube-node-lease", node)."""
    return Informer(
        client,
        Kind(
            "node_leases",
            paths.leases(NODE_LEASES),
            decode.node_lease,
            decode.lease_meta,
            bare=decode.bare_lease,
        ),
        clock,
    )


def priority_classes(client: Client, clock: Clock = time.monotonic) -> Informer[decode.PriorityClass]:
    """Return an informer of every PriorityClass; its key is ("", name)."""
    path = paths.group("scheduling.k8s.io/v1", "priorityclasses")
    kind = Kind("priority_classes", path, decode.priority_class, decode.priority_meta, bare=decode.bare_priority)
    return Informer(client, kind, clock)


def namespaces(client: Client, clock: Clock = time.monotonic) -> Informer[decode.NamespaceView]:
    """Return an informer of every Namespace; its key is ("", name)."""
    return Informer(client, Kind("namespaces", paths.core("namespaces"), decode.namespace, decode.node_meta), clock)


def resource_quotas(client: Client, clock: Clock = time.monotonic) -> Informer[QuotaView]:
    """Return an informer of every ResourceQuota, by namespace."""
    kind = Kind(
        "resource_quotas",
        paths.core("resourcequotas"),
        decode.resource_quota,
        decode.flat_meta,
        index=lambda quota: quota.namespace,
        bare=decode.bare_quota,
    )
    return Informer(client, kind, clock)


class TrainingJobs(Informer[TrainingJob | Undecodable]):
    """An informer of every TrainingJob, by uid. A job for which its namespace had no room is read again once there is
    room."""

    def __init__(
        self,
        client: Client,
        clock: Clock = time.monotonic,
        shares: TemplateShares | None = None,
        *,
        may_be_absent: bool = False,
    ) -> None:
        self._shares = shares or TemplateShares()
        kind = Kind(
            "trainingjobs",
            paths.muster("trainingjobs"),
            decode.training_job(self._shares),
            decode.custom_meta,
            index=_uid,
            may_be_absent=may_be_absent,
        )
        super().__init__(client, kind, clock)

    async def run(self) -> None:
        """List, watch and read again until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._read_refused_again())

    async def _read_refused_again(self) -> None:
        while True:
            await asyncio.sleep(READ_AGAIN_SECONDS)
            try:
                await self.read_refused()
            except Exception:  # the others are read in the next round
                log.exception("job not read again", informer=self.name)

    async def read_refused(self) -> None:
        """Read those jobs again for which there is room now."""
        for key, size_bytes in self._shares.refused():
            job = self.store.get(key)
            if not isinstance(job, Undecodable) or not job.waits_for_room:
                self._shares.forget(key)
            elif self._shares.has_room(key, size_bytes):
                with contextlib.suppress(
                    ApiError
                ):  # it is gone, or the API server is unavailable: the watch or the next round shows which
                    self.store.read_again(self.read(await self._client.get(_job_path(key))))


def _job_path(key: Key) -> str:
    return paths.muster("trainingjobs", namespace=key[0], name=key[1])


def training_jobs(
    client: Client, clock: Clock = time.monotonic, *, may_be_absent: bool = False
) -> Informer[TrainingJob | Undecodable]:
    """Return an informer of every TrainingJob, by uid. Where `may_be_absent`, a cluster without the kind has none."""
    return TrainingJobs(client, clock, may_be_absent=may_be_absent)


def gangs(client: Client, clock: Clock = time.monotonic) -> Informer[Gang | Undecodable]:
    """Return an informer of every Gang, by the uid of its job, undecodable ones included."""
    return _custom(
        client,
        clock,
        "gangs",
        Gang,
        lambda gang: gang.owner_uid if isinstance(gang, Undecodable) else gang.spec.job_uid,
    )


def node_healths(client: Client, clock: Clock = time.monotonic) -> Informer[NodeHealth | Undecodable]:
    """Return an informer of every NodeHealth; its key is ("", name of the node)."""
    return _custom(client, clock, "nodehealths", NodeHealth, _uid)


def fleet_policies(client: Client, clock: Clock = time.monotonic) -> Informer[FleetPolicy | Undecodable]:
    """Return an informer of every FleetPolicy; the one that counts has the key ("", "default")."""
    return _custom(client, clock, "fleetpolicies", FleetPolicy, _uid)


def _uid(value: Any) -> Hashable:
    return decode.custom_meta(value).uid


def _custom(client: Client, clock: Clock, resource: str, model: Any, index: Callable[[Any], Hashable]) -> Informer[Any]:
    kind = Kind(resource, paths.muster(resource), decode.custom(model), decode.custom_meta, index=index)
    return Informer(client, kind, clock)
