"""What every model of the API shares: camelCase names outside, snake_case inside, frozen values."""

import functools
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

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
from pydantic_core import CoreSchema

GROUP = "muster.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl keeps a whole manifest: of another object than one that is made of it."""


def rule(cel: str, message: str, *, at: str | None = None) -> JsonDict:
    """A check that the API server makes: CEL, and what to do when it fails. `at`: the field to blame, e.g. `.nodes`."""
    place: JsonDict = {} if at is None else {"fieldPath": at}
    return {"rule": cel, "message": message, **place}


def checks(*rules: JsonDict) -> JsonDict:
    """The part of a field's or model's schema that holds its rules."""
    return {"x-kubernetes-validations": list(rules)}


class ApiModel(BaseModel):
    """A frozen part of an object. Unknown fields are ignored, so that an older operator reads newer objects."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    def to_json(self) -> dict[str, Any]:
        """The object as it is sent to the API server: camelCase, no nulls."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class CompactModel(ApiModel):
    """One of thousands in an object: what it does not say is the default, and the API server fills nothing in.

    Attributes:
        unsaid: fields that are left out where they have their defaults.
    """

    unsaid: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        unsaid = [to_camel(name) for name in cls.unsaid]
        for name in unsaid:
            schema["properties"][name].pop("default", None)
        schema["required"] = [name for name in schema.get("required", []) if name not in unsaid]
        if not schema["required"]:
            del schema["required"]
        return schema

    @classmethod
    def compact(cls, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Objects of this model, as `to_json` gives them, without what goes without saying."""
        defaults = {to_camel(name): cls.model_fields[name].default for name in cls.unsaid}
        return [{k: v for k, v in one.items() if k not in defaults or v != defaults[k]} for one in listed]


class LevelCount(ApiModel):
    """How many domains of one topology level the workers are in."""

    level: str = Field(max_length=63)
    domains: int = Field(ge=0)


@functools.lru_cache(maxsize=4096)
def rfc3339(moment: datetime) -> str:
    """An aware datetime as the API server writes it, with microseconds (`MicroTime`). A status says most of its times
    again."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")  # half of the time that strftime takes
    return f"{text[:-6]}Z"


EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""Times outside are nobody's clock, and cannot be reckoned with: spans added to them run over the calendar's ends."""


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time needs a zone: write it as RFC 3339, e.g. 2026-01-31T12:00:00Z")
    if not EARLIEST <= moment <= LATEST:
        raise ValueError("a time between 1970 and 2200 is needed, e.g. 2026-01-31T12:00:00Z")
    return moment


NAME_LENGTH = 253
"""Longest name of an object."""

UID_LENGTH = 64
"""Longest uid; the API server's own have 36 characters."""


def shortened_to(length: int) -> BeforeValidator:
    """For text that holds what others wrote, e.g. a rank's last lines: too long is cut, never an error."""

    def shortened(text: object) -> object:
        return f"{text[: length - 1]}…" if isinstance(text, str) and len(text) > length else text

    return BeforeValidator(shortened)


NodeName = Annotated[str, Field(max_length=NAME_LENGTH)]

Time = Annotated[datetime, AfterValidator(_aware), PlainSerializer(rfc3339, return_type=str, when_used="json")]


class Owner(ApiModel):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiModel):
    """The part of metadata that decisions read."""

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
        """The owner that controls it."""
        return next((owner for owner in self.owner_references if owner.controller), None)
