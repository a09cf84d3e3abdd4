"""The kubeconfig that a cluster leaves in build/: written when it comes up, the user's own from then on."""

from pathlib import Path

import pytest

from localcluster.cluster import Cluster


def test_the_namespace_that_the_user_has_set_stays_when_a_node_loses_its_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    cluster = Cluster(clone=tmp_path / "clone")
    kubectl, layout = tmp_path / "kubectl", type("Layout", (), {"logs": tmp_path, "programs": tmp_path})()
    for name, answer in (("_ask", {}), ("describe", {}), ("_layout", layout), ("_check_node", None)):
        monkeypatch.setattr(cluster, name, lambda *_, answer=answer: answer)
    kubectl.touch()
    cluster.state.mkdir(parents=True)
    (cluster.state / "kubeconfig").write_text("as the cluster made it")

    cluster._write_kubeconfig()
    assert cluster.kubeconfig.read_text() == "as the cluster made it"
    cluster.kubeconfig.write_text("with a namespace")
    cluster.power_off("node-1")

    assert cluster.kubeconfig.read_text() == "with a namespace"
    assert (cluster.output / "cluster.json").exists()
