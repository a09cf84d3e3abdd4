"""Merges the documents of all variants into one each, in which what differs says when it is there.

A set of variants becomes a condition of a template. It has to be a product of values (these profiles, with this
option), or the rest of one: anything else is refused, so that no condition is ever wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from chart.variants import PROFILES, ChartError, Document, Variant

Key = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True)
class FromValues:
    """The whole of a field, given by a value of the chart. Where that is empty there is no such field.

    As an entry of a list it stands for all entries of the value.
    """

    path: str
    default: Any

    def __hash__(self) -> int:
        return hash(self.path)


@dataclass(frozen=True)
class Expression:
    """A scalar that a template computes."""

    text: str
    default: str


@dataclass(frozen=True)
class When:
    """A part that some variants have: a document, a field, or an entry of a list."""

    variants: frozenset[Variant]
    among: frozenset[Variant]
    part: Any


@dataclass(frozen=True)
class Choice:
    """A scalar that differs."""

    options: tuple[When, ...]


def merged_documents(by_variant: Mapping[Variant, Iterable[Document]]) -> dict[Key, When]:
    """Each document of any variant, by what identifies it."""
    found: dict[Key, dict[Variant, Document]] = {}
    for variant, documents in by_variant.items():
        for document in documents:
            found.setdefault(key_of(document), {})[variant] = document
    everywhere = frozenset(by_variant)
    return {key: When(frozenset(each), everywhere, merged(each)) for key, each in found.items()}


def key_of(document: Document) -> Key:
    """What identifies a document of an installation."""
    return document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]


def merged(by_variant: Mapping[Variant, Any]) -> Any:
    """One value for all: dicts by their keys, lists by the names or places of their entries."""
    values = list(by_variant.values())
    if all(value == values[0] for value in values):
        return values[0]
    if all(isinstance(value, dict) for value in values):
        return _merged_fields(by_variant)
    if all(isinstance(value, list) for value in values):
        if all(map(_is_named, values)):
            named = {variant: {each["name"]: each for each in value} for variant, value in by_variant.items()}
            return list(_merged_fields(named).values())
        if len({len(value) for value in values}) == 1:
            return [
                merged({variant: by_variant[variant][at] for variant in by_variant}) for at in range(len(values[0]))
            ]
    if any(isinstance(value, dict | list) for value in values):
        raise ChartError(f"no template is made of a list without names that differs by profile: {values[0]!r:.200}")
    among = frozenset(by_variant)
    distinct = dict.fromkeys(values)
    return Choice(
        tuple(When(frozenset(it for it in among if by_variant[it] == value), among, value) for value in distinct)
    )


def _merged_fields(by_variant: Mapping[Variant, Mapping[str, Any]]) -> dict[str, Any]:
    among = frozenset(by_variant)
    result: dict[str, Any] = {}
    for name in dict.fromkeys(name for value in by_variant.values() for name in value):
        having = {variant: value[name] for variant, value in by_variant.items() if name in value}
        part = merged(having)
        result[name] = part if len(having) == len(among) else When(frozenset(having), among, part)
    return result


def _is_named(entries: list[Any]) -> bool:
    return all(isinstance(each, dict) and "name" in each for each in entries)


def in_order(part: Any) -> Any:
    """The part with the entries of each list sorted by name, where they have names: there order means nothing."""
    if isinstance(part, dict):
        return {name: in_order(each) for name, each in part.items()}
    if isinstance(part, list):
        return [in_order(each) for each in (sorted(part, key=lambda it: it["name"]) if _is_named(part) else part)]
    return part


def resolved(part: Any, variant: Variant) -> Any:
    """What the templates make of a merged part for one variant, with the values that the chart has by default."""
    match part:
        case When():
            return resolved(part.part, variant)
        case Choice():
            return next(option.part for option in part.options if variant in option.variants)
        case FromValues() | Expression():
            return part.default
        case dict():
            return {name: resolved(each, variant) for name, each in part.items() if _is_there(each, variant)}
        case list():
            there = [each for each in part if _is_there(each, variant)]
            return [entry for each in there for entry in _entries(each, variant)]
    return part


def _entries(entry: Any, variant: Variant) -> list[Any]:
    """What an entry of a list stands for."""
    found = resolved(entry, variant)
    return found if isinstance(entry, FromValues) else [found]


def _is_there(part: Any, variant: Variant) -> bool:
    if isinstance(part, When):
        return variant in part.variants
    return not isinstance(part, FromValues) or bool(part.default)


def condition(when: When) -> str:
    """The expression of a template that is true for these variants among those."""
    if (text := _product(when.variants, when.among)) is not None:
        return text
    if (text := _product(when.among - when.variants, when.among)) is not None:
        return f"not ({text})"
    raise ChartError(f"no simple condition tells these variants from others: {sorted(map(str, when.variants))}")


def _product(chosen: Collection[Variant], among: Collection[Variant]) -> str | None:
    """The conjunction of what the chosen ones have in common, where it is true for them alone."""
    names = [field.name for field in fields(Variant)]
    common = {name: {getattr(each, name) for each in chosen} for name in names}
    if {each for each in among if all(getattr(each, name) in common[name] for name in names)} != set(chosen):
        return None
    parts = []
    for name in names:
        if common[name] == {getattr(each, name) for each in among}:
            continue
        rest = {**common, name: {getattr(each, name) for each in among}}
        if {each for each in among if all(getattr(each, other) in rest[other] for other in names)} == set(chosen):
            common = rest  # follows from the others
            continue
        parts.append(_literal(name, common[name]))
    return parts[0] if len(parts) == 1 else "and " + " ".join(f"({part})" for part in parts)


def _literal(name: str, values: Collection[Any]) -> str:
    if name == "profile":
        chosen = [f'"{value}"' for value in PROFILES if value in values]
        return (
            f"eq $.Values.profile {chosen[0]}"
            if len(chosen) == 1
            else f"has $.Values.profile (list {' '.join(chosen)})"
        )
    head, *rest = name.split("_")
    path = f"$.Values.{head}{''.join(map(str.capitalize, rest))}.enabled"
    return path if True in values else f"not {path}"
