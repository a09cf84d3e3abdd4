"""A leader whose definitions become older ends; it does not lead again, and says why, until they are newer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    leader = installation.start_leader()
    defined(resource, part, field)
    wait_until(lambda: leader.process.poll() is not None, "the leader ends")
    assert missing in leader.said("exiting")[-1]["reason"]
    again = installation.start_again(leader)
    wait_until(lambda: missing in again.get("/readyz")[1], "it says why it is not ready")
    assert missing in again.said("definitions lack fields")[0]["message"]
    samples = wait_until(lambda: again.samples("muster_definition_outdated"), "it shows metrics")
    assert [dict(labels)["resource"] for labels, value in samples.items() if value] == [resource]
    assert not again.leads()
    defined(resource)
    wait_until(again.ready, "it is ready")
    wait_until(again.leads, "it leads")
