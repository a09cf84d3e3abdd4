"""What time it is, for ages that are told and for times that are written into objects."""

from datetime import UTC, datetime, timedelta

ERROR = timedelta(seconds=2)
"""The API server tells its time in whole seconds, and the answer takes a while."""


def current_time(servers: datetime | None) -> datetime:
    """The present by this machine's clock, or by the API server's where this one is wrong.

    A release forgives what was seen before it, so that a clock that is wrong would forgive too much or too little.

    Args:
        servers: what the API server's clock says now; None: it has not told.
    """
    return agreed_time(datetime.now(UTC), servers)


def agreed_time(local: datetime, servers: datetime | None) -> datetime:
    """Which of both counts."""
    return local if servers is None or abs(local - servers) <= ERROR else servers
