"""What follows for nodes from failures of jobs, and for how long. Pure.

A job's failure is weak evidence: a tenant decides what ranks do, and one person may have many jobs or namespaces. So it
never takes a node out of use. Failures of one owner that keep coming back to a node make it Suspect. Failures of two
owners request a test, and only the results of Muster's own checkers then count against the node.

A failure weighs 1, and half of that as long as the program was not seen to pass the failing step. The weight halves
after each half-life. An owner whose jobs fail on many nodes is ignored, because the program is the likelier cause.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from muster.world.jobfailures import JobFailureReport

HALF_LIFE_SECONDS = 86400
"""The time in which a failure loses half of its weight."""
FOLLOWED = 1.5
"""The weight of one owner's failures that makes a node Suspect: two within a day, if the program went on after them."""
COUNTS = 0.25
"""The weight with which an owner counts as one of two: one failure does for two days if the program went on, else for
one."""
LASTS = timedelta(seconds=4 * HALF_LIFE_SECONDS)
"""The age at which a failure is forgotten."""
MAX_NODES, MAX_SHARE = 3, 0.01
"""An owner whose failures follow more nodes than this number and this share of the fleet is ignored."""
MAX_RECORDS = 4
"""The number of records that are kept for a job's name: each time a user creates the job again it has another one."""
MAX_SERVED = 4096
"""The number of owners whose last test is remembered; the one that was tested longest ago is forgotten first."""
SHOWN = 4
_LATER = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Following:
    """The failures of jobs that have followed a node.

    Attributes:
        owners: of the jobs, those with most weight first.
        reports: the newest failure of each job, newest first.
        wants_check: whether the failures are of more than one owner, so that the node should be tested.
        since: the time of the oldest failure that counts.
        newest: the time of the newest failure that counts.
        ends: until when the failures count for enough, by time alone.
    """

    owners: tuple[str, ...]
    reports: tuple[JobFailureReport, ...]
    wants_check: bool
    since: datetime
    newest: datetime
    ends: datetime

    @property
    def in_public(self) -> str:
        """The message without names of jobs or owners, because it reaches users of all tenants."""
        if self.wants_check:
            return (
                f"jobs of {len(self.owners)} owners have failed on this node, and no other finding explains it; the "
                "node should be tested; status.findings names the jobs"
            )
        return (
            "jobs of one owner keep failing on this node, and no other finding explains it; status.findings names the "
            "jobs"
        )

    @property
    def in_full(self) -> str:
        """The message with jobs and attempts, for users who may see them."""
        shown = [
            f"{report.job} attempt {report.attempt} {report.what} at {report.time:%Y-%m-%d %H:%M} UTC"
            for report in self.reports[:SHOWN]
        ]
        more = len(self.reports) - len(shown)
        return "; ".join(shown) + (f"; and {more} more jobs" if more > 0 else "")


def following(reports: Iterable[JobFailureReport], now: datetime) -> Following | None:
    """Return the result of the job failures that blame one node; None: they have no effect."""
    counting = [report for report in reports if now - report.time < LASTS]
    weights: defaultdict[str, float] = defaultdict(float)
    for report in counting:
        weights[report.owner] += weight(report, now)
    owners = sorted(
        (owner for owner in weights if weights[owner] >= COUNTS), key=lambda owner: (-weights[owner], owner)
    )
    if not owners:
        return None
    wants_check, first = len(owners) > 1, weights[owners[0]]
    if not wants_check and first < FOLLOWED:
        return None
    fades = _fades(weights[owners[1]], COUNTS, now) if wants_check else _fades(first, FOLLOWED, now)
    newest: dict[str, JobFailureReport] = {}
    for report in sorted(counting, key=lambda failure: (failure.time, failure.attempt)):
        if report.owner in owners:
            newest[report.job] = report
    return Following(
        owners=tuple(owners),
        reports=tuple(sorted(newest.values(), key=lambda failure: (failure.time, failure.job), reverse=True)),
        wants_check=wants_check,
        since=min(now, *(report.time for report in counting if report.owner in owners)),
        newest=min(now, max(report.time for report in newest.values())),
        ends=min(fades, *(max(report.time, now - LASTS) + LASTS for report in counting)),
    )


