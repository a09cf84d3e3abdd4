"""A gang's burn-in as one decision sees it: which checkers are heard, which members are tested, and beside which proven
ones. Pure.

A node on which a worker has trained in its present pod since the last fault is proven by that, and so is a node with a
pass that holds. After wrong results no training proves anything, and all nodes are tested.

Tests: tests/unit/burnin/test_progress.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

from muster.api.gang import FaultClass, GangSpec
from muster.api.preflight import Profile, wanted
from muster.burnin.orders import Orders
from muster.placement.where import domain_path
from muster.preflight import single_node
from muster.preflight.outcomes import BurnInMember, LocalOutcome
from muster.preflight.pair_thresholds import PairThresholds
from muster.preflight.upkeep import SINGLE_NODE_PREFIXES
from muster.protocol.checks import READY, PassReport
from muster.protocol.messages import IDLE
from muster.recovery.modes import mode_of
from muster.world.checks import CheckerView
from muster.world.job import JobWorld, WorkerView

# Checkers report at least this often; until then a new leader orders nothing.
NEW_LEADER_SECONDS = 15.0


def requested_profile(world: JobWorld, least: Profile = Profile.DISABLED) -> Profile:
    """Return the profile that job and policy ask for, or `least` where that is more thorough."""
    return wanted(world.job.spec.preflight, world.fleet.policy.preflight, least)


def tries(record: GangSpec) -> int:
    """Return how often in a row failed nodes were replaced."""
    return record.burn_in.tries if record.burn_in else 0


@dataclass(frozen=True, slots=True)
class BurnInReports:
    """A burn-in and what is heard of it, before its members are told apart.

    Attributes:
        world: the state of the job.
        record: of its gang.
        profile: of the burn-in.
        keys: its names, one for each attempt since it began; orders bear the last one.
        checkers: by node, the reports of the members' checkers that are heard.
        orders: of this attempt, and what checkers have answered to them.
        thresholds: what pairs have to reach.
        started_untested: nodes on which workers have started untested; a worker's successor is tested like any other.
    """

    world: JobWorld
    record: GangSpec
    profile: Profile
    keys: tuple[str, ...]
    checkers: Mapping[str, CheckerView]
    orders: Orders
    thresholds: PairThresholds
    started_untested: frozenset[str]

    def has_passed(self, worker_view: WorkerView) -> bool:
        """Whether the worker's node has passed this burn-in, and its checker knows it."""
        view = self.checkers.get(worker_view.member.node)
        return view is not None and view.knows(self.orders.key)

    def is_able(self, worker_view: WorkerView) -> bool:
        """Whether the checker of the worker's node can test."""
        view = self.checkers.get(worker_view.member.node)
        return view is not None and view.report.state == READY

    def is_free(self, worker_view: WorkerView) -> bool:
        """Whether the gang holds the node's accelerators and none of its ranks runs there, so that a test disturbs no
        program."""
        node = worker_view.member.node
        if any(unfenced_worker.node == node for unfenced_worker in self.record.unfenced_workers):
            return False
        if mode_of(self.world.job).starts_with_pods:
            return worker_view.pod is None and node not in self.world.holding
        if worker_view.pod is None or not worker_view.pod.node:
            return False
        launcher = worker_view.launcher
        if launcher is None:
            return not worker_view.member.pod_uid  # a pod that has trained here may have living ranks
        return launcher.attempt == 0 or (launcher.state, launcher.attempt) == (IDLE, self.record.attempt)

    def suspected_seconds(self, worker_view: WorkerView) -> float | None:
        """Return for how many seconds the worker's node has been under suspicion; None: it is not.

        Suspicion begins with a hardware fault in this pod that no start has followed, or with wrong results of the
        gang. Failures of several owners' jobs before the worker came there begin it, too. The newest one counts.
        """
        member, now = worker_view.member, self.world.now
        since = [
            (now - incident.time).total_seconds()
            for incident in self.record.incidents
            if incident.fault_class is FaultClass.HARDWARE
            and incident.node == member.node
            and not (member.pod_uid and incident.resumed_step is not None)
        ]
        suspicion = self.world.fleet.suspicion_of(member.node)
        if suspicion is not None and suspicion.wants_check and suspicion.followed is not None and not member.pod_uid:
            since.append((now - suspicion.followed).total_seconds())
        if self.record.open_corruption is not None:  # then neither training nor an earlier pass proves anything
            since.append((now - self.record.open_corruption.time).total_seconds())
        return min(since, default=None)


@dataclass(frozen=True, slots=True)
class BurnInView(BurnInReports):
    """A burn-in whose members are told apart.

    Attributes:
        subjects: workers whose nodes are tested.
        proven: workers whose nodes serve as partners.
        not_owed: workers whose nodes a job without GPUs may not test.
        unlike: by node, the outcome for nodes that cannot be tested with most others, through no fault of theirs.
    """

    subjects: tuple[WorkerView, ...]
    proven: tuple[WorkerView, ...]
    not_owed: tuple[WorkerView, ...]
    unlike: Mapping[str, LocalOutcome]

    @property
    def subject_nodes(self) -> frozenset[str]:
        """The nodes that are tested."""
        return frozenset(worker_view.member.node for worker_view in self.subjects)

    @property
    def is_unheard(self) -> bool:
        """Whether this leader is so new that checkers may have answers that it has not heard: then no test is ordered
        again."""
        if self.world.leader_age_seconds >= NEW_LEADER_SECONDS:
            return False
        # Partners, too: without them the plan would be another one, and they would be told to forget their answers.
        unheard = {worker_view.member.node for worker_view in self.world.worker_views} - self.checkers.keys()
        return bool(unheard - (self.started_untested - self.subject_nodes))

    def members(self) -> tuple[BurnInMember, ...]:
        """Return the nodes that take part in tests with others, sorted by name."""
        labels, members = self.world.fleet.policy.topology.labels, []
        for worker_views, proven in ((self.subjects, False), (self.proven, True)):
            for worker_view in worker_views:
                if worker_view.node is not None:
                    path = domain_path(worker_view.node, labels)
                    known_path = path[: path.index("")] if "" in path else path
                    members.append(BurnInMember(worker_view.member.node, known_path, proven=proven))
        return tuple(sorted(members, key=lambda member: member.name))


