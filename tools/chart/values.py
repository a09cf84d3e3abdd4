"""Which fields of the documents the values of the chart set, and what these values are by default.

The defaults come from the manifests: `values.yaml` names them as `<operator.resources>`, and is filled in here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from chart.merge import Expression, FromValues
from chart.variants import ChartError, Document

UNSET = "muster.invalid/set-your-registry-in-the-overlay/"
OWN = "muster.dev/"
POD, CONTAINER = "spec.template.spec.", "spec.template.spec.containers.0."
PLACING = {f"{POD}{name}": name for name in ("nodeSelector", "tolerations")}
OPERATOR_PLACING = {**PLACING, **{f"{POD}{name}": name for name in ("affinity", "priorityClassName")}}
RESOURCES = {f"{CONTAINER}resources": "resources"}
# By kind and name: where the values are, and the fields that they set.
SET_BY_VALUES = {
    ("Deployment", "muster"): ("operator", {"spec.replicas": "replicas", **OPERATOR_PLACING, **RESOURCES}),
    ("Job", "muster-uninstall"): ("operator", OPERATOR_PLACING),
    ("Deployment", "muster-page"): ("page", {f"{POD}affinity": "affinity", **PLACING, **RESOURCES}),
    ("DaemonSet", "muster-agent"): ("agent", {**PLACING, **RESOURCES}),
    ("DaemonSet", "muster-check"): ("checkers", {**PLACING, **RESOURCES}),
}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PLACEHOLDER = re.compile(r"^( *)(\w+): <([\w.]+)>$", re.MULTILINE)


def with_values(document: Document) -> Document:
    """The document with its images, and with what the values set, in place of what the manifests have."""
    edited: Document = _with_images(document)
    if document["kind"] == "ServiceAccount":
        edited["imagePullSecrets"] = FromValues("imagePullSecrets", None)
    place, fields = SET_BY_VALUES.get((document["kind"], document["metadata"]["name"]), ("", {}))
    for path, name in fields.items():
        *parents, last = path.split(".")
        parent: Any = edited
        for step in parents:
            parent = parent[int(step) if step.isdecimal() else step]
        parent[last] = _from_value(f"{place}.{name}", parent.get(last))
    return edited


def _from_value(path: str, default: Any) -> Any:
    """The value in place of the default. Tolerations of Muster's own taints stay, whatever users set."""
    own = [each for each in default if each.get("key", "").startswith(OWN)] if isinstance(default, list) else []
    if not own:
        return FromValues(path, default)
    return [*own, FromValues(path, [each for each in default if each not in own])]


def _with_images(part: Any) -> Any:
    """A copy in which each name of an image is computed. Such a name is the whole of a scalar."""
    if isinstance(part, dict):
        return {name: _with_images(each) for name, each in part.items()}
    if isinstance(part, list):
        return [_with_images(each) for each in part]
    if isinstance(part, str) and part.startswith(UNSET):
        name = part.removeprefix(UNSET).partition(":")[0]
        return Expression(f'{{{{ include "muster.image" (list $ "{value_name(name)}") }}}}', part)
    return part


def value_name(image: str) -> str:
    """How the values name an image, e.g. burnIn for burn-in."""
    head, *rest = image.split("-")
    return head + "".join(map(str.capitalize, rest))


def defaults(documents: list[Document], images: Mapping[str, str]) -> dict[str, Any]:
    """The values of a release: what the manifests have in the fields that values set, and the released images.

    Args:
        documents: with values in them.
        images: "registry/repository@sha256:..." by name.
    """
    found: dict[str, Any] = {}
    for document in documents:
        for value in _from_values(document):
            if found.setdefault(value.path, value.default) != value.default:
                raise ChartError(f"value {value.path} sets two fields that differ in the manifests")
    registries = set()
    for name, reference in images.items():
        path, _, digest = reference.partition("@")
        registry, _, repository = path.rpartition("/")
        if not registry or ":" in repository or not DIGEST.fullmatch(digest):
            raise ChartError(f"image {name}: {reference!r} is not REGISTRY/REPOSITORY@sha256:DIGEST; push it first")
        registries.add(registry)
        found[f"images.{value_name(name)}"] = {"repository": repository, "digest": digest}
    if len(registries) > 1:
        raise ChartError(f"the images are in several registries, and the chart has one value: {sorted(registries)}")
    found.update(("images.registry", registry) for registry in registries)
    return found


def _from_values(part: Any) -> list[FromValues]:
    if isinstance(part, FromValues):
        return [part]
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [found for each in parts for found in _from_values(each)]


def filled(text: str, found: Mapping[str, Any]) -> str:
    """`values.yaml` with the defaults in their places."""

    def block(match: re.Match[str]) -> str:
        indent, key, path = match.groups()
        if path not in found:
            raise ChartError(f"values.yaml: nothing gives <{path}>: no image of the release, no field of the manifests")
        lines = yaml.safe_dump({key: found[path]}, sort_keys=False, width=1000).splitlines()
        return "\n".join(indent + line for line in lines)

    return _PLACEHOLDER.sub(block, text)


def require_defaults(text: str, found: Mapping[str, Any]) -> None:
    """Raise unless `values.yaml` has the default of each value, also of those that it does not name in brackets."""
    whole = yaml.safe_load(text)
    for path, default in found.items():
        value = whole
        for step in path.split("."):
            value = (value or {}).get(step)
        if (value or None) != (default or None):
            raise ChartError(f"values.yaml: {path} is {value!r}, and the manifests have {default!r}: write <{path}>")
