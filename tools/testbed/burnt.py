"""What a burn-in has done to a job: who failed what, and who kept his pod."""

from __future__ import annotations

from testbed.jobs import Job
from testbed.kube import wait_until

FOUND_SECONDS = 300


def bound(job: Job) -> dict[str, str]:
    """The uid of each worker's first pod by node, as soon as all are bound."""

    def found() -> dict[str, str]:
        pods = job.pods().values()
        return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}

    return wait_until(f"pods of {job.name}", lambda: pods if len(pods := found()) == job.nodes else None)


def failures(job: Job) -> set[tuple[str, str]]:
    """(node, probe) of those that have failed in the burn-in of a job."""
    found = (job.current().spec.get("burnIn") or {}).get("failures", ())
    return {(failure["node"], failure["probe"]) for failure in found}


def wait_out(job: Job, *nodes: str) -> None:
    """Wait until the burn-in has sent these nodes away."""
    wanted = set(nodes)
    wait_until(f"{job.name} to leave {nodes}", lambda: {node for node, _ in failures(job)} >= wanted, FOUND_SECONDS)


def assert_kept(job: Job, pods: dict[str, str]) -> None:
    """The gang that got its go has the first pods of all nodes that are still in it, one of them at least."""
    members = next(seen for seen in reversed(job.watch.seen) if seen.going).spec["members"]
    kept = {member["node"]: member["podUid"] for member in members if member["node"] in pods}
    assert kept
    assert kept == {node: pods[node] for node in kept}
