"""The scheduling constraints of a pod template, read once: selector, required node affinity, tolerations.

A template is written by any tenant, and the API server may not have checked it yet: reading never raises. A field
without the shape of a pod, or longer than any pod needs, is named, and no node fits the template. That bounds the cost
of a plan, which asks every kind of node what a template makes of it.

Tests: tests/unit/placement/test_eligibility.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.world.views import NodeView, Taint

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = f"affinity.nodeAffinity.{_REQUIRED}"
_WORDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text"}
# Of each kind in one template, those of all terms together.
MAX_TOLERATIONS = 64
MAX_SELECTED = 64
MAX_TERMS = 64
MAX_EXPRESSIONS = 64
MAX_VALUES = 1024
# Kubernetes compares labels as 64-bit numbers; Python would work for a long time on longer ones.
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration; "" where a field is absent."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the toleration covers this taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator == "Equal" and bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, of_node: Mapping[str, str]) -> bool:
        """Whether a node's labels, or fields, meet the expression; none meet an unknown operator."""
        match = _OPERATORS.get(self.operator)
        return match is not None and match(of_node.get(self.key), self.values)


@dataclass(frozen=True, slots=True)
class Term:
    """One of several alternatives: all of its expressions must hold. A term without expressions matches nothing."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()

    def matches(self, node: NodeView) -> bool:
        """Whether a node meets all expressions of the term."""
        if not self.labels and not self.fields:
            return False
        named = {"metadata.name": node.name}
        return all(expression.matches(node.labels) for expression in self.labels) and all(
            expression.matches(named) for expression in self.fields
        )


@dataclass(frozen=True, slots=True)
class SchedulingConstraints:
    """The scheduling constraints of a template.

    Attributes:
        selector: labels that a node must have.
        terms: alternatives of which a node must meet one; None where nothing is asked.
        tolerations: in their order.
        problem: the first field that has not the shape of a pod, or is too long, and what it needs; "" when there is
            none.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    problem: str = ""

    @property
    def label_keys(self) -> tuple[str, ...] | None:
        """The label keys that decide whether a node is selected; None where the node's name does, too."""
        terms = self.terms or ()
        if any(term.fields for term in terms):
            return None
        keys = {key for key, _ in self.selector}
        return tuple(sorted(keys.union(expression.key for term in terms for expression in term.labels)))

    def select(self, node: NodeView) -> bool:
        """Whether selector and affinity allow the node."""
        if any(node.labels.get(key) != value for key, value in self.selector):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)

    def tolerate(self, taint: Taint) -> bool:
        """Whether any toleration covers this taint."""
        return any(toleration.tolerates(taint) for toleration in self.tolerations)


def read_constraints(spec: Mapping[str, Any]) -> SchedulingConstraints:
    """Read the scheduling constraints of a pod spec (as parsed from YAML or JSON); null counts as absent everywhere."""
    try:
        selector = _object(spec, "nodeSelector", "nodeSelector")
        _check_count(
            "nodeSelector", len(selector), MAX_SELECTED, "labels; give the nodes that are meant one of their own"
        )
        labels = tuple(sorted((key, _text(value, f"nodeSelector.{key}")) for key, value in selector.items()))
        return SchedulingConstraints(labels, _terms(spec), _tolerations(spec))
    except _UnreadError as error:
        return SchedulingConstraints(problem=str(error))


class _UnreadError(ValueError):
    """A field of a template cannot be read; the message names the field and what it needs."""


def _misshapen(where: str, kind: type, value: object) -> _UnreadError:
    return _UnreadError(f"{where}: {_WORDS[kind]} is needed, not {type(value).__name__}")


def _check_count(where: str, count: int, most: int, remedy: str) -> None:
    if count > most:
        raise _UnreadError(f"{where}: {count} are too many, Muster takes at most {most} {remedy}")


def _terms(spec: Mapping[str, Any]) -> tuple[Term, ...] | None:
    affinity = _object(_object(spec, "affinity", "affinity"), "nodeAffinity", "affinity.nodeAffinity")
    required = _object(affinity, _REQUIRED, _AFFINITY)
    if not required:
        return None
    where = f"{_AFFINITY}.nodeSelectorTerms"
    listed = _list(required.get("nodeSelectorTerms"), where)
    _check_count(where, len(listed), MAX_TERMS, "terms; give the nodes that are meant a label and select that")
    terms, held = [], _ExpressionCount()
    for term, at in _objects(listed, where):
        labels = _expressions(term, "matchExpressions", at, held)
        terms.append(Term(labels, _expressions(term, "matchFields", at, held)))
    return tuple(terms)


class _ExpressionCount:
    """Counts what the terms of one template contain together, against limits."""

    def __init__(self) -> None:
        self.expressions = self.values = 0

    def count(self, where: str, expressions: int = 0, values: int = 0) -> None:
        self.expressions += expressions
        self.values += values
        remedy = "in all terms together; give the nodes that are meant a label and select that"
        _check_count(where, self.expressions, MAX_EXPRESSIONS, f"expressions {remedy}")
        _check_count(f"{where}.values" if values else where, self.values, MAX_VALUES, f"values {remedy}")


def _expressions(term: Mapping[str, Any], name: str, where: str, held: _ExpressionCount) -> tuple[Expression, ...]:
    listed, expressions = _list(term.get(name), f"{where}.{name}"), []
    held.count(f"{where}.{name}", expressions=len(listed))
    for raw, at in _objects(listed, f"{where}.{name}"):
        values = _list(raw.get("values"), f"{at}.values")
        held.count(at, values=len(values))
        key, operator = _text(raw.get("key"), f"{at}.key"), _text(raw.get("operator"), f"{at}.operator")
        expressions.append(Expression(key, operator, tuple(_text(value, f"{at}.values") for value in values)))
    return tuple(expressions)


def _tolerations(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    listed = _list(spec.get("tolerations"), "tolerations")
    _check_count("tolerations", len(listed), MAX_TOLERATIONS, "tolerations; one with operator Exists stands for many")
    return tuple(
        Toleration(
            key=_optional(raw, "key", at),
            operator=_optional(raw, "operator", at) or "Equal",
            value=_optional(raw, "value", at),
            effect=_optional(raw, "effect", at),
        )
        for raw, at in _objects(listed, "tolerations")
    )


def _optional(parent: Mapping[str, Any], name: str, where: str) -> str:
    value = parent.get(name)
    return "" if value is None else _text(value, f"{where}.{name}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _misshapen(where, str, value)
    return value


def _object(parent: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _misshapen(where, dict, value)
    return value


def _list(value: object, where: str) -> Sequence[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _misshapen(where, list, value)
    return value


def _objects(value: object, where: str) -> list[tuple[Mapping[str, Any], str]]:
    """The objects of a list, each with its field path."""
    objects: list[tuple[Mapping[str, Any], str]] = []
    for number, item in enumerate(_list(value, where)):
        at = f"{where}[{number}]"
        if not isinstance(item, dict):
            raise _misshapen(at, dict, item)
        objects.append((item, at))
    return objects


def _compare(value: str | None, wanted: Sequence[str], test: Callable[[int, int], bool]) -> bool:
    if value is None or len(wanted) != 1 or max(len(value), len(wanted[0])) > _MAX_DIGITS + 1:
        return False
    try:
        return test(int(value), int(wanted[0]))
    except ValueError:
        return False


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, wanted: value is not None and value in wanted,
    "NotIn": lambda value, wanted: value is None or value not in wanted,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, wanted: _compare(value, wanted, int.__gt__),
    "Lt": lambda value, wanted: _compare(value, wanted, int.__lt__),
}
