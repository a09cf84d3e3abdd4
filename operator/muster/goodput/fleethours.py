"""Sum up by hours what all accelerators of the fleet did. Pure.

The time that this leader has seen by a monotonic clock counts by the present state of its nodes. Earlier time since the
last write is reported as not counted. Time is counted once only, whichever replica leads (docs/decisions/0038).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from muster.api.fleethours import HOURLY_DAYS, MAX_SPANS, FleetHours, GpuState, known_state
from muster.api.goodput import LONGEST_MILLISECONDS
from muster.api.nodehealth import ExclusionCause
from muster.world.fleet import Fleet
from muster.world.views import NodeView

HOUR, DAY, MILLISECOND = timedelta(hours=1), timedelta(days=1), timedelta(milliseconds=1)
# Two clocks of one process may differ by this when a machine is busy.
CLOCKS_AGREE = timedelta(milliseconds=2000)
# A clock that is behind by more than this shows another time than that which was counted.
BEHIND = timedelta(hours=1)
LENGTH_OF_DAY = 10
# Kubernetes, cloud providers and autoscalers close nodes with these taints: no worker is meant to tolerate them. Others
# may dedicate a node.
CLOSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
)


def state_of(fleet: Fleet, node: NodeView, reserved: Collection[str]) -> GpuState:
    """Return what a node's accelerators are used for now: a holder counts before any fault of the node. `reserved`
    nodes wait for the rest of a gang.
    """
    holders = fleet.holders(node.name)
    if holders:
        foreign = all(holder.startswith("pod/") for holder in holders)
        return GpuState.OTHER_PODS if foreign else GpuState.HELD
    exclusion = fleet.exclusion(node.name)
    if exclusion is not None:
        return GpuState.QUARANTINED if exclusion.cause is ExclusionCause.HEALTH else GpuState.MAINTENANCE
    if not node.ready or node.unschedulable or _is_closed(node):
        return GpuState.EXCLUDED
    return GpuState.RESERVED if node.name in reserved else GpuState.FREE


def _is_closed(node: NodeView) -> bool:
    return any(taint.effect != "PreferNoSchedule" and taint.key.startswith(CLOSING_TAINTS) for taint in node.taints)


def with_counted_hours(
    previous: FleetHours | None, now: datetime, lived: timedelta, gpus: Mapping[GpuState, int], most_days: int
) -> FleetHours:
    """Add the time since the last count.

    Args:
        previous: the last count; None: there is none.
        now: the time of this count.
        lived: how long accelerators have been in these states, by a monotonic clock.
        gpus: number of accelerators by state.
        most_days: older days are dropped.
    """
    total = sum(gpus.values())
    now = now.astimezone(UTC)
    if previous is None:
        return FleetHours(until=now, gpus=total, spans={})
    spans, until = dict(previous.spans), previous.until.astimezone(UTC)
    if until - now > BEHIND:  # the states in the hours from now on are unknown
        spans = {key: amounts for key, amounts in spans.items() if _begin(key) + _length(key) <= now}
        until = now
    if now <= until:
        return previous.model_copy(update={"spans": spans, "until": until, "gpus": total})
    seen_from = max(until, now - lived - CLOCKS_AGREE)
    for begin, end, amounts in (
        (max(until, now - most_days * DAY), seen_from, {GpuState.NOT_OBSERVED: previous.gpus}),
        (seen_from, now, gpus),
    ):
        nonzero_amounts = {state: count for state, count in amounts.items() if count}
        for key, milliseconds in _hours(begin, end) if nonzero_amounts else ():
            counted = spans.get(key, {})
            more: dict[str, int] = {state: count * milliseconds for state, count in nonzero_amounts.items()}
            both = {state: counted.get(state, 0) + more.get(state, 0) for state in (*counted, *more)}
            spans[key] = {state: min(amount, LONGEST_MILLISECONDS) for state, amount in both.items()}
    return previous.model_copy(update={"until": now, "gpus": total, "spans": _summed_up(spans, now, most_days)})


def hours_between(hours: FleetHours, since: datetime | None, until: datetime | None = None) -> dict[GpuState, int]:
    """Return GPU-milliseconds by state between two moments.

    An hour that they cut (a day where only that is kept) counts by the share of its time.
    """
    totals: dict[GpuState, int] = {}
    first_hours = _first_hours(hours.spans)
    for key, amounts in hours.spans.items():
        begin = _begin(key)
        end = max(min(first_hours.get(key, begin + _length(key)), hours.until), begin + MILLISECOND)
        part = min(end, until or end) - max(begin, since or begin)
        if part <= timedelta():
            continue
        for name, amount in amounts.items():
            state = known_state(name)
            totals[state] = totals.get(state, 0) + amount * (part // MILLISECOND) // ((end - begin) // MILLISECOND)
    return totals


def counted_from(hours: FleetHours) -> datetime | None:
    """Return the first moment from which no hour is missing; None: nothing is counted.

    Counting began at some moment of the first hour (or day).
    """
    first = min(hours.spans, default=None)
    return None if first is None else _first_hours(hours.spans).get(first, _begin(first) + _length(first))


def _first_hours(keys: Iterable[str]) -> dict[str, datetime]:
    """Return the first hour of each day that is kept by hours; the part of the day before it is summed up."""
    first_hours: dict[str, datetime] = {}
    for key in sorted(key for key in keys if len(key) > LENGTH_OF_DAY):
        first_hours.setdefault(key[:LENGTH_OF_DAY], _begin(key))
    return first_hours


def _hours(begin: datetime, end: datetime) -> Iterator[tuple[str, int]]:
    """Yield the hours of a time, each with its number of milliseconds in it."""
    while begin < end:
        hour = begin.replace(minute=0, second=0, microsecond=0)
        last = min(hour + HOUR, end)
        yield hour.strftime("%Y-%m-%dT%H"), (last - begin) // MILLISECOND
        begin = last


def _summed_up(spans: Mapping[str, Mapping[str, int]], now: datetime, most_days: int) -> dict[str, dict[str, int]]:
    """Sum old hours up by days; days that are too old, or do not fit into one object, are dropped."""
    summed: dict[str, dict[str, int]] = {}
    for key, amounts in spans.items():
        begin = _begin(key)
        if begin < now - most_days * DAY - DAY:
            continue
        old = len(key) > LENGTH_OF_DAY and begin < now - HOURLY_DAYS * DAY
        key_amounts = summed.setdefault(key[:LENGTH_OF_DAY] if old else key, {})
        for state, amount in amounts.items():
            key_amounts[state] = min(key_amounts.get(state, 0) + amount, LONGEST_MILLISECONDS)
    return {key: summed[key] for key in sorted(summed)[-MAX_SPANS:]}


def _begin(key: str) -> datetime:
    return datetime.strptime(key, "%Y-%m-%dT%H" if len(key) > LENGTH_OF_DAY else "%Y-%m-%d").replace(tzinfo=UTC)


def _length(key: str) -> timedelta:
    return HOUR if len(key) > LENGTH_OF_DAY else DAY
