"""One template for all variants: what differs is there under a condition, and the condition is never wrong."""

from typing import Any

import pytest
import yaml

from chart.emit import template
from chart.merge import Expression, FromValues, When, condition, in_order, merged_documents, resolved
from chart.variants import ChartError, Variant, variants

ALL = frozenset(variants())
KEY = ("Deployment", "", "it")


def a_document(**spec: Any) -> dict[str, Any]:
    return {"kind": "Deployment", "metadata": {"name": "it"}, "spec": spec}


def text_of(**by_profile: dict[str, Any]) -> str:
    """The template of documents of these profiles."""
    documents = {Variant(profile.replace("_", "-")): [a_document(**spec)] for profile, spec in by_profile.items()}
    return template(merged_documents(documents)[KEY])


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (lambda it: it.profile == "jobs", 'eq $.Values.profile "jobs"'),
        (lambda it: it.profile in ("burn-in", "jobs"), 'has $.Values.profile (list "burn-in" "jobs")'),
        (lambda it: it.checkers, "$.Values.checkers.enabled"),
        (lambda it: not it.cert_manager, "not $.Values.certManager.enabled"),
        (
            lambda it: it.profile != "observe" and it.node_marks,
            'and (has $.Values.profile (list "health" "burn-in" "jobs")) ($.Values.nodeMarks.enabled)',
        ),
        (
            lambda it: not (it.page and it.monitoring),
            "not (and ($.Values.page.enabled) ($.Values.monitoring.enabled))",
        ),
    ],
)
def test_a_set_of_variants_is_a_condition_of_their_values(chosen: Any, expected: str) -> None:
    assert condition(When(frozenset(filter(chosen, ALL)), ALL, None)) == expected


def test_a_set_that_no_simple_condition_describes_is_refused() -> None:
    odd = frozenset(it for it in ALL if it.page == it.monitoring)
    with pytest.raises(ChartError, match="no simple condition"):
        condition(When(odd, ALL, None))


def test_a_document_that_is_the_same_everywhere_has_no_condition() -> None:
    assert yaml.safe_load(text_of(observe={"a": 1}, health={"a": 1})) == a_document(a=1)


def test_a_document_of_one_profile_is_under_its_condition() -> None:
    by_variant = {Variant("observe"): [], Variant("health"): [a_document()]}
    text = template(merged_documents(by_variant)[KEY])
    assert (lines_of(text)[0], lines_of(text)[-1]) == ('{{- if eq $.Values.profile "health" }}', "{{- end }}")


def test_fields_and_named_entries_differ_by_conditions() -> None:
    text = text_of(
        observe={"env": [{"name": "P", "value": "o"}]},
        health={"env": [{"name": "Q", "value": "x"}, {"name": "P", "value": "h"}], "paused": True},
    )
    when = '{{- if eq $.Values.profile "health" }}'
    assert lines_of(text)[4:] == [
        *("env:", "- name: P", 'value: {{ if eq $.Values.profile "observe" }}o{{ else }}h{{ end }}'),
        *(when, "- name: Q", "value: x", "{{- end }}", when, "paused: true", "{{- end }}"),
    ]


def test_lists_without_names_that_differ_are_refused() -> None:
    with pytest.raises(ChartError, match="a list without names"):
        text_of(observe={"args": ["a"]}, health={"args": ["a", "b"]})


def test_what_is_merged_resolves_to_what_each_variant_has() -> None:
    specs = {
        Variant("observe"): {"env": [{"name": "P", "value": "o"}], "ports": [{"port": 1}]},
        Variant("health"): {"env": [{"name": "Q"}, {"name": "P", "value": "h"}], "ports": [{"port": 2}]},
        Variant("jobs"): {"env": [], "ports": [{"port": 2, "tls": {}}]},
    }
    by_variant = {variant: [a_document(**spec)] for variant, spec in specs.items()}
    (merged,) = merged_documents(by_variant).values()
    for variant, (document,) in by_variant.items():
        assert in_order(resolved(merged, variant)) == in_order(document)


def test_a_value_replaces_a_field_with_its_indent() -> None:
    text = text_of(
        observe={"pod": {"resources": FromValues("agent.resources", {"cpu": 1}), "class": FromValues("a.class", "x")}}
    )
    assert text.splitlines()[5:] == [
        *("{{- with $.Values.agent.resources }}", "    resources:", "      {{- toYaml . | nindent 6 }}", "{{- end }}"),
        *("{{- with $.Values.a.class }}", "    class: {{ . }}", "{{- end }}"),
    ]


def test_entries_of_a_value_follow_those_that_are_there() -> None:
    entries = [{"a": 1}, FromValues("operator.tolerations", [{"b": 2}])]
    assert text_of(observe={"tolerations": entries}).splitlines()[4:] == [
        *("  tolerations:", "  - a: 1", "{{- with $.Values.operator.tolerations }}"),
        *("  {{- toYaml . | nindent 2 }}", "{{- end }}"),
    ]
    assert resolved(entries, Variant("observe")) == [{"a": 1}, {"b": 2}]


def test_braces_of_the_documents_themselves_are_no_template() -> None:
    text = text_of(observe={"summary": "on {{ $labels.node }}", "image": Expression("{{ image }}", "x")})
    assert lines_of(text)[4:] == ['summary: on {{ "{{" }} $labels.node }}', "image: {{ image }}"]
