"""What jobs' failures say of nodes, and for how long. Pure.

Jobs' word is weak: a tenant decides what his ranks do, and one person may have many jobs, or several namespaces. So a
word never takes a node out of use. Failures of one owner that keep coming back to a node make it Suspect; failures of
two owners ask for a check, and only what Muster's own checkers measure then condemns it.

A failure weighs 1, half of that as long as the program was not seen to get beyond the failing step, and half as much
again after each half-life. An owner whose failures keep coming back to many nodes has a program that fails: he is not
heard at all.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from muster.world.jobwords import JobWord

HALF_LIFE_SECONDS = 86400
"""In this time a failure loses half of its weight."""
FOLLOWED = 1.5
"""With so much of one owner a node is Suspect: two failures within a day, if the program went on after them."""
COUNTS = 0.25
"""With so much an owner counts as one of two: one failure counts for two days if the program went on, else for one."""
LASTS = timedelta(seconds=4 * HALF_LIFE_SECONDS)
"""After that long a failure is forgotten."""
MAX_NODES, MAX_SHARE = 3, 0.01
"""On so many nodes, or this share of the fleet where that is more, one owner is heard."""
MAX_RECORDS = 4
"""So many records of jobs of one name are remembered: each time that a user creates it again it has another one."""
MAX_SERVED = 4096
"""So many owners' turns are remembered; of the one whose turn was longest ago nothing is known then."""
SHOWN = 4
_LATER = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Following:
    """That failures have followed a node.

    Attributes:
        owners: whose, those with most weight first.
        words: the newest of each job, the newest first.
        wants_check: it is more than one owner.
        since: the oldest of the failures that count.
        newest: the newest of them.
        ends: until then it stays that by time alone.
    """

    owners: tuple[str, ...]
    words: tuple[JobWord, ...]
    wants_check: bool
    since: datetime
    newest: datetime
    ends: datetime

    @property
    def in_public(self) -> str:
        """In words that name nobody: they reach people of all tenants."""
        if self.wants_check:
            return (
                f"failures of jobs of {len(self.owners)} owners have followed this node and nothing explains them; "
                "it should be tested, and status.findings tells which jobs"
            )
        return (
            "failures of one owner's jobs keep coming back to this node and nothing explains them; status.findings "
            "tells which"
        )

    @property
    def in_full(self) -> str:
        """With jobs and attempts, for those who may see them."""
        shown = [
            f"{word.job} attempt {word.attempt} {word.what} at {word.time:%Y-%m-%d %H:%M} UTC"
            for word in self.words[:SHOWN]
        ]
        more = len(self.words) - len(shown)
        return "; ".join(shown) + (f"; and {more} more jobs" if more > 0 else "")


def following(words: Iterable[JobWord], now: datetime) -> Following | None:
    """What words about one node come to; None: to nothing."""
    counting = [word for word in words if now - word.time < LASTS]
    weights: defaultdict[str, float] = defaultdict(float)
    for word in counting:
        weights[word.owner] += weight(word, now)
    owners = sorted(
        (owner for owner in weights if weights[owner] >= COUNTS), key=lambda owner: (-weights[owner], owner)
    )
    if not owners:
        return None
    wants_check, first = len(owners) > 1, weights[owners[0]]
    if not wants_check and first < FOLLOWED:
        return None
    fades = _fades(weights[owners[1]], COUNTS, now) if wants_check else _fades(first, FOLLOWED, now)
    newest: dict[str, JobWord] = {}
    for word in sorted(counting, key=lambda each: (each.time, each.attempt)):
        if word.owner in owners:
            newest[word.job] = word
    return Following(
        owners=tuple(owners),
        words=tuple(sorted(newest.values(), key=lambda each: (each.time, each.job), reverse=True)),
        wants_check=wants_check,
        since=min(now, *(word.time for word in counting if word.owner in owners)),
        newest=min(now, max(word.time for word in newest.values())),
        ends=min(fades, *(max(word.time, now - LASTS) + LASTS for word in counting)),
    )


def weight(word: JobWord, now: datetime) -> float:
    """What a word weighs now; one of a time to come as one of now."""
    age_seconds = max(0.0, (now - word.time).total_seconds())
    return (1.0 if word.went_on else 0.5) * float(0.5 ** (age_seconds / HALF_LIFE_SECONDS))


def _fades(value: float, limit: float, now: datetime) -> datetime:
    """When a weight falls below a limit. A word from the future fades later: then it is looked at once more."""
    return now + timedelta(seconds=HALF_LIFE_SECONDS * math.log2(value / limit)) + _LATER


