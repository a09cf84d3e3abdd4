"""Makes the files of both charts: what is written by hand in manifests/chart, and a template of each object.

Tests: tests/integration/chart/test_chart.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml

from chart import emit, values
from chart.kustomize import MANIFESTS
from chart.merge import Key, in_order, key_of, merged_documents, resolved
from chart.variants import PROFILES, ChartError, Document, Variant, definitions, documents, variants
from imagebuild.archive import tarball

SOURCES = MANIFESTS / "chart"
Files = dict[str, bytes]


def write_charts(folder: Path, version: str, images: Mapping[str, str]) -> None:
    """Write the archive of each chart into the folder.

    Args:
        folder: which is there.
        version: of the charts.
        images: "registry/repository@sha256:..." by name.

    Raises:
        ChartError: an image is not named by its digest, or the manifests cannot be one chart.
    """
    for name, files in charts(version, images).items():
        (folder / f"{name}-{version}.tgz").write_bytes(packed(name, files))


def charts(version: str, images: Mapping[str, str]) -> dict[str, Files]:
    """The files of both charts by their paths, e.g. templates/deployment-muster.yaml.

    Raises:
        ChartError: an image is not named by its digest, or the manifests cannot be one chart.
    """
    return {"muster": _muster(version, images), "muster-definitions": _definitions(version)}


def _muster(version: str, images: Mapping[str, str]) -> Files:
    edited = _cached_edit()
    by_variant = {variant: [edited(each) for each in documents(variant)] for variant in variants()}
    templates = _templates(by_variant, documents)
    files = _sources("muster", version)
    found = values.defaults([each for some in by_variant.values() for each in some], images)
    found["version"] = version
    text = values.filled(files["values.yaml"].decode(), found)
    values.require_defaults(text, found)
    files["values.yaml"] = text.encode()
    files["fleetpolicy.yaml"] = (MANIFESTS / "fleetpolicy.yaml").read_bytes()
    return files | templates


def _definitions(version: str) -> Files:
    by_variant = {variant: definitions(variant) for variant in map(Variant, PROFILES)}
    return _sources("muster-definitions", version) | _templates(by_variant, definitions)


def _cached_edit() -> Callable[[Document], Document]:
    """`values.with_values`, once for each document: variants share most of them."""
    kept: dict[int, tuple[Document, Document]] = {}

    def edited(document: Document) -> Document:
        if id(document) not in kept:
            kept[id(document)] = document, values.with_values(document)
        return kept[id(document)][1]

    return edited


def _templates(
    by_variant: Mapping[Variant, Iterable[Document]], rendered: Callable[[Variant], Iterable[Document]]
) -> Files:
    """The template of each document, after a look whether all of them together are what kustomize has rendered."""
    merged = merged_documents(by_variant)
    for variant in by_variant:
        expected = {key_of(document): in_order(document) for document in rendered(variant)}
        got = {key: in_order(resolved(each, variant)) for key, each in merged.items() if variant in each.variants}
        if different := [key for key in expected.keys() | got.keys() if expected.get(key) != got.get(key)]:
            raise ChartError(f"{variant}: the template of {min(different)} is not what kustomize renders")
    return {f"templates/{_file_name(key)}": emit.template(each).encode() for key, each in merged.items()}


def _file_name(key: Key) -> str:
    kind, namespace, name = key
    place = f"{namespace}-" if namespace not in ("", "muster-system") else ""
    return f"{kind.lower()}-{place}{name}.yaml"


def _sources(name: str, version: str) -> Files:
    """What is written by hand."""
    files = {path.name: path.read_bytes() for path in sorted((SOURCES / name).iterdir())}
    fields = {**yaml.safe_load(files["Chart.yaml"]), "version": version, "appVersion": version}
    files["Chart.yaml"] = yaml.safe_dump(fields, sort_keys=False).encode()
    for template in [each for each in files if each.endswith((".tpl", ".txt"))]:
        files[f"templates/{template}"] = files.pop(template)
    return files


def packed(name: str, files: Files) -> bytes:
    """The archive of a chart, the same for the same files."""
    return tarball({f"{name}/{path}": (files[path], 0o644) for path in sorted(files)})
