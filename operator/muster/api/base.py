"""What all models of the API share: camelCase names in objects, snake_case names in Python, frozen values.

Tests: tests/unit/api/test_models.py, tests/unit/apidocs/test_render.py.
"""

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreConfig, CoreSchema, SchemaValidator
from pydantic_core.core_schema import definitions_schema

GROUP = "muster.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` keeps the whole manifest of an object. Copies of the object leave it out."""


def rule(cel: str, message: str, *, at: str | None = None) -> JsonDict:
    """A validation rule that the API server checks.

    Args:
        cel: the condition that has to hold, in CEL.
        message: what is wrong when it does not hold, and what to do.
        at: path of the field that the error names, e.g. `.nodes`; None: the field or object that has the rule.
    """
    place: JsonDict = {} if at is None else {"fieldPath": at}
    return {"rule": cel, "message": message, **place}


def checks(*rules: JsonDict) -> JsonDict:
    """The part of the JSON schema of a field or model that holds its validation rules."""
    return {"x-kubernetes-validations": list(rules)}


class ApiModel(BaseModel):
    """ApiModel is a frozen part of an API object. Unknown fields are ignored, so older operators read newer objects."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    def to_json(self) -> dict[str, Any]:
        """The object as JSON for the API server, with camelCase names and without nulls."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, each of which is validated as the constructor validates this field.

        Parts that are models already stay the same objects, and their fields are not validated again. Validators of
        the copied model as a whole do not run.

        Raises:
            ValidationError: a name is no field of the model, or a value is none of its field; it names both.
        """
        return super().model_copy(update=update and _validated(type(self), update), deep=deep)


@functools.cache
def _validator_of_fields(model: type[ApiModel]) -> SchemaValidator:
    """The validator of a model's fields, without those of the model as a whole: these read the other fields, too."""
    core: Any = model.__pydantic_core_schema__
    definitions = core.get("definitions", [])
    while core["type"] != "model-fields":
        core = core["schema"]
    return SchemaValidator(definitions_schema(core, definitions), CoreConfig(title=model.__name__))


def _validated(model: type[ApiModel], values: Mapping[str, Any]) -> dict[str, Any]:
    validator: Any = _validator_of_fields(model)
    return {name: validator.validate_assignment({}, name, value)[0][name] for name, value in values.items()}


class RecordedModel(ApiModel):
    """RecordedModel is a part of a record that the operator writes as a whole. It has the fields that only a later
    version knows, too, so that they are written back (docs/decisions/0087).
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        schema.pop("additionalProperties", None)  # the definitions list the fields of their own version
        return schema


class CompactModel(RecordedModel):
    """CompactModel is a part that objects have by the thousand, so its JSON leaves out fields that have their defaults.

    The CRD names no default for these fields, so that the API server does not fill them in.

    Attributes:
        unsaid: names of the fields that are left out.
    """

    unsaid: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core, handler)
        unsaid = [to_camel(name) for name in cls.unsaid]
        for name in unsaid:
            schema["properties"][name].pop("default", None)
        schema["required"] = [name for name in schema.get("required", []) if name not in unsaid]
        if not schema["required"]:
            del schema["required"]
        return schema

    @classmethod
    def compact(cls, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The JSON objects of this model, without the `unsaid` fields that have their defaults."""
        defaults = {to_camel(name): cls.model_fields[name].default for name in cls.unsaid}
        return [{k: v for k, v in item.items() if k not in defaults or v != defaults[k]} for item in listed]


class LevelCount(RecordedModel):
    """LevelCount says in how many domains of one topology level the workers of a gang are."""

    level: str = Field(
        max_length=63, description="level is the name of the topology level, as FleetPolicy spec.topology has it."
    )
    domains: int = Field(ge=0, description="domains is how many domains of the level the workers are in.")


@functools.lru_cache(maxsize=4096)
def rfc3339(moment: datetime) -> str:
    """An aware datetime as the API server writes it, with microseconds (`MicroTime`).

    The results are cached, because each new status repeats most of the times of the one before.
    """
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")  # half of the time that strftime takes
    return f"{text[:-6]}Z"


EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""Times before EARLIEST or after LATEST are refused, because adding a duration to them may leave the calendar."""


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time needs a zone: write it as RFC 3339, e.g. 2026-01-31T12:00:00Z")
    if not EARLIEST <= moment <= LATEST:
        raise ValueError("a time between 1970 and 2200 is needed, e.g. 2026-01-31T12:00:00Z")
    return moment


NAME_LENGTH = 253
"""The longest name of an object, in characters."""

UID_LENGTH = 64
"""The longest uid of an object, in characters. Those of the API server have 36."""


def shortened_to(length: int) -> BeforeValidator:
    """A validator that cuts text to a length in characters, for text that other programs wrote, e.g. ranks."""

    def shortened(text: object) -> object:
        return f"{text[: length - 1]}…" if isinstance(text, str) and len(text) > length else text

    return BeforeValidator(shortened)


NodeName = Annotated[str, Field(max_length=NAME_LENGTH)]

Time = Annotated[datetime, AfterValidator(_aware), PlainSerializer(rfc3339, return_type=str, when_used="json")]


class Owner(ApiModel):
    """Owner is an owner reference in the metadata of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiModel):
    """ObjectMeta is the part of an object's metadata that decisions read."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []

    @property
    def controller(self) -> Owner | None:
        """The owner that controls the object; None if no owner does."""
        return next((owner for owner in self.owner_references if owner.controller), None)
