"""examples/reference has every field of FleetPolicy and TrainingJob with a comment; the manifests in docs/ have no
other."""

import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.api.fleetpolicy import FleetPolicy
from muster.api.trainingjob import parsed
from muster.status.template import problem
from muster.world.fleet import Fleet

ROOT = Path(__file__).parents[3]
FILES = {
    "FleetPolicy": ROOT / "examples" / "reference" / "fleetpolicy.yaml",
    "TrainingJob": ROOT / "examples" / "reference" / "trainingjobs.yaml",
}
KINDS = list(FILES)
PLURALS = {"FleetPolicy": "fleetpolicies", "TrainingJob": "trainingjobs"}
INDENTED = r"(?:^ {4}apiVersion: muster\.dev|(?<=\n\n) {4}spec:).*\n(?:(?: {4}.*)?\n)*"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@cache
def known_fields(kind: str) -> frozenset[str]:
    """The paths of all fields of the kind's spec, as its CustomResourceDefinition has them."""
    definition = yaml.safe_load((ROOT / "crds" / f"muster.dev_{PLURALS[kind]}.yaml").read_text())
    return frozenset(fields(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def fields(part: dict[str, Any], path: str = "spec") -> Iterator[str]:
    """The paths of all fields; what the schema leaves open (a pod template, labels) is not entered."""
    part = part.get("items", part)
    if part.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in part.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from fields(inner, f"{path}.{name}")


def written(node: yaml.Node, known: frozenset[str], path: str = "spec") -> Iterator[tuple[str, int]]:
    """Path and line of each field that a manifest has; not entered is what the schema leaves open."""
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from written(each, known, path)
    elif isinstance(node, yaml.MappingNode) and (path == "spec" or any(name.startswith(f"{path}.") for name in known)):
        for key, value in node.value:
            yield f"{path}.{key.value}", key.start_mark.line
            yield from written(value, known, f"{path}.{key.value}")


def specs(text: str) -> Iterator[yaml.Node]:
    for document in yaml.compose_all(text):
        if isinstance(document, yaml.MappingNode):
            yield from (value for key, value in document.value if key.value == "spec")


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_stands_in_the_example(kind: str) -> None:
    text, known = FILES[kind].read_text(), known_fields(kind)
    there = {path for spec in specs(text) for path, _ in written(spec, known)}
    assert len(known) > 40
    assert sorted(known - there) == [], "a field without an example: add it with a comment"
    assert sorted(there - known) == [], "no such field"


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_has_a_comment(kind: str) -> None:
    text, known = FILES[kind].read_text(), known_fields(kind)
    lines = text.splitlines()
    commented = {path for spec in specs(text) for path, line in written(spec, known) if "  # " in lines[line]}
    assert sorted(known - commented) == []


def test_the_policy_is_read_as_it_is_written() -> None:
    (document,) = yaml.safe_load_all(FILES["FleetPolicy"].read_text())
    policy = FleetPolicy.model_validate(document)
    known = policy.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    (window,) = known["maintenance"]["windows"]
    (written_window,) = document["spec"]["maintenance"]["windows"]
    assert {window.pop(name)[:19] for name in ("startTime", "endTime")} == {
        "2026-12-01T07:00:00",
        "2026-12-01T11:00:00",
    }
    del written_window["startTime"], written_window["endTime"]
    assert known == document["spec"]


def test_the_jobs_are_read_as_they_are_written_and_nothing_is_known_against_them() -> None:
    for document in yaml.safe_load_all(FILES["TrainingJob"].read_text()):
        job = parsed(document)
        known = job.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert {key: value for key, value in known.items() if value is not None} == document["spec"]
        assert problem(job, Fleet()) is None


def blocks(page: Path) -> Iterator[str]:
    """The manifests of a page, in fences or indented: what begins with the spec or the group."""
    text = page.read_text()
    fenced = [textwrap.dedent(block) for block in re.findall(r"^ *```yaml\n(.*?)```", text, re.DOTALL | re.MULTILINE)]
    indented = [textwrap.dedent(block.partition("    EOF\n")[0]) for block in re.findall(INDENTED, text, re.MULTILINE)]
    yield from fenced + indented


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_manifests_of_a_page_have_no_other_fields(page: Path) -> None:
    known = {kind: known_fields(kind) for kind in KINDS}
    for block in blocks(page):
        for spec in specs(block):
            unknown = [{path for path, _ in written(spec, known[kind])} - known[kind] for kind in KINDS]
            assert not all(unknown), block
