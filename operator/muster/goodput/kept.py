"""Which of the ended jobs' accounts are kept, and for how long. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice

from muster.api.fleetpolicy import History


def is_kept(end: datetime, oldest: datetime | None, policy: History, now: datetime) -> bool:
    """Whether the account of a job that ended then would be kept if it were written now.

    Args:
        oldest: end of the oldest that is kept, where there is no room for one more.
    """
    if policy.limit == 0 or end < now - timedelta(days=policy.max_age_days):
        return False
    return oldest is None or end > oldest


def surplus(known: Mapping[str, datetime], policy: History, most: int) -> list[str]:
    """Names of those that are beyond the limit, oldest first; none where the history is switched off: it stays as it is."""
    over = len(known) - policy.limit
    if policy.limit == 0 or over <= 0:
        return []
    return [name for name, _ in islice(sorted(known.items(), key=lambda item: (item[1], item[0])), min(over, most))]


def outdated(known: Mapping[str, datetime], policy: History, now: datetime) -> set[str]:
    """Names of those that are too old."""
    oldest = now - timedelta(days=policy.max_age_days)
    return {name for name, end in known.items() if end < oldest}
