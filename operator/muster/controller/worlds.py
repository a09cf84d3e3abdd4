"""Keeps the last decisions of each job with the world that they were made of, to explain later why they were made.

They are kept as references, which costs next to nothing: a world does not change, and what several have in common is
there once. Of several decisions in a row that said and did the same nothing, only the last is kept. So a wait does not
drive out what led to it.
"""

import itertools
from collections import Counter, OrderedDict
from dataclasses import replace

from muster.controller.bus import Key
from muster.lifecycle.decided import Decided
from muster.world.job import JobWorld

PER_JOB = 3
# In all: 15 MB at most. The launcher of each worker is seen anew in every world; a node is one entry in dictionaries of
# the snapshot.
MOST_WORKER_VIEWS = 5_000
NODES_PER_WORKER_VIEW = 16


class KeptWorlds:
    """The last decisions, by job; the oldest of all are dropped first.

    Args:
        most_worker_views: the number of worker views in all kept decisions; the newest one is kept whatever its size.
    """

    def __init__(self, most_worker_views: float = MOST_WORKER_VIEWS) -> None:
        self._most = most_worker_views
        self._numbers = itertools.count()
        self._kept: OrderedDict[int, tuple[Key, Decided]] = OrderedDict()  # the oldest first
        self._of: dict[Key, list[int]] = {}
        self._sharing: Counter[int] = Counter()  # identity of a snapshot's nodes -> worlds that have it in common
        self._worker_views = 0.0

    def keep(self, key: Key, decided: Decided) -> None:
        """Add the newest decision about a job."""
        mine = self._of.get(key, [])
        if mine and _is_the_same_wait(self._kept[mine[-1]][1], decided):
            self._drop(mine[-1])
        if len(mine) >= PER_JOB:
            self._drop(mine[0])
        # What the decision has worked out and remembers in its world can be worked out again.
        self._add(key, replace(decided, world=replace(decided.world)))
        while self._worker_views > self._most and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def decisions_of(self, key: Key) -> list[Decided]:
        """The kept decisions about a job, the newest last."""
        return [self._kept[number][1] for number in self._of.get(key, ())]

    @property
    def worker_views(self) -> float:
        """The size of all kept decisions, in worker views."""
        return self._worker_views

    def _add(self, key: Key, decided: Decided) -> None:
        number, nodes = next(self._numbers), decided.world.fleet.nodes
        self._kept[number] = (key, decided)
        self._of.setdefault(key, []).append(number)
        self._worker_views += _worker_views_of(decided.world)
        if not self._sharing[id(nodes)]:
            self._worker_views += len(nodes) / NODES_PER_WORKER_VIEW
        self._sharing[id(nodes)] += 1

    def _drop(self, number: int) -> None:
        key, decided = self._kept.pop(number)
        nodes = decided.world.fleet.nodes
        self._of[key].remove(number)
        if not self._of[key]:
            del self._of[key]
        self._worker_views -= _worker_views_of(decided.world)
        self._sharing[id(nodes)] -= 1
        if not self._sharing[id(nodes)]:
            del self._sharing[id(nodes)]
            self._worker_views -= len(nodes) / NODES_PER_WORKER_VIEW


def _worker_views_of(world: JobWorld) -> int:
    return 1 + max(len(world.pods), len(world.launchers), len(world.gang.spec.members) if world.gang else 0)


def _is_the_same_wait(before: Decided, now: Decided) -> bool:
    """Whether neither decision does anything, and both say the same."""
    return _said(before) == _said(now) and not (_does(before) or _does(now))


def _does(decided: Decided) -> bool:
    return decided.plan is not None and (decided.plan.acts or bool(decided.plan.announcements))


def _said(decided: Decided) -> tuple[str, ...]:
    telling = decided.plan.status_report if decided.plan else None
    return (decided.error, telling.state, telling.reason) if telling else (decided.error,)
