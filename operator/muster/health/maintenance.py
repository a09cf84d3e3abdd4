"""Maintenance windows: what they mean for a node at a moment, and which of them are likely mistakes. Pure.

A window is a decision of the platform team, like a cordon. Neither the breaker's budgets nor the enforcement limits it,
and it charges no machine with a fault. Before the window, the node takes no new workers. Then its jobs are evacuated
after their next checkpoint. Within the window, the machine may go down at any moment. After it, the agent has to check
the node before it is used again. Jobs do not declare how long they take, so a closed node takes no new work at all.

A user's release does not end a window, because someone may be at work on the machine. The window itself has to be
changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from muster.api.maintenance import MaintenancePolicy, MaintenanceStage, MaintenanceWindow, NodeMaintenance
from muster.api.nodehealth import Finding, Severity
from muster.health.signs import MAINTENANCE, Sign
from muster.placement.constraints import Expression
from muster.placement.natural import natural
from muster.world.views import NodeView

AHEAD = "MaintenanceAhead"
WITHIN = "InMaintenance"
REASONS = frozenset({AHEAD, WITHIN})

OLD_SECONDS = 3600.0
"""A window that has been over for this long and is still in the policy is reported: its date may be a mistake."""

_NAMED = 4
_RANK = {MaintenanceStage.IN_PROGRESS: 0, MaintenanceStage.EVACUATING: 1, MaintenanceStage.CLOSED: 2}


@dataclass(frozen=True, slots=True)
class _Window:
    """One maintenance window of the policy, with its moments.

    Attributes:
        closes: from when on the nodes of the window take no new workers.
        leaves: from when on running jobs are evacuated.
        names: of its nodes.
        selects: whether a node's labels are selected; None: the window has no selector.
        reason: of the window, as text for users.
    """

    name: str
    closes: datetime
    leaves: datetime
    starts: datetime
    ends: datetime
    names: frozenset[str]
    selects: Callable[[NodeView], bool] | None
    reason: str

    @classmethod
    def from_policy(cls, window: MaintenanceWindow, policy: MaintenancePolicy) -> "_Window":
        selector = window.nodes.selector
        expressions = (
            None
            if selector is None
            else (
                *(Expression(key, "In", (value,)) for key, value in selector.match_labels.items()),
                *(Expression(each.key, each.operator.value, tuple(each.values)) for each in selector.match_expressions),
            )
        )
        return cls(
            window.name,
            _earlier(window.start_time, max(policy.close_before_seconds, policy.evacuate_before_seconds)),
            _earlier(window.start_time, policy.evacuate_before_seconds),
            window.start_time,
            window.end_time,
            frozenset(window.nodes.names),
            None if expressions is None else (lambda node: all(each.matches(node.labels) for each in expressions)),
            window.reason,
        )

    def covers(self, node: NodeView) -> bool:
        return node.name in self.names or (self.selects is not None and self.selects(node))

    def stage(self, now: datetime) -> MaintenanceStage | None:
        """Return how near the window is; None: it is over, or far ahead."""
        if now >= self.ends or now < self.closes:
            return None
        if now >= self.starts:
            return MaintenanceStage.IN_PROGRESS
        return MaintenanceStage.EVACUATING if now >= self.leaves else MaintenanceStage.CLOSED


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """What the maintenance windows mean for a node now.

    Attributes:
        recorded: the window as NodeHealth records it.
        message: text for users.
        gone_by: when running jobs must have left; None: they stay for now.
    """

    recorded: NodeMaintenance
    message: str
    gone_by: datetime | None

    @property
    def stage(self) -> MaintenanceStage:
        """How near the window is."""
        return self.recorded.stage

    def sign(self, known: Mapping[tuple[str, str, str], Finding], now: datetime) -> Sign:
        """Return the sign that keeps the node out for the window: planned, and charged to nothing.

        Args:
            known: the findings on record, by key of the sign.
            now: the time.
        """
        reason = WITHIN if self.stage is MaintenanceStage.IN_PROGRESS else AHEAD
        old = known.get((MAINTENANCE, reason, ""))
        return Sign(
            MAINTENANCE,
            reason,
            Severity.DEGRADED,
            since=min(old.since, now) if old is not None else now,
            newest=now,
            message=self.message,
            planned=True,
            offence=False,
            stays=self.stage is MaintenanceStage.CLOSED,
        )


@dataclass(frozen=True)
class Windows:
    """The maintenance windows of a policy, made once and used for every node. A window that ends before it starts is
    left out."""

    windows: tuple[_Window, ...] = ()

    @classmethod
    def from_policy(cls, policy: MaintenancePolicy) -> "Windows":
        """Return the sound windows of the policy, earliest first."""
        sound = (window for window in policy.windows if window.end_time > window.start_time)
        return cls(
            tuple(sorted((_Window.from_policy(w, policy) for w in sound), key=lambda w: (w.starts, w.ends, w.name)))
        )

    def state_of_node(self, node: NodeView, now: datetime) -> tuple[MaintenanceState | None, datetime | None]:
        """Return what the windows mean for a node now, and when that changes by time alone.

        Returns:
            None where no window applies now, and None where nothing will change.
        """
        here = [window for window in self.windows if now < window.ends and window.covers(node)]
        moments = (moment for w in here for moment in (w.closes, w.leaves, w.starts, w.ends) if moment > now)
        wake = min(moments, default=None)
        standing = [(stage, window) for window in here if (stage := window.stage(now)) is not None]
        if not standing:
            return None, wake
        stage, window = min(standing, key=lambda each: (_RANK[each[0]], each[1].starts, each[1].name))
        leaving = [each.starts for its, each in standing if its is not MaintenanceStage.CLOSED]
        told = NodeMaintenance(
            stage=stage, window=window.name, start_time=window.starts, end_time=_end_of_windows(window, here)
        )
        return MaintenanceState(told, _window_message(told, window.reason), min(leaving, default=None)), wake

    def is_pending(self, now: datetime) -> bool:
        """Whether any of the windows is not over."""
        return any(now < window.ends for window in self.windows)


def was_within(before: NodeMaintenance | None, state: MaintenanceState | None, now: datetime) -> bool:
    """Whether someone may have worked on the machine in a recorded window that is over now.

    That includes a window that began and ended between two verdicts.

    Args:
        before: the window on record; None: there is none.
        state: the state of the windows for the node now; None: no window applies.
        now: the time.
    """
    if before is None or (state is not None and state.stage is MaintenanceStage.IN_PROGRESS):
        return False
    return before.stage is MaintenanceStage.IN_PROGRESS or before.end_time <= now


def window_text(window: NodeMaintenance) -> str:
    """Return from when until when a window keeps the node, as a short text for users whose jobs wait for nodes."""
    if window.stage is MaintenanceStage.IN_PROGRESS:
        return f"in maintenance ({window.window}) until {_moment(window.end_time)}"
    times = f"from {_moment(window.start_time)} until {_moment(window.end_time)}"
    return f"kept free for maintenance ({window.window}) {times}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in the maintenance windows, or an effect that many users will notice.

    Attributes:
        about: equal for the same problem at another time.
        message: what is wrong, and what to do.
    """

    about: str
    message: str


