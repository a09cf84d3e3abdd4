"""The sizes of clusters: the page has the table of the code, and the manifests have the row of the default."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from muster.api.sizes import DEFAULT_NODES, SIZES, ClusterSize, size_of
from muster.world.resources import amount

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "sizes.md").read_text()


def test_the_page_has_the_table_of_the_code() -> None:
    section = PAGE.partition("\n## Requests that fit\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d,]+)[^|]*\| (\w+) \| (\w+) \| (\w+) \|$", section, re.MULTILINE)
    assert [ClusterSize(int(nodes.replace(",", "")), *rest) for nodes, *rest in rows] == list(SIZES)


def test_the_patch_of_the_page_is_the_largest_row() -> None:
    block = PAGE.partition("\n    patches:\n")[2].partition("\n\n")[0]
    (patch,) = yaml.safe_load("\n".join(line.removeprefix("    ") for line in block.splitlines()))
    (operation,) = yaml.safe_load(patch["patch"])
    assert operation["value"] == resources_of(SIZES[-1])


def test_the_manifests_have_the_row_of_the_default() -> None:
    deployment = yaml.safe_load((ROOT / "manifests" / "base" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    default = size_of(DEFAULT_NODES)
    assert default is not None
    assert default.nodes == DEFAULT_NODES
    assert container["resources"] == resources_of(default)


def resources_of(size: ClusterSize) -> dict[str, dict[str, str]]:
    requests = {"cpu": size.cpu_request, "memory": size.memory_request}
    return {"requests": requests, "limits": {"memory": size.memory_limit}}


def test_larger_sizes_need_no_less() -> None:
    for small, large in pairwise(SIZES):
        assert small.nodes < large.nodes
        for part in ("memory_request", "memory_limit", "cpu_request"):
            resource = part.partition("_")[0]
            assert amount(resource, getattr(small, part)) <= amount(resource, getattr(large, part))


@pytest.mark.parametrize(("nodes", "row"), [(0, 0), (512, 0), (513, 1), (2048, 1), (2049, 2), (16_384, 2)])
def test_a_cluster_has_the_smallest_row_that_it_fits(nodes: int, row: int) -> None:
    assert size_of(nodes) == SIZES[row]


def test_more_nodes_than_were_measured_have_no_row() -> None:
    assert size_of(16_385) is None
