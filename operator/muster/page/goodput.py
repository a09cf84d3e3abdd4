"""Report on request where the GPU-hours of all jobs went, as `kubectl muster report --fleet` does.

Ended jobs are not watched: thousands of them are read now and then, by few users. Other users get the same result for
half a minute, and the sums are made outside the event loop that answers.

Tests: tests/unit/page/test_server.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from muster.answers.fleet_text import CUT, figures, period, remarks, tables
from muster.answers.fleetreported import AccountedJob, FleetReport, fleet_report
from muster.api.fleethours import FleetHours
from muster.goodput.prices import Prices
from muster.kube.access import Remembered

PERIODS = (7, 30, 90, 365)
"""Days that may be requested; 0: all that is kept."""
LISTED = 50

Lives = Callable[[datetime, datetime | None], Awaitable[tuple[list[AccountedJob], list[str]]]]
"""Returns the jobs that exist, up to now, those that ended after a moment (None: all), and what limits the answer."""

Hours = Callable[[], Awaitable[tuple[FleetHours | None, list[str]]]]
"""Returns what the accelerators of the fleet did, and what limits the answer."""


class Reports:
    """The report of each period, not older than half a minute. `lives` reads the jobs, `hours` what the fleet's
    accelerators did. `prices` returns the present prices of a GPU-hour.
    """

    def __init__(
        self,
        lives: Lives,
        hours: Hours,
        prices: Callable[[], Prices],
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lives = lives
        self._hours = hours
        self._prices = prices
        self._now = now
        self._made: Remembered[Any] = Remembered(len(PERIODS) + 1, clock)
        self._one_reads = asyncio.Lock()

    async def get(self, days: int) -> Any:
        """Return the report of so many days, in text for people.

        Raises:
            ApiError: the API server did not answer as it should.
        """
        return await self._made.ask(days, lambda: self._make(days))

    async def _make(self, days: int) -> Any:
        async with self._one_reads:
            now = self._now()
            since = now - timedelta(days=days) if days else None
            lives, notes = await self._lives(now, since)
            fleet_hours, more = await self._hours()
            notes, prices = [*notes, *more], self._prices()
            return await asyncio.to_thread(
                lambda: page_report(fleet_report(lives, now, since, prices, notes, fleet_hours))
            )


def page_report(it: FleetReport) -> Any:
    """Return the report in the form that the page draws."""
    return {
        "period": period(it),
        "figures": [{"name": name, "value": value} for name, value in figures(it)],
        "buckets": [{"bucket": bucket.bucket, "share": bucket.share} for bucket in it.buckets],
        "tables": [
            {"title": title.capitalize(), "heads": heads, "rows": rows}
            for title, heads, rows in tables(it, LISTED, LISTED)
        ],
        "remarks": [
            *([CUT] if any(job.counted_share < 1 for job in it.job_details[:LISTED]) else []),
            *remarks(it),
        ],
    }
