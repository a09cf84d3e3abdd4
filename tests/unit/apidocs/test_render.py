"""The renderer: what pydantic says and a CustomResourceDefinition cannot is translated or refused, never dropped."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import ConfigDict, Field

from apidocs import render
from muster import api
from muster.api import base, fleethours
from muster.api.base import ApiModel, checks, rule


class Color(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Part(ApiModel):
    """A part."""

    model_config = ConfigDict(json_schema_extra=checks(rule("self.size > 1", "grow it")))

    size: int = Field(2, ge=1, le=9)
    note: str | None = Field(None, max_length=5)


class Whole(ApiModel):
    """A whole."""

    color: Color = Field(Color.RED, description="What it looks like.")
    part_of_it: Part = Field(Part(), json_schema_extra=checks(rule("self == oldSelf", "leave it")))
    maybe: Part | None = None
    names: list[str] = Field([], max_length=3, json_schema_extra={"items": {"type": "string", "maxLength": 4}})
    counts: dict[str, int] = Field({}, max_length=2)
    anything: dict[str, Any] = Field({}, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})


def structural(model: type[ApiModel]) -> dict[str, Any]:
    return render.structural(model.model_json_schema(by_alias=True))


def test_a_model_becomes_a_structural_schema() -> None:
    part = {
        "type": "object",
        "description": "A part.",
        "properties": {
            "size": {"type": "integer", "default": 2, "minimum": 1, "maximum": 9},
            "note": {"type": "string", "maxLength": 5},
        },
    }
    grow = {"rule": "self.size > 1", "message": "grow it"}
    assert structural(Whole) == {
        "type": "object",
        "description": "A whole.",
        "properties": {
            "color": {
                "type": "string",
                "description": "What it looks like.",
                "default": "Red",
                "enum": ["Red", "Blue"],
            },
            "partOfIt": {
                **part,
                "default": {"size": 2},
                "x-kubernetes-validations": [grow, {"rule": "self == oldSelf", "message": "leave it"}],
            },
            "maybe": {**part, "x-kubernetes-validations": [grow]},
            "names": {
                "type": "array",
                "default": [],
                "maxItems": 3,
                "items": {"type": "string", "maxLength": 4},
                "x-kubernetes-list-type": "atomic",
            },
            "counts": {
                "type": "object",
                "default": {},
                "maxProperties": 2,
                "additionalProperties": {"type": "integer"},
            },
            "anything": {"type": "object", "default": {}, "x-kubernetes-preserve-unknown-fields": True},
        },
    }


class Wrapped(ApiModel):
    """It has a first line.

    It has a second one, which goes
    on in a third.
    """


def test_a_description_is_one_line_which_kubectl_explain_wraps() -> None:
    assert structural(Wrapped)["description"] == "It has a first line. It has a second one, which goes on in a third."


KINDS = tuple(resource.model for resource in render.RESOURCES)
# No CustomResourceDefinition has their fields.
UNSEEN = (ApiModel, base.RecordedModel, base.CompactModel, base.ObjectMeta, base.Owner, fleethours.FleetHours)
MODULES = [importlib.import_module(f"{api.__name__}.{found.name}") for found in pkgutil.iter_modules(api.__path__)]
PARTS = [
    model
    for module in MODULES
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, ApiModel) and model.__module__ == module.__name__
    if model not in (*KINDS, *UNSEEN)
]


def integers(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The integer fields of a structural schema, at any depth."""
    for name, part in schema.get("properties", {}).items():
        if part.get("type") == "integer":
            yield name, part
        yield from integers(part)
        yield from integers(part.get("items", {}))


@pytest.mark.parametrize("resource", render.RESOURCES, ids=lambda resource: resource.model.__name__)
def test_no_record_holds_a_step_that_another_one_cannot(resource: Any) -> None:
    steps = {
        part.get("maximum")
        for name, part in integers(render.object_schema(resource))
        if name.lower().endswith(("step", "steps")) and name != "tokensPerStep"
    }
    assert steps <= {2**53 - 1}


@pytest.mark.parametrize("model", PARTS, ids=lambda model: model.__name__)
def test_each_field_is_described_in_sentences_of_25_words_at_most(model: type[ApiModel]) -> None:
    schema = structural(model)
    texts = {name: part.get("description", "") for name, part in schema["properties"].items()}
    texts[model.__name__] = schema["description"]
    assert [name for name, text in texts.items() if not text.endswith(".")] == []
    sentences = [(name, each) for name, text in texts.items() for each in re.split(r"(?<=[.]) (?=[A-Z0-9*-])", text)]
    assert [(name, each) for name, each in sentences if len(each.split()) > 25] == []


class Loop(ApiModel):
    again: "Loop | None" = None


class Union(ApiModel):
    value: int | str = 1


class UnboundedText(ApiModel):
    text: str = ""


class UnboundedList(ApiModel):
    numbers: list[int] = Field([])


class UnboundedMap(ApiModel):
    numbers: dict[str, int] = Field({})


