"""What the launchers last reported, in memory only: a new leader starts empty and hears every launcher within a poll.

Reports carry ages, not times. The hub stamps their receipt with one monotonic clock, and every age grows from there.
"""

import dataclasses
import itertools
import math
import operator
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from prometheus_client import Gauge

from muster.coordinator.auth import Caller
from muster.protocol import messages
from muster.protocol.messages import RankReport, Report
from muster.world.fleet import SilentShare
from muster.world.views import FRESH_SECONDS, LauncherView, RankView

MAX_LAUNCHERS = (
    65536  # beyond any fleet: only workers of jobs are heard, and of one that is forgotten the silence is, too
)
MAX_STRAYS = 32  # of a namespace: a report may take 0.75 MB of memory
STEP_NEWS_SECONDS = 5.0
COUNT_SHRINKS_BELOW = 0.4  # of itself, where a half would do: numbers near a power of two come and go

_launchers = Gauge("muster_launchers", "Launchers that have reported to this process and are not forgotten.")

T = TypeVar("T")

Subscriber = Callable[[Caller, Report], None]


class Membership(Enum):
    """What a caller is to the jobs that Muster runs."""

    NONE = "None"  # of no job: any user can put our labels on a pod, and its reports are not used
    STRAY = "Stray"  # a job's, and its record does not name it: a tenant may make its job the owner of any pod
    FORMER = "Former"  # named by the record as one that may still run: its last report may prove that it is dead
    MEMBER = "Member"  # expected to go on talking


_Several = tuple[RankReport, ...]
_Ranks = tuple[_Several, _Several]  # present and previous ones


@dataclass(slots=True)
class _Entry:
    caller: Caller
    report: Report
    heard_at: float
    attempt_at: float
    talking_at: float
    ranks: _Ranks | None  # those that have ended with their cause; None: all live


