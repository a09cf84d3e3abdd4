"""Values of the chart: fields of the manifests, and images by their digests."""

from pathlib import Path
from typing import Any

import pytest

from chart.__main__ import read_images
from chart.merge import Expression, FromValues
from chart.values import UNSET, defaults, filled, require_defaults, with_values
from chart.variants import ChartError

DIGEST = f"sha256:{'0' * 64}"


def a_daemon_set(**pod: Any) -> dict[str, Any]:
    container = {"name": "agent", "image": f"{UNSET}burn-in:0.1.0", "resources": {"limits": {"memory": "1Mi"}}}
    template = {"spec": {"containers": [container], **pod}}
    return {"kind": "DaemonSet", "metadata": {"name": "muster-agent"}, "spec": {"template": template}}


def test_images_and_fields_are_taken_from_values() -> None:
    before = a_daemon_set(nodeSelector={"a": "b"})
    pod = with_values(before)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == Expression('{{ include "muster.image" (list $ "burnIn") }}', f"{UNSET}burn-in:0.1.0")
    assert container["resources"] == FromValues("agent.resources", {"limits": {"memory": "1Mi"}})
    assert pod["nodeSelector"] == FromValues("agent.nodeSelector", {"a": "b"})
    assert pod["tolerations"] == FromValues("agent.tolerations", None)
    assert before == a_daemon_set(nodeSelector={"a": "b"})


def test_tolerations_of_own_taints_stay() -> None:
    own, other = {"key": "muster.dev/unhealthy", "operator": "Exists"}, {"key": "a", "operator": "Exists"}
    job = {"kind": "Job", "metadata": {"name": "muster-uninstall"}}
    job["spec"] = {"template": {"spec": {"containers": [], "tolerations": [own, other]}}}
    pod = with_values(job)["spec"]["template"]["spec"]
    assert pod["tolerations"] == [own, FromValues("operator.tolerations", [other])]


def test_the_hook_is_placed_by_the_values_of_the_operator() -> None:
    placing = {"affinity": {"nodeAffinity": {}}, "priorityClassName": "high", "nodeSelector": {"a": "b"}}
    job = {"kind": "Job", "metadata": {"name": "muster-uninstall"}}
    job["spec"] = {"template": {"spec": {"containers": [], **placing}}}
    pod = with_values(job)["spec"]["template"]["spec"]
    assert {name: pod[name] for name in placing} == {
        name: FromValues(f"operator.{name}", default) for name, default in placing.items()
    }


def test_every_account_has_the_pull_secrets() -> None:
    account = with_values({"kind": "ServiceAccount", "metadata": {"name": "any"}})
    assert account["imagePullSecrets"] == FromValues("imagePullSecrets", None)


def test_the_defaults_are_those_of_manifests_and_release() -> None:
    images = {"operator": f"registry.example.org/muster/operator@{DIGEST}"}
    found = defaults([with_values(a_daemon_set(nodeSelector={"a": "b"}))], images)
    assert found["agent.nodeSelector"] == {"a": "b"}
    assert found["images.registry"] == "registry.example.org/muster"
    text = "images:\n  # which\n  operator: <images.operator>\n"
    assert filled(text, found) == (f"images:\n  # which\n  operator:\n    repository: operator\n    digest: {DIGEST}\n")


@pytest.mark.parametrize(
    "reference",
    [
        "registry.example.org/muster/operator:0.2.0",
        f"registry.example.org/muster/operator:0.2.0@{DIGEST}",
        "registry.example.org/muster/operator@",
        f"x@{DIGEST}",
    ],
)
def test_an_image_without_a_digest_is_refused(reference: str) -> None:
    with pytest.raises(ChartError, match="push it first"):
        defaults([], {"operator": reference})


def test_images_of_two_registries_are_refused() -> None:
    images = {name: f"{name}.example.org/muster/{name}@{DIGEST}" for name in ("operator", "launcher")}
    with pytest.raises(ChartError, match="several registries"):
        defaults([], images)


def test_a_place_in_values_that_nothing_fills_is_refused() -> None:
    with pytest.raises(ChartError, match=r"<operator\.colour>"):
        filled("colour: <operator.colour>", {})


def test_a_default_that_the_manifests_do_not_have_is_refused() -> None:
    text = "page:\n  nodeSelector: {}\n"
    require_defaults(text, {"page.nodeSelector": None})
    with pytest.raises(ChartError, match=r"page\.nodeSelector is {}, and the manifests have .*: write <page\.nod"):
        require_defaults(text, {"page.nodeSelector": {"a": "b"}})
    with pytest.raises(ChartError, match=r"agent\.resources is None, and the manifests have"):
        require_defaults(text, {"agent.resources": {"a": "b"}})


def test_an_image_that_is_missing_is_named() -> None:
    images = {"operator": f"registry.example.org/muster/operator@{DIGEST}"}
    with pytest.raises(ChartError, match=r"<images\.burnIn>: no image of the release"):
        filled("burnIn: <images.burnIn>", defaults([], images))
    with pytest.raises(ChartError, match=r"<images\.registry>: no image of the release"):
        filled("registry: <images.registry>", defaults([], {}))


@pytest.mark.parametrize(
    ("content", "words"), [("{", "truncated"), ('{"operator": {}}', "Expected `str`"), ("[]", "Expected `object`")]
)
def test_a_file_of_other_things_than_images_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "images.json"
    path.write_text(content)
    with pytest.raises(ChartError, match="give JSON") as refused:
        read_images(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert words in str(refused.value)
