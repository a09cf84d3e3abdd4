"""Serialise a world as plain JSON and back, so that a decision can be repeated elsewhere and later.

The JSON follows the types of the world's fields: a new field of a view, a record or the world itself needs no change
here. Only the fleet is written as its parts, since what is derived from them can be derived again. A field that was
renamed keeps its first name in the JSON, so that worlds of another version can be read.
"""

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from muster.world.fleet import Fleet, FleetParts
from muster.world.job import JobWorld

_WRITTEN_AS = {"thresholds": "standards"}


def write(world: JobWorld) -> dict[str, Any]:
    """Convert the world to values that `json` takes. Numbers such as inf and nan stay what they are."""
    return {
        _WRITTEN_AS.get(name, name): adapter.dump_python(_to_parts(getattr(world, name)), mode="json", by_alias=True)
        for name, adapter in _adapters().items()
    }


def read(written: dict[str, Any]) -> JobWorld:
    """Restore a written world: `decide` makes the same plan of it. A missing field has its default.

    Raises:
        ValueError: this is no world; the text names the field and the cause.
    """
    adapters = _adapters()
    missing = [name for name in _needed() if name not in written]
    if missing:
        raise ValueError(f"no world: it has no {' and no '.join(missing)}")
    values = {
        name: adapter.validate_python(written[_WRITTEN_AS.get(name, name)])
        for name, adapter in adapters.items()
        if _WRITTEN_AS.get(name, name) in written
    }
    return JobWorld(**{name: _from_parts(value) for name, value in values.items()})


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(JobWorld)
    types = {field.name: hints[field.name] for field in fields(JobWorld)}
    return {name: TypeAdapter(FleetParts if kind is Fleet else kind) for name, kind in types.items()}


def _needed() -> list[str]:
    return [f.name for f in fields(JobWorld) if f.default is MISSING and f.default_factory is MISSING]


def _to_parts(value: Any) -> Any:
    return value.parts() if isinstance(value, Fleet) else value


def _from_parts(value: Any) -> Any:
    return (
        Fleet.from_parts(**{f.name: getattr(value, f.name) for f in fields(value)})
        if isinstance(value, FleetParts)
        else value
    )
