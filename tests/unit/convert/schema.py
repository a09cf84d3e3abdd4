"""What the schema of a CRD says of an object, its rules in CEL apart: those only an API server can try."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parents[3] / "crds"
_KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


@cache
def schema(plural: str) -> Mapping[str, Any]:
    crd = yaml.safe_load((CRDS / f"muster.dev_{plural}.yaml").read_text())
    found: Mapping[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def faults(value: Any, by: Mapping[str, Any], path: str = "") -> Iterator[str]:
    kind = by.get("type")
    if kind and (not isinstance(value, _KINDS[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in by and value not in by["enum"]:
        yield f"{path}: {value!r} is none of {by['enum']}"
    if isinstance(value, int) and not by.get("minimum", value) <= value <= by.get("maximum", value):
        yield f"{path}: {value} is out of bounds"
    if isinstance(value, str):
        if not by.get("minLength", 0) <= len(value) <= by.get("maxLength", len(value)):
            yield f"{path}: too short or too long"
        if "pattern" in by and not re.search(by["pattern"], value):
            yield f"{path}: {value!r} does not match"
    if isinstance(value, dict):
        known = by.get("properties", {})
        yield from (f"{path}.{name}: missing" for name in by.get("required", ()) if name not in value)
        for name, each in value.items():
            if name in known:
                yield from faults(each, known[name], f"{path}.{name}")
            elif isinstance(by.get("additionalProperties"), dict):
                yield from faults(each, by["additionalProperties"], f"{path}.{name}")
            elif not by.get("x-kubernetes-preserve-unknown-fields") and path != ".metadata":
                yield f"{path}.{name}: unknown"
    if isinstance(value, list):
        if not by.get("minItems", 0) <= len(value) <= by.get("maxItems", len(value)):
            yield f"{path}: too few or too many"
        for index, each in enumerate(value):
            yield from faults(each, by.get("items", {}), f"{path}[{index}]")
