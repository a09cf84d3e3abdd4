"""Which of the jobs that may give way to a waiting one have to, so that it finds nodes. Pure.

Tests: tests/unit/queueing/test_preemption.py.
"""

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from muster.placement.fleet_index import PART
from muster.placement.names import reserved_refusal
from muster.placement.space import Space
from muster.queueing.preemption import Preemption
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet

MAX_SPARED = 8
"""Of so many jobs that would give way it is tried whether the others are enough."""
MAX_CHOICES = 4
"""So many choices of jobs of lower priority are tried for each."""


class PreemptionChoice(NamedTuple):
    """Nodes for a job, and the jobs that hold some of them and give way."""

    chosen: tuple[str, ...]
    giving: frozenset[str]


class PreemptionSearch:
    """Finds choices for the jobs of one plan, one job after the other."""

    def __init__(self, fleet: Fleet, space: Space, unreserved: Space, preemption: Preemption) -> None:
        """`space` has the free nodes that are not reserved, `unreserved` those that are as well."""
        self._fleet = fleet
        self._space = space
        self._unreserved = unreserved
        self._preemption = preemption
        self._all_reserved: set[str] = set()  # of the jobs that may give way, those known to have no other nodes

    def best(
        self, job: WaitingJob, blocked: Sequence[WaitingJob], lent: Sequence[str], victims: Sequence[str]
    ) -> Generator[None, None, PreemptionChoice | None]:
        """Return nodes for a job if others give way; None: they would not help.

        Those that leave already come first. Those whose nodes are lent come before those that the job outranks.

        Args:
            job: the job.
            blocked: the jobs before it in the queue for which too few nodes are free, in their order.
            lent: the uids of those that hold nodes which are not their own, in the order in which they give way.
            victims: of those that it outranks, likewise.
        """
        preemption = self._preemption
        candidates = [*lent, *self.not_all_reserved(victims)]
        candidates.sort(key=preemption.leaves, reverse=True)
        for _ in range(MAX_CHOICES):
            choice = yield from self._choose(job, candidates)
            if choice is None or choice.giving.isdisjoint(victims):
                return choice
            choice = (yield from self._cheaper(job, candidates, preemption.toll(choice.giving))) or choice
            if not (yield from self._goes_to_others(choice, blocked)):
                return choice
            candidates = [uid for uid in candidates if uid not in choice.giving or uid in preemption.borrowers]
        return None

    def not_all_reserved(self, uids: Iterable[str]) -> list[str]:
        """Return those of these jobs whose nodes are not all reserved for jobs before."""
        others = [uid for uid in uids if uid not in self._all_reserved]
        self._all_reserved.update(uid for uid in others if self._space.all_reserved(self._fleet.nodes_of(uid)))
        return [uid for uid in others if uid not in self._all_reserved]

    def _goes_to_others(self, choice: PreemptionChoice, blocked: Iterable[WaitingJob]) -> Generator[None, None, bool]:
        """Return whether jobs before in the queue, which have too few nodes, would have nodes of this choice."""
        space = self._unreserved.copied()
        for job in blocked:
            yield
            given_back = self._preemption.owing_now(job) | choice.giving
            if (yield from space.find(replace(job.request, given_back=given_back))) is not None:
                return True
            given_back |= self._preemption.owing(job)
            kept = yield from space.reservation(replace(job.request, given_back=given_back))
            if not set(kept).isdisjoint(choice.chosen):
                return True
            space.reserve_nodes(kept, reserved_refusal(job.name))
        return False

    def _cheaper(
        self, job: WaitingJob, candidates: Sequence[str], toll: tuple[int, int, int]
    ) -> Generator[None, None, PreemptionChoice | None]:
        """Return a choice by which less is taken from running jobs; None: none is found.

        The first one goes from small jobs to large ones. Of large ones fewer may do, which hold fewer nodes together.
        """
        preemption, tolls = self._preemption, dict[str, tuple[int, int, int]]()
        for number, uid in enumerate(candidates):
            if number % PART == 0:
                yield
            tolls[uid] = preemption.toll([uid])
        larger_first = sorted(candidates, key=lambda uid: (tolls[uid][0], -tolls[uid][1]))
        yield
        choice = yield from self._choose(job, [uid for uid in larger_first if tolls[uid] < toll])
        return choice if choice is not None and preemption.toll(choice.giving) < toll else None

    def _choose(self, job: WaitingJob, candidates: Sequence[str]) -> Generator[None, None, PreemptionChoice | None]:
        """Return nodes for a job if some of these jobs give way; None: they would not help.

        Those give way that come first, and of these none without which the others are enough, of the last MAX_SPARED.
        Few are tried before many: each try costs as much as they have nodes.
        """
        if not candidates:
            return None
        least, most = 1, 1
        while (choice := (yield from self._find_with(job, candidates[:most]))) is None:
            yield
            if most >= len(candidates):
                return None
            least, most = most + 1, most * 2
        most = min(most, len(candidates))
        while least < most:
            yield
            middle = (least + most) // 2
            fewer = yield from self._find_with(job, candidates[:middle])
            if fewer is None:
                least = middle + 1
            else:
                most, choice = middle, fewer
        for uid in reversed([uid for uid in candidates[:most] if uid in choice.giving][-MAX_SPARED:]):
            yield
            choice = (yield from self._find_with(job, choice.giving - {uid})) or choice
        return choice

    def _find_with(self, job: WaitingJob, giving: Collection[str]) -> Generator[None, None, PreemptionChoice | None]:
        """Return nodes for a job if these give theirs back, and those of them that have to; None if there are none."""
        answer = yield from self._space.find(replace(job.request, given_back=frozenset(giving)))
        if answer is None:
            return None
        chosen = (*answer.nodes, *answer.spares)
        holders = frozenset[str]().union(*map(self._fleet.holders, chosen))
        return PreemptionChoice(chosen, holders.intersection(giving))
