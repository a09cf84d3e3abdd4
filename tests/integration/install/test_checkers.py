"""Without the component no pod is a checker, whatever namespace and service account it has."""

import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.integration.install import checkers


def test_the_maker_of_the_namespace_speaks_for_no_node(installation: Any, wait_until: Callable[..., Any]) -> None:
    replica = installation.start_leader()
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    with checkers.namespace(installation, wait_until):
        token = checkers.token(installation, "checker", checkers.ACCOUNT)
        status, body = checkers.report(replica, unchecked, token, 1)
        assert (status, "this operator trusts none" in json.loads(body)["error"]) == (403, True)
        assert sum(replica.samples("muster_checkers").values()) == 0
        found = installation.get("configmaps", checkers.HERE)["items"]
        assert [item["metadata"]["name"] for item in found if item["metadata"]["name"] != "kube-root-ca.crt"] == []


def test_the_component_brings_the_trust(installation: Any, overlay: Path) -> None:
    rendered = list(yaml.safe_load_all(installation.kubectl("kustomize", str(overlay.parent / "jobs"))))
    (operator,) = (item for item in rendered if item["kind"] == "Deployment")
    environment = {
        entry["name"]: entry.get("value") for entry in operator["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    (account,) = (
        item["metadata"]
        for item in rendered
        if item["kind"] == "ServiceAccount" and item["metadata"]["name"] == checkers.ACCOUNT
    )
    assert environment["MUSTER_CHECKER_NAMESPACE"] == account["namespace"] == checkers.NAMESPACE
