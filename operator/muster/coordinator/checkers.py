"""What the checkers last reported, and what they shall do: in memory only, by node.

A new leader starts empty. A checker keeps the answers to all orders in its directive, so the new leader hears each
answer again. Until the leader knows which orders a node has, it says so and gives none (`CheckDirective.known`).
"""

import itertools
import operator
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from prometheus_client import Gauge

from muster.coordinator.auth import Caller
from muster.coordinator.figures import CheckFigures
from muster.protocol import checks, messages
from muster.protocol.checks import CheckDirective, CheckReport, can_be_put
from muster.world.checks import CheckerView, NodeChecks

# A checker asks at least every ten: one that does not is gone, and a leader of that long has heard all that there
# are.
SILENT_SECONDS = 30.0
MAX_NODES = 65536  # beyond any fleet

_STATES = (checks.STARTING, checks.READY, checks.UNFIT)
_checkers = Gauge(
    "muster_checkers", "Nodes whose checker has reported to this process and is not forgotten.", ["state"]
)
_orders = Gauge("muster_check_orders_open", "Orders to checkers that are not answered yet.")

Subscriber = Callable[[str], None]


@dataclass(slots=True)
class _Pod:
    """The state of one checker's pod, by the hub's monotonic clock.

    Attributes:
        came_at: when the pod was first heard.
        state_at: when the pod came to be in its present state.
        behind: the sequence number of the newest report that came late, after a newer one; None where none did.
        encoded: what it put into its meeting, as `CheckerHub.puts_for` hands it out: encoded once, and read by each of
            the other nodes. Before it: the processes of a node, and the rank of this one. None: not needed so far.
    """

    report: CheckReport
    heard_at: float
    came_at: float
    state_at: float
    behind: int | None = None
    encoded: tuple[int, int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A checker's last report, with the time by the hub's monotonic clock at which it was heard."""

    node: str
    report: CheckReport
    at: float


class CheckerHub:
    """The reports of checkers and the orders for them, by node. Only the event loop's thread may touch it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_nodes: int = MAX_NODES) -> None:
        self._clock = clock
        self._max_nodes = max_nodes
        # Node -> its checkers by pod uid, the node heard longest ago first. While the DaemonSet is rolled out there are
        # two.
        self._heard: OrderedDict[str, dict[str, _Pod]] = OrderedDict()
        self._claims: dict[str, dict[str, _Claim]] = {}  # node -> who wants something of it, the first to ask first
        self._nodes_of: dict[str, frozenset[str]] = {}  # owner -> the nodes of its claims
        self._told: dict[str, NodeChecks] = {}  # node -> what its directive says
        self._given: dict[str, dict[str, float]] = {}  # node -> when each order came to stand there
        self._counts = CheckFigures()
        self._outstanding: dict[
            str, tuple[str, int]
        ] = {}  # node -> whose orders stand there, and how many are unanswered
        self._unanswered = 0
        # Owner -> the nodes of which it waits for an answer, or that they know of their pass.
        self._awaited: dict[str | None, set[str]] = {}
        self._states: Counter[str] = Counter()
        self._subscribers: list[Subscriber] = []
        self._done_subscribers: list[Subscriber] = []
        self._serving_since: float | None = None
        self._all_decided = False
        self._figures_subscribers: list[Callable[[], None]] = []
        self._meetings: dict[str, set[str]] = {}  # order with several nodes -> the nodes in whose directive it stands
        self._meeting_subscribers: list[Callable[[Iterable[str]], None]] = []

    def start_serving(self) -> None:
        """Note that checkers can reach this process from now on: it has become the leader."""
        self._serving_since = self._clock()

    def note_all_decided(self) -> None:
        """Note that every job was decided once. A node without claims has no orders from then on, instead of unknown
        ones."""
        self._all_decided = True

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback` with a node's name whenever its checker reports something that a decision may depend on.

        Ages, figures and which order is running are no such news.
        """
        self._subscribers.append(callback)

    def subscribe_done(self, callback: Subscriber) -> None:
        """Call `callback` with an owner's name when its last order is answered and every node has confirmed its
        grants."""
        self._done_subscribers.append(callback)

    def awaited(self, node: str) -> int:
        """The number of nodes whose answer is outstanding for the owner of this node's orders; 0 where the node has no
        owner."""
        owner = self._owner(node)
        return len(self._awaited.get(owner, ())) if owner is not None else 0

    def subscribe_figures(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the measured figures of any checker have changed."""
        self._figures_subscribers.append(callback)

    def subscribe_meetings(self, callback: Callable[[Iterable[str]], None]) -> None:
        """Call `callback` with the nodes whose checkers have to read what another node's checker put into their
        meeting."""
        self._meeting_subscribers.append(callback)

    def record(self, caller: Caller, report: CheckReport) -> bool:
        """Take in a checker's report. Returns False for a report that is older than one already heard from the same
        process."""
        node, now = caller.node_name, self._clock()
        pods = self._heard.setdefault(node, {})
        last_speaker = self._current_checker(node)
        old = None if last_speaker is None else pods[last_speaker].report
        was_silent = last_speaker is None or now - pods[last_speaker].heard_at >= SILENT_SECONDS
        if not _keep_if_newest(pods, caller.pod_uid, report, now):
            return False
        self._heard.move_to_end(node)
        for uid in [uid for uid, pod in pods.items() if now - pod.heard_at >= SILENT_SECONDS]:
            del pods[uid]  # one that is replaced does not say goodbye
        while len(self._heard) > self._max_nodes:
            self.forget(next(iter(self._heard)))
        speaker = self._current_checker(node)
        assert speaker is not None
        new = pods[speaker].report
        if new is old:  # another one speaks for the node
            return True
        if old is None or _figures(old) != _figures(new):
            self._notify_figures()
        if last_speaker is not None and last_speaker != speaker and node in self._given:
            self._given[node] = dict.fromkeys(self._given[node], now)  # a successor begins at the beginning
        self._count_state(old, new)
        if new.meeting and (old is None or (old.meeting, old.puts) != (new.meeting, new.puts)):
            self._notify_meeting(node, new.meeting)
        owner = self._owner(node)
        waited = owner is not None and owner in self._awaited
        self._count_orders(node)
        self._counts.heard(node, self._given.get(node, ()), new)
        if was_silent or last_speaker != speaker or old is None or _news(old) != _news(new):
            for callback in self._subscribers:
                callback(node)
        if owner is not None and waited and owner not in self._awaited:
            for callback in self._done_subscribers:
                callback(owner)
        return True

    def forget(self, node: str) -> None:
        """Drop the reports of a node that is gone."""
        speaker = self._current_checker(node)
        pods = self._heard.pop(node, None)
        if pods and speaker is not None:
            self._count_state(pods[speaker].report, None)
            self._notify_figures()
        self._count_orders(node)

    def pods_on(self, nodes: Iterable[str]) -> list[str]:
        """The pod uids of the checkers that were heard on these nodes."""
        return list(itertools.chain.from_iterable(self._heard.get(node, ()) for node in nodes))

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes whose checkers were heard."""
        return list(self._heard)

    def heard(self) -> list[Heard]:
        """The last report of the checker that counts on each node, unchanged."""
        reports = []
        for node, pods in self._heard.items():
            speaker = self._current_checker(node)
            if speaker is not None:
                reports.append(Heard(node, pods[speaker].report, pods[speaker].heard_at))
        return reports

    def views_of(self, nodes: Iterable[str]) -> dict[str, CheckerView]:
        """The views of the nodes' checkers, by node name, with all ages as of now. Nodes that were never heard are left
        out."""
        now = self._clock()
        views = {}
        for node in nodes:
            speaker = self._current_checker(node)
            if speaker is not None:
                given = {order: now - since for order, since in self._given.get(node, {}).items()}
                views[node] = _view(self._heard[node][speaker], now, given)
        return views

    def set_orders(self, owner: str, wanted: Mapping[str, NodeChecks] | None, *, job: bool = True) -> list[str]:
        """Replace all that an owner wants done on nodes, and return the names of the nodes whose directive has changed.

        A node obeys one owner at a time: jobs go before other owners, then the one that asked first.

        Args:
            owner: uid of a job, or any other name.
            wanted: orders and grants by node name; None = the owner wants nothing any more.
            job: whether the owner is a job.
        """
        wanted = wanted or {}
        last_nodes = self._nodes_of.pop(owner, frozenset())
        if wanted:
            self._nodes_of[owner] = frozenset(wanted)
        changed = []
        for node in sorted(last_nodes | wanted.keys()):
            claims = self._claims.setdefault(node, {})
            if node not in wanted:
                claims.pop(owner, None)
            elif (claim := claims.get(owner)) is not None:
                claim.wanted = wanted[node]
            else:
                claims[owner] = _Claim(wanted[node], job)
            if not claims:
                del self._claims[node]
            if self._update_directive(node):
                changed.append(node)
        return changed

    def withdraw_orders(self, owner: str, node: str) -> bool:
        """Withdraw what an owner wants done on one node; returns whether the node's directive has changed."""
        nodes = self._nodes_of.get(owner, frozenset())
        if node not in nodes:
            return False
        self._nodes_of[owner] = nodes - {node}
        claims = self._claims[node]
        del claims[owner]
        if not claims:
            del self._claims[node]
        return self._update_directive(node)

    def directive_for(self, node: str, pod_uid: str = "") -> CheckDirective:
        """The directive for a checker of this node: its orders, its grants and its meeting, without what other nodes
        put there (`puts_for`). Without a pod's uid it is that of the checker that counts on the node.

        Two checkers must not use the same GPUs. So a replaced checker is given no orders, and one that is to replace
        another is told that its orders are not known yet.
        """
        checks = self._told.get(node)
        if checks is None:
            return _NOTHING if self._all_decided or self._has_served() else _UNKNOWN
        if not checks.known:
            return _UNKNOWN
        speaker = self._current_checker(node)
        if pod_uid and speaker is not None and pod_uid != speaker:
            pods = self._heard[node]
            replaced = pod_uid in pods and pods[pod_uid].came_at < pods[speaker].came_at
            return _NOTHING if replaced else _UNKNOWN
        return CheckDirective(orders=checks.orders, grants=checks.grants, meeting=self.meeting_of(node))

    def puts_for(self, node: str, meeting: str) -> list[bytes]:
        """What the other nodes have put into a meeting that a directive of this node names, encoded: of each node its
        puts, with commas between them. Nodes that put nothing are left out."""
        nodes = self._meetings.get(meeting, ())
        if node not in nodes:
            return []
        processes = self._processes_on_a_node(nodes, meeting)
        of_each = (self._encoded_puts(other, meeting, processes) for other in sorted(nodes) if other != node)
        return [puts for puts in of_each if puts]

    def meeting_of(self, node: str) -> str:
        """The id of the order in whose meeting a node's processes look for others; "" for a meeting that belongs to no
        order in the node's own directive."""
        pod = self._current_pod(node)
        meeting = pod.report.meeting if pod is not None else ""
        return meeting if node in self._meetings.get(meeting, ()) else ""

    def _encoded_puts(self, node: str, meeting: str, processes: int) -> bytes:
        """What a node has put into a meeting for its own processes, encoded; b"" where it is not there, or has put more
        than is allowed."""
        pod = self._current_pod(node)
        if pod is None or pod.report.meeting != meeting:
            return b""
        rank, puts = self._node_rank(node, meeting), pod.report.puts
        if pod.encoded is None or pod.encoded[:2] != (processes, rank):
            own = [put for put in puts if put.rank // processes == rank] if can_be_put(puts) else []
            pod.encoded = processes, rank, b",".join(map(messages.encode, own))
        return pod.encoded[2]

    def _node_rank(self, node: str, meeting: str) -> int:
        """The rank of a node among the nodes of a meeting's order. A node may put values for its own processes
        alone."""
        return next(order.node_rank for order in self._told[node].orders if order.id == meeting)

    def _processes_on_a_node(self, nodes: Collection[str], meeting: str) -> int:
        """The number of processes that an order has on each node: one for each GPU of the node, or one on a CPU.

        The count of the node with the lowest rank holds for all. An order names the least number of GPUs that the job
        needs, while its test runs on all GPUs of the node.
        """
        first = min(nodes, key=lambda node: self._node_rank(node, meeting))
        pod = self._current_pod(first)
        return max(pod.report.gpus, 1) if pod is not None and pod.report.device == "cuda" else 1

    def _notify_meeting(self, node: str, meeting: str) -> None:
        """Notify the other nodes of a meeting once all of them are there. No process can begin before that."""
        nodes = self._meetings.get(meeting, set())
        pods = map(self._current_pod, nodes)
        if node not in nodes or any(pod is None or pod.report.meeting != meeting for pod in pods):
            return
        for callback in self._meeting_subscribers:
            callback(nodes - {node})

    def _notify_figures(self) -> None:
        for callback in self._figures_subscribers:
            callback()

    def _has_served(self) -> bool:
        return self._serving_since is not None and self._clock() - self._serving_since >= SILENT_SECONDS

    def _current_checker(self, node: str) -> str | None:
        """The pod uid of the checker that counts on a node; None where none was heard.

        Of the checkers that were heard lately and are ready, the one that came last counts; else the one heard last.
        """
        pods = self._heard.get(node)
        if not pods:
            return None
        if len(pods) == 1:
            return next(iter(pods))
        now = self._clock()

        def worth(uid: str) -> tuple[bool, bool, float]:
            pod = pods[uid]
            fresh = now - pod.heard_at < SILENT_SECONDS
            return fresh, fresh and pod.report.state == checks.READY, pod.came_at if fresh else pod.heard_at

        return max(pods, key=worth)

    def _current_pod(self, node: str) -> _Pod | None:
        """The checker that counts on a node; None where none was heard."""
        speaker = self._current_checker(node)
        return None if speaker is None else self._heard[node][speaker]

    def _owner(self, node: str) -> str | None:
        """The owner whose orders are in a node's directive; None where no owner wants anything of the node."""
        claims = self._claims.get(node, {})
        return next((owner for owner, claim in claims.items() if claim.job), next(iter(claims), None))

    def _update_directive(self, node: str) -> bool:
        """Set a node's directive to what its owner wants. Returns whether the directive has changed."""
        owner = self._owner(node)
        old, new = self._told.get(node), None if owner is None else self._claims[node][owner].wanted
        if old == new:
            return False
        self._keep_meetings(node, old, new)
        if new is None:
            del self._told[node]
            self._given.pop(node, None)
            self._counts.given(node, (), ())
        else:
            self._told[node], since, now = new, self._given.get(node, {}), self._clock()
            self._given[node] = {order.id: since.get(order.id, now) for order in new.orders}
            fresh = [order for order in self._given[node] if order not in since]
            self._counts.given(node, self._given[node], self._answered(node) if fresh else ())
        self._count_orders(node)
        return True

    def _keep_meetings(self, node: str, old: NodeChecks | None, new: NodeChecks | None) -> None:
        """Update which nodes take part in each order of several nodes, after a node's orders have changed; None = no
        orders.
        """
        for order in old.orders if old else ():
            nodes = self._meetings.get(order.id)
            if nodes is not None:
                nodes.discard(node)
                if not nodes:
                    del self._meetings[order.id]
        for order in new.orders if new else ():
            if order.nodes > 1:
                self._meetings.setdefault(order.id, set()).add(node)

    def _answered(self, node: str) -> set[str]:
        speaker = self._current_checker(node)
        return set() if speaker is None else {answer.order for answer in self._heard[node][speaker].report.answers}

    def _count_orders(self, node: str) -> None:
        checks, owner = self._told.get(node), self._owner(node)
        orders = {order.id for order in checks.orders} if checks else set()
        granted = {grant.id for grant in checks.grants} if checks else set()
        if orders:
            orders -= self._answered(node)
        if granted and (speaker := self._current_checker(node)) is not None:
            granted -= {burn_in_pass.granted for burn_in_pass in self._heard[node][speaker].report.passes}
        last_owner, unanswered = self._outstanding.pop(node, ("", 0))
        self._unanswered += len(orders) - unanswered
        self._awaited.get(last_owner, set()).discard(node)
        if owner is not None and checks is not None:
            self._outstanding[node] = owner, len(orders)
            if orders or granted:
                self._awaited.setdefault(owner, set()).add(node)
        for awaiting in (last_owner, owner):
            if awaiting in self._awaited and not self._awaited[awaiting]:
                del self._awaited[awaiting]
        _orders.set(self._unanswered)

    def _count_state(self, old: CheckReport | None, new: CheckReport | None) -> None:
        for report, by in ((old, -1), (new, 1)):
            if report is not None:
                state = report.state if report.state in _STATES else "Other"
                self._states[state] += by
                _checkers.labels(state).set(self._states[state])


@dataclass(slots=True)
class _Claim:
    wanted: NodeChecks
    job: bool


_NOTHING = CheckDirective()
_UNKNOWN = CheckDirective(known=False)

_said = operator.attrgetter(
    "boot_id",
    "state",
    "problem",
    "identity",
    "device",
    "gpus",
    "model",
    "library",
    "version",
    "address",
    "answers",
)


def _news(report: CheckReport) -> tuple[object, ...]:
    """The part of a checker's report that a decision may depend on, for comparison with the report before."""
    return (*_said(report), [(burn_in_pass.profile, burn_in_pass.granted) for burn_in_pass in report.passes])


def _figures(report: CheckReport) -> tuple[object, ...]:
    """The part of a checker's report that goes into the fleet's history, for comparison with the report before."""
    figures = [
        (figure.probe, figure.figure, figure.unit, figure.transport, figure.namespace) for figure in report.figures
    ]
    return report.model, report.library, report.version, figures


def _keep_if_newest(pods: dict[str, _Pod], uid: str, report: CheckReport, now: float) -> bool:
    """Keep a report in `pods` if it is the newest of its process. Returns whether it was kept.

    Sequence numbers begin anew in each process, and a container may start again in the same pod. So a single lower
    number is a late report. If the next one counts on from the lower number, it comes from a new process.

    Args:
        pods: the node's checkers by pod uid; changed in place.
        uid: pod uid of the sender.
        report: the one that has come.
        now: seconds of the hub's monotonic clock.
    """
    pod = pods.get(uid)
    if pod is None:
        pods[uid] = _Pod(report, now, now, now)
        return True
    if report.sequence <= pod.report.sequence and (pod.behind is None or report.sequence <= pod.behind):
        pod.behind = report.sequence
        return False
    if report.state != pod.report.state:
        pod.state_at = now
    if (report.meeting, report.puts) != (pod.report.meeting, pod.report.puts):
        pod.encoded = None
    pod.report, pod.heard_at, pod.behind = report, now, None
    return True


def _view(pod: _Pod, now: float, given: Mapping[str, float]) -> CheckerView:
    since, report = now - pod.heard_at, pod.report
    if report.passes and since > 0:
        older = tuple(
            replace(burn_in_pass, age_seconds=burn_in_pass.age_seconds + since) for burn_in_pass in report.passes
        )
        report = replace(report, passes=older)
    return CheckerView(since, report, given, now - pod.state_at)
