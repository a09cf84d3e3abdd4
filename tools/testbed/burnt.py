"""What a burn-in has done to a job: which node failed what, and which worker kept its pod."""

from __future__ import annotations

from testbed.gangwatch import Seen
from testbed.jobs import Job
from testbed.kube import wait_until

FOUND_SECONDS = 900  # no machine takes as long by chance


def first_workers(job: Job) -> dict[str, int]:
    """The incarnation of each worker of the first attempt by node, as soon as nodes are chosen.

    The record is watched: a burn-in may end between two polls of pods.
    """
    return _incarnations(job.watch.wait_attempt(0))


def _incarnations(seen: Seen) -> dict[str, int]:
    return {member["node"]: member.get("incarnation", 1) for member in seen.spec["members"]}


def failures(job: Job) -> set[tuple[str, str]]:
    """(node, probe) of those that have failed in the burn-in of a job."""
    found = (job.current().spec.get("burnIn") or {}).get("failures", ())
    return {(failure["node"], failure["probe"]) for failure in found}


def wait_out(job: Job, *nodes: str) -> None:
    """Wait until the burn-in has sent these nodes away."""
    wanted = set(nodes)
    wait_until(f"{job.name} to leave {nodes}", lambda: {node for node, _ in failures(job)} >= wanted, FOUND_SECONDS)


def assert_kept(job: Job, first: dict[str, int]) -> None:
    """The gang that has started has the first workers of all nodes that are still in it, one of them at least."""
    started = _incarnations(next(seen for seen in reversed(job.watch.seen) if seen.going))
    kept = {node: incarnation for node, incarnation in started.items() if node in first}
    assert kept
    assert kept == {node: first[node] for node in kept}
