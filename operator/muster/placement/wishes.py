"""What a pod template asks of its nodes, read once: selector, required node affinity, tolerations.

A template is anybody's, and the API server may not have looked at it yet: reading never raises. What has not the shape
of a pod is named with its field, and no node will do for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.world.views import NodeView, Taint

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = f"affinity.nodeAffinity.{_REQUIRED}"
_WORDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text"}
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
        """Whether it is about this taint."""
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
        """Whether labels, or fields, meet it; an operator that is unknown is met by none."""
        match = _OPERATORS.get(self.operator)
        return match is not None and match(of_node.get(self.key), self.values)


@dataclass(frozen=True, slots=True)
class Term:
    """One of several alternatives: all of its expressions hold. An empty one matches nothing."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()

    def matches(self, node: NodeView) -> bool:
        """Whether a node meets all of it."""
        if not self.labels and not self.fields:
            return False
        named = {"metadata.name": node.name}
        return all(each.matches(node.labels) for each in self.labels) and all(
            each.matches(named) for each in self.fields
        )


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a template asks of nodes.

    Attributes:
        selector: labels that a node must have.
        terms: alternatives of which a node must meet one; None where nothing is asked.
        tolerations: in their order.
        problem: the first field that has not the shape of a pod, and what it needs; "" when all have.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    problem: str = ""

    @property
    def label_keys(self) -> tuple[str, ...] | None:
        """The labels that decide whether a node is selected; None where its name does, too."""
        terms = self.terms or ()
        if any(term.fields for term in terms):
            return None
        keys = {key for key, _ in self.selector}
        return tuple(sorted(keys.union(each.key for term in terms for each in term.labels)))

    def select(self, node: NodeView) -> bool:
        """Whether selector and affinity allow the node."""
        if any(node.labels.get(key) != value for key, value in self.selector):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)

    def tolerate(self, taint: Taint) -> bool:
        """Whether a toleration is about this taint."""
        return any(toleration.tolerates(taint) for toleration in self.tolerations)


def wishes(spec: Mapping[str, Any]) -> Wishes:
    """What a pod spec (as parsed from YAML or JSON) asks of nodes; null counts as absent everywhere."""
    try:
        selector = _object(spec, "nodeSelector", "nodeSelector")
        labels = tuple(sorted((key, _text(value, f"nodeSelector.{key}")) for key, value in selector.items()))
        return Wishes(labels, _terms(spec), _tolerations(spec))
    except _MisshapenError as error:
        return Wishes(problem=str(error))


class _MisshapenError(ValueError):
    def __init__(self, where: str, kind: type, value: object) -> None:
        super().__init__(f"{where}: {_WORDS[kind]} is needed, not {type(value).__name__}")


def _terms(spec: Mapping[str, Any]) -> tuple[Term, ...] | None:
    affinity = _object(_object(spec, "affinity", "affinity"), "nodeAffinity", "affinity.nodeAffinity")
    required = _object(affinity, _REQUIRED, _AFFINITY)
    if not required:
        return None
    where = f"{_AFFINITY}.nodeSelectorTerms"
    return tuple(
        Term(_expressions(term, "matchExpressions", at), _expressions(term, "matchFields", at))
        for term, at in _objects(required.get("nodeSelectorTerms"), where)
    )


def _expressions(term: Mapping[str, Any], name: str, where: str) -> tuple[Expression, ...]:
    return tuple(
        Expression(
            _text(each.get("key"), f"{at}.key"),
            _text(each.get("operator"), f"{at}.operator"),
            tuple(_text(value, f"{at}.values") for value in _list(each.get("values"), f"{at}.values")),
        )
        for each, at in _objects(term.get(name), f"{where}.{name}")
    )


def _tolerations(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=_optional(each, "key", at),
            operator=_optional(each, "operator", at) or "Equal",
            value=_optional(each, "value", at),
            effect=_optional(each, "effect", at),
        )
        for each, at in _objects(spec.get("tolerations"), "tolerations")
    )


def _optional(parent: Mapping[str, Any], name: str, where: str) -> str:
    value = parent.get(name)
    return "" if value is None else _text(value, f"{where}.{name}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _MisshapenError(where, str, value)
    return value


def _object(parent: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _MisshapenError(where, dict, value)
    return value


def _list(value: object, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _MisshapenError(where, list, value)
    return value


def _objects(value: object, where: str) -> list[tuple[Mapping[str, Any], str]]:
    """The objects of a list, each with where it stands."""
    found: list[tuple[Mapping[str, Any], str]] = []
    for number, each in enumerate(_list(value, where)):
        at = f"{where}[{number}]"
        if not isinstance(each, dict):
            raise _MisshapenError(at, dict, each)
        found.append((each, at))
    return found


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