class Hub:
    """The last reports of launchers, by pod uid. Only the event loop's thread may touch it. `cause_of` reads from a
    rank's last lines why it ended. It is asked once, when they come, so that its pod pays for what it sends: decisions
    look at all ranks of a gang again and again.

    Attributes:
        addresses_version: differs after each change of what launchers report as their address.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        max_launchers: int = MAX_LAUNCHERS,
        cause_of: Callable[[RankReport], str] = lambda _: "",
    ) -> None:
        self._clock = clock
        self._max_launchers = max_launchers
        self._cause_of = cause_of
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the one heard longest ago comes first
        # Those that are expected to go on talking -> when heard, the one heard longest ago first: one that has finished
        # is none of them, and is not met again when the silent ones are counted.
        self._present: OrderedDict[str, float] = OrderedDict()
        self._present_in: Counter[str] = Counter()  # the same by namespace
        self._strays: dict[str, OrderedDict[str, None]] = {}  # namespace -> its strays, the one heard first comes first
        self._subscribers: list[Subscriber] = []
        self._serving_since: float | None = None
        self._rounded_count = 1
        self.addresses_version = 0
        self._news_at: dict[str, float] = {}  # gang -> when one of its launchers last had news

    def start_serving(self) -> None:
        """Note that launchers can reach this process from now on: it has become the leader."""
        self._serving_since = self._clock()

    def serving_age_seconds(self) -> float:
        """The seconds since `start_serving`; 0 before it. Silence of a launcher means nothing until this is long
        enough."""
        return 0.0 if self._serving_since is None else self._clock() - self._serving_since

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback` with the caller and its report when the report has news that a decision may depend on.

        News are changes of state, attempt, ranks, checkpoints or peers, and now and then the step of a gang.
        """
        self._subscribers.append(callback)

    def record(
        self,
        caller: Caller,
        report: Report,
        membership_of: Callable[[Caller], Membership] = lambda _: Membership.MEMBER,
    ) -> bool:
        """Take in a launcher's report. Returns False for one that is older than one already heard, or from no job's
        pod: `membership_of` is asked where no report of the caller is known.
        """
        now = self._clock()
        entry = self._entries.get(caller.pod_uid)
        if entry is None:
            membership = membership_of(caller)
            if membership is Membership.NONE:
                return False
            self.addresses_version += 1
            self._entries[caller.pod_uid] = _Entry(caller, report, now, now, now, self._with_causes(report, None))
            if membership is Membership.MEMBER:
                self._present[caller.pod_uid] = now
                self._present_in[caller.namespace] += 1
            elif membership is Membership.STRAY:
                self._note_stray(caller)
            while len(self._entries) > self._max_launchers:
                self.forget(next(iter(self._entries)))
            _launchers.set(len(self._entries))
            news = True
        elif report.sequence <= entry.report.sequence:
            return False
        else:
            news = _is_news(entry.report, report) or (
                report.step != entry.report.step
                and now - self._news_at.get(_gang_of(caller), -STEP_NEWS_SECONDS) >= STEP_NEWS_SECONDS
            )
            if report.attempt != entry.report.attempt:
                entry.attempt_at = now
            if (report.address, report.peer_port) != (entry.report.address, entry.report.peer_port):
                self.addresses_version += 1
            if now - entry.heard_at >= FRESH_SECONDS:  # a silent one needs its directive again
                entry.talking_at = now
            entry.ranks = self._with_causes(report, entry.ranks)
            entry.caller, entry.report, entry.heard_at = caller, report, now
            self._entries.move_to_end(caller.pod_uid)
            if caller.pod_uid in self._present:
                self._present[caller.pod_uid] = now
                self._present.move_to_end(caller.pod_uid)
        if _has_ended(report):
            self.retire(caller.pod_uid)
        if news:
            if len(self._news_at) >= self._max_launchers:
                self._news_at.clear()
            self._news_at[_gang_of(caller)] = now
            for callback in self._subscribers:
                callback(caller, report)
        return True

    def _with_causes(self, report: Report, last_ranks: _Ranks | None) -> _Ranks | None:
        """Return the ranks of a report, those that have ended with their cause; None: all live, and are as reported.

        A cause is read once while a rank's last lines stay what they were in `last_ranks`.
        """
        if all(rank.alive for rank in (*report.ranks, *report.previous_ranks)):
            return None
        ended = (rank for several in last_ranks or () for rank in several if isinstance(rank, RankView))
        causes = {_end_of(rank): rank.cause for rank in ended}

        def shown(rank: RankReport) -> RankReport:
            if rank.alive:
                return rank
            cause = causes.get(_end_of(rank))
            return _copied(RankView, rank, cause=self._cause_of(rank) if cause is None else cause)

        return tuple(map(shown, report.ranks)), tuple(map(shown, report.previous_ranks))

    def forget(self, pod_uid: str) -> None:
        """Drop the report of a pod that is gone for good."""
        self.retire(pod_uid)
        entry = self._entries.pop(pod_uid, None)
        self.addresses_version += entry is not None
        namespace = entry.caller.namespace if entry is not None else ""
        strays = self._strays.get(namespace)
        if strays is not None:
            strays.pop(pod_uid, None)
            if not strays:
                del self._strays[namespace]
        _launchers.set(len(self._entries))

    def _note_stray(self, caller: Caller) -> None:
        strays = self._strays.setdefault(caller.namespace, OrderedDict())
        strays[caller.pod_uid] = None
        if len(strays) > MAX_STRAYS:
            self.forget(next(iter(strays)))

    def last(self, pod_uid: str, within_seconds: float = math.inf) -> Report | None:
        """The last report of a pod's launcher, without its ages brought up to date.

        Returns None when this process has not heard the launcher for `within_seconds`.
        """
        entry = self._entries.get(pod_uid)
        return entry.report if entry and self._clock() - entry.heard_at <= within_seconds else None

    def views_of(self, pod_uids: Iterable[str]) -> dict[str, LauncherView]:
        """The views of the pods' launchers, by pod uid, with all ages as of now. Pods that were never heard are left
        out."""
        now = self._clock()
        return {uid: _view(entry, now) for uid in pod_uids if (entry := self._entries.get(uid))}

    def proved_dead(self, pod_uid: str) -> bool:
        """Whether the last report of a pod's launcher said that it exits with no rank alive. Then none of its ranks can
        write."""
        entry = self._entries.get(pod_uid)
        return entry is not None and _has_ended(entry.report)

    def retire(self, pod_uid: str) -> None:
        """Expect no more reports of a pod that was replaced or has ended, so that its silence counts for nothing."""
        if self._present.pop(pod_uid, None) is not None:
            namespace = self._entries[pod_uid].caller.namespace
            self._present_in[namespace] -= 1
            if not self._present_in[namespace]:
                del self._present_in[namespace]

    def silence(self, timeout_seconds: float, namespace: str) -> SilentShare:
        """The counts of launchers that have not reported for longer than the timeout, and of expected ones, as seen by
        the jobs of a namespace (see `SilentShare.seen_from`).
        """
        now = self._clock()
        late = itertools.takewhile(lambda item: now - item[1] > timeout_seconds, self._present.items())
        silent = Counter(self._entries[uid].caller.namespace for uid, _ in late)
        return SilentShare.seen_from(namespace, silent, self._present_in)

    def expected_by_namespace(self) -> Mapping[str, int]:
        """The number of launchers that were heard and are expected to report, by namespace."""
        return self._present_in

    def expected_launchers(self) -> int:
        """The number of launchers that are expected to report, rounded to a power of two with hysteresis.

        What depends on this number then rarely changes.
        """
        present = len(self._present)
        while self._rounded_count < present:
            self._rounded_count *= 2
        while self._rounded_count > 1 and present < self._rounded_count * COUNT_SHRINKS_BELOW:
            self._rounded_count //= 2
        return self._rounded_count


