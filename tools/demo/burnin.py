"""The demo's first act: a node computes wrongly before the job has made a step, and the burn-in finds and replaces it.

It ends with the first go: the policy and the checkers go, so that what the later faults cost is recovery alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from demo.story import Story
from testbed import checkers
from testbed.bed import SYSTEM_NAMESPACE, Bed
from testbed.gangwatch import GangWatch, Seen
from testbed.kube import wait_until

FOUND_SECONDS = 300


@dataclass(frozen=True)
class Found:
    """A bad node and what became of it; seconds count from the first placement.

    Attributes:
        said: the finding in Muster's own words.
        kept: nodes whose worker kept its pod.
    """

    victim: str
    probe: str
    said: str
    replaced_by: str
    kept: tuple[str, ...]
    found_seconds: float
    training_seconds: float


def spoil(bed: Bed, story: Story) -> str:
    """Have every gang tested, and let one node's products be wrong in one bit; its name, "" where that is left out.

    It is one on which no operator runs, because it will be booted.
    """
    if bed.local is None:
        story.tell("no burn-in: no node of somebody else's is made to compute wrongly")
        return ""
    if not checkers.can_begin(bed):
        story.tell("no burn-in: this cluster has a FleetPolicy already, which is left as it is")
        return ""
    story.tell("kubectl apply -k manifests/overlays/jobs, and a FleetPolicy by which every gang is tested first")
    checkers.begin(bed, maxAgeSeconds=0)
    checkers.wait_ready(bed)
    pods = bed.kubectl.json("get", "pods", "-n", SYSTEM_NAMESPACE)["items"]
    busy = {pod["spec"].get("nodeName") for pod in pods}
    known = {it["metadata"]["name"]: it.get("status") or {} for it in bed.kubectl.json("get", "nodehealths")["items"]}
    # A node that has failed before is placed last, and three of four are.
    likely = sorted(bed.cluster.node_names, key=lambda name: (bool(known.get(name, {}).get("incidents")), name))
    node = next(name for name in likely if name not in busy)
    story.harm("BitFlipped", 0)
    story.detail(f"one bit of some products is wrong on {node} from now on, which nothing reports")
    bed.faults.probe(node, "flip")
    return node


def found(bed: Bed, story: Story, watch: GangWatch, victim: str) -> Found:
    """Wait until the job trains without the bad node, and take the checkers out again."""

    def going() -> Seen | None:
        return next((seen for seen in watch.seen if seen.going), None)

    state = wait_until("the first go", going, FOUND_SECONDS)
    first = next(seen for seen in watch.seen if seen.nodes and all(seen.nodes))
    failure: dict[str, Any] = next(iter((state.spec.get("burnIn") or {}).get("failures", ())), {})
    told = next((seen for seen in watch.seen if (seen.spec.get("burnIn") or {}).get("failures")), state)
    answer = Found(
        victim=failure.get("node", ""),
        probe=failure.get("probe", ""),
        said=failure.get("message", ""),
        replaced_by=", ".join(sorted({*state.nodes} - {*first.nodes})),
        kept=tuple(sorted({*state.nodes} & {*first.nodes})),
        found_seconds=told.monotonic_seconds - first.monotonic_seconds,
        training_seconds=state.monotonic_seconds - first.monotonic_seconds,
    )
    if answer.victim != victim:
        story.tell(f"  the burn-in has not found {victim}")
        return answer
    story.tell(f"  found on {victim} before the first step: {answer.said}")
    story.tell(
        f"  {answer.replaced_by} takes its place, {' and '.join(answer.kept)} waited: found after "
        f"{answer.found_seconds:.1f} s, all tested and started after {answer.training_seconds:.1f} s"
    )
    checkers.end(bed)
    return answer


def repair(bed: Bed, story: Story, node: str) -> None:
    """The node is well again, booted, and released by a human, as the nodes that are lost later need a replacement."""
    story.tell(f"{node} gets a new part and is booted; kubectl muster release {node} --reason 'part replaced'")
    bed.faults.repair()
    bed.cluster.power_off(node)
    bed.cluster.power_on(node)
    released = bed.muster("release", node, "--reason", "part replaced")
    if released.returncode:
        raise RuntimeError(f"kubectl muster release failed: {released.stderr.strip()}")
