"""Words that Events and the status share."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

from muster.api.gang import GangSpec, Level

MAX_NODES_IN_NOTE = 8
# Of moments that are worked out anew in each decision: the words, and so the status, stay the same.
COARSE_SECONDS = 5

WHAT_LEVELS_DO: Mapping[Level, str] = {
    Level.START: "the whole gang starts",
    Level.IN_PLACE: "ranks restart in place",
    Level.POD: "a new pod on the same node",
    Level.REPLACE: "a new node takes the lost one's place",
    Level.REBUILD: "the gang is rebuilt",
}


def on_nodes(spec: GangSpec) -> str:
    """Where the gang is, short enough for an Event."""
    names = [member.node or "(no node yet)" for member in spec.members]
    shown = ", ".join(names[:MAX_NODES_IN_NOTE])
    rest = len(names) - MAX_NODES_IN_NOTE
    where = ", ".join(f"{count.domains} {count.level}{'s' * (count.domains != 1)}" for count in spec.topology)
    return f"on {shown}" + (f" and {rest} more" if rest > 0 else "") + (f" ({where})" if where else "")


def by(now: datetime, seconds: float) -> str:
    """The moment so many seconds from now, a little later rather than too early, as people read it."""
    moment = math.ceil((now.timestamp() + max(0.0, seconds)) / COARSE_SECONDS) * COARSE_SECONDS
    return f"{now + timedelta(seconds=moment - now.timestamp()):%H:%M:%S} UTC"
