"""The page of messages: what it says of alerts."""

from apidocs.messages import RULES, messages

NAMES = [line.partition("alert: ")[2] for line in RULES.read_text("utf-8").splitlines() if "- alert: " in line]


def test_each_alert_has_an_entry_with_severity_expression_and_runbook() -> None:
    page = messages("")
    assert len(NAMES) > 20
    for name in NAMES:
        entry = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert "· severity " in entry, name
        assert "**What happened.** " in entry, name
        assert "**It fires.** When this holds for " in entry, name
        assert f"(../runbooks/{name}.md)" in entry, name


def test_what_prometheus_fills_in_is_shown_by_its_name() -> None:
    page = messages("")
    assert "{{" not in page
    assert "Node NODE becomes unhealthy again and again." in page
    assert "- [Alerts](#alerts)" in page
