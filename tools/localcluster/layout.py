"""Names, addresses and folders of one cluster, all derived from the clone's path and the cluster's name.

Nothing has to be written down before it is made: with the clone and the name one can find every process, cgroup
and folder again, also after a crash. Addresses are the same in every cluster because each lives in network namespaces
of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from localcluster.cache import cache_root
from localcluster.errors import LocalClusterError

CLONE = Path(__file__).resolve().parents[2]
DEFAULT_NAME = "default"
MARK = "MUSTER_LOCALCLUSTER"
"""Environment variable that every process of a cluster carries; its value is the cluster's id."""

CONTROL_PLANE_ADDRESS = "10.90.0.1"
NODE_NETWORK_BITS = 24
POD_NETWORK = "10.91.0.0/16"
API_PORT = 6443
CLUSTER_DOMAIN = "cluster.local"
BRIDGE = "nodes"
MAXIMUM_NODES = 200

IDENTITY_IN_NODE = "/run/node-identity"
"""Folder inside a node with the files boot_id, machine_id and kmsg (the node's kernel log)."""
SHARED_IN_NODE = "/var/lib/shared-volumes"
"""Folder inside every node that is one folder of the host."""

_NAME = re.compile("[a-z][a-z0-9-]{0,19}")
_NODES_PER_RACK = 2
_RACKS_PER_BLOCK = 2


@dataclass(frozen=True)
class Node:
    """One node; `index` counts from 1."""

    index: int
    cluster_state: Path

    @property
    def name(self) -> str:
        return f"node-{self.index}"

    @property
    def address(self) -> str:
        return f"10.90.0.{10 + self.index}"

    @property
    def pod_network(self) -> str:
        return f"10.91.{self.index}.0/24"

    @property
    def user(self) -> str:
        return f"system:node:{self.name}"

    @property
    def labels(self) -> dict[str, str]:
        rack = (self.index - 1) // _NODES_PER_RACK
        return {
            "topology.muster.dev/block": f"b{rack // _RACKS_PER_BLOCK + 1}",
            "topology.muster.dev/rack": f"r{rack + 1}",
            "topology.kubernetes.io/zone": "local",
        }

    @property
    def state(self) -> Path:
        """What outlives a power cut of this node."""
        return self.cluster_state / "nodes" / self.name

    @property
    def containerd(self) -> Path:
        return self.state / "containerd"

    @property
    def identity(self) -> Path:
        return self.state / "identity"


@dataclass(frozen=True)
class Layout:
    """One cluster of `node_count` nodes with the programs in `programs`."""

    name: str
    clone: Path
    state: Path
    node_count: int
    programs: Path

    @cached_property
    def cluster_id(self) -> str:
        return cluster_id(self.name, self.clone)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(index, self.state) for index in range(1, self.node_count + 1))

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def control_plane(self) -> Path:
        return self.state / "control-plane"

    @property
    def shared(self) -> Path:
        return self.state / "shared-volumes"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def control_socket(self) -> Path:
        return self.state / "control.sock"

    def save(self) -> None:
        content = {
            "name": self.name,
            "clone": str(self.clone),
            "node_count": self.node_count,
            "programs": str(self.programs),
        }
        (self.state / "layout.json").write_text(json.dumps(content))


def load_layout(state: Path) -> Layout:
    """The layout that `Layout.save` wrote into the state folder."""
    content = json.loads((state / "layout.json").read_text())
    return Layout(
        name=content["name"],
        clone=Path(content["clone"]),
        state=state,
        node_count=content["node_count"],
        programs=Path(content["programs"]),
    )


def clone_id(clone: Path = CLONE) -> str:
    """What all clusters of one clone have in common: the start of their ids."""
    return "muster-" + hashlib.sha256(os.fsencode(clone)).hexdigest()[:6]


def cluster_id(name: str, clone: Path = CLONE) -> str:
    """The id of the clone's cluster `name`: cgroup folder, state folder and process mark."""
    if not _NAME.fullmatch(name):
        raise LocalClusterError(f"{name!r} is no cluster name: take up to 20 of a-z, 0-9 and -, starting with a letter")
    return f"{clone_id(clone)}-{name}"


def output_folder(name: str, clone: Path = CLONE) -> Path:
    """Where a person finds kubeconfig and description of the cluster."""
    return clone / "build" / ("cluster" if name == DEFAULT_NAME else f"cluster-{name}")


def clusters_folder() -> Path:
    return cache_root() / "clusters"


def state_folder(identifier: str) -> Path:
    """Everything that a running cluster keeps on disk; on the cache's filesystem because image stores are hard
    links."""
    return clusters_folder() / identifier


def known_ids(clone: Path = CLONE) -> Iterator[str]:
    """Ids of the clone's clusters that left a state folder."""
    for folder in sorted(clusters_folder().glob(f"{clone_id(clone)}-*")):
        if folder.is_dir():
            yield folder.name
