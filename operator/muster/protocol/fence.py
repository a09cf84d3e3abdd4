"""Decide when a launcher that is cut off ends its own ranks. Pure.

A worker that is cut off may be declared lost and its rank started elsewhere. Its old rank must not publish a checkpoint
then. So three things must hold, each for the length of the fence: no answer from the coordinator, a missing member of
the gang, and no step. The absence of the coordinator alone fences no worker. One missing member is enough, because
steps need every rank: the gang stands still then, and workers that are cut off together would otherwise keep each other
alive. A worker sees a missing member by its own pings, or a neighbour forwards the news. Whatever part of a gang is cut
off, as long as its workers reach each other at all, one of them pings a worker outside. A neighbour with a later
attempt proves that this one is over: then there is nothing to wait for.

Tests: tests/unit/launcher/test_cut_off.py, tests/unit/launcher/test_fence.py.
"""

from __future__ import annotations

from typing import Optional, Sequence

from muster.protocol.messages import LONGEST_FENCE_SECONDS

STEPS = 3
# A coordinator that answers announces a new attempt itself.
SUPERSEDED_SECONDS = 3.0
NEWS_SECONDS = 600.0


def fence_seconds(base_seconds: float, step_seconds: Optional[float]) -> float:
    """Return the length of the fence: the base, or three usual steps when these take longer."""
    return min(max(base_seconds, STEPS * (step_seconds or 0.0)), LONGEST_FENCE_SECONDS)


def has_silent_peer(limit_seconds: float, peer_seconds: Sequence[float]) -> bool:
    """Whether a neighbour has been silent for the length of the fence: news for the whole gang."""
    return any(seconds >= limit_seconds for seconds in peer_seconds)


def is_cut_off(
    limit_seconds: float,
    coordinator_seconds: float,
    peer_seconds: Sequence[float],
    step_seconds: float,
    broken_seconds: Optional[float] = None,
) -> bool:
    """Whether to end the ranks, by the ages of the coordinator's, of each neighbour's last answer, and of the last
    step. `broken_seconds` is the time since neighbours last found the gang broken; None if they have not. A step that
    was finished later refutes it. A worker repeats the news while a member is missing: old news does not count.
    """
    broken = broken_seconds is not None and broken_seconds < min(step_seconds, max(NEWS_SECONDS, STEPS * limit_seconds))
    return (
        coordinator_seconds >= limit_seconds
        and step_seconds >= limit_seconds
        and (broken or has_silent_peer(limit_seconds, peer_seconds))
    )


def is_superseded(attempt: int, neighbours_attempt: int, coordinator_seconds: float) -> bool:
    """Whether neighbours have a later attempt while the coordinator does not answer here."""
    return neighbours_attempt > attempt and coordinator_seconds >= SUPERSEDED_SECONDS


# Beyond the launcher's own limit: the difference of its clock and the operator's within one fence.
MARGIN_SECONDS = 2.0


def wanted_fence_seconds(base_seconds: int, step_seconds: Optional[float]) -> int:
    """Return the length for a new attempt: the base, doubled until three usual steps fit into it."""
    return doubled_seconds(base_seconds, STEPS * (step_seconds or 0.0))


def doubled_seconds(base_seconds: int, least_seconds: float) -> int:
    """Double the base until it is this long; no fence is longer than a report can hold."""
    wanted = base_seconds
    while wanted < min(least_seconds, LONGEST_FENCE_SECONDS):
        wanted *= 2
    return min(wanted, int(LONGEST_FENCE_SECONDS))


def fenced_after_seconds(fence_seconds: float) -> float:
    """Return after how long without coordinator, step and a part of its gang a launcher has certainly ended its
    ranks."""
    return fence_seconds + MARGIN_SECONDS


# A file system's clients may show an old directory for 60 s (NFS: acdirmax), and launchers read it every 5 s.
FENCE_FILE_SEEN_SECONDS = 65.0


def marked_after_seconds(fence_seconds: float) -> float:
    """Return how long after the write of the fence file a launcher without its coordinator has certainly ended its
    ranks.

    It has seen the fence file by then, or could not read it for the length of its fence. That time may begin with an
    old view.
    """
    return fence_seconds + FENCE_FILE_SEEN_SECONDS


def peer_distances(count: int) -> Sequence[int]:
    """Return distances on the ring of `count` ranks to the neighbours that each worker pings."""
    near = [1, 2]
    while near[-1] * 4 <= count // 2:
        near.append(4 if near[-1] == 2 else near[-1] * 4)
    return [sign * distance for distance in near for sign in (1, -1)]
