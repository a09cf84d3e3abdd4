"""When to end one's own ranks because nobody can be asked any more. Pure.

A worker that is cut off may be declared lost and its rank started elsewhere. Its old rank must not publish a checkpoint
then. So: no answer from the coordinator, a member of the gang missing, and no step, each for the length of the fence. A
coordinator that is merely away fences nobody. One missing member is enough, because steps need every rank: the gang
stands still then, and workers that are cut off together would otherwise keep each other alive. Whether one is missing a
worker sees by its own pings or hears from a neighbour, who may have heard it too: whatever part of a gang is cut off,
as long as its workers reach each other at all, one of them pings somebody outside. A neighbour that knows of a later
attempt already says that this one is over: then there is nothing to wait for.
"""

from __future__ import annotations

from typing import Optional, Sequence

from muster.protocol.messages import LONGEST_FENCE_SECONDS

STEPS = 3
# A coordinator that is there tells of a new attempt itself, in good order.
SUPERSEDED_SECONDS = 3.0
NEWS_SECONDS = 600.0


def fence_seconds(base_seconds: float, step_seconds: Optional[float]) -> float:
    """The length of the fence: the base, or three usual steps when these take longer."""
    return min(max(base_seconds, STEPS * (step_seconds or 0.0)), LONGEST_FENCE_SECONDS)


def misses_somebody(limit_seconds: float, peer_seconds: Sequence[float]) -> bool:
    """Whether a neighbour has been silent for the length of the fence: news for the whole gang."""
    return any(seconds >= limit_seconds for seconds in peer_seconds)


def is_cut_off(
    limit_seconds: float,
    coordinator_seconds: float,
    peer_seconds: Sequence[float],
    step_seconds: float,
    broken_seconds: Optional[float] = None,
) -> bool:
    """Whether to end the ranks, from the ages of the last answer, of each neighbour's last answer, of the last step.

    Args:
        broken_seconds: since a member, as far as neighbours tell, last found the gang broken; None if none has. A step
            that was finished later refutes it. Whoever misses a member says so again and again: old news is none.
    """
    known = broken_seconds is not None and broken_seconds < min(step_seconds, max(NEWS_SECONDS, STEPS * limit_seconds))
    return (
        coordinator_seconds >= limit_seconds
        and step_seconds >= limit_seconds
        and (known or misses_somebody(limit_seconds, peer_seconds))
    )


def is_superseded(attempt: int, neighbours_attempt: int, coordinator_seconds: float) -> bool:
    """Whether neighbours have gone on to a later attempt while the coordinator does not answer here."""
    return neighbours_attempt > attempt and coordinator_seconds >= SUPERSEDED_SECONDS


# Beyond the launcher's own limit: what its clock and the operator's may differ by within one fence.
MARGIN_SECONDS = 2.0


def wanted_fence_seconds(base_seconds: int, step_seconds: Optional[float]) -> int:
    """The length that an attempt should have: the base, doubled until three usual steps fit into it."""
    return doubled_seconds(base_seconds, STEPS * (step_seconds or 0.0))


def doubled_seconds(base_seconds: int, least_seconds: float) -> int:
    """The base, doubled until it is this long; no fence is longer than a report can tell."""
    wanted = base_seconds
    while wanted < min(least_seconds, LONGEST_FENCE_SECONDS):
        wanted *= 2
    return min(wanted, int(LONGEST_FENCE_SECONDS))


def fenced_after_seconds(fence_seconds: float) -> float:
    """After so long without coordinator, step and a part of its gang a launcher has ended its ranks, for certain."""
    return fence_seconds + MARGIN_SECONDS


# A file system's clients may show an old directory for 60 s (NFS: acdirmax), and launchers look every 5 s.
FENCE_FILE_SEEN_SECONDS = 65.0


def marked_after_seconds(fence_seconds: float) -> float:
    """So long after the fence file was written a launcher without its coordinator has ended its ranks, for certain.

    It has seen the fence file by then, or has not been able to read it for the length of its fence, which may begin
    when what it was shown last was old.
    """
    return fence_seconds + FENCE_FILE_SEEN_SECONDS


def peer_distances(count: int) -> Sequence[int]:
    """Distances on the ring of `count` ranks to the neighbours that each pings."""
    near = [1, 2]
    while near[-1] * 4 <= count // 2:
        near.append(4 if near[-1] == 2 else near[-1] * 4)
    return [sign * distance for distance in near for sign in (1, -1)]
