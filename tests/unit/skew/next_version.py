"""A record as the next version could have left it: with fields that this one does not know."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from muster.api.base import ApiModel

UNKNOWN = "ofLater"
VALUE: Any = {"steps": [1, {"by": "rank 0"}], "isSure": True}
NAMES = st.from_regex(r"later[A-Z][a-z]{0,5}", fullmatch=True)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def parts(part: ApiModel, document: dict[str, Any], path: str = "") -> Iterator[tuple[str, ApiModel, dict[str, Any]]]:
    """Yield each part of an object, with its path and its own JSON in the object's JSON."""
    yield path, part, document
    for name in type(part).model_fields:
        value, key = getattr(part, name), to_camel(name)
        if isinstance(value, ApiModel):
            yield from parts(value, document[key], f"{path}.{key}")
        elif isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, ApiModel):
                    yield from parts(item, document[key][place], f"{path}.{key}[{place}]")


def of_next_version(part: ApiModel, unknown: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON of an object with an unknown field in each of its parts."""
    document = copy.deepcopy(part.to_json())
    for _, _, found in list(parts(part, document)):
        found.update(copy.deepcopy(unknown or {UNKNOWN: VALUE}))
    return document
