"""Worlds with whatever their fields may hold, and what is read again of one that was written down."""

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_job

from muster.api.fleetpolicy import FleetPolicySpec
from muster.world.job import JobWorld
from muster.world.written import read, write

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    float: st.floats(allow_nan=False),
    datetime: st.datetimes(timezones=st.just(UTC)),
    str: st.text(max_size=5),
    FleetPolicySpec: st.just(FleetPolicySpec()),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field of this type, odd ones included."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", ())
    if names:
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: values(hints[name]) for name in names})
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, inner))
    if origin is Mapping:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=2)
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(inner[0]), max_size=2)
    assert isinstance(kind, type), kind
    return st.sampled_from(list(kind)) if issubclass(kind, Enum) else st.from_type(kind)


def odd_worlds() -> st.SearchStrategy[JobWorld]:
    hints = get_type_hints(JobWorld)
    odd = {name: values(hint) for name, hint in hints.items() if name not in ("job", "gang", "fleet")}
    return st.builds(JobWorld, job=st.just(a_job()), **odd)


def again(world: JobWorld) -> JobWorld:
    return read(json.loads(json.dumps(write(world))))


def content(world: JobWorld) -> dict[str, Any]:
    return {field.name: getattr(world, field.name) for field in fields(world)} | {"fleet": world.fleet.parts()}