class JobWords:
    """All that records of jobs have said, to be asked by node; what is gone from the cluster is remembered for a while.

    A job has a word about one node at most. Of a job that was created again, under its name, the records are taken
    together.
    """

    def __init__(self) -> None:
        self._records: dict[str, dict[str, tuple[str, Sequence[JobWord]]]] = {}  # job -> uid -> node, words
        self._by_node: defaultdict[str, dict[str, Sequence[JobWord]]] = defaultdict(dict)  # node -> job -> words
        self._by_owner: defaultdict[str, dict[str, str]] = defaultdict(dict)  # owner -> job -> node
        self._repeated_at: tuple[datetime | None, dict[str, int]] = None, {}  # for one look: owner -> nodes

    def put(self, owner: str, job: str, uid: str, node: str, words: Sequence[JobWord]) -> set[str]:
        """What a record says now: of which node, and what; nothing, if there are no words.

        Returns:
            The nodes of which something else may follow than before.
        """
        records = self._records.setdefault(job, {})
        if records.get(uid, ("", ())) == (node, words):
            if not records:
                del self._records[job]
            return set()
        before = self._heard_on(owner)
        records.pop(uid, None)
        if words:
            records[uid] = (node, words)
            while len(records) > MAX_RECORDS:
                del records[next(iter(records))]
        self._settle(owner, job)
        return before | self._heard_on(owner)

    def of(self, node: str, nodes: int, now: datetime) -> list[JobWord]:
        """All words about a node, without those of owners who say too much.

        Args:
            nodes: of the fleet.
        """
        found = [word for words in self._by_node.get(node, {}).values() for word in words]
        most = max(MAX_NODES, math.floor(MAX_SHARE * nodes))
        deaf = {owner for owner in {word.owner for word in found} if self._repeated(owner, now) > most}
        return [word for word in found if word.owner not in deaf]

    def forget(self, now: datetime) -> None:
        """Forget what is too old to count."""
        for job, records in list(self._records.items()):
            old = [uid for uid, (_, words) in records.items() if all(now - word.time >= LASTS for word in words)]
            if old:
                owner = next(word.owner for _, words in records.values() for word in words)
                for uid in old:
                    del records[uid]
                self._settle(owner, job)

    def _settle(self, owner: str, job: str) -> None:
        """Write down what the records of a job come to."""
        self._repeated_at = None, {}
        before = self._by_owner[owner].pop(job, "")
        if before:
            self._by_node[before].pop(job, None)
            if not self._by_node[before]:
                del self._by_node[before]
        node, words = _blamed(self._records.get(job, {}))
        if node:
            self._by_node[node][job] = words
            self._by_owner[owner][job] = node
        if not self._records.get(job):
            self._records.pop(job, None)
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def _heard_on(self, owner: str) -> set[str]:
        return set(self._by_owner.get(owner, {}).values())

    def _repeated(self, owner: str, now: datetime) -> int:
        """On how many nodes the owner's failures keep coming back; counted once for all nodes of a look."""
        if self._repeated_at[0] != now:
            self._repeated_at = now, {}
        known = self._repeated_at[1]
        if owner not in known:
            totals: defaultdict[str, float] = defaultdict(float)
            for job, node in self._by_owner.get(owner, {}).items():
                totals[node] += sum(weight(word, now) for word in self._by_node[node][job])
            known[owner] = sum(total >= FOLLOWED for total in totals.values())
        return known[owner]


class Asked:
    """Nodes for which tests are asked: so many of a pool at a time. Whoever makes jobs fail everywhere must not have
    every node tested, nor every pass count for nothing.

    A node that has its turn keeps it until it asks no more. The next is the one whose owners have waited longest,
    whichever of them had a turn last: one person with two namespaces, or one owner with many partners, is one in the
    row and not the whole row.
    """

    def __init__(self) -> None:
        self._asks: dict[str, tuple[str, tuple[str, ...]]] = {}  # node -> pool, owners
        self._waiting: defaultdict[str, dict[str, None]] = defaultdict(
            dict
        )  # pool -> nodes, in the order in which they asked
        self._turns: defaultdict[str, dict[str, None]] = defaultdict(
            dict
        )  # pool -> nodes, in the order in which they had it
        self._served: dict[tuple[str, str], int] = {}  # pool and owner -> number of the newest turn
        self._number = 0

    def put(self, node: str, pool: str | None, owners: tuple[str, ...] = ()) -> set[str]:
        """A node of this pool asks, for failures of these owners; None: it does not. Returns those whose turn may have
        come."""
        before = self._asks.get(node)
        if pool is not None and before is not None and before[0] == pool:
            self._asks[node] = pool, owners
            return set()
        if pool is None and before is None:
            return set()
        others: set[str] = set()
        if before is not None:
            del self._asks[node]
            for each in (self._waiting, self._turns):
                each[before[0]].pop(node, None)
            others = {*self._waiting[before[0]], *self._turns[before[0]]}
        if pool is not None:
            self._asks[node] = pool, owners
            self._waiting[pool][node] = None
        return others

    def has_turn(self, node: str, most: int) -> bool:
        """Whether a node that asks is one of so many of its pool."""
        pool = self._asks[node][0]
        waiting, turns = self._waiting[pool], self._turns[pool]
        while waiting and len(turns) < most:
            chosen = min(waiting, key=self._served_last)  # of equals who asked first
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


def _blamed(records: Mapping[str, tuple[str, Sequence[JobWord]]]) -> tuple[str, Sequence[JobWord]]:
    """What records of one name say together: of the node that more than half of them blame."""
    if not records:
        return "", ()
    (node, most), *_ = Counter(node for node, _ in records.values()).most_common(1)
    if 2 * most <= len(records):
        return "", ()
    return node, [word for of, words in records.values() if of == node for word in words]
