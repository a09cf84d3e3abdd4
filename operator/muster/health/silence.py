"""An agent that is silent: what follows for its node from how long, and from how many of its peers are silent, too.
Pure.

A node whose agent is dead or blind looks like one that is well. So an agent that has spoken and is not Ready any more
counts against its node, after a while: it proves no fault, so that running jobs stay. Where many of a pool are silent
at once it is no node's fault (a roll-out that went wrong, a DaemonSet that was deleted): nothing follows for the nodes
that nothing followed for yet.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from muster.api.nodehealth import Severity

AGENT_SILENT = "AgentSilent"
AVOID_SECONDS = 600.0
"""Longer than an image takes to be pulled."""
_SUSPECT = 1 / 5
"""Of that: longer than an agent takes to be replaced where its image is there."""
_COUNTS = 1 / 20
"""Of that: from then on a silence counts for telling that many are silent at once."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Of a node's agent that has spoken before, and is not Ready.

    Attributes:
        weighs: what newly follows; None: nothing, but what stands stands.
        message: for people; it does not change while the silence lasts.
    """

    weighs: Severity | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Quiet:
    """How long an agent has been silent.

    Attributes:
        seconds: since it was Ready, or since this process has known of it.
        pod_seconds: since its Pod was made, or began to run, if that is later: a new one needs time to look.
        starting: its Pod has not begun to run.
        avoid_seconds: from when on its node takes no new jobs.
    """

    seconds: float
    pod_seconds: float
    starting: bool = False
    avoid_seconds: float = AVOID_SECONDS

    @property
    def weighs(self) -> Severity | None:
        """What follows, as far as this agent alone counts."""
        if self.seconds >= self.avoid_seconds:
            return Severity.DEGRADED
        if not self.starting and min(self.seconds, self.pod_seconds) >= self.avoid_seconds * _SUSPECT:
            return Severity.WARNING
        return None

    @property
    def counts(self) -> bool:
        """Whether it counts for telling that many are silent at once."""
        return self.seconds >= self.avoid_seconds * _COUNTS

    def next_seconds(self) -> float | None:
        """In how long more may follow by time alone; None: never."""
        moments = [self.avoid_seconds * _COUNTS - self.seconds, self.avoid_seconds - self.seconds]
        if not self.starting:
            moments.append(self.avoid_seconds * _SUSPECT - min(self.seconds, self.pod_seconds))
        return min((moment for moment in moments if moment > 0), default=None)


def crowds(
    quiet: Mapping[str, Quiet],
    pools: Mapping[str, str],
    pool_sizes: Mapping[str, int],
    heard: Collection[str],
    limit: Callable[[int], int],
) -> dict[str, int]:
    """The pools in which so many agents are silent that it is no node's fault, and how many: more than a share, or all.

    Args:
        quiet: the silent ones, by node.
        pools: each node's pool of like nodes; absent: in "".
        pool_sizes: how many nodes each has.
        heard: nodes whose agent is Ready.
        limit: nodes of a pool -> how many of them may be silent by themselves.
    """
    counted = Counter(pools.get(name, "") for name, each in quiet.items() if each.counts)
    found = {}
    for pool, count in counted.items():
        alone = not any(pools.get(name, "") == pool for name in heard)
        if alone or count > limit(pool_sizes.get(pool, 0)):
            found[pool] = count
    return found
