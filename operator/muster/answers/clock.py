"""Find the present time, for displayed ages and for times that are written into objects."""

from datetime import UTC, datetime, timedelta

ERROR = timedelta(seconds=2)
"""The API server's time is in whole seconds, and the answer takes a while."""


def current_time(servers: datetime | None) -> datetime:
    """Return the present by this machine's clock, or by the API server's where this machine's is wrong.

    A release forgives what was seen before it, so a wrong clock would forgive too much or too little.

    Args:
        servers: the present by the API server's clock; None: it is not known.
    """
    return agreed_time(datetime.now(UTC), servers)


def agreed_time(local: datetime, servers: datetime | None) -> datetime:
    """Return the time that counts of the two."""
    return local if servers is None or abs(local - servers) <= ERROR else servers
