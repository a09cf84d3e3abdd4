"""What follows for a node from the silence of its agent: for how long, and with how many silent peers. Pure.

A node whose agent is dead or blind looks like a healthy one. So an agent that has reported and is not Ready any more
counts against its node, after a while. It proves no fault, so that running jobs stay. Where many agents of a pool are
silent at once, no node is at fault (a bad roll-out, a deleted DaemonSet). Then nothing new follows for any node.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from muster.api.nodehealth import Severity

AGENT_SILENT = "AgentSilent"
AVOID_SECONDS = 600.0
"""After this silence a node takes no new jobs: longer than an image takes to be pulled."""
_SUSPECT = 1 / 5
"""After this share of it a node is Suspect: longer than the replacement of an agent takes where its image is there."""
_COUNTS = 1 / 20
"""After this share of it a silence counts towards many silent agents at once."""


@dataclass(frozen=True, slots=True)
class Silence:
    """What follows for a node whose agent has reported before, and is not Ready now.

    Attributes:
        weighs: the severity that newly follows; None: nothing new, but a finding on record stands.
        message: for people; it does not change while the silence lasts.
    """

    weighs: Severity | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class AgentSilence:
    """How long a node's agent has been silent.

    Attributes:
        seconds: since the agent was Ready, or since this process has known of it.
        pod_seconds: since the agent's pod was made, or began to run, if that is later: a new agent needs time to look.
        starting: whether the agent's pod has not begun to run.
        avoid_seconds: after this many seconds of silence the node takes no new jobs.
    """

    seconds: float
    pod_seconds: float
    starting: bool = False
    avoid_seconds: float = AVOID_SECONDS

    @property
    def weighs(self) -> Severity | None:
        """The severity that follows from the silence of this agent alone; None: nothing follows yet."""
        if self.seconds >= self.avoid_seconds:
            return Severity.DEGRADED
        if not self.starting and min(self.seconds, self.pod_seconds) >= self.avoid_seconds * _SUSPECT:
            return Severity.WARNING
        return None

    @property
    def counts(self) -> bool:
        """Whether this silence is long enough to count towards many silent agents at once."""
        return self.seconds >= self.avoid_seconds * _COUNTS

    def next_seconds(self) -> float | None:
        """Return in how many seconds more may follow from the silence, by time alone; None: never."""
        moments = [self.avoid_seconds * _COUNTS - self.seconds, self.avoid_seconds - self.seconds]
        if not self.starting:
            moments.append(self.avoid_seconds * _SUSPECT - min(self.seconds, self.pod_seconds))
        return min((moment for moment in moments if moment > 0), default=None)


def pools_silent_at_once(
    silences: Mapping[str, AgentSilence],
    pools: Mapping[str, str],
    pool_sizes: Mapping[str, int],
    heard: Collection[str],
    limit: Callable[[int], int],
) -> dict[str, int]:
    """Return the pools in which so many agents are silent that no node is at fault: more than a share, or all.

    Args:
        silences: by node, how long its agent has been silent.
        pools: by node, its pool of like nodes; absent: the pool "".
        pool_sizes: by pool, its number of nodes.
        heard: names of the nodes whose agent is Ready.
        limit: returns how many agents may be silent, in a pool with the given number of nodes, without a common cause.

    Returns:
        By pool, the number of silent agents.
    """
    counted = Counter(pools.get(name, "") for name, each in silences.items() if each.counts)
    found = {}
    for pool, count in counted.items():
        alone = not any(pools.get(name, "") == pool for name in heard)
        if alone or count > limit(pool_sizes.get(pool, 0)):
            found[pool] = count
    return found
