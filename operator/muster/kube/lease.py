"""Elects the leader by a Lease: at most one replica writes, and one that may have lost it stops before another can
begin.

Clocks of different machines are never compared. A candidate waits until it has itself seen the lease unchanged for its
whole duration. A leader counts from the moment it SENT its last successful renewal, which is before any other replica
could see it. So the leader's time ends first, by lease duration less renew deadline.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from prometheus_client import Gauge

from muster.api.base import rfc3339
from muster.kube import jitter, paths
from muster.kube.client import Client
from muster.kube.errors import AlreadyExists, ApiError, Conflict, LeadershipLost, NotFound

log = structlog.get_logger()
# Where the holder answers launchers, as host:port: every replica redirects clients to it.
ADDRESS_ANNOTATION = "muster.dev/coordinator-address"

_is_leader = Gauge("muster_is_leader", "Whether this process is the leader.")


@dataclass(frozen=True)
class _ObservedLease:
    """A state of the lease, and when this process first saw it, on its own clock."""

    resource_version: str
    holder: str
    duration_seconds: float
    since: float
    address: str


class LeaderLease:
    """One candidate for leadership. `await acquire()`, then keep `hold()` running as a task, `release()` at a graceful
    end. The identity is unique to this process: the pod's name alone is not enough, because a container can restart.
    `on_lost` is called once when the lease is lost; it ends the process. `seen` is called with each resourceVersion of
    the lease that is seen.

    Attributes:
        address: where this process answers launchers, host:port; "" while it does not. Written with each renewal.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry: float = 2.0,
        on_lost: Callable[[], None] | None = None,
        seen: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not retry < renew_deadline < lease_duration:
            raise ValueError("a lease needs retry < renew_deadline < lease_duration")
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry = retry
        self._on_lost = on_lost
        self.address = ""
        self._tell_seen = seen
        self._clock = clock
        self._wall_clock = wall_clock
        self._seen: _ObservedLease | None = None
        self._object: dict[str, Any] = {}
        self._renewed_at: float | None = None  # when the last successful renewal was sent

    @property
    def leading(self) -> bool:
        """Whether this process may write now."""
        return self._renewed_at is not None and self._seconds_until_expiry() > self._margin

    @property
    def holder(self) -> str:
        """Return the identity of the holder last seen, "" when there is none: for logs and for `/readyz`."""
        return self._seen.holder if self._seen else ""

    @property
    def leader_address(self) -> str:
        """Return where the leading replica answers launchers; "" when none leads, this one leads, or it is unknown."""
        seen = self._seen
        if seen is None or seen.holder in ("", self._identity) or self._clock() - seen.since >= seen.duration_seconds:
            return ""
        return seen.address

    def remaining_seconds(self) -> float:
        """Return the seconds for which no other replica can take over; 0 when this process does not lead."""
        return max(self._seconds_until_expiry(), 0.0) if self._renewed_at is not None else 0.0

    def check(self) -> float:
        """Return the seconds for which a write may stay pending.

        Raises:
            LeadershipLost: too little time is left to begin a write, or this process never led.
        """
        left = self.remaining_seconds()
        if left <= self._margin:
            raise LeadershipLost(
                f"{self._identity} does not hold the lease {self._namespace}/{self._name}: exit, do not write"
            )
        return left

    async def acquire(self) -> None:
        """Return once this process leads; wait as long as that takes."""
        while True:
            try:
                if await self._try_acquire():
                    _is_leader.set(1)
                    log.info("leading", lease=self._name, identity=self._identity)
                    return
            except (Conflict, AlreadyExists):
                pass  # another replica was faster: read the lease again
            except ApiError as error:
                log.warning("cannot reach the lease", lease=self._name, error=str(error))
            await asyncio.sleep(self._retry * jitter.uniform(0.5, 1.0))

    async def hold(self) -> None:
        """Renew until cancelled; return after `on_lost` when the lease is lost."""
        while True:
            await asyncio.sleep(min(self._retry, max(self.remaining_seconds() - self._margin, 0.0)))
            if not self.leading:
                break
            try:
                if not await self._renew():
                    break
            except ApiError as error:
                log.warning(
                    "cannot renew the lease", lease=self._name, error=str(error), left_seconds=self.remaining_seconds()
                )
        self._renewed_at = None
        _is_leader.set(0)
        log.error("leadership lost", lease=self._name, identity=self._identity, holder=self.holder)
        if self._on_lost is not None:
            self._on_lost()

    async def release(self) -> None:
        """Hand the lease over at a graceful end, after the last write; cancel `hold()` first."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        _is_leader.set(0)
        free = {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            try:
                await self._write(free)
            except Conflict:
                # A renewal that was cancelled on its way has arrived all the same; there is at most one.
                await self._read()
                if self.holder == self._identity:
                    await self._write(free)
        except ApiError as error:  # then the successor waits until the lease expires
            log.warning("cannot release the lease", lease=self._name, error=str(error))

    @property
    def _margin(self) -> float:
        return self._lease_duration - self._renew_deadline

    def _seconds_until_expiry(self) -> float:
        assert self._renewed_at is not None
        return self._renewed_at + self._lease_duration - self._clock()

    async def _try_acquire(self) -> bool:
        try:
            await self._read()
        except NotFound:
            sent = self._clock()
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": self._name,
                    "namespace": self._namespace,
                    **self._address_annotation(self.address),
                },
                "spec": self._spec(0),
            }
            self._adopt(await self._client.post(paths.leases(self._namespace), body, guarded=False))
            self._renewed_at = sent
            return True
        seen = self._seen
        assert seen is not None
        waited = self._clock() - seen.since
        duration = max(seen.duration_seconds, self._lease_duration)
        # The lease names this process: the answer to its own write was lost.
        if seen.holder not in ("", self._identity) and waited < duration:
            return False
        return await self._claim(transitions=int(self._object.get("spec", {}).get("leaseTransitions") or 0) + 1)

    async def _claim(self, transitions: int) -> bool:
        sent = self._clock()
        await self._write(self._spec(transitions))
        self._renewed_at = sent
        return True

    async def _renew(self) -> bool:
        """Renew once; return False when another process holds the lease."""
        transitions = int(self._object.get("spec", {}).get("leaseTransitions") or 0)
        try:
            return await self._claim(transitions)
        except (Conflict, NotFound):
            # Either there is another holder, or an earlier renewal of ours arrived although its answer was lost.
            try:
                await self._read()
            except NotFound:
                return False  # deleted by hand: another replica may have created it already
            if self.holder != self._identity:
                return False
            return await self._claim(transitions)

    def _spec(self, transitions: int) -> dict[str, Any]:
        now = rfc3339(self._wall_clock())  # for people; no decision depends on it
        acquired = self._object.get("spec", {}).get("acquireTime") if self._renewed_at is not None else None
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._lease_duration),
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _address_annotation(self, address: str) -> dict[str, Any]:
        others = self._object.get("metadata", {}).get("annotations") or {}
        return {"annotations": {**others, ADDRESS_ANNOTATION: address}}

    async def _read(self) -> None:
        self._adopt(await self._client.get(self._path, deadline_seconds=self._call_seconds))

    async def _write(self, spec: dict[str, Any]) -> None:
        address = self.address if spec["holderIdentity"] else ""
        merged = {
            **self._object,
            "metadata": {**self._object["metadata"], **self._address_annotation(address)},
            "spec": {**self._object.get("spec", {}), **spec},
        }
        self._adopt(await self._client.put(self._path, merged, guarded=False, deadline_seconds=self._call_seconds))

    @property
    def _path(self) -> str:
        return paths.leases(self._namespace, self._name)

    @property
    def _call_seconds(self) -> float:
        """Return the deadline of one call: short, so that a dead connection leaves time for another one."""
        return self._renew_deadline / 3

    def _adopt(self, data: bytes) -> None:
        self._object = msgspec.json.decode(data)
        spec = self._object.get("spec") or {}
        version = self._object["metadata"]["resourceVersion"]
        self._tell_seen(int(version))
        if self._seen is None or self._seen.resource_version != version:
            self._seen = _ObservedLease(
                version,
                spec.get("holderIdentity") or "",
                float(spec.get("leaseDurationSeconds") or 0),
                self._clock(),
                (self._object["metadata"].get("annotations") or {}).get(ADDRESS_ANNOTATION) or "",
            )
