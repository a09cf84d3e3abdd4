"""Names and addresses follow from the clone and the cluster's name alone."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from localcluster.errors import LocalClusterError
from localcluster.layout import (
    CONTROL_PLANE_ADDRESS,
    MAXIMUM_NODES,
    POD_NETWORK,
    Layout,
    cluster_id,
    load_layout,
    output_folder,
)


def layout(tmp_path: Path, node_count: int = 4) -> Layout:
    return Layout("default", Path("/clone"), tmp_path, node_count, Path("/programs"))


def test_clones_and_names_have_ids_of_their_own() -> None:
    ids = {cluster_id(name, Path(clone)) for name in ("default", "other") for clone in ("/a", "/b")}

    assert len(ids) == 4
    assert cluster_id("default", Path("/a")) in ids


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "1st", "a" * 21, "with space"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(LocalClusterError, match="is no cluster name"):
        cluster_id(name)


def test_four_nodes_are_one_block_of_two_racks(tmp_path: Path) -> None:
    labels = [node.labels for node in layout(tmp_path).nodes]

    assert [label["topology.muster.dev/block"] for label in labels] == ["b1"] * 4
    assert [label["topology.muster.dev/rack"] for label in labels] == ["r1", "r1", "r2", "r2"]


def test_addresses_never_collide(tmp_path: Path) -> None:
    nodes = layout(tmp_path, MAXIMUM_NODES).nodes
    pods = [ipaddress.ip_network(node.pod_network) for node in nodes]

    assert len({CONTROL_PLANE_ADDRESS, *(node.address for node in nodes)}) == MAXIMUM_NODES + 1
    assert len(set(pods)) == MAXIMUM_NODES
    assert all(network.subnet_of(ipaddress.ip_network(POD_NETWORK)) for network in pods)  # type: ignore[arg-type]


def test_a_saved_layout_is_read_back(tmp_path: Path) -> None:
    saved = layout(tmp_path)
    saved.save()

    assert load_layout(tmp_path) == saved


def test_the_default_cluster_has_the_well_known_output_folder() -> None:
    assert output_folder("default", Path("/clone")) == Path("/clone/build/cluster")
    assert output_folder("other", Path("/clone")) == Path("/clone/build/cluster-other")
