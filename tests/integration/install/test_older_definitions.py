"""An operator beside definitions of an older version: it does not lead, says why, and goes on once they are newer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster.api import wait_for
from localcluster.patience import PATIENCE_SECONDS

CRDS = Path(__file__).resolve().parents[3] / "crds"
FIELDS = {"gangs": ("spec", "unfencedWorkers"), "nodehealths": ("status", "offences")}


@pytest.fixture
def defined(installation: Any) -> Any:
    """`defined(resource, *without)`: have the definition of this version, without a field."""

    def define(resource: str, *without: str) -> None:
        definition = yaml.safe_load((CRDS / f"muster.dev_{resource}.yaml").read_text())
        if without:
            part, field = without
            schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            del schema["properties"][part]["properties"][field]
        installation.apply(definition)

    yield define
    for resource in FIELDS:
        define(resource)


@pytest.mark.parametrize("resource", FIELDS)
def test_a_replica_leads_only_beside_definitions_of_its_version(
    installation: Any, defined: Callable[..., None], resource: str, wait_until: Callable[..., Any]
) -> None:
    part, field = FIELDS[resource]
    missing = f"CustomResourceDefinition {resource}.muster.dev has no .{part}.{field}."
    defined(resource, part, field)
    replica = installation.start(installation.operator_pods()[0])
    wait_until(lambda: missing in replica.get("/readyz")[1], "it says why it is not ready")
    samples = wait_until(lambda: replica.samples("muster_definition_outdated"), "it shows metrics")
    assert [dict(labels)["resource"] for labels, value in samples.items() if value] == [resource]
    assert not replica.leads()
    assert missing in replica.said("definitions lack fields")[0]["message"]
    defined(resource)
    wait_until(replica.leads, "it leads")
    wait_until(replica.ready, "it is ready")
    defined(resource, part, field)
    wait_for(lambda: replica.process.poll() is not None, "the leader ends", PATIENCE_SECONDS)
    assert missing in replica.said("exiting")[-1]["reason"]
