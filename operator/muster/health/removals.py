"""How marks on a Node announce that its machine is removed, and when. Pure.

The rows with such marks are in `muster.health.sources.ROWS`. The time is in the mark, or its writer guarantees a length
of time from the mark on. Otherwise it is not known. A time is read only in a form that its writer documents, because a
guess would end training for nothing, or too late.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from muster.api.base import EARLIEST, LATEST
from muster.world.fleet import Removal


@dataclass(frozen=True, slots=True)
class Notice:
    """What a kind of mark announces about the removal of a machine.

    Attributes:
        final: whether the removal is never cancelled, and the machine is removed when its pods have ended.
        seconds: the machine stays at least this long after the mark; None: no time is guaranteed.
        time: a pattern whose first group is the time of the removal; "": the mark names none.
    """

    final: bool = False
    seconds: int | None = None
    time: str = ""

    def removal(self, by: str, since: datetime, message: str) -> Removal:
        """Return the removal that a mark announces.

        Args:
            by: the source of the mark.
            since: since when the mark is there.
            message: the text of the mark.
        """
        named = _time_in(self.time, message) if self.time else None
        if named is None and self.seconds is not None:
            named = since + timedelta(seconds=self.seconds)
        return Removal(by, named, self.final)


def _time_in(pattern: str, text: str) -> datetime | None:
    """Return the time in UTC that a text names in the form of RFC 1123; None: it names none within sensible limits.

    Args:
        pattern: its first group is the time.
        text: of the mark.
    """
    match = re.search(pattern, text)
    if match is None:
        return None
    try:
        moment = parsedate_to_datetime(match[1])
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment if EARLIEST < moment < LATEST else None
