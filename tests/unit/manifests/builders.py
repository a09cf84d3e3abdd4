"""The objects of the manifests, as kustomize makes them but for images and annotations; needs no program."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from muster.api.installation import InstallationProfile
from muster.api.rights import GrantedRight

Manifest = dict[str, Any]
OBSERVE, HEALTH, BURN_IN, JOBS = InstallationProfile
MARKS = ("components/node-taint", "components/node-condition")
CHECKERS = "components/checkers"
# Profile and optional folders of each overlay that has the operator.
OVERLAYS = {
    "observe": (OBSERVE, ()),
    "health": (HEALTH, MARKS),
    "burn-in": (BURN_IN, (*MARKS, CHECKERS)),
    "default": (JOBS, ()),
    "jobs": (JOBS, (*MARKS, CHECKERS)),
}
MERGE_KEYS = {"containers": "name", "env": "name", "ports": "containerPort"}


def objects_of(folder: Path, before: Sequence[Manifest] = ()) -> list[Manifest]:
    """Every object of a Kustomization, or of a Component on top of what it is added to."""
    (path,) = (each for each in folder.iterdir() if each.stem.lower() == "kustomization")
    listed = yaml.safe_load(path.read_text())
    found = list(before)
    for name in listed.get("resources", ()):
        place = folder / name
        found += objects_of(place) if place.is_dir() else filter(None, yaml.safe_load_all(place.read_text()))
    for name in listed.get("components", ()):
        found = objects_of(folder / name, found)
    for entry in listed.get("patches", ()):
        found = with_patch(found, entry, folder)
    return found


def with_patch(objects: Sequence[Manifest], entry: Manifest, folder: Path) -> list[Manifest]:
    """The objects after one of `patches`; one that is about none of them changes nothing."""
    patch = yaml.safe_load((folder / entry["path"]).read_text() if "path" in entry else entry["patch"])
    target = entry.get("target") or {"kind": patch["kind"], **patch["metadata"]}
    changed = []
    for each in objects:
        metadata = {"kind": each["kind"], **each["metadata"]}
        if any(metadata.get(key) != target.get(key) for key in ("kind", "name", "namespace")):
            changed.append(each)
        elif isinstance(patch, list):
            changed.append(with_operations(each, patch))
        elif patch.get("$patch") != "delete":
            changed.append(merged(each, patch))
    return changed


def with_operations(before: Manifest, operations: Sequence[Manifest]) -> Manifest:
    """An object after operations of a JSON patch, which here only adds to lists."""
    after = copy.deepcopy(before)
    for operation in operations:
        assert operation["op"] == "add"
        *parents, index = operation["path"].strip("/").split("/")
        place: Any = after
        for parent in parents:
            place = place[parent]
        place.insert(int(index), operation["value"])
    return after


def merged(before: Any, patch: Any, key: str = "") -> Any:
    """What a strategic merge patch makes of a value."""
    if isinstance(patch, dict):
        return {**before, **{name: merged(before.get(name), part, name) for name, part in patch.items()}}
    if isinstance(patch, list) and before is not None:
        identity = MERGE_KEYS[key]
        entries = {each[identity]: each for each in before}
        entries |= {each[identity]: merged(entries.get(each[identity], {}), each) for each in patch}
        return list(entries.values())
    return patch


def rights_of(objects: Sequence[Manifest]) -> set[GrantedRight]:
    """What the operator's roles among these objects allow."""
    return {
        GrantedRight(verb, group, resource, role["metadata"].get("namespace", ""), name)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole") and "muster.dev/profile" in role["metadata"]["labels"]
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for name in rule.get("resourceNames", [""])
    }
