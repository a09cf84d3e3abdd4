"""Decide which accounts of ended jobs are kept, and for how long. Pure."""

import heapq
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from muster.api.fleetpolicy import History
from muster.world.names import shortened

_MAX_NAMED = 3  # namespaces in one sentence


class Kept(NamedTuple):
    """An account that is kept: when its job ended, and in which namespace."""

    end: datetime
    namespace: str = ""


def is_kept(account: Kept, competing: datetime | None, policy: History, now: datetime) -> bool:
    """Whether an account would be kept if it were written now. `competing` is the result of `competing_ends` for its
    namespace.
    """
    if policy.max_jobs == 0 or account.end < now - timedelta(days=policy.max_age_days):
        return False
    return competing is None or account.end > competing


def competing_ends(accounts: Iterable[Kept], policy: History) -> dict[str, datetime]:
    """Return, for each namespace that must give up an account of its own for a new one, the end of the oldest.

    It is empty while there is room. In a full history the namespaces with most accounts give up their own; a new
    account of any other namespace takes the place of one of these.
    """
    oldest: dict[str, datetime] = {}
    counts: dict[str, int] = {}
    for end, namespace in accounts:
        counts[namespace] = counts.get(namespace, 0) + 1
        oldest[namespace] = min(end, oldest.get(namespace, end))
    if sum(counts.values()) < policy.max_jobs:
        return {}
    most = max(counts.values(), default=0)
    return {namespace: oldest[namespace] for namespace, count in counts.items() if count + 1 >= most}


def missing_accounts_message(
    accounts: Collection[Kept], policy: History, since: datetime | None, now: datetime
) -> list[str]:
    """Say why accounts of jobs that ended after `since` (None: at any time) may be missing, a sentence each. `accounts`
    are all that are kept.
    """
    if policy.max_jobs == 0:
        return ["jobs that end leave no account: spec.history.maxJobs of the FleetPolicy is 0"]
    sentences = []
    oldest = now - timedelta(days=policy.max_age_days)
    if since is not None and since < oldest:
        sentences.append(
            f"jobs that ended before {oldest:%Y-%m-%d} are missing: accounts are kept for {policy.max_age_days} days "
            "(spec.history.maxAgeDays of the FleetPolicy)"
        )
    full = {name: end for name, end in competing_ends(accounts, policy).items() if since is None or end > since}
    if full:
        names = shortened(sorted(full), _MAX_NAMED)
        sentences.append(
            f"jobs of {names} that ended before {max(full.values()):%Y-%m-%d %H:%M} UTC may be missing: the history "
            f"is full ({policy.max_jobs} accounts, spec.history.maxJobs of the FleetPolicy)"
        )
    return sentences


def surplus_names(accounts: Mapping[str, Kept], policy: History, most: int) -> list[str]:
    """Return the names beyond the limit; none where the history is switched off: it stays as it is.

    Each is the oldest of the namespace that has most at that point. So a tenant with many short jobs displaces its own
    accounts once it has as many as any other.
    """
    over = len(accounts) - policy.max_jobs
    if policy.max_jobs == 0 or over <= 0:
        return []
    names: dict[str, list[tuple[datetime, str]]] = {}
    for name, account in accounts.items():
        names.setdefault(account.namespace, []).append((account.end, name))
    for listed in names.values():
        listed.sort(reverse=True)
    largest = [(-len(listed), listed[-1], namespace) for namespace, listed in names.items()]
    heapq.heapify(largest)
    surplus = []
    for _ in range(min(over, most)):
        namespace = heapq.heappop(largest)[2]
        listed = names[namespace]
        surplus.append(listed.pop()[1])
        if listed:
            heapq.heappush(largest, (-len(listed), listed[-1], namespace))
    return surplus


def outdated_names(accounts: Mapping[str, Kept], policy: History, now: datetime) -> set[str]:
    """Return the names of the accounts that are too old."""
    oldest = now - timedelta(days=policy.max_age_days)
    return {name for name, account in accounts.items() if account.end < oldest}
