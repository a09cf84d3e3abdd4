"""Checkers on all nodes, and a policy by which every gang is tested: what tests and the demo need for a burn-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from testbed.bed import OWN_POLICY, Bed
from testbed.faults import CHECKER_NAMESPACE
from testbed.kube import wait_until

_MUSTER = "/apis/muster.dev/v1alpha1"
_OURS = "burn-in"


def can_begin(bed: Bed) -> bool:
    """Whether there is no FleetPolicy of somebody else's."""
    policy = bed.kubectl.find("get", "fleetpolicy", "default")
    return policy is None or OWN_POLICY in policy["metadata"].get("labels", {})


def begin(bed: Bed, **preflight: Any) -> None:
    """Install the checkers, and have every gang tested (`spec.preflight` of the FleetPolicy).

    All nodes are in one place: a node that has a rack to itself cannot be told from its rack's uplink.
    """
    bed.install_checkers()
    bed.apply_policy({"topology": {"levels": []}, "preflight": {"profile": "Quick", **preflight}}, _OURS)


def end(bed: Bed) -> None:
    """Take all of that out again, where it is."""
    found = bed.kubectl("get", "fleetpolicies", "-l", f"{OWN_POLICY}={_OURS}", "-o", "name", check=False)
    if found.strip():  # Muster itself may be gone
        bed.open_fleet()
    bed.uninstall_checkers()


@contextmanager
def installed(bed: Bed, **preflight: Any) -> Iterator[None]:
    """`begin`, and at the end all of it out again, with nothing held against any node."""
    bed.faults.repair()
    begin(bed, **preflight)
    yield
    forget(bed)
    end(bed)  # with new operators: they remember tests that nodes have failed for as long as they live
    bed.kubectl("delete", "nodehealths", "--all", "--wait=true")


@contextmanager
def fresh(bed: Bed) -> Iterator[None]:
    """Nodes that are well and of which nothing is held, and checkers that can test; repaired afterwards."""
    forget(bed)
    wait_ready(bed)
    yield
    bed.faults.repair()


def forget(bed: Bed) -> None:
    """Make every node well, and hold nothing against any."""
    bed.faults.repair()
    # As long as a gang tells of a failure it is held against the node.
    wait_until("the gangs of deleted jobs to go", lambda: not bed.items(f"{_MUSTER}/gangs"))
    unwell = _unwell(bed)
    if unwell:
        done = bed.muster("release", *unwell, "--reason", "repaired by the test bed")
        if done.returncode:
            raise RuntimeError(f"kubectl muster release: {done.stderr.strip()}")
        wait_until("nodes to be released", lambda: not _unwell(bed))


def _unwell(bed: Bed) -> list[str]:
    found = bed.items(f"{_MUSTER}/nodehealths")
    return [
        node["metadata"]["name"] for node in found if node.get("status", {}).get("state") not in (None, "", "Healthy")
    ]


def wait_ready(bed: Bed) -> None:
    """Wait until every checker has said that it has imported torch."""
    wait_until("every checker to be ready", lambda: _are_ready(bed), pause_seconds=2)


def pods(bed: Bed) -> dict[str, str]:
    """The checkers' pods by node."""
    path = f"/api/v1/namespaces/{CHECKER_NAMESPACE}/pods"
    listed = bed.items(path, labelSelector="app.kubernetes.io/name=muster-check")
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in listed}


def _are_ready(bed: Bed) -> bool:
    found, nodes = pods(bed), bed.items("/api/v1/nodes")
    return len(found) == len(nodes) and all(_is_ready(bed, pod) for pod in found.values())


def _is_ready(bed: Bed, pod: str) -> bool:
    """Whether the checker says so of itself, on its own loopback."""
    ask = (
        "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9476/metrics', timeout=5).read().decode())"
    )
    found = bed.kubectl("exec", "-n", CHECKER_NAMESPACE, pod, "--", "python3", "-c", ask, check=False)
    return 'muster_check_state{state="Ready"} 1' in found