class UniqueItems(ApiModel):
    numbers: set[int] = Field(set(), max_length=3)


class Exclusive(ApiModel):
    number: int = Field(1, gt=0)


class Constant(ApiModel):
    word: Literal["one"] = "one"


class Anything(ApiModel):
    value: Any = None


@pytest.mark.parametrize(
    ("model", "says"),
    [
        pytest.param(Loop, ".again: Loop contains itself", id="recursion"),
        pytest.param(Union, ".value: a union of types", id="union"),
        pytest.param(UnboundedText, ".text: give this string a max_length", id="string without a bound"),
        pytest.param(UnboundedList, ".numbers: give this list a max_length", id="list without a bound"),
        pytest.param(UnboundedMap, ".numbers: give this map a max_length", id="map without a bound"),
        pytest.param(UniqueItems, ".numbers: a CustomResourceDefinition has no uniqueItems", id="set"),
        pytest.param(Exclusive, ".number: a CustomResourceDefinition has no exclusiveMinimum", id="exclusive bound"),
        pytest.param(Constant, ".word: a CustomResourceDefinition has no const", id="constant"),
        pytest.param(Anything, ".value: a structural schema needs one type", id="no type"),
    ],
)
def test_what_a_definition_cannot_say_is_an_error_that_names_the_field(model: type[ApiModel], says: str) -> None:
    with pytest.raises(render.RenderError) as caught:
        structural(model)
    assert says in str(caught.value)


def _schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for _, inner in render.leaves(schema):
        yield inner
        yield inner.get("items", {"type": "absent"})


@pytest.mark.parametrize("resource", render.RESOURCES, ids=lambda resource: resource.kind)
class TestEachDefinition:
    def test_is_small_enough_for_kubectl_apply(self, resource: render.Resource) -> None:
        assert len(render.render()[resource.path].encode()) < 256 * 1024

    def test_holds_no_reference_and_no_null(self, resource: render.Resource) -> None:
        text = render.render()[resource.path]
        assert "$ref" not in text
        assert "null" not in text
        assert yaml.safe_load(text) == render.definition(resource)

    def test_says_how_each_list_is_merged(self, resource: render.Resource) -> None:
        for schema in _schemas(render.object_schema(resource)):
            assert schema.get("type") != "array" or "x-kubernetes-list-type" in schema

    def test_makes_up_nothing_in_status_but_that_nobody_has_seen_the_object(self, resource: render.Resource) -> None:
        status = render.object_schema(resource)["properties"].get("status", {})
        assert all("default" not in schema for _, schema in render.leaves(status))
        seen = "observedGeneration" in status.get("properties", {})
        assert status.get("default") == ({"observedGeneration": 0} if seen else None)

    def test_shows_in_its_columns_fields_that_it_has(self, resource: render.Resource) -> None:
        known = render.object_schema(resource)["properties"]
        for column in resource.columns:
            path = column.path.removeprefix(".").split(".")
            at: Any = {"properties": known}
            for part in path if path[0] != "metadata" else ():
                name, _, place = part.partition("[")
                assert name in at["properties"], f"column {column.name}: there is no {column.path}"
                at = at["properties"][name]["items"] if place else at["properties"][name]

    def test_appears_in_the_reference_with_every_field_and_every_check(self, resource: render.Resource) -> None:
        text = render.reference()
        schema = render.object_schema(resource)
        for path, _ in render.leaves(schema):
            if path.startswith(("spec.", "status.")):
                assert f"| `{path}` |" in text
        for inner in _schemas(schema):
            for check in inner.get("x-kubernetes-validations", []):
                assert f": {check['message']}." in text


class TestCommand:
    def test_writes_what_is_missing_and_then_finds_nothing_to_say(self, tmp_path: Path) -> None:
        assert render.main([f"--root={tmp_path}"]) == 0
        assert render.main([f"--root={tmp_path}", "--check"]) == 0
        assert {file.name for file in (tmp_path / "crds").iterdir()} == {
            "Kustomization",
            "muster.dev_endedjobs.yaml",
            "muster.dev_fleetpolicies.yaml",
            "muster.dev_gangs.yaml",
            "muster.dev_nodehealths.yaml",
            "muster.dev_repairrequests.yaml",
            "muster.dev_trainingjobs.yaml",
        }

    @pytest.mark.parametrize("wrong", ["crds/muster.dev_gangs.yaml", "crds/left-over.yaml", "docs/reference/api.md"])
    def test_check_names_a_file_that_differs_and_writes_nothing(
        self, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        render.main([f"--root={tmp_path}"])
        (tmp_path / wrong).write_text("not this\n")
        assert render.main([f"--root={tmp_path}", "--check"]) == 1
        assert f"{wrong} is not what the models say: run `make generate`" in capsys.readouterr().err
        assert (tmp_path / wrong).read_text() == "not this\n"

        assert render.main([f"--root={tmp_path}"]) == 0
        assert render.main([f"--root={tmp_path}", "--check"]) == 0
