"""Words that Events and the status share."""

from collections.abc import Mapping

from muster.api.gang import GangSpec, Level

MAX_NODES_IN_NOTE = 8

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
