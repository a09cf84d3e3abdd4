"""What follows for a node from the silence of its agent: for how long, and with how many silent peers. Pure.

A node whose agent has ended looks like a healthy one. So an agent that has reported and is no longer Ready counts
against its node, after a while. It proves no fault, so that running jobs stay. Where many agents of a pool are silent
at once, no node is at fault (a bad roll-out, a deleted DaemonSet). Then nothing new follows for any node.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from muster.api.nodehealth import Severity
from muster.health.pools import Pools

AGENT_SILENT = "AgentSilent"
AVOID_SECONDS = 600.0
"""After this silence a node takes no new jobs: longer than an image takes to be pulled."""
_SUSPECT = 1 / 5
"""After this share of it a node is Suspect: longer than the replacement of an agent takes where its image is there."""
_COUNTS = 1 / 20
"""After this share of it a silence counts towards many silent agents at once."""
_SHORTEST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Silence:
    """What follows for a node whose agent has reported before, and is not Ready now.

    Attributes:
        weighs: the severity that newly follows; None: nothing new, but a finding on record stays.
        message: text for users; it does not change while the silence lasts.
    """

    weighs: Severity | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class AgentSilence:
    """How long a node's agent has been silent.

    Attributes:
        seconds: since the agent was Ready, or since this process has known of it.
        pod_seconds: since the agent's pod was made, or later began to run: a new agent needs time for its checks.
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


@dataclass(slots=True)
class SilentSince:
    """The times since when an agent's state has lasted.

    Attributes:
        seconds: when the silence began, by the caller's clock.
        pod_seconds: when the agent's pod was made, or began to run, by the same clock.
        pod_uid: of the agent's pod; "": there was none.
        starting: whether that pod has not begun to run.
        paused: whether the node itself is not Ready, so that its agent is not blamed.
    """

    seconds: float
    pod_seconds: float
    pod_uid: str
    starting: bool
    paused: bool


class AgentContacts:
    """Which nodes' agents are Ready, since when the others are silent, and what follows for their nodes.

    The operator and the simulator of fleets use it. Times are seconds of one clock, passed in.

    Args:
        avoid_seconds: how long an agent may be silent before its node takes no new jobs.

    Attributes:
        ready: names of the nodes whose agent is Ready.
        silent: by node, since when its agent is silent.
        silent_pools: pools in which too many agents are silent at once, and how many, as of the last call of `changed`.
    """

    def __init__(self, avoid_seconds: float = AVOID_SECONDS) -> None:
        self.ready: set[str] = set()
        self.silent: dict[str, SilentSince] = {}
        self.silent_pools: Mapping[str, int] = {}
        self._avoid_seconds = avoid_seconds
        self._silences: dict[str, Silence] = {}

    def silence_of(self, node: str) -> Silence | None:
        """The silence of a node's agent, as of the last call of `changed`; None: the agent is Ready, or there is none
        to miss."""
        return self._silences.get(node)

    def note_ready(self, name: str) -> bool:
        """Note that a node's agent is Ready. Returns whether it was silent."""
        was_silent = self.forget(name)
        self.ready.add(name)
        return was_silent

    def forget(self, name: str) -> bool:
        """Forget a node whose agent cannot be missed. Returns whether the agent was silent."""
        self.ready.discard(name)
        return self.silent.pop(name, None) is not None

    def note_silent(self, name: str, now: float, *, paused: bool, pod: tuple[str, bool] | None = None) -> bool:
        """Note that a node's agent is not Ready. Returns whether what follows has another time now.

        Args:
            name: of the node.
            now: the time.
            paused: whether the node itself is not Ready.
            pod: uid of the agent's newest pod, and whether it has not begun to run; None: there is no pod.
        """
        since, is_news = self.silent.get(name), False
        if since is None or since.paused != paused:
            self.ready.discard(name)
            since = self.silent[name] = SilentSince(now, now, pod[0] if pod else "", False, paused)
            is_news = True
        if pod is not None and pod != (since.pod_uid, since.starting):
            since.pod_seconds, (since.pod_uid, since.starting) = now, pod
            is_news = True
        return is_news

    def changed(
        self, now: float, pools: Pools, limit: Callable[[str, int], int], message: Callable[[str], str]
    ) -> set[str]:
        """Compute all silences, and return the names of the nodes whose silence has changed since the last call.

        Args:
            now: the time up to which the agents are known.
            pools: of the fleet.
            limit: returns how many agents of a pool may be silent by themselves, by the pool and its number of nodes.
            message: returns the text for users about a node's silent agent.
        """
        previous, self._silences = self._silences, {}
        measured = self._measure_silences(now)
        self.silent_pools = pools_silent_at_once(measured, pools, self.ready, limit)
        for name in self.silent:
            is_blamed = name in measured and pools.name_of(name) not in self.silent_pools
            self._silences[name] = Silence(measured[name].weighs if is_blamed else None, message(name))
        return {
            name for name in previous.keys() | self._silences.keys() if previous.get(name) != self._silences.get(name)
        }

    def next_seconds(self, now: float) -> float | None:
        """The seconds until time alone may change a silence; None = never."""
        moments = (silence.next_seconds() for silence in self._measure_silences(now).values())
        soonest = min((moment for moment in moments if moment is not None), default=None)
        # Without news of Pods, silences do not grow: check again soon, not at once.
        return None if soonest is None else max(soonest, _SHORTEST_SECONDS)

    def _measure_silences(self, now: float) -> dict[str, AgentSilence]:
        return {
            name: AgentSilence(now - since.seconds, now - since.pod_seconds, since.starting, self._avoid_seconds)
            for name, since in self.silent.items()
            if not since.paused
        }


def pools_silent_at_once(
    silences: Mapping[str, AgentSilence], pools: Pools, ready: Collection[str], limit: Callable[[str, int], int]
) -> dict[str, int]:
    """Return the pools in which so many agents are silent that no node is at fault: more than a share, or all.

    Args:
        silences: by node, how long its agent has been silent.
        pools: of the fleet.
        ready: names of the nodes whose agent is Ready.
        limit: returns how many agents of a pool with the given number of nodes may be silent without a common cause.

    Returns:
        By pool, the number of silent agents.
    """
    counts = Counter(pools.name_of(node) for node, silence in silences.items() if silence.counts)
    return {
        pool: count
        for pool, count in counts.items()
        if count > limit(pool, pools.sizes.get(pool, 0)) or not any(pools.name_of(node) == pool for node in ready)
    }