def weight(report: JobFailureReport, now: datetime) -> float:
    """Return what a failure weighs now: 1, or 0.5 if the program did not go on after it, halved each day.

    A failure that is dated ahead weighs as one of now.
    """
    age_seconds = max(0.0, (now - report.time).total_seconds())
    return (1.0 if report.went_on else 0.5) * float(0.5 ** (age_seconds / HALF_LIFE_SECONDS))


def _fades(value: float, limit: float, now: datetime) -> datetime:
    """Return when a weight falls below a limit by time alone.

    The time is too early for failures with a time in the future; the node is then evaluated once more.
    """
    return now + timedelta(seconds=HALF_LIFE_SECONDS * math.log2(value / limit)) + _LATER


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What one record of a job says about a node.

    Attributes:
        owner: of the job.
        job: its namespace and name.
        uid: of the job: a job that is created again under the same name has another one.
        node: the blamed node; not used without failures.
        reports: the failures that blame the node; empty: the job blames none.
    """

    owner: str
    job: str
    uid: str
    node: str = ""
    reports: tuple[JobFailureReport, ...] = ()


class JobFailureReports:
    """All failures of jobs that blame a node, by node. Failures of deleted jobs are kept for a while.

    A job blames one node at most. If a job was deleted and created again under its name, its records are taken
    together.
    """

    def __init__(self) -> None:
        self._records: dict[str, dict[str, JobRecord]] = {}  # job -> uid -> record
        # node -> job -> reports
        self._by_node: defaultdict[str, dict[str, Sequence[JobFailureReport]]] = defaultdict(dict)
        self._by_owner: defaultdict[str, dict[str, str]] = defaultdict(dict)  # owner -> job -> node
        self._repeated_at: tuple[datetime | None, dict[str, int]] = None, {}  # for one time: owner -> nodes

    def replace_record(self, record: JobRecord) -> set[str]:
        """Replace what one record of a job says.

        Returns:
            The names of the nodes whose verdict may change as a result.
        """
        previous = self._records.get(record.job, {}).get(record.uid)
        if record == previous or (previous is None and not record.reports):
            return set()
        blamed_nodes = self._blamed_by(record.owner)
        records = self._records.setdefault(record.job, {})
        records.pop(record.uid, None)
        if record.reports:
            records[record.uid] = record
            while len(records) > MAX_RECORDS:
                del records[next(iter(records))]
        self._settle(record.owner, record.job)
        return blamed_nodes | self._blamed_by(record.owner)

    def failures_on(self, node: str, nodes: int, now: datetime) -> list[JobFailureReport]:
        """Return the failures that blame a node, without those of owners whose failures follow too many nodes.

        Args:
            node: its name.
            nodes: the number of nodes in the fleet.
            now: the time.
        """
        failures = [report for reports in self._by_node.get(node, {}).values() for report in reports]
        most = max(MAX_NODES, math.floor(MAX_SHARE * nodes))
        ignored = {owner for owner in {report.owner for report in failures} if self._repeated(owner, now) > most}
        return [report for report in failures if report.owner not in ignored]

    def forget(self, now: datetime) -> None:
        """Forget the records that are too old to count."""
        for job, records in list(self._records.items()):
            outdated = [
                record for record in records.values() if all(now - report.time >= LASTS for report in record.reports)
            ]
            for record in outdated:
                del records[record.uid]
            if outdated:
                self._settle(outdated[0].owner, job)

    def _settle(self, owner: str, job: str) -> None:
        """Update which node a job blames, after a change of the job's records."""
        self._repeated_at = None, {}
        previous_node = self._by_owner[owner].pop(job, "")
        if previous_node:
            self._by_node[previous_node].pop(job, None)
            if not self._by_node[previous_node]:
                del self._by_node[previous_node]
        node, reports = _blamed(self._records.get(job, {}).values())
        if node:
            self._by_node[node][job] = reports
            self._by_owner[owner][job] = node
        if not self._records.get(job):
            self._records.pop(job, None)
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def _blamed_by(self, owner: str) -> set[str]:
        return set(self._by_owner.get(owner, {}).values())

    def _repeated(self, owner: str, now: datetime) -> int:
        """Return on how many nodes the owner's failures keep coming back; counted once for each `now`."""
        if self._repeated_at[0] != now:
            self._repeated_at = now, {}
        counts = self._repeated_at[1]
        if owner not in counts:
            totals: defaultdict[str, float] = defaultdict(float)
            for job, node in self._by_owner.get(owner, {}).items():
                totals[node] += sum(weight(word, now) for word in self._by_node[node][job])
            counts[owner] = sum(total >= FOLLOWED for total in totals.values())
        return counts[owner]


