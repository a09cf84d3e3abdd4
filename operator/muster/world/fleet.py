"""Keep the fleet: nodes, their holders, what runs on them, and how fresh their heartbeats are.

One object serves all decisions. It is kept up to date one change at a time, so that the cost of a decision does not
grow with the fleet. What is derived from it (the placement's tree of free nodes) is kept beside it and follows the
nodes that have changed. A decision reads a snapshot, which never changes: what is inside the dicts here is replaced
once a snapshot shares it. So a snapshot is a copy of the dicts alone, one for all decisions until something changes.
"""

import copy
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from muster.api.fleetpolicy import Binding, FleetPolicySpec
from muster.api.nodehealth import Evacuate, ExclusionCause
from muster.world.resources import UNREADABLE, is_accelerator
from muster.world.views import NodeView, OccupantView, PodView

T = TypeVar("T")

# Derived views of the fleet that are kept up to date; the one unused for longest is dropped first.
MAX_DERIVED = 64
# Small fleets have room for more: so many nodes in all of them together.
MAX_DERIVED_NODES = 1 << 20
_DEFAULTS = FleetPolicySpec()  # takes longer to make than all else of a small fleet
_NOTHING: Mapping[str, int] = MappingProxyType({})


# A kubelet renews its lease every 10 s. The node controller marks a node unready after 40 s or more. A lost worker is
# replaced before that, and a rack fails together.
STALE_HEARTBEAT_SECONDS = 20.0


class Heartbeats(Protocol):
    """Ages of the kubelets' leases, by node."""

    def age_seconds(self, node: str) -> float:
        """Return the seconds since the node's heartbeat was last seen to change; 0 for a node that has none."""

    def older_than(self, seconds: float) -> Collection[str]:
        """Return the nodes whose heartbeat is at least that old."""


@dataclass(frozen=True, slots=True)
class KnownAges:
    """Heartbeats of known ages, by node."""

    ages: Mapping[str, float]

    def age_seconds(self, node: str) -> float:
        """Return the seconds since the node's heartbeat."""
        return self.ages.get(node, 0.0)

    def older_than(self, seconds: float) -> Collection[str]:
        """Return the nodes whose heartbeat is at least that old."""
        return [node for node, age in self.ages.items() if age >= seconds]


