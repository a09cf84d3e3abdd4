"""Compare the fields of this version with those that a cluster's definitions have.

Definitions of an older version lack fields: the API server drops such fields from what is written and from what is
read, without an error.

Tests: tests/unit/kube/test_schemas.py, tests/unit/cli/test_doctor_cluster.py.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from muster.api.base import GROUP, VERSION, ApiModel
from muster.api.endedjob import EndedJob
from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.nodehealth import NodeHealth
from muster.api.repairrequest import RepairRequest
from muster.api.trainingjob import TrainingJob
from muster.kube.definitions import DISCOVERY
from muster.kube.errors import ApiError

if TYPE_CHECKING:
    from muster.kube.client import Client

SCHEMAS = f"/openapi/v3{DISCOVERY}"
MODELS: Mapping[str, type[ApiModel]] = {
    "fleetpolicies": FleetPolicy,
    "nodehealths": NodeHealth,
    "repairrequests": RepairRequest,
    "trainingjobs": TrainingJob,
    "gangs": Gang,
    "endedjobs": EndedJob,
}
_KUBERNETES_OWN = {"apiVersion", "kind", "metadata"}


class _Components(msgspec.Struct):
    schemas: dict[str, msgspec.Raw]


class _OpenApi(msgspec.Struct):
    """An OpenAPI document, without the paths, which are most of it."""

    components: _Components


async def dropped_fields(client: "Client") -> dict[str, list[str]]:
    """Return the fields of this version that the API server drops, by the plural name of each kind that it serves.

    Of fields that are in each other the outermost is named. Every user may ask.

    Raises:
        ApiError: the API server did not answer as it should, so that this is unknown.
    """
    answer = await client.get(SCHEMAS)
    try:
        schemas = msgspec.json.decode(answer, type=_OpenApi).components.schemas
        served = {
            plural: fields_of(msgspec.json.decode(schemas[name]))
            for plural, model in MODELS.items()
            if (name := _schema_name(model)) in schemas
        }
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"the answer to {SCHEMAS} has no schemas: {error}") from error
    return {plural: outermost(fields_of_model(plural) - fields) for plural, fields in served.items()}


def _schema_name(model: type[ApiModel]) -> str:
    """Return the name that the API server gives the schema of a kind."""
    return ".".join([*reversed(GROUP.split(".")), VERSION, model.__name__])


@functools.cache
def fields_of_model(plural: str) -> frozenset[str]:
    """Return the paths of all fields that this version knows of a kind, by its plural name."""
    return fields_of(MODELS[plural].model_json_schema(by_alias=True))


def fields_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the paths of all fields of a kind's schema, without those that are Kubernetes' own."""
    properties = {name: part for name, part in schema.get("properties", {}).items() if name not in _KUBERNETES_OWN}
    return frozenset(_nested_fields({**schema, "properties": properties}, schema.get("$defs", {}), ""))


def _nested_fields(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    schema = _resolved(schema, definitions)
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _nested_fields(part, definitions, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from _nested_fields(schema[inner], definitions, f"{path}[]")


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `$ref`, or the `anyOf` of an optional field, stands for."""
    arms = [arm for arm in schema.get("anyOf", ()) if arm != {"type": "null"}]
    if len(arms) == 1:
        return _resolved(arms[0], definitions)
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return schema


def outermost(fields: frozenset[str]) -> list[str]:
    """Return those fields that are in none of the others."""
    return sorted(path for path in fields if path.rpartition(".")[0].rstrip("[]") not in fields)
