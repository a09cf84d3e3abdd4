"""Keeps the accounts of jobs that have ended: one EndedJob each, in Muster's own namespace, written once.

Muster has no finalizers, so nothing waits for this: uninstalling never hangs, and a namespace goes when it is told to.
Instead what is needed is held where it outlives the job (docs/decisions/0032):

- of a job that has ended its own object, whose figures are final, until it is deleted; Muster itself deletes it
  (ttlSecondsAfterFinished) only when its account is kept;
- of a job that is deleted, what every replica, the standby too, has seen of it when it went;
- for the case that no replica was there to see it: the note of all jobs that have begun, a ConfigMap that is written
  soon after a job has begun, and every few minutes. A job that is in the note, but neither in the cluster nor in the
  history, went unseen (docs/decisions/0060-account-known-from-its-start.md).

Names are the jobs' uids, so a second writer finds that it is done. No watch: the history is listed when this process
begins to lead, and again after hours.
"""

import asyncio
import base64
import contextlib
import json
import time
import zlib
from collections import Counter as Counted
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from muster.answers.lists import items
from muster.api.base import API_VERSION
from muster.api.endedjob import PLURAL, EndedJobSpec, Ending, is_named_well
from muster.api.gang import Gang
from muster.api.goodput import Goodput
from muster.api.trainingjob import TrainingJob
from muster.controller.backoff import doubled
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.controller.historyreports import HistoryReports
from muster.controller.round_robin import in_round_robin
from muster.controller.slices import Slices
from muster.goodput import kept
from muster.goodput.history import ended_job_record, kept_work, last_known, model_of
from muster.goodput.kept import Kept
from muster.goodput.opened import clock_lead_seconds, figures_until
from muster.goodput.status_goodput import goodput_of_status
from muster.kube import paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.decode import Undecodable
from muster.kube.errors import AlreadyExists, ApiError, LeadershipLost, NotFound

NOTE = "muster-open-jobs"
NOTE_KEY = "jobs"
MAX_NOTE_BYTES = 700_000
"""Compressed; base64 makes a third more of it, and a ConfigMap has at most 1 MiB."""
MAX_READ_BYTES = 64 * 1024 * 1024
NOTE_SECONDS = 300.0
BEGUN_NOTE_SECONDS = 30.0
"""So long after a job gets its first nodes, or a leader begins, the note is written: an account is known from its
start."""
TURN_SECONDS = 10.0
GATHER_SECONDS = 0.2
CALLS = 20
"""Of each turn: at most 120 a minute."""
PAGE_PAUSE_SECONDS = 0.1
LIST_SECONDS = 6 * 3600.0
RETRY_FIRST_SECONDS = 5.0
RETRY_SECONDS = 300.0
GIVE_UP_SECONDS = 3600.0
"""Whose account could not be written for so long, and whose job is gone, is lost."""
HOLD_SECONDS = 600.0
"""So long an ended job is not deleted because its account cannot be written."""
SURE_SECONDS = 3600.0
"""A clock that has jumped ahead makes everything old: only what is too old for so long is deleted."""
STANDBY_SECONDS = 900.0
"""Who leads writes within that time; a standby forgets what it has seen go."""
MAX_WAITING = 4096
FIELD_MANAGER = "muster-history"
REFUSED_FOR_GOOD = (400, 413, 422)
"""Answers that the same object will always get: a record that is none is a defect of ours."""

log = structlog.get_logger()
_written = Counter("muster_history_writes_total", "Accounts of ended jobs, by the outcome of the write.", ["outcome"])
_kept = Gauge("muster_history_accounts", "Accounts of ended jobs that are kept.")
_waiting = Gauge("muster_history_waiting", "Accounts of ended jobs that are not written yet.")


class _Meta(msgspec.Struct):
    name: str = ""


class _Ended(msgspec.Struct, rename="camel"):
    end_time: datetime | None = None
    namespace: str = ""


