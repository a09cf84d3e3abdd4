"""What the page's overlay renders is taken by a real API server as it stands."""

from pathlib import Path

import yaml
from tests.integration.kubectl import Kubectl

OVERLAY = Path(__file__).resolve().parents[3] / "manifests" / "overlays" / "page"


def test_the_api_server_takes_all_of_it_and_knows_every_field(kubectl: Kubectl) -> None:
    rendered = kubectl("kustomize", str(OVERLAY))
    assert rendered.returncode == 0, rendered.stderr
    parts = [each for each in yaml.safe_load_all(rendered.stdout) if each["metadata"]["name"].startswith("muster-page")]
    assert {each["kind"] for each in parts} >= {"Namespace", "Deployment", "NetworkPolicy", "Role", "ClusterRole"}
    try:
        for part in sorted(parts, key=lambda each: each["kind"] != "Namespace"):
            made = kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(part))
            assert made.returncode == 0, made.stderr
            assert "Warning" not in made.stderr, "neither a field nor a level of pod security is amiss"
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding", "muster-page")