def problems(
    policy: MaintenancePolicy,
    nodes: Iterable[NodeView],
    pool_of: Callable[[NodeView], str],
    limit: Callable[[int], int],
    now: datetime,
) -> Iterator[Problem | None]:
    """Yield the problems of the maintenance windows; None now and then between them, so that other work may run.

    Args:
        policy: the windows, in any order.
        nodes: all nodes of the fleet.
        pool_of: returns a node's pool of like nodes.
        limit: returns how many nodes of a pool of the given size the breaker would have out at the same time.
        now: the time.
    """
    windows = [_Window.from_policy(window, policy) for window in policy.windows if window.end_time > window.start_time]
    sound = {window.name for window in windows}
    for each in policy.windows:
        if each.name not in sound:
            yield Problem(
                f"backwards/{each.name}",
                f"spec.maintenance.windows[{each.name}].endTime is not after its startTime. Muster ignores the window. "
                "Write a later endTime",
            )
    pending = []
    for window in windows:
        if (now - window.ends).total_seconds() >= OLD_SECONDS:
            yield Problem(
                f"over/{window.name}",
                f"spec.maintenance.windows[{window.name}] has been over since {_moment(window.ends)}. Muster takes "
                "no node out for it. Remove the window, or write its next times",
            )
        elif now < window.ends:
            pending.append(window)
    if not pending:
        return
    covered: dict[str, list[str]] = {window.name: [] for window in pending}
    pools: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))  # window -> pool -> nodes
    sizes: defaultdict[str, int] = defaultdict(int)
    shared: defaultdict[str, set[str]] = defaultdict(set)  # window -> later ones of the list that overlap with it
    for index, node in enumerate(nodes):
        if index % 8 == 0:
            yield None
        pool = pool_of(node)
        sizes[pool] += 1
        here = [window for window in pending if window.covers(node)]
        for window in here:
            covered[window.name].append(node.name)
            pools[window.name][pool] += 1
        for position, one in enumerate(here):
            for other in here[position + 1 :]:
                if one.starts < other.ends and other.starts < one.ends:
                    shared[one.name].add(other.name)
    for window in pending:
        yield from _of_window(window, covered[window.name], pools[window.name], sizes, limit)
    for name, others in sorted(shared.items()):
        listed = sorted(others, key=natural)
        more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
        yield Problem(
            f"overlap/{name}",
            f"spec.maintenance.windows[{name}] overlaps on some nodes with {', '.join(listed[:_NAMED])}{more}. "
            "Muster uses these nodes again after the latest end. If that is not intended, merge the windows or change "
            "their times",
        )