class _Kept(msgspec.Struct):
    metadata: _Meta
    spec: _Ended = msgspec.field(default_factory=_Ended)


_kept_ones = msgspec.json.Decoder(_Kept)


@dataclass(slots=True)
class _Waiting:
    """The account of an ended job that is not written yet. Times are seconds of a monotonic clock.

    Attributes:
        since: when it was known first.
        due: the earliest time of the next try.
        is_reported: whether it was reported that the account cannot be written.
    """

    spec: EndedJobSpec
    since: float
    due: float = 0.0
    tries: int = 0
    is_reported: bool = False


class HistoryKeeper:
    """Notices jobs that end, on every replica; writes, forgets and notes, where `run` is running. `namespace` is
    Muster's own. `report` is called with a reason and a message for the operators of the cluster.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        bus: Bus,
        namespace: str,
        report: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._namespace = namespace
        self._reports = HistoryReports(namespace, report, clock)
        self._clock = clock
        self._wall_clock = wall_clock
        self._waiting: dict[str, _Waiting] = {}  # by uid, the oldest first
        self._known: dict[str, Kept] = {}  # what is kept, by name
        self._is_note_read = False
        self._unread: dict[str, Any] = {}  # entries of the note whose job or account this version cannot read, by uid
        self._listed = False
        self._listed_at = float("-inf")
        self._note_due = float("inf")
        self._too_old: dict[str, float] = {}  # since when that is seen
        self._stirred = asyncio.Event()
        self._leads = False
        cluster.jobs.store.subscribe(self._job_changed)
        bus.job_gone.subscribe(self._keep_vanished)

    # Noticing.

    def _job_changed(self, old: TrainingJob | Undecodable | None, new: TrainingJob | Undecodable | None) -> None:
        # A standby finds those that have ended when it begins to lead: they are still there, or it has seen them go.
        if not self._leads or not isinstance(new, TrainingJob):
            return
        if new.status.completion is not None:
            self._ended(new)
        elif new.status.goodput is not None and not (isinstance(old, TrainingJob) and old.status.goodput is not None):
            self._note_due = min(self._note_due, self._clock() + BEGUN_NOTE_SECONDS)

    def _ended(self, job: TrainingJob) -> None:
        if job.metadata.uid not in self._known and job.metadata.uid not in self._waiting:
            self._want(job, last_known(job, self._gang_of(job)))

    def _keep_vanished(self, job: TrainingJob) -> None:
        """Keep the account of a job that is gone or being deleted; called while its facts are still known."""
        try:
            self._remember(job)
        except Exception:  # what follows from its end for nodes and pods must not hang on this
            _written.labels("lost").inc()
            log.exception("the account of a job that goes cannot be made", job=_name(job))

    def _remember(self, job: TrainingJob) -> None:
        uid = job.metadata.uid
        if uid in self._waiting or uid in self._known or not self._cluster.synced:
            return
        if job.status.completion is not None:
            self._ended(job)
            return
        gang = self._gang_of(job)
        if gang is None and job.status.goodput is None:
            return  # it has never had nodes
        try:
            has_account = gang is not None and gang.spec.account is not None
            goodput = self._until_now(job, gang) if has_account else self._last_known(job, gang)
        except Exception:
            log.exception("the last of a job's time could not be counted", job=_name(job))
            goodput = self._last_known(job, gang)
        self._want(job, goodput)

    def _until_now(self, job: TrainingJob, gang: Gang | None) -> Goodput | None:
        """The figures that the job's status would have if the job had failed now; None where there are none."""
        saved = kept_work(job, gang).step
        return goodput_of_status(
            self._cluster.world(job), step=job.status.step, saved=saved, ended=True, succeeded=False
        )

    def _last_known(self, job: TrainingJob, gang: Gang | None) -> Goodput | None:
        """The figures that are written of a job that has not ended, with its open phase up to now.

        Nothing is written because time passes: of a job that is down they may be hours old.
        """
        goodput = last_known(job, gang)
        if goodput is None:
            return None
        now = self._cluster.server_now(self._wall_clock())
        return figures_until(goodput, now + clock_lead_seconds(goodput), job.status.state)

    def _gang_of(self, job: TrainingJob) -> Gang | None:
        gang = self._cluster.gang_of(job.metadata.uid)
        return gang if isinstance(gang, Gang) and gang.metadata.namespace == job.metadata.namespace else None

    def _want(self, job: TrainingJob, goodput: Goodput | None) -> None:
        uid = job.metadata.uid
        if goodput is None or uid in self._known or uid in self._waiting or not is_named_well(uid):
            return
        try:
            spec = self._record(job, goodput, Ending.DELETED)
        except Exception:  # one that cannot be reckoned with must not keep the others from being kept
            _written.labels("lost").inc()
            log.exception("the account of an ended job cannot be made", job=_name(job))
            return
        self._wait_for(spec)

    def _record(self, job: TrainingJob, goodput: Goodput, state: Ending) -> EndedJobSpec:
        gang = self._gang_of(job)
        names = [member.node for member in gang.spec.members if member.node] if gang else job.status.nodes
        nodes = (self._cluster.fleet.nodes.get(name) for name in names[:8])
        model = next((gpu_model for node in nodes if node is not None and (gpu_model := model_of(node.labels))), "")
        return ended_job_record(job, gang, goodput, state, model)

    def _wait_for(self, spec: EndedJobSpec) -> None:
        now = self._clock()
        self._waiting[spec.job_uid] = _Waiting(spec, now)
        if not self._leads:
            for uid in [uid for uid, waiting in self._waiting.items() if now - waiting.since > STANDBY_SECONDS]:
                del self._waiting[uid]
        while len(self._waiting) > MAX_WAITING:
            self._lost(self._waiting.pop(self._least_missed()), "too many wait to be written")
        self._stirred.set()

    def _least_missed(self) -> str:
        """The uid of the waiting account to give up first.

        It is of the namespace with most of them, and held the fewest accelerators there; of equals, the first that
        came.
        """
        counts = Counted(waiting.spec.namespace for waiting in self._waiting.values())
        namespace, _ = max(counts.items(), key=lambda item: item[1])
        of_it = (
            (uid, waiting.spec.gpus) for uid, waiting in self._waiting.items() if waiting.spec.namespace == namespace
        )
        return min(of_it, key=lambda item: item[1])[0]

    # Leading.

    async def run(self) -> None:
        """Write accounts, delete old ones and update the note until cancelled.

        Raises:
            LeadershipLost: this process must not write any more.
        """
        self._leads = True
        began_at = self._clock()
        failures = 0
        while not self._listed:
            try:
                await self._list()
                await self._find_unseen()
            except LeadershipLost:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs end meanwhile, and are remembered
                self._listed = False
                pause = doubled(RETRY_FIRST_SECONDS, failures, RETRY_SECONDS)
                failures += 1
                log.warning("the history of ended jobs cannot be read", error=str(error)[:500], retry_seconds=pause)
                await asyncio.sleep(pause)
        async for job in self._jobs():
            if job.status.completion is not None:
                self._ended(job)
            elif job.metadata.deletion_timestamp is not None:
                self._keep_vanished(job)
        self._note_due = min(self._note_due, began_at + BEGUN_NOTE_SECONDS)
        while True:
            try:
                await self._work_once()
            except LeadershipLost:
                raise
            except Exception:
                log.exception("the history of ended jobs not looked after")
            if self._is_due():  # what many wait for comes at the pace of turns
                await asyncio.sleep(TURN_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0 if self._is_due() else TURN_SECONDS):
                    await self._stirred.wait()
            await asyncio.sleep(GATHER_SECONDS)

    def _is_due(self) -> bool:
        """Whether an account could be written now, because the turn before had no calls left for it."""
        return any(waiting.due <= self._clock() for waiting in self._waiting.values())

    async def keep_before_deletion(self, job: TrainingJob) -> None:
        """Write an ended job's account before the job is deleted.

        Raises:
            ApiError: it is not written yet. After ten minutes the job is no longer held back for that.
        """
        uid = job.metadata.uid
        if not self._cluster.policy().history.max_jobs or uid in self._known:
            return
        self._ended(job)
        waiting = self._waiting.get(uid)
        if waiting is None or not self._is_worth_it(waiting.spec, self._competing_ends()):
            return
        try:
            await self._write(waiting)
        except LeadershipLost:
            raise
        except NotFound as error:  # an installation without the kind: nothing waits for it
            self._failed(waiting, error)
        except ApiError as error:
            self._failed(waiting, error)
            if self._clock() - waiting.since < HOLD_SECONDS and uid in self._waiting:
                raise

    async def _work_once(self) -> None:
        self._stirred.clear()
        policy = self._cluster.policy().history
        calls = CALLS
        if not policy.max_jobs:
            self._waiting.clear()
        # A flood of jobs must not let the history grow without bounds: then each that comes takes an old one's place.
        if len(self._known) > policy.max_jobs * 11 // 10:
            calls -= await self._forget(calls // 2)
        competing = self._competing_ends()
        now = self._clock()
        due = ((uid, waiting.spec.namespace) for uid, waiting in self._waiting.items() if waiting.due <= now)
        for uid, _ in in_round_robin(due, itemgetter(1)):
            waiting = self._waiting.get(uid)
            if calls <= 0:
                break
            if waiting is None:
                continue
            if uid in self._known or not self._is_worth_it(waiting.spec, competing):
                del self._waiting[uid]
                continue
            calls -= 1
            try:
                await self._write(waiting)
            except LeadershipLost:
                raise
            except ApiError as error:
                self._failed(waiting, error)
        await self._forget(calls)
        if self._clock() >= self._note_due:
            await self._note()
        if self._clock() - self._listed_at >= LIST_SECONDS:
            await self._list()
        _waiting.set(len(self._waiting))
        _kept.set(len(self._known))

    def _competing_ends(self) -> dict[str, datetime]:
        return kept.competing_ends(self._known.values(), self._cluster.policy().history)

    def _is_worth_it(self, spec: EndedJobSpec, competing: Mapping[str, datetime]) -> bool:
        account = Kept(spec.end_time, spec.namespace)
        return kept.is_kept(account, competing.get(spec.namespace), self._cluster.policy().history, self._wall_clock())

    async def _write(self, waiting: _Waiting) -> None:
        """Write one account.

        Raises:
            ApiError: it is not written, or that is not known.
        """
        spec = waiting.spec
        body = {
            "apiVersion": API_VERSION,
            "kind": "EndedJob",
            "metadata": {"name": spec.job_uid, "namespace": self._namespace},
            "spec": spec.to_json(),
        }
        with contextlib.suppress(AlreadyExists):
            await self._client.post(paths.muster(PLURAL, namespace=self._namespace), body)
            _written.labels("written").inc()
            log.info("account of an ended job kept", job=f"{spec.namespace}/{spec.name}", state=str(spec.state))
        self._known[spec.job_uid] = Kept(spec.end_time, spec.namespace)
        self._waiting.pop(spec.job_uid, None)

    def _failed(self, waiting: _Waiting, error: ApiError) -> None:
        """Try to write an account again later, or give up what can never be written or has waited too long."""
        _written.labels("failed").inc()
        now, uid = self._clock(), waiting.spec.job_uid
        waiting.due = now + doubled(RETRY_FIRST_SECONDS, waiting.tries, RETRY_SECONDS)
        waiting.tries += 1
        is_job_present = bool(self._cluster.jobs.store.by_index(uid))
        if error.status in REFUSED_FOR_GOOD or (now - waiting.since >= GIVE_UP_SECONDS and not is_job_present):
            self._waiting.pop(uid, None)
            self._lost(waiting, str(error))
            return
        log.warning(
            "account of an ended job not written",
            job=_qualified_name(waiting.spec),
            error=str(error)[:500],
            tries=waiting.tries,
        )
        if waiting.tries == 3 and not waiting.is_reported:
            waiting.is_reported = True
            self._reports.problem(
                "HistoryNotWritten",
                f"the account of the ended job {_qualified_name(waiting.spec)} cannot be written to namespace "
                f"{self._namespace}: {str(error)[:300]}. It is tried again; without it "
                "`kubectl muster report --fleet` says less than happened.",
            )

    def _lost(self, waiting: _Waiting, why: str) -> None:
        if not self._leads:
            return
        _written.labels("lost").inc()
        log.error(
            "account of an ended job lost", job=_qualified_name(waiting.spec), uid=waiting.spec.job_uid, why=why[:500]
        )
        self._reports.problem(
            "HistoryLost",
            f"the account of the ended job {_qualified_name(waiting.spec)} is not in the history: {why[:300]}. The job "
            "is not held for it.",
        )

    # What is kept.

    async def _list(self) -> None:
        """List the accounts that are kept, page by page, slowly: they may be tens of megabytes.

        Raises:
            ApiError: they cannot be listed.
        """
        began_at = self._clock()
        accounts: dict[str, Kept] = {}
        old_names = set(self._known)
        path = paths.muster(PLURAL, namespace=self._namespace)
        async for item in items(self._client, path, pause_seconds=PAGE_PAUSE_SECONDS):
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                kept_job = _kept_ones.decode(item)
                end = kept_job.spec.end_time
                end = end if end is not None and end.tzinfo else datetime.fromtimestamp(0, UTC)
                accounts[kept_job.metadata.name] = Kept(end, kept_job.spec.namespace)
        written = {name: account for name, account in self._known.items() if name not in old_names}  # meanwhile
        self._known = accounts | written
        self._listed, self._listed_at = True, began_at

    async def _forget(self, most: int) -> int:
        """Delete some accounts beyond the bounds, with at most `most` calls; returns the number of calls made."""
        policy, now = self._cluster.policy().history, self._clock()
        old = kept.outdated_names(self._known, policy, self._wall_clock())
        self._too_old = {name: self._too_old.get(name, now) for name in sorted(old)}
        surely = sorted(
            (self._known[name].end, name) for name, since in self._too_old.items() if now - since >= SURE_SECONDS
        )
        names = [*kept.surplus_names(self._known, policy, max(most, 0)), *(name for _, name in surely)]
        calls = 0
        for name in dict.fromkeys(names):
            if calls >= most:
                break
            calls += 1
            try:
                await self._client.delete(paths.muster(PLURAL, namespace=self._namespace, name=name))
            except LeadershipLost:
                raise
            except NotFound:
                pass
            except ApiError as error:
                log.warning("account of an ended job not deleted", name=name, error=str(error)[:500])
                break
            self._known.pop(name, None)
        return calls

    # The note of those that have begun.

    async def _jobs(self) -> AsyncIterator[TrainingJob]:
        """Yield all jobs, in slices, since there may be thousands."""
        slices = Slices(self._clock)
        for job in self._cluster.jobs.store.values():
            await slices.pause()
            if isinstance(job, TrainingJob):
                yield job

    async def _note(self) -> None:
        """Write the note of all jobs that could go unseen, with their figures so far; one that cannot be read stays as
        it is.

        Raises:
            ApiError: the note cannot be read.
        """
        self._note_due = self._clock() + NOTE_SECONDS
        if not self._is_note_read:
            await self._find_unseen()
        if not self._is_note_read or not self._cluster.policy().history.max_jobs:
            return
        listed: list[dict[str, Any]] = []
        async for job in self._jobs():
            if job.metadata.uid in self._known or job.metadata.uid in self._waiting:
                continue
            with contextlib.suppress(Exception):  # whose figures make no sense is not noted
                goodput = self._last_known(job, self._gang_of(job))
                if goodput is not None:
                    listed.append(self._record(job, goodput, Ending.UNKNOWN).to_json())
        # Those that wait to be written are noted too: this process may die before.
        listed += [waiting.spec.to_json() for waiting in self._waiting.values()]
        noted = {spec["jobUid"] for spec in listed} | self._known.keys()
        listed += [entry for uid, entry in self._unread.items() if uid not in noted]
        data = await asyncio.to_thread(packed, listed)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NOTE, "namespace": self._namespace},
            "binaryData": {NOTE_KEY: data},
        }
        path = paths.core("configmaps", namespace=self._namespace, name=NOTE)
        try:
            await self._client.patch(path, body, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": "true"})
        except LeadershipLost:
            raise
        except ApiError as error:
            log.warning("running jobs not noted", error=str(error)[:500])

    async def _find_unseen(self) -> None:
        """Keep accounts of the jobs that went unseen: in the note, but neither in the cluster nor in the history.

        Raises:
            ApiError: the note cannot be read.
        """
        try:
            answer = await self._client.get(paths.core("configmaps", namespace=self._namespace, name=NOTE))
        except NotFound:
            self._note_is_read()
            return
        try:
            specs, self._unread = await asyncio.to_thread(unpacked, answer)
        except ValueError as error:
            self._reports.unreadable(
                NOTE,
                str(error)[:300],
                "Muster does not write over it: a job that is deleted while no operator runs is then missing from the "
                "history. Run the version of Muster that wrote it, or delete the ConfigMap.",
            )
            return
        self._note_is_read()
        for spec in specs:
            uid = spec.job_uid
            jobs = self._cluster.jobs.store.by_index(uid)
            if any(isinstance(job, Undecodable) for job in jobs):
                self._unread[uid] = spec.to_json()
            if uid in self._known or uid in self._waiting or jobs:
                continue
            self._wait_for(spec)

    def _note_is_read(self) -> None:
        self._is_note_read = True
        self._reports.readable(NOTE)


def packed(listed: list[dict[str, Any]]) -> str:
    """The accounts in the form of the note; those with most accelerators where not all fit."""
    listed = sorted(listed, key=_gpus, reverse=True)
    while True:
        data = zlib.compress(json.dumps(listed, separators=(",", ":")).encode())
        if len(data) <= MAX_NOTE_BYTES or not listed:
            return base64.b64encode(data).decode()
        listed = listed[: len(listed) * MAX_NOTE_BYTES // (len(data) + 1)]


def _gpus(spec: Mapping[str, Any]) -> int:
    gpus = spec.get("gpus", 0)
    return gpus if isinstance(gpus, int) else 0


def unpacked(answer: bytes) -> tuple[list[EndedJobSpec], dict[str, Any]]:
    """The accounts in a note, and the entries that have a uid and are no account of this version, by uid.

    Raises:
        ValueError: the note is of another form.
    """
    specs, unread = [], {}
    try:
        data = json.loads(answer)["binaryData"][NOTE_KEY]
        listed = json.loads(zlib.decompressobj().decompress(base64.b64decode(data), MAX_READ_BYTES))
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise ValueError(f"binaryData.{NOTE_KEY}: {type(error).__name__}: {error}") from error
    if not isinstance(listed, list):
        raise ValueError(f"binaryData.{NOTE_KEY}: a list is expected, not {type(listed).__name__}")  # noqa: TRY004
    for entry in listed:
        uid = entry.get("jobUid") if isinstance(entry, dict) else None
        if not isinstance(uid, str) or not is_named_well(uid):
            continue
        try:
            specs.append(EndedJobSpec.model_validate(entry))
        except ValueError:
            unread[uid] = entry
    return specs, unread


def _name(job: TrainingJob) -> str:
    return f"{job.metadata.namespace}/{job.metadata.name}"


def _qualified_name(spec: EndedJobSpec) -> str:
    return f"{spec.namespace}/{spec.name}"