class TestRequests:
    """The nodes for which tests are requested; only some of each pool are tested at a time.

    So an owner whose jobs fail everywhere does not have every node tested. A chosen node stays chosen until its request
    ends. The next is the one whose owners have waited longest: an owner with several namespaces or partners gains
    nothing.
    """

    def __init__(self) -> None:
        self._asks: dict[str, tuple[str, tuple[str, ...]]] = {}  # node -> pool, owners
        # pool -> nodes, in the order in which they asked
        self._waiting: defaultdict[str, dict[str, None]] = defaultdict(dict)
        # pool -> nodes, in the order in which they were chosen
        self._chosen: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._served: dict[tuple[str, str], int] = {}  # pool and owner -> number of the newest turn
        self._number = 0

    def set_request(self, node: str, pool: str | None, owners: tuple[str, ...] = ()) -> set[str]:
        """Replace a node's request for a test, and return the names of the nodes that may be tested as a result.

        Args:
            node: its name.
            pool: of the node; None: no test is requested.
            owners: of the jobs whose failures request the test.
        """
        previous = self._asks.get(node)
        if pool is not None and previous is not None and previous[0] == pool:
            self._asks[node] = pool, owners
            return set()
        if pool is None and previous is None:
            return set()
        others: set[str] = set()
        if previous is not None:
            del self._asks[node]
            for by_pool in (self._waiting, self._chosen):
                by_pool[previous[0]].pop(node, None)
            others = {*self._waiting[previous[0]], *self._chosen[previous[0]]}
        if pool is not None:
            self._asks[node] = pool, owners
            self._waiting[pool][node] = None
        return others

    def may_be_tested(self, node: str, most: int) -> bool:
        """Whether a node for which a test is requested may be tested now.

        Args:
            node: its name.
            most: how many nodes of the pool may be tested at a time.
        """
        pool = self._asks[node][0]
        waiting, turns = self._waiting[pool], self._chosen[pool]
        while waiting and len(turns) < most:
            chosen = min(waiting, key=self._served_last)  # among equals the oldest request
            del waiting[chosen]
            turns[chosen] = None
            self._serve(pool, self._asks[chosen][1])
        return node in islice(turns, most)

    def _served_last(self, node: str) -> int:
        pool, owners = self._asks[node]
        return max((self._served.get((pool, owner), 0) for owner in owners), default=0)

    def _serve(self, pool: str, owners: Iterable[str]) -> None:
        self._number += 1
        for owner in owners:
            self._served.pop((pool, owner), None)
            self._served[pool, owner] = self._number
        while len(self._served) > MAX_SERVED:
            del self._served[next(iter(self._served))]


def _blamed(records: Collection[JobRecord]) -> tuple[str, list[JobFailureReport]]:
    """Return the node that more than half of a job's records blame, and the failures that blame it; "" if there is
    none."""
    if not records:
        return "", []
    (node, most), *_ = Counter(record.node for record in records).most_common(1)
    if 2 * most <= len(records):
        return "", []
    return node, [report for record in records if record.node == node for report in record.reports]
