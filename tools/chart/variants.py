"""What can be installed, and what kustomize makes of it: the documents that the charts have to render as well."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import yaml

from chart.kustomize import MANIFESTS, rendered
from muster.api.installation import InstallationProfile

PROFILES = tuple(profile.value for profile in InstallationProfile)
Document = dict[str, Any]


class ChartError(Exception):
    """The charts cannot be made; the message says what to change."""


@dataclass(frozen=True)
class Variant:
    """One way to install Muster. Each field but the profile stands for the value `enabled` of its name in camelCase."""

    profile: str
    node_marks: bool = False
    checkers: bool = False
    page: bool = False
    monitoring: bool = False
    cert_manager: bool = False

    def components(self) -> tuple[str, ...]:
        """Those that change documents of the base or of each other, in the order of docs/profiles.md."""
        chosen = [*PROFILES[1 : PROFILES.index(self.profile) + 1]]
        chosen += ["checkers"] * self.checkers + ["cert-manager"] * self.cert_manager
        return tuple(chosen)

    def additions(self) -> Iterator[str]:
        """Those that only add documents: each is rendered once, for all variants."""
        if self.node_marks and self.profile != "observe":
            yield from ("node-taint", "node-condition")
        if self.page:
            yield "page"
        if self.monitoring:
            # Without an issuer, replicas of a profile without a coordinator make certificates of their own.
            signed = InstallationProfile(self.profile).has_coordinator or self.cert_manager
            yield "monitoring" if signed else "monitoring-self-signed"


def variants() -> list[Variant]:
    """All that the chart takes: burn-in has checkers, and profiles before it have none."""
    options = list(itertools.product((False, True), repeat=len(fields(Variant)) - 1))
    chosen = [Variant(profile, *flags) for profile in PROFILES for flags in options]
    return [
        each
        for each in chosen
        if each.checkers in {"burn-in": (True,), "jobs": (False, True)}.get(each.profile, (False,))
    ]


def documents(variant: Variant) -> list[Document]:
    """The objects of the installation, and what removes Muster's marks from nodes after it where it has made any."""
    found = list(_rendered(("base",), variant.components()))
    for component in variant.additions():
        found += _rendered((), (component,))
    if variant.node_marks and variant.profile != "observe":
        found += _hook()
    return found


def definitions(variant: Variant) -> list[Document]:
    """The CRDs of a profile, and the namespace muster-system."""
    return _rendered((InstallationProfile(variant.profile).definitions,), ())


@functools.cache
def _hook() -> list[Document]:
    return list(yaml.safe_load_all((MANIFESTS / "chart/uninstall.yaml").read_text()))


@functools.cache
def _rendered(resources: tuple[str, ...], components: tuple[str, ...]) -> list[Document]:
    return list(yaml.safe_load_all(rendered(resources, [f"components/{name}" for name in components])))
