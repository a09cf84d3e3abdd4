"""The cluster with Muster in it that a demonstration plays on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from demo.story import Story
from localcluster.cluster import Cluster
from testbed import checkers
from testbed.bed import IMAGES, OWN_POLICY, SYSTEM_NAMESPACE, Bed


@contextmanager
def cluster(story: Story, namespace: str, archives: Sequence[Path] = ()) -> Iterator[Bed]:
    """The cluster with Muster in it, and without this namespace. Afterwards, unless KEEP is set, what was made is gone
    again.

    Args:
        archives: of more images, for the local cluster.
    """
    keep, existing, local = bool(os.environ.get("KEEP")), os.environ.get("CLUSTER") == "existing", Cluster()
    starts = not existing and not local.runs()
    if not existing:
        story.tell("a Kubernetes cluster of four nodes on this machine")
        usual = [Path(entry["archive"]) for entry in json.loads(IMAGES.read_text()).values()]
        local.up(archives=[*usual, *archives], progress=story.detail)
    bed = Bed.open()
    if bed.kubectl.find("get", "namespace", namespace):
        if existing:
            raise SystemExit(f"The namespace {namespace} exists; only what was made here is touched: delete it first.")
        bed.kubectl("delete", "namespace", namespace, "--wait=true")
    kept = bed.kubectl.find("get", "namespace", SYSTEM_NAMESPACE) is not None  # it outlives an operator
    installed = bed.kubectl.find("get", "deployment", "-n", SYSTEM_NAMESPACE, "muster") is not None
    try:
        if installed and existing:
            story.tell("Muster is installed there already: using it as it is")
        else:
            story.tell(
                "kubectl apply -k manifests/definitions, then manifests/overlays/default, and a FleetPolicy by which "
                "every namespace trains"
            )
            bed.install()
        yield bed
    finally:
        if not existing:
            checkers.end(bed)
            bed.faults.repair()
        if keep:
            story.tell(f"kept, as KEEP asks: export KUBECONFIG={bed.kubectl.kubeconfig}")
        elif starts:
            local.down(progress=story.detail)
        else:
            bed.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=true")
            if not installed:
                bed.kubectl("delete", "fleetpolicies", f"--selector={OWN_POLICY}")
                bed.remove_operator()
                if not kept:
                    bed.remove_definitions()
