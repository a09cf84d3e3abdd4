"""How marks on a Node say that its machine is being taken away, and when it goes. Pure.

The rows that say so are in `muster.health.sources.ROWS`. The time is a part of the mark, or a length of time that its
writer promises from the mark on; else it is not known. A time is read only in a form that its writer documents: a guess
would end training for nothing, or too late.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from muster.api.base import EARLIEST, LATEST
from muster.world.fleet import Removal


@dataclass(frozen=True, slots=True)
class Notice:
    """What a mark says about the removal of a machine.

    Attributes:
        final: nobody takes it back, and the machine goes when its pods are gone.
        seconds: the machine stays at least so long after the mark; None: the mark does not tell.
        time: a pattern, the first group of which is the time when the machine goes; "": the mark has none.
    """

    final: bool = False
    seconds: int | None = None
    time: str = ""

    def removal(self, by: str, since: datetime, message: str) -> Removal:
        """What follows from a mark.

        Args:
            by: the source of the mark.
            since: since when the mark is there.
            message: what the mark says.
        """
        named = _time_in(self.time, message) if self.time else None
        if named is None and self.seconds is not None:
            named = since + timedelta(seconds=self.seconds)
        return Removal(by, named, self.final)


def _time_in(pattern: str, text: str) -> datetime | None:
    """The time that a text names, as RFC 1123 writes it and in UTC; None: it names none that anybody can reckon
    with."""
    found = re.search(pattern, text)
    if found is None:
        return None
    try:
        moment = parsedate_to_datetime(found[1])
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment if EARLIEST < moment < LATEST else None