class _Role(Enum):
    SUBJECT = "is tested"
    PROVEN = "is proven, and can serve as a partner"
    NOT_OWED = "has GPUs, which a job without GPUs may not test"
    NONE = "takes no part"


def view_of(world: JobWorld, record: GangSpec, profile: Profile) -> BurnInView:
    """Return a gang's burn-in: what is heard, then which members are tested, and which of the proven ones can be
    partners."""
    heard = _reports(world, record, profile)
    by_role: dict[_Role, list[WorkerView]] = {role: [] for role in _Role}
    for worker_view in world.worker_views:
        by_role[_role_of(heard, worker_view)].append(worker_view)
    subjects, proven = by_role[_Role.SUBJECT], by_role[_Role.PROVEN]
    # With another number of GPUs, or another library version during an update of checkers, an all-reduce hangs or
    # breaks.
    nodes = [worker_view.member.node for worker_view in (*subjects, *proven)]
    unlike = single_node.unlike_nodes({node: heard.checkers[node] for node in nodes if node in heard.checkers})
    return BurnInView(
        **{field.name: getattr(heard, field.name) for field in fields(heard)},
        subjects=tuple(subjects),
        proven=tuple(worker_view for worker_view in proven if worker_view.member.node not in unlike),
        not_owed=tuple(by_role[_Role.NOT_OWED]),
        unlike=unlike,
    )


def _reports(world: JobWorld, record: GangSpec, profile: Profile) -> BurnInReports:
    nodes = [member.node for member in record.members]
    checkers = {node: view for node in nodes if (view := world.checkers.get(node)) is not None and view.is_fresh}
    # With another profile it is another burn-in. While failed nodes are replaced one after the other it goes on: a
    # pass of an earlier attempt of it stands, however fresh a pass has to be.
    first = (record.burn_in.since_attempt if record.burn_in and tries(record) else 0) or record.attempt
    keys = tuple(f"{world.uid}.{str(profile)[0].lower()}/{attempt}" for attempt in range(first, record.attempt + 1))
    kinds = {(view.report.model, view.report.library, view.report.version) for view in checkers.values()}
    untested = record.burn_in.untested if record.burn_in else ()
    return BurnInReports(
        world=world,
        record=record,
        profile=profile,
        keys=keys,
        checkers=checkers,
        orders=Orders(
            keys[-1],
            profile,
            checkers,
            {member.node: member.index for member in record.members},
            world.job.spec.gpus_per_node,
            world.job.metadata.namespace,
        ),
        thresholds=PairThresholds.for_gang(world.thresholds, kinds, world.fleet.policy.preflight.transport),
        started_untested=frozenset(untested) & {member.node for member in record.members if member.pod_uid},
    )


def _role_of(heard: BurnInReports, worker_view: WorkerView) -> _Role:
    node = worker_view.member.node
    if node in heard.world.fleet.outside:
        return _Role.NONE
    view = heard.checkers.get(node)
    # A test of the host alone proves nothing about its GPUs.
    if not heard.world.job.spec.gpus_per_node and view is not None and view.report.gpus > 0:
        return _Role.NOT_OWED
    # A node that has passed in this very burn-in stays a subject, or the plan of pairs would be another one.
    if heard.has_passed(worker_view) and heard.orders.answer(node, heard.orders.node_id) is not None:
        return _Role.SUBJECT
    suspected = heard.suspected_seconds(worker_view)
    if not _is_proven(heard, worker_view, suspected):
        return _Role.NONE if node in heard.started_untested and suspected is None else _Role.SUBJECT
    return _Role.PROVEN if heard.is_able(worker_view) and heard.is_free(worker_view) else _Role.NONE


def _is_proven(heard: BurnInReports, worker_view: WorkerView, suspected: float | None) -> bool:
    """Whether a worker's node needs no test.

    Args:
        heard: the burn-in.
        worker_view: the worker.
        suspected: for how many seconds its node has been under suspicion; None: it is not.
    """
    if worker_view.member.pod_uid and suspected is None and not mode_of(heard.world.job).starts_with_pods:
        return True  # it has trained in this pod
    view = heard.checkers.get(worker_view.member.node)
    return view is not None and any(
        _holds(heard, pass_report) and (suspected is None or pass_report.age_seconds < suspected)
        for pass_report in view.report.passes
    )


def _holds(heard: BurnInReports, report: PassReport) -> bool:
    """Whether a pass is of this burn-in, or thorough, fresh and wide enough for it."""
    if report.granted.startswith(SINGLE_NODE_PREFIXES) and len(heard.record.members) > 1:
        return False  # its links were not tested
    job = heard.world.job.spec
    own = job.preflight.max_age_seconds
    oldest = float(heard.world.fleet.policy.preflight.max_age_seconds if own is None else own)
    return report.granted in heard.keys or (
        Profile.rank_of(report.profile) >= heard.profile.rank
        and report.age_seconds <= oldest
        and report.gpus >= job.gpus_per_node
    )
