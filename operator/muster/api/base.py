"""What every model of the API shares: camelCase names outside, snake_case inside, frozen values."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel

GROUP = "muster.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


class ApiModel(BaseModel):
    """A frozen part of an object. Unknown fields are ignored, so that an older operator reads newer objects."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    def to_json(self) -> dict[str, Any]:
        """The object as it is sent to the API server: camelCase, no nulls."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rfc3339(moment: datetime) -> str:
    """An aware datetime as the API server writes it, with microseconds (`MicroTime`)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time needs a zone: write it as RFC 3339, e.g. 2026-01-31T12:00:00Z")
    return moment


Time = Annotated[datetime, AfterValidator(_aware), PlainSerializer(rfc3339, return_type=str, when_used="json")]


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
