"""What the nodes of a cluster have of the machine's processors."""

from pathlib import Path

import pytest

from localcluster import cgroups


@pytest.mark.parametrize(("name", "each"), [("cpu.shares", 1024), ("cpu.weight", 100)])
def test_a_cluster_has_as_many_shares_as_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, each: int
) -> None:
    tree = tmp_path / "cpu"
    (tree / "c").mkdir(parents=True)
    (tree / "cgroup.procs").touch()
    (tree / "c" / name).write_text("1")
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    for number in (1, 2, 3):
        cgroups.make("c", f"node-{number}")
        assert (tree / "c" / name).read_text() == str(number * each)
