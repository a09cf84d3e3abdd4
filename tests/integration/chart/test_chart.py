"""The charts are what kustomize renders, for every profile and option; needs no Helm.

`charts` compares each template with what kustomize makes of it, and refuses one that differs. Whether Helm understands
the templates is in tests/integration/nightly/install/test_helm_templates.py.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.charts import Files, charts, packed
from chart.merge import in_order
from chart.variants import PROFILES, Variant, definitions, documents
from localcluster.build import binaries

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
IMAGES = {
    name: f"registry.example.org/muster/{name}@sha256:{'0' * 64}"
    for name in ("operator", "agent", "launcher", "burn-in")
}
OVERLAYS = {
    "observe": Variant("observe"),
    "health": Variant("health", node_marks=True),
    "burn-in": Variant("burn-in", node_marks=True, checkers=True),
    "default": Variant("jobs"),
    "jobs": Variant("jobs", node_marks=True, checkers=True),
}
OF_PARENTS = {"global", "enabled"}  # what a chart that depends on these gives them
VALUE = re.compile(r"\.Values\.([\w.]+)")


@pytest.fixture(scope="module")
def made() -> dict[str, Files]:
    """Both charts: every template has passed the comparison."""
    return charts("0.2.0", IMAGES)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_variant_of_the_chart_is_the_overlay(overlay: str) -> None:
    done = subprocess.run(
        [str(binaries() / "kubectl"), "kustomize", str(MANIFESTS / "overlays" / overlay)],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = _sorted(yaml.safe_load_all(done.stdout))
    assert _sorted(each for each in documents(OVERLAYS[overlay]) if not _is_hook(each)) == expected


def test_the_templates_have_every_document_once(made: dict[str, Files]) -> None:
    assert {name for name in made["muster"] if name.endswith("deployment-muster.yaml")} == {
        "templates/deployment-muster.yaml"
    }
    definitions = [name for name in made["muster-definitions"] if "customresourcedefinition" in name]
    assert len(definitions) == 6


def test_every_value_is_used_and_every_used_value_is_there(made: dict[str, Files]) -> None:
    files = made["muster"]
    values = yaml.safe_load(files["values.yaml"])
    texts = [text.decode() for name, text in files.items() if name.startswith("templates/")]
    used = {path for text in texts for path in VALUE.findall(text)}
    given = {path for path in _paths(values) if not path.startswith("images.")}
    assert used - {"images", "images.registry"} == given
    asked = {name for text in texts for name in re.findall(r'include "muster.image" \(list \$ "(\w+)"\)', text)}
    assert asked == values["images"].keys() - {"registry"}


def test_the_schema_has_the_values_of_the_chart(made: dict[str, Files]) -> None:
    for files in made.values():
        schema, values = json.loads(files["values.schema.json"]), yaml.safe_load(files["values.yaml"])
        assert schema["properties"].keys() - OF_PARENTS == values.keys()
        assert schema["properties"]["profile"]["enum"] == list(PROFILES)
        for name, part in values.items():
            if isinstance(part, dict):
                described = schema["properties"][name]
                described = (
                    schema["definitions"][described["$ref"].rpartition("/")[2]] if "$ref" in described else described
                )
                assert (described["properties"].keys(), described["additionalProperties"]) == (part.keys(), False)


def test_a_key_of_other_charts_names_the_values_that_there_are(made: dict[str, Files]) -> None:
    files = made["muster"]
    schema, values = json.loads(files["values.schema.json"]), yaml.safe_load(files["values.yaml"])
    remedies = {key: set(text.split(" or ")) for key, (text,) in schema["dependencies"].items()}
    assert remedies.keys() & values.keys() == set()
    assert set().union(*remedies.values()) - _paths(values) == set()
    # A key that several parts have: all of them are named.
    for key, named in remedies.items():
        assert named >= {path for path in _paths(values) if path.endswith(f".{key}")}, key


def test_each_profile_is_refused_without_the_definition_that_it_adds(made: dict[str, Files]) -> None:
    (pairs,) = re.findall(r"\(dict (.*?)\)", made["muster"]["templates/checks.tpl"].decode())
    needed = dict(re.findall(r'"([\w-]+)" "(\w+)"', pairs))
    assert list(needed) == list(PROFILES)
    before: set[str] = set()
    for profile, name in needed.items():
        here = {each["metadata"]["name"].partition(".")[0] for each in definitions(Variant(profile))}
        assert name in (here - before or here)
        before = here


def test_an_archive_depends_on_its_files_alone(made: dict[str, Files]) -> None:
    files = made["muster"]
    assert packed("muster", files) == packed("muster", dict(reversed(files.items())))


def _sorted(documents: Any) -> list[str]:
    return sorted(json.dumps(in_order(each), sort_keys=True) for each in documents)


def _is_hook(document: Any) -> bool:
    return "helm.sh/hook" in (document["metadata"].get("annotations") or {})


def _paths(values: dict[str, Any]) -> set[str]:
    return {
        path
        for name, part in values.items()
        for path in ([f"{name}.{each}" for each in part] if isinstance(part, dict) else [name])
    }