def _gang_of(caller: Caller) -> str:
    """The name of the gang of a worker, by its pod's name (muster.world.names). One worker's steps stand for the
    gang's."""
    return f"{caller.namespace}/{caller.pod_name.rsplit('-', 2)[0]}"


def _has_ended(report: Report) -> bool:
    return report.state == messages.TERMINATING and not any(rank.alive for rank in report.ranks)


def _is_news(old: Report, new: Report) -> bool:
    return (
        old.state != new.state
        or old.attempt != new.attempt
        or old.fenced != new.fenced
        or (old.step is None) != (new.step is None)
        or old.checkpoints != new.checkpoints
        or old.stamps != new.stamps
        or (old.other_directory, old.other_directory_error) != (new.other_directory, new.other_directory_error)
        or old.other_directory_error_kind != new.other_directory_error_kind
        or (old.checkpoints_scanned_for_attempt, old.listing_round)
        != (new.checkpoints_scanned_for_attempt, new.listing_round)
        or (old.checkpoint_error, old.checkpoint_error_kind) != (new.checkpoint_error, new.checkpoint_error_kind)
        or old.lists_after_end != new.lists_after_end
        or (old.checkpoint_warning, old.checkpoint_trap) != (new.checkpoint_warning, new.checkpoint_trap)
        or (old.first_step is None) != (new.first_step is None)
        or old.progress_error != new.progress_error
        or (old.fence_file_age_seconds is None) != (new.fence_file_age_seconds is None)
        or old.reads_fence_file != new.reads_fence_file
        or (old.fence_file_attempt, old.fence_file_id) != (new.fence_file_attempt, new.fence_file_id)
        or old.fence_file_error != new.fence_file_error
        or old.moved_attempt != new.moved_attempt
        or old.ejected != new.ejected
        or (old.local_attempt, old.local_listing_round, old.local_error)
        != (new.local_attempt, new.local_listing_round, new.local_error)
        or (old.address, old.peer_port) != (new.address, new.peer_port)
        or {peer.index for peer in old.peers} != {peer.index for peer in new.peers}
        or [_news_of(rank) for rank in old.ranks] != [_news_of(rank) for rank in new.ranks]
    )


_news_of = operator.attrgetter("rank", "alive", "corruption", "found_at", "last_good")


_end_of = operator.attrgetter(
    "tail", "exit_code", "signal", "failed_exit_code", "failed_signal", "alive", "ended_by_launcher"
)
_AGES = [field.name for field in dataclasses.fields(Report) if field.name.endswith("_age_seconds")]


def _view(entry: _Entry, now: float) -> LauncherView:
    """The view of a report as of `now` (seconds of the hub's clock): the same fields, with the ages grown since
    receipt."""
    since = now - entry.heard_at
    view = _copied(
        LauncherView,
        entry.report,
        heard_age_seconds=since,
        attempt_age_seconds=now - entry.attempt_at,
        talking_age_seconds=now - entry.talking_at,
    )
    shown = vars(view)
    for name in _AGES:
        if shown[name] is not None:
            shown[name] += since
    if entry.ranks is not None:
        shown["ranks"], shown["previous_ranks"] = (_aged(several, since) for several in entry.ranks)
    return view


def _aged(ranks: tuple[RankReport, ...], since: float) -> tuple[RankReport, ...]:
    return tuple(
        rank
        if rank.exited_age_seconds is None
        else _copied(type(rank), rank, exited_age_seconds=rank.exited_age_seconds + since)
        for rank in ranks
    )


def _copied(kind: type[T], source: object, **changes: object) -> T:
    """An object with the fields of another and these. A frozen one made field by field takes six times as long."""
    copy = object.__new__(kind)
    vars(copy).update(vars(source), **changes)
    return copy
