"""The objects of the manifests, as files have them."""

from pathlib import Path
from typing import Any

import yaml


def objects_of(folder: Path) -> list[dict[str, Any]]:
    """Every object that a Kustomization or Component lists, there or in folders that it lists."""
    (path,) = (each for each in folder.iterdir() if each.stem.lower() == "kustomization")
    listed = yaml.safe_load(path.read_text())
    found = []
    for name in (*listed.get("resources", ()), *listed.get("components", ())):
        place = folder / name
        found += objects_of(place) if place.is_dir() else list(filter(None, yaml.safe_load_all(place.read_text())))
    return found