@dataclass(frozen=True, slots=True)
class Removal:
    """A machine that another system than Muster takes away.

    Attributes:
        by: the source of the mark that announces it.
        gone_by: when the machine goes at the latest; None: no time is known.
        final: it is not cancelled, and the machine goes as soon as its pods are gone. False: the drain may be given up,
            as people do with a cordon.
    """

    by: str
    gone_by: datetime | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node that takes no new worker because of its health.

    Attributes:
        reason: stable and CamelCase, e.g. Xid79.
        message: for people: what is wrong with it.
        evacuate: what its present workers have to do.
        gone_by: when they have to be gone, whether there is another node for them or not; None: no time is set.
        waiting_text: text for jobs that wait for nodes; "": that the node is unhealthy.
        last_choice: a new worker that finds no other node takes it all the same.
        removal: the machine is being taken away; None: it is not. A node that is unhealthy, too, has the cause Health.
        cause: why it is out of use.
    """

    reason: str
    message: str = ""
    evacuate: Evacuate = Evacuate.NO
    gone_by: datetime | None = None
    waiting_text: str = ""
    last_choice: bool = False
    removal: Removal | None = None
    cause: ExclusionCause = ExclusionCause.HEALTH


def _is_last(exclusion: Exclusion | None) -> bool:
    return exclusion is not None and exclusion.last_choice


def _ignore_change(_holder: str) -> None:
    """Ignore a change of a holder's nodes: the default callback."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Suspicion that makes a node a later choice, though it may be used.

    Attributes:
        followed: time of the newest failure of a job that has followed it; None for another suspicion.
        wants_check: failures of several owners have followed it: a test that it passed before proves nothing any more.
    """

    followed: datetime | None = None
    wants_check: bool = False


class Fleet:
    """All nodes, with their holders and what is used on them.

    A node's holders are uids of jobs: of those with a member of their Gang there, or with a pod that is not terminal
    (Terminating ones count). A foreign pod that holds accelerators counts as `pod/<namespace>/<name>`,
    one with a ResourceClaim as `pod/<namespace>/<name> (ResourceClaim <name>)`.

    Attributes:
        nodes: by name.
        policy: the FleetPolicy in force.
        heartbeats: of the nodes' kubelets.
        names: job uid -> `<namespace>/<name>`, for people; `set_name` changes them.
        version: grows with each change that can matter to placement.
        names_version: grows with each change of a name.
        holder_changed: called with each holder that has got or lost nodes.
    """

    def __init__(self, policy: FleetPolicySpec | None = None, heartbeats: Heartbeats | None = None) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.policy = policy or _DEFAULTS
        self.heartbeats: Heartbeats = heartbeats or KnownAges({})
        self.names: dict[str, str] = {}
        self.version = self.names_version = 0
        self._outside: set[str] = set()  # nodes that the policy's scope does not select
        self._excluded: dict[str, Exclusion] = {}
        self._last_choices = 0
        self._node_faults: dict[str, str] = {}
        self._suspicions: dict[str, Suspicion] = {}
        self._log: list[str] = []  # nodes changed by versions self.version - len(self._log) + 1 .. self.version
        self._by_source: dict[Hashable, tuple[str, frozenset[str], Mapping[str, int]]] = {}
        self._holders: dict[str, Counter[str]] = {}
        self._held: dict[str, set[str]] = {}  # holder -> nodes
        self._own: set[str] = set()  # holders whose nodes no snapshot shares
        self._used: dict[str, Mapping[str, int]] = {}
        self._derived: OrderedDict[Hashable, Any] = OrderedDict()
        self.holder_changed: Callable[[str], None] = _ignore_change
        self._origin: Fleet | None = None  # the fleet of which this is a snapshot
        self._snapshot: Fleet | None = None  # of this fleet as it is now

    def snapshot(self, heartbeats: Heartbeats) -> "Fleet":
        """Return the fleet as it is now, with these heartbeats; the snapshot never changes.

        While the fleet itself does not change either, what is derived from it serves the snapshot, too.
        """
        if self._snapshot is None:
            self._snapshot = self._frozen()
        made = copy.copy(self._snapshot)
        made.heartbeats = heartbeats
        return made

    def _frozen(self) -> "Fleet":
        made, self._own = copy.copy(self), set()
        vars(made).update(
            nodes=self.nodes.copy(),
            names=self.names.copy(),
            _outside=self._outside.copy(),
            _excluded=self._excluded.copy(),
            _node_faults=self._node_faults.copy(),
            _suspicions=self._suspicions.copy(),
            _log=[],
            _by_source={},
            _holders=self._holders.copy(),
            _held=self._held.copy(),
            _used=self._used.copy(),
            _derived=OrderedDict(),
            _origin=self,
        )
        return made

    @classmethod
    def from_parts(
        cls,
        nodes: Mapping[str, NodeView] = _NOTHING,  # type: ignore[assignment]
        holders: Mapping[str, Collection[str]] = _NOTHING,  # type: ignore[assignment]
        lease_age_seconds: Mapping[str, float] = _NOTHING,
        policy: FleetPolicySpec | None = None,
        used: Mapping[str, Mapping[str, int]] = _NOTHING,  # type: ignore[assignment]
        names: Mapping[str, str] = _NOTHING,  # type: ignore[assignment]
        excluded: Mapping[str, Exclusion] = _NOTHING,  # type: ignore[assignment]
        node_faults: Mapping[str, str] = _NOTHING,  # type: ignore[assignment]
        suspicions: Mapping[str, Suspicion] = _NOTHING,  # type: ignore[assignment]
    ) -> "Fleet":
        """Build a fleet from nodes by name; holders, amounts, exclusions, faults and suspicions by node; names by job
        uid."""
        fleet = cls(policy, KnownAges(lease_age_seconds))
        fleet.names.update(names)
        fleet._excluded.update(excluded)
        fleet._last_choices = sum(map(_is_last, excluded.values()))
        fleet._node_faults.update(node_faults)
        fleet._suspicions.update(suspicions)
        for node in nodes.values():
            fleet.put_node(node)
        for name, several in holders.items():
            for holder in several:
                fleet.occupy((name, holder), holder, frozenset({name}))
        for name, amounts in used.items():
            fleet.occupy(("used", name), "", frozenset({name}), amounts)
        return fleet

    def parts(self) -> "FleetParts":
        """Return what the fleet consists of, without anything derived from it."""
        nodes = self.heartbeats.older_than(float("-inf"))
        return FleetParts(
            nodes=self.nodes,
            holders={node: tuple(sorted(holders)) for node, holders in self._holders.items()},
            lease_age_seconds={node: self.heartbeats.age_seconds(node) for node in nodes},
            policy=self.policy,
            used=self._used,
            names=self.names,
            excluded=self._excluded,
            node_faults=self._node_faults,
            suspicions=self._suspicions,
        )

    def put_node(self, node: NodeView) -> bool:
        """Add or replace a node; True if anything that can matter to placement differs."""
        old = self.nodes.get(node.name)
        self.nodes[node.name], self._snapshot = node, None
        self._note_scope(node)
        if old is not None and placement_facts(old) == placement_facts(node):
            return False
        self._changed(node.name)
        return True

    def drop_node(self, name: str) -> None:
        """Remove a node that is gone."""
        if self.nodes.pop(name, None) is not None:
            self._outside.discard(name)
            self._changed(name)

    def set_policy(self, policy: FleetPolicySpec) -> None:
        """Replace the FleetPolicy, and drop everything derived from the old one."""
        if policy != self.policy:
            self.policy, self._snapshot = policy, None
            self._derived.clear()
            self.version += 1
            self._log.clear()
            for node in self.nodes.values():
                self._note_scope(node)

    def _note_scope(self, node: NodeView) -> None:
        selector = self.policy.scope.node_selector
        is_selected = selector is None or selector.selects(node.labels)
        (self._outside.discard if is_selected else self._outside.add)(node.name)

    @property
    def outside(self) -> Collection[str]:
        """Return the nodes outside `spec.scope` of the FleetPolicy: Muster leaves them alone."""
        return self._outside

    def node_in_scope(self, name: str) -> NodeView | None:
        """Return a node that is there and in `spec.scope` of the FleetPolicy; None if it is not Muster's."""
        return None if name in self._outside else self.nodes.get(name)

    def in_scope(self) -> list[NodeView]:
        """Return the nodes that `spec.scope` of the FleetPolicy selects."""
        return [node for name, node in self.nodes.items() if name not in self._outside]

    def occupy(self, source: Hashable, holder: str, nodes: frozenset[str], uses: Mapping[str, int] = _NOTHING) -> bool:
        """Replace what a source (a Gang, a pod) occupies; without nodes it occupies nothing any more.

        Args:
            source: the object that occupies.
            holder: holds the nodes exclusively through the source; "" for one that only uses a part of them.
            nodes: where.
            uses: amounts used on each of the nodes, in the units of `NodeView.allocatable`.

        Returns:
            Whether a node thereby lost its last holder.
        """
        old_holder, old_nodes, old_uses = self._by_source.pop(source, ("", frozenset(), _NOTHING))
        if nodes:
            self._by_source[source] = (holder, nodes, uses)
        if (old_holder, old_nodes, old_uses) == (holder, nodes, uses):
            return False
        old_state = {node: (self.holders(node), dict(self.used(node))) for node in old_nodes | nodes}
        for node in old_nodes:
            _subtract(self._holders, node, old_holder)
            _subtract_amounts(self._used, node, old_uses)
        for node in nodes:
            if holder:
                self._holders[node] = self._holders.get(node, Counter()) + Counter({holder: 1})
            if uses:
                self._used[node] = _sum(self._used.get(node, _NOTHING), uses)
        freed = False
        left_nodes, taken_nodes = defaultdict(set), defaultdict(set)  # holder -> nodes
        for node, (holders, used) in old_state.items():
            now = self.holders(node)
            for holder_id in holders - now:
                left_nodes[holder_id].add(node)
            for holder_id in now - holders:
                taken_nodes[holder_id].add(node)
            if now != holders or used != self.used(node):
                self._changed(node)
            freed = freed or (bool(holders) and not now)
        for holder_id in left_nodes.keys() | taken_nodes.keys():
            self._hold(holder_id, left_nodes[holder_id], taken_nodes[holder_id])
        return freed

    def _hold(self, holder: str, left_nodes: set[str], taken_nodes: set[str]) -> None:
        if holder not in self._own:
            self._own.add(holder)
            self._held[holder] = set(self._held.get(holder, ()))
        held = self._held[holder]
        held -= left_nodes
        held |= taken_nodes
        if not held:
            del self._held[holder]
            self._own.discard(holder)
        self.holder_changed(holder)

    def set_name(self, job_uid: str, name: str) -> None:
        """Set the name of a job for people; "" when it is gone."""
        if self.names.get(job_uid, "") == name:
            return
        self.names_version, self._snapshot = self.names_version + 1, None
        if name:
            self.names[job_uid] = name
        else:
            del self.names[job_uid]

    def exclude(self, node: str, exclusion: Exclusion | None) -> bool:
        """Set or clear a node's exclusion by its health; True if that is a change."""
        if self._excluded.get(node) == exclusion:
            return False
        was = self._excluded.pop(node, None)
        if exclusion is not None:
            self._excluded[node] = exclusion
        self._last_choices += _is_last(exclusion) - _is_last(was)
        self._changed(node)
        return True

    @property
    def has_last_choices(self) -> bool:
        """Whether any excluded node is taken where no other is left."""
        return self._last_choices > 0

    def exclusion(self, node: str) -> Exclusion | None:
        """Return why the node's health excludes new workers; None if it does not."""
        return self._excluded.get(node)

    def set_node_fault(self, node: str, fault: str) -> bool:
        """Set the node's fault, "" for none, whether or not it excludes workers; True if that is a change."""
        old_fault = self._node_faults.get(node, "")
        if fault != old_fault:
            self._snapshot = None
            self._node_faults.pop(node, None)
        if fault:
            self._node_faults[node] = fault
        return fault != old_fault

    def node_fault(self, node: str) -> str:
        """Return the node's fault, even if the breaker or another system keeps it in use; "" for none."""
        return self._node_faults.get(node, "")

    def set_suspicion(self, node: str, suspicion: Suspicion | None) -> bool:
        """Set or clear the suspicion that makes other nodes the better choice; True if that is a change."""
        if self._suspicions.get(node) == suspicion:
            return False
        if suspicion is None:
            del self._suspicions[node]
        else:
            self._suspicions[node] = suspicion
        self._changed(node)
        return True

    def suspicion_of(self, node: str) -> Suspicion | None:
        """Return the suspicion that makes other nodes the better choice; None without one."""
        return self._suspicions.get(node)

    @property
    def excluded(self) -> Collection[str]:
        """Return the nodes whose health excludes new workers."""
        return self._excluded.keys()

    def holders(self, node: str) -> frozenset[str]:
        """Return the holders of the node."""
        counts = self._holders.get(node)
        return frozenset(counts) if counts else frozenset()

    def held_by_others(self, node: str, job_uid: str) -> frozenset[str]:
        """Return the holders of the node other than this job."""
        return self.holders(node) - {job_uid}

    @property
    def binds_directly(self) -> bool:
        """Whether Muster itself binds the pods of some pool."""
        return any(pool.binding is Binding.DIRECT for pool in self.policy.pools)

    def nodes_of(self, holder: str) -> Collection[str]:
        """Return the nodes that this holder holds, alone or not."""
        return self._held.get(holder, ())

    def used(self, node: str) -> Mapping[str, int]:
        """Return the amounts that pods other than workers use on the node, in the units of `NodeView.allocatable`."""
        return self._used.get(node, _NOTHING)

    def name_of(self, holder: str) -> str:
        """Return a holder's name for people: `<namespace>/<name>` of a job, `pod <namespace>/<name>` of a pod."""
        return self.names.get(holder, holder.replace("/", " ", 1))

    @property
    def is_snapshot(self) -> bool:
        """Whether this is a snapshot for decisions, and not the fleet that is kept up to date."""
        return self._origin is not None

    @property
    def source(self) -> "Fleet":
        """Return the fleet of which this is a snapshot, while that has not changed: derived views follow its
        changes."""
        origin = self._origin
        return origin if origin is not None and origin.version == self.version else self

    def derived(self, key: Hashable, make: Callable[["Fleet"], T]) -> T:
        """Return a view derived from this fleet, made once for each key; it follows the changes by `changed_since`."""
        if self.source is not self:
            return self.source.derived(key, make)
        if key not in self._derived:
            self._derived[key] = make(self)
            if len(self._derived) > max(MAX_DERIVED, MAX_DERIVED_NODES // (len(self.nodes) + 1)):
                self._derived.popitem(last=False)
        self._derived.move_to_end(key)
        view: T = self._derived[key]
        return view

    def known(self, key: Hashable, kind: type[T]) -> T | None:
        """Return the view derived under this key, if it is still kept."""
        if self.source is not self:
            return self.source.known(key, kind)
        view = self._derived.get(key)
        if view is None:
            return None
        self._derived.move_to_end(key)
        assert isinstance(view, kind)
        return view

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the nodes that have changed since that version; None if that is too long ago to know."""
        count = self.version - version
        if count > len(self._log):
            return None
        return set(self._log[len(self._log) - count :])

    def _changed(self, node: str) -> None:
        self._snapshot = None
        self.version += 1
        self._log.append(node)
        if len(self._log) > 2 * len(self.nodes) + 4096:
            del self._log[: len(self._log) // 2]


@dataclass(frozen=True, slots=True)
class FleetParts:
    """The input of `Fleet.from_parts`, so that a fleet can be serialised."""

    nodes: Mapping[str, NodeView]
    holders: Mapping[str, tuple[str, ...]]
    lease_age_seconds: Mapping[str, float]
    policy: FleetPolicySpec
    used: Mapping[str, Mapping[str, int]]
    names: Mapping[str, str]
    excluded: Mapping[str, Exclusion]
    node_faults: Mapping[str, str]
    suspicions: Mapping[str, Suspicion] = field(default_factory=dict)


def claim_of(
    pod: PodView | OccupantView, node: NodeView | None, accelerator: str, given: Collection[str] | None = None
) -> tuple[str, Mapping[str, int]]:
    """Return the holder of a pod's node, as `Fleet.occupy` names holders, and the amounts that the pod uses beside
    that.

    A worker holds a node for its job where the job was given that node. Any user can put Muster's labels and any owner
    on a pod: elsewhere it uses what it requests, like any other pod. With accelerators that is the whole node, because
    tests of a node load all of its accelerators; other devices, CPU and memory count by their amounts. A ResourceClaim
    counts as accelerators: neither the pod nor its node says what it has.

    Args:
        pod: a worker or any other.
        node: where it is, None if that is not known. A resource that the node lacks does not count: kubelets take pods
            that ask for unknown extended resources and leave these out, so any pod could hold any node by such a name.
        accelerator: the fleet's extended resource for these.
        given: the nodes that the job's record names; None for a pod that is no worker of an existing job.
    """
    whole = bool(pod.device_claim) or any(
        name == UNREADABLE or (is_accelerator(name, accelerator) and _has(node, name)) for name in pod.requests
    )
    if isinstance(pod, PodView) and given is not None and (whole or pod.place in given):
        return pod.job_uid, _NOTHING
    if not whole:
        return "", pod.requests
    claim = f" (ResourceClaim {pod.device_claim})" if pod.device_claim else ""
    return f"pod/{pod.namespace}/{pod.name}{claim}", pod.requests


def _has(node: NodeView | None, resource: str) -> bool:
    return node is None or resource in node.allocatable or resource in node.capacity


def placement_facts(node: NodeView) -> tuple[Any, ...]:
    """Return the parts of a node that matter to placement and to the jobs on it."""
    return (node.uid, node.labels, node.taints, node.unschedulable, node.ready, node.boot_id, node.allocatable)


def _subtract(counts: dict[str, Counter[str]], node: str, holder: str) -> None:
    holders = counts.get(node)
    if holders is None or not holder:
        return
    left = holders - Counter({holder: 1})
    if left:
        counts[node] = left
    else:
        del counts[node]


def _subtract_amounts(used: dict[str, Mapping[str, int]], node: str, amounts: Mapping[str, int]) -> None:
    old_amounts = used.get(node)
    if old_amounts is None or not amounts:
        return
    left = _sum(old_amounts, {name: -value for name, value in amounts.items()})
    if left:
        used[node] = left
    else:
        del used[node]


def _sum(amounts: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    total = {name: amounts.get(name, 0) + more.get(name, 0) for name in amounts.keys() | more.keys()}
    return {name: value for name, value in total.items() if value}


@dataclass(frozen=True, slots=True)
class SilentShare:
    """How many of all launchers known to this leader are silent now: many at once are not the launchers' fault."""

    silent: int = 0
    total: int = 0

    @classmethod
    def seen_from(cls, namespace: str, silent: Mapping[str, int], total: Mapping[str, int]) -> "SilentShare":
        """Return the silence around the jobs of a namespace, from the counts of each.

        One tenant can silence all of its own launchers. That must not hold up others, so silence is only as wide as it
        is without any one other namespace.
        """
        overall = cls(sum(silent.values()), sum(total.values()))
        others = (name for name, count in silent.items() if count and name != namespace)
        without = (cls(overall.silent - silent[name], overall.total - total[name]) for name in others)
        return min(
            (overall, *without), key=lambda silence: (silence.widespread, silence.silent / max(silence.total, 1))
        )

    @property
    def widespread(self) -> bool:
        """Whether so many are silent that the network or the coordinator is the likelier cause."""
        return self.silent >= 3 and self.silent * 2 > self.total
