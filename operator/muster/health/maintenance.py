"""Maintenance windows: what they mean for a node at a moment, and which of them are likely mistakes. Pure.

A window is a decision of the platform team, like a cordon. Neither the breaker's budgets nor the enforcement limits it,
and it charges no machine with a fault. Before the window, the node takes no new workers. Then its jobs are evacuated
after their next checkpoint. Within the window, the machine may go down at any moment. After it, the agent has to check
the node before it is used again. Jobs do not declare how long they take, so a closed node takes no new work at all.

A user's release does not end a window, because someone may be at work on the machine. The window itself has to be
changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.maintenance import MaintenancePolicy, MaintenanceStage, MaintenanceWindow, NodeMaintenance
from muster.api.nodehealth import Finding, Severity
from muster.health.budgets import Budgets, budgets_by_entry
from muster.health.pools import budget_pool_of, entry_of
from muster.health.signs import MAINTENANCE, Sign
from muster.placement.natural import natural
from muster.world.names import shortened
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
        return cls(
            name=window.name,
            closes=_earlier(window.start_time, max(policy.close_before_seconds, policy.evacuate_before_seconds)),
            leaves=_earlier(window.start_time, policy.evacuate_before_seconds),
            starts=window.start_time,
            ends=window.end_time,
            names=frozenset(window.nodes.names),
            selects=None if selector is None else (lambda node: selector.selects(node.labels)),
            reason=window.reason,
        )

    def covers(self, node: NodeView) -> bool:
        return node.name in self.names or (self.selects is not None and self.selects(node))

    def overlaps(self, other: "_Window") -> bool:
        return self.starts < other.ends and other.starts < self.ends

    def stage(self, now: datetime) -> MaintenanceStage | None:
        """Return how near the window is; None: it is over, or far ahead."""
        if now >= self.ends or now < self.closes:
            return None
        if now >= self.starts:
            return MaintenanceStage.IN_PROGRESS
        return MaintenanceStage.EVACUATING if now >= self.leaves else MaintenanceStage.CLOSED


def _is_sound(window: MaintenanceWindow) -> bool:
    return window.end_time > window.start_time


def _sound_windows(policy: MaintenancePolicy) -> list[_Window]:
    """Return the windows of the policy that end after they start, in its order."""
    return [_Window.from_policy(window, policy) for window in policy.windows if _is_sound(window)]


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

    def sign(self, findings: Mapping[tuple[str, str, str], Finding], now: datetime) -> Sign:
        """Return the sign that keeps the node out for the window: planned, and charged to nothing.

        Args:
            findings: the findings on record, by key of the sign.
            now: the time.
        """
        reason = WITHIN if self.stage is MaintenanceStage.IN_PROGRESS else AHEAD
        old = findings.get((MAINTENANCE, reason, ""))
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
        return cls(tuple(sorted(_sound_windows(policy), key=lambda window: (window.starts, window.ends, window.name))))

    def state_of_node(self, node: NodeView, now: datetime) -> tuple[MaintenanceState | None, datetime | None]:
        """Return what the windows mean for a node now, and when that changes by time alone.

        Returns:
            None where no window applies now, and None where nothing will change.
        """
        node_windows = [window for window in self.windows if now < window.ends and window.covers(node)]
        moments = (moment for w in node_windows for moment in (w.closes, w.leaves, w.starts, w.ends) if moment > now)
        wake = min(moments, default=None)
        standing = [(stage, window) for window in node_windows if (stage := window.stage(now)) is not None]
        if not standing:
            return None, wake
        stage, window = min(standing, key=lambda pair: (_RANK[pair[0]], pair[1].starts, pair[1].name))
        leaving = [candidate.starts for its, candidate in standing if its is not MaintenanceStage.CLOSED]
        maintenance = NodeMaintenance(
            stage=stage, window=window.name, start_time=window.starts, end_time=_end_of_windows(window, node_windows)
        )
        return MaintenanceState(
            maintenance, _window_message(maintenance, window.reason), min(leaving, default=None)
        ), wake

    def is_pending(self, now: datetime) -> bool:
        """Whether any of the windows is not over."""
        return any(now < window.ends for window in self.windows)


def was_within(previous: NodeMaintenance | None, state: MaintenanceState | None, now: datetime) -> bool:
    """Whether someone may have worked on the machine in a recorded window that is over now.

    That includes a window that began and ended between two verdicts.

    Args:
        previous: the window on record; None: there is none.
        state: the state of the windows for the node now; None: no window applies.
        now: the time.
    """
    if previous is None or (state is not None and state.stage is MaintenanceStage.IN_PROGRESS):
        return False
    return previous.stage is MaintenanceStage.IN_PROGRESS or previous.end_time <= now


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


@dataclass(slots=True)
class _Coverage:
    """The nodes that a window covers, counted node by node.

    Attributes:
        window: one that is not over.
        nodes: names of the nodes.
        pools: by pool, the number of the nodes.
        overlapping: names of those windows after it in the policy that cover one of the nodes at the same time.
    """

    window: _Window
    nodes: list[str] = field(default_factory=list)
    pools: Counter[str] = field(default_factory=Counter)
    overlapping: set[str] = field(default_factory=set)

    def add_node(self, node: str, pool: str, others: Iterable["_Coverage"]) -> None:
        """Count a node.

        Args:
            node: its name.
            pool: its pool of like nodes.
            others: those of the windows after this one that cover the node, too.
        """
        self.nodes.append(node)
        self.pools[pool] += 1
        self.overlapping.update(other.window.name for other in others if self.window.overlaps(other.window))


def problems(policy: FleetPolicySpec, nodes: Iterable[NodeView], now: datetime) -> Iterator[Problem | None]:
    """Yield the problems of the maintenance windows; None now and then between them, so that other work may run.

    Args:
        policy: of the fleet; its windows are in any order.
        nodes: all nodes of the fleet.
        now: the time.
    """
    yield from _mistaken_times(policy.maintenance, now)
    coverages = [_Coverage(window) for window in _sound_windows(policy.maintenance) if now < window.ends]
    if not coverages:
        return
    pool_sizes: Counter[str] = Counter()
    for index, node in enumerate(nodes):
        if index % 8 == 0:
            yield None
        pool = budget_pool_of(node, policy)
        pool_sizes[pool] += 1
        covering = [coverage for coverage in coverages if coverage.window.covers(node)]
        for position, coverage in enumerate(covering):
            coverage.add_node(node.name, pool, covering[position + 1 :])
    budgets = budgets_by_entry(policy)
    for coverage in coverages:
        yield from _unmatched_nodes(coverage)
        yield from _exceeded_budgets(coverage, pool_sizes, budgets)
    yield from _overlaps(coverages)


def _mistaken_times(policy: MaintenancePolicy, now: datetime) -> Iterator[Problem]:
    """Yield the windows that end before they start, and then those that are long over."""
    for window in policy.windows:
        if not _is_sound(window):
            yield Problem(
                f"backwards/{window.name}",
                f"{_path(window.name)}.endTime is not after its startTime. Muster ignores the window. Write a later "
                "endTime",
            )
    for window in policy.windows:
        if _is_sound(window) and (now - window.end_time).total_seconds() >= OLD_SECONDS:
            yield Problem(
                f"over/{window.name}",
                f"{_path(window.name)} has been over since {_moment(window.end_time)}. Muster takes no node out for "
                "it. Remove the window, or write its next times",
            )


def _unmatched_nodes(coverage: _Coverage) -> Iterator[Problem]:
    """Yield that a window covers no node, or that some of its names are of no node."""
    window = coverage.window
    if not coverage.nodes:
        yield Problem(
            f"nothing/{window.name}",
            f"{_path(window.name)}.nodes selects no node of the cluster. Muster takes none out. Check names and "
            "selector",
        )
        return
    absent = window.names.difference(coverage.nodes)
    if absent:
        yield Problem(
            f"absent/{window.name}",
            f"{_path(window.name)}.nodes.names: there is no node {_listed(absent)}. Muster takes out the others. "
            "Check the spelling",
        )


def _exceeded_budgets(
    coverage: _Coverage, pool_sizes: Mapping[str, int], budgets_of_entry: Mapping[str, Budgets]
) -> Iterator[Problem]:
    """Yield the pools of which a window takes out more nodes than the budgets allow for faults."""
    window = coverage.window
    for pool, count in sorted(coverage.pools.items()):
        size, budgets = pool_sizes[pool], budgets_of_entry[entry_of(pool)]
        if count > budgets.limit(size):
            yield Problem(
                f"many/{window.name}/{pool}",
                f"{_path(window.name)} takes {count} of {size} node{'s' * (size != 1)} of {pool} out from "
                f"{_moment(window.starts)} until {_moment(window.ends)}, more than the {budgets.limit(size)} that "
                f"{budgets.path} allows for faults. Muster obeys the window, and jobs that find no other node stop "
                "and wait. If that is not intended, divide the window",
            )


def _overlaps(coverages: Iterable[_Coverage]) -> Iterator[Problem]:
    """Yield the windows that overlap with later ones of the policy on some nodes, by name."""
    for coverage in sorted(coverages, key=lambda coverage: coverage.window.name):
        if coverage.overlapping:
            name = coverage.window.name
            yield Problem(
                f"overlap/{name}",
                f"{_path(name)} overlaps on some nodes with {_listed(coverage.overlapping)}. Muster uses these nodes "
                "again after the latest end. If that is not intended, merge the windows or change their times",
            )


def _listed(names: Iterable[str]) -> str:
    """Return some names as text: the first few in natural order, and how many more there are."""
    return shortened(sorted(names, key=natural), _NAMED)


def _path(window: str) -> str:
    return f"spec.maintenance.windows[{window}]"


def _end_of_windows(window: _Window, node_windows: Iterable[_Window]) -> datetime:
    """Return when the node is free again: the end of the last of the windows that follow each other without a gap.

    Args:
        window: the one that applies now.
        node_windows: all windows of the node that are not over.
    """
    end = window.ends
    for other in sorted(node_windows, key=lambda candidate: candidate.closes):
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
