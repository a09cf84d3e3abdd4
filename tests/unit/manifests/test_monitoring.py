"""Rules, runbooks and scrapes belong together: nothing is named that the code does not have."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import muster.node.agent.agent
from apidocs.messages import JOBS_GROUP
from monitoring.page import registered
from muster.cli.main import Commands
from muster.controller.jobfigures import ALERTED

HEADINGS = ["What it means", "What is at stake", "Check", "Do", "When to escalate"]
FOLDER = "manifests/components/monitoring"


@pytest.fixture(scope="module")
def rules(root: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load((root / FOLDER / "rules.yaml").read_text())["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for rule in rules if "alert" in rule]


def group_of_jobs(root: Path) -> list[dict[str, Any]]:
    """The alerts that need profile jobs."""
    groups = yaml.safe_load((root / FOLDER / "rules.yaml").read_text())["spec"]["groups"]
    (rules,) = [group["rules"] for group in groups if group["name"] == JOBS_GROUP]
    return [rule for rule in rules if "alert" in rule]


def test_each_alert_has_its_runbook_and_each_runbook_its_alert(root: Path, rules: list[dict[str, Any]]) -> None:
    for rule in alerts(rules):
        address = '{{ with query "muster:runbooks:info" }}{{ . | first | label "address" }}{{ end }}'
        assert rule["annotations"]["runbook_url"] == f"{address}/{rule['alert']}.md"
    pages = {path.stem for path in (root / "docs/runbooks").glob("*.md")} - {"README"}
    assert pages == {rule["alert"] for rule in alerts(rules)}
    listed = re.findall(r"^\| \[(\w+)\]\S+ \| (\S+) \|", (root / "docs/runbooks/README.md").read_text(), re.MULTILINE)
    of_jobs = {rule["alert"] for rule in group_of_jobs(root)}
    assert dict(listed) == {page: "`jobs`" if page in of_jobs else "all" for page in pages}
    for page in pages:
        text = (root / f"docs/runbooks/{page}.md").read_text()
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS, page
        assert re.search(r"^    kubectl ", text, re.MULTILINE), page


def test_what_runbooks_say_to_type_can_be_typed(root: Path) -> None:
    commands, typed = Commands(), 0
    for page in sorted((root / "docs/runbooks").glob("Muster*.md")):
        for found in re.findall(r"(?:^    |`)kubectl muster ([^`\n]+)", page.read_text(), re.MULTILINE):
            name, *words = shlex.split(found.partition("|")[0], comments=True)
            if words:
                commands[name].make_context(name, [word.removesuffix("...") for word in words])
                typed += 1
    assert typed > 20


def test_each_alert_waits_has_a_severity_and_says_what_it_is(rules: list[dict[str, Any]]) -> None:
    for rule in alerts(rules):
        assert rule["for"], rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["labels"]["owner"] in ("platform", "job")
        assert (rule["labels"]["severity"], rule["labels"]["owner"]) != ("critical", "job"), (
            "nobody's typo wakes others"
        )
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url", "dashboard_url"}


def test_the_address_of_all_runbooks_is_one_value_that_an_overlay_sets(root: Path, rules: list[dict[str, Any]]) -> None:
    """As docs/metrics.md shows it."""
    page = (root / "docs/metrics.md").read_text()
    (path,) = re.findall(r"^ +path: (/spec/groups/\S+)$", page, re.MULTILINE)
    found: Any = yaml.safe_load((root / FOLDER / "rules.yaml").read_text())
    for key in path.strip("/").split("/"):
        found = found[int(key) if isinstance(found, list) else key]
    assert found.startswith("https://muster.invalid/"), "no address that somebody else may own"
    assert (root / FOLDER / "rules.yaml").read_text().count("https://") == 1


def test_rules_name_metrics_and_labels_that_there_are(rules: list[dict[str, Any]]) -> None:
    known = {name: set(labels) for name, (_, labels, _) in registered().items()}
    # What the agent serves is no library's.
    agent = Path(muster.node.agent.agent.__file__).read_text()
    known |= {name: set() for name in re.findall(r'"(muster_agent_\w+)",\s*"(?:gauge|counter)"', agent)}
    known["muster_agent_write_errors_total"] = {"reason"}
    known["muster_gpu_energy_joules_total"] = {"gpu"}  # the agent's
    recorded = {rule["record"] for rule in rules if "record" in rule}
    for rule in rules:
        for name, selector in re.findall(
            r"((?:\w+:)*\w*muster_\w+(?::\w+)*|muster:[\w:]+)(?:\{([^}]*)\})?", rule["expr"]
        ):
            if ":" in name:
                assert name in recorded, rule
                continue
            assert name in known, rule
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) <= known[name], rule
    of_all = {label for labels in known.values() for label in labels} | {
        "instance",
        "gpu",
    }  # of a scrape and the DCGM exporter
    for rule in rules:
        for labels in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", rule["expr"]):
            assert {label.strip() for label in labels.split(",") if label.strip()} <= of_all, rule


def test_reasons_of_jobs_that_rules_ask_for_are_told_however_many_others_are(rules: list[dict[str, Any]]) -> None:
    asked = {
        reason for rule in rules for reason in re.findall(r'muster_job_state\{[^}]*reason="([^"]*)"', rule["expr"])
    }
    assert asked == ALERTED


def test_scrapes_select_what_the_installation_has(root: Path, installed: list[dict[str, Any]]) -> None:
    monitors = {
        each["metadata"]["name"]: each for each in yaml.safe_load_all((root / FOLDER / "monitors.yaml").read_text())
    }
    selector = monitors["muster"]["spec"]["selector"]["matchLabels"].items()
    services = [each for each in installed if each["kind"] == "Service"]
    services = [each for each in services if selector <= each["metadata"]["labels"].items()]
    (endpoint,) = monitors["muster"]["spec"]["endpoints"]
    ports = [port["name"] for service in services for port in service["spec"]["ports"]]
    assert ports.count(endpoint["port"]) == 1
    assert endpoint["honorLabels"] is True
    daemons = next(each for each in installed if each["kind"] == "DaemonSet")["spec"]["template"]
    page = yaml.safe_load_all((root / "manifests/components/page/page.yaml").read_text())
    (deployment,) = [each for each in page if each["kind"] == "Deployment"]
    assert monitors["muster-page"]["spec"]["namespaceSelector"]["matchNames"] == [deployment["metadata"]["namespace"]]
    for name, template in (("muster-agent", daemons), ("muster-page", deployment["spec"]["template"])):
        pods = monitors[name]["spec"]
        assert pods["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        named = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        assert {each["port"] for each in pods["podMetricsEndpoints"]} <= named


def test_the_component_has_every_file(root: Path) -> None:
    listed = yaml.safe_load((root / FOLDER / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == {path.name for path in (root / FOLDER).glob("*.yaml")} - {"kustomization.yaml"}