def _of_window(
    window: _Window,
    covered: Sequence[str],
    pools: Mapping[str, int],
    sizes: Mapping[str, int],
    limit: Callable[[int], int],
) -> Iterator[Problem]:
    where = f"spec.maintenance.windows[{window.name}]"
    if not covered:
        yield Problem(
            f"nothing/{window.name}",
            f"{where}.nodes selects no node of the cluster. Muster takes none out. Check names and selector",
        )
    absent = sorted(window.names.difference(covered), key=natural)
    if covered and absent:
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        yield Problem(
            f"absent/{window.name}",
            f"{where}.nodes.names: there is no node {', '.join(absent[:_NAMED])}{more}. Muster takes out the others. "
            "Check the spelling",
        )
    for pool, count in sorted(pools.items()):
        if count > limit(sizes[pool]):
            yield Problem(
                f"many/{window.name}/{pool}",
                f"{where} takes {count} of {_nodes(sizes[pool])} of {pool or 'the fleet'} out from "
                f"{_moment(window.starts)} until {_moment(window.ends)}, more than the {limit(sizes[pool])} that "
                "spec.health.budgets allows for faults. Muster obeys the window, and jobs that find no other node stop "
                "and wait. If that is not intended, divide the window",
            )


def _end_of_windows(window: _Window, here: Iterable[_Window]) -> datetime:
    """Return when the node is free again: the end of the last of the windows that follow each other without a gap.

    Args:
        window: the one that applies now.
        here: all windows of the node that are not over.
    """
    end = window.ends
    for other in sorted(here, key=lambda each: each.closes):
        if other.closes <= end:
            end = max(end, other.ends)
    return end


def _window_message(window: NodeMaintenance, reason: str) -> str:
    why = f" ({reason})" if reason else ""
    times = f"from {_moment(window.start_time)} until {_moment(window.end_time)}"
    texts = {
        MaintenanceStage.CLOSED: f"is near, {times}: no new worker is placed here",
        MaintenanceStage.EVACUATING: f"is about to start, {times}: running jobs are evacuated",
        MaintenanceStage.IN_PROGRESS: f"is open, {times}: the machine may be down",
    }
    return f"maintenance window {window.window}{why} {texts[window.stage]}"


def _earlier(moment: datetime, seconds: float) -> datetime:
    return moment - timedelta(seconds=seconds)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"
