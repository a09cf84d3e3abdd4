"""The dashboards are what their table says, what Grafana's types allow, and name only what there is.

grafana.schema.json is those types; it says where they are from. What a type does not say (places that overlap, ids that
are there twice, queries without a source) is looked at beside it.
"""

import json
import re
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from monitoring.dashboards import COLUMNS, DASHBOARDS, FOLDER, PAGE, listed, rendered
from monitoring.page import registered
from muster.api.nodehealth import VerdictState

MONITORING = "manifests/components/monitoring"
SCHEMA = Path(__file__).with_name("grafana.schema.json")
# What Prometheus has beside the operator's own, and the labels of it that are asked for.
OTHERS = {
    "ALERTS": {"alertname", "alertstate", "severity", "namespace", "job_name", "node", "reason"},
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
}
TARGET = {"instance", "node"}
"""What a scrape adds; `node` by the PodMonitor of the agents."""
NAME = re.compile(r"(?<![\w:$])((?:\w+:)*[a-z_]*muster[\w:]*|ALERTS|process_\w+)(?:\{([^}]*)\})?")


@pytest.fixture(scope="module")
def pages(root: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((root / FOLDER).glob("*.json"))}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text())
    return found


@pytest.fixture(scope="module")
def rules(root: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load((root / MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def known(root: Path, rules: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Name of a series -> its labels."""
    found = dict(OTHERS)
    for name, (kind, labels, _) in registered().items():
        if kind == "histogram":
            found[f"{name}_bucket"] = {*labels, "le"}
            found[f"{name}_count"] = found[f"{name}_sum"] = set(labels)
        else:
            found[name] = set(labels)
    for rule in rules:
        if "record" in rule:
            found[rule["record"]] = (
                {"namespace", "job_name"} if rule["record"].startswith("namespace_job_name:") else set()
            )
    agent = (root / "operator/muster/node/agent/agent.py").read_text()
    for name, labels in re.findall(r'\(\s*"(muster_(?:agent|gpu)_\w+)",.*?,\s*(evidence|per_gpu|\[)', agent, re.DOTALL):
        found[name] = {"evidence": {"kind"}, "per_gpu": {"gpu"}, "[": set[str]()}[labels]
    assert {"muster_agent_gpus", "muster_gpu_power_watts", "muster_agent_evidence"} <= set(found)
    return found


def drawn(page: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in page["panels"] if panel["type"] != "row"]


def expressions(page: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in drawn(page) for target in panel["targets"]]


def test_the_files_are_what_their_table_says(root: Path, pages: dict[str, Any]) -> None:
    assert set(pages) == {each.uid for each in DASHBOARDS}
    for each in DASHBOARDS:
        assert (root / FOLDER / f"{each.uid}.json").read_text() == rendered(each), "run `make generate`"
    assert (root / PAGE).read_text() == listed((root / PAGE).read_text()), "run `make generate`"


def test_grafanas_types_allow_every_page_and_every_panel(pages: dict[str, Any], schema: dict[str, Any]) -> None:
    whole = fastjsonschema.compile(schema)
    parts = {
        name: fastjsonschema.compile({**schema, "$ref": f"#/definitions/{name}"})
        for name in schema["definitions"]
        if name.endswith((".Options", ".FieldConfig"))
    }
    for page in pages.values():
        whole(page)
        for panel in drawn(page):
            parts[f"{panel['type']}.Options"](panel["options"])
            custom = panel["fieldConfig"]["defaults"].get("custom")
            if custom is not None:
                parts[f"{panel['type']}.FieldConfig"](custom)


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        (("panels", 1, "gridPos", "w"), "x"),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "relative"),
        (("panels", 1, "unheard"), 1),
        (("templating", "list", 0, "type"), "source"),
        (("links", 0, "type"), "tags"),
    ],
)
def test_grafanas_types_would_refuse_what_is_wrong(
    pages: dict[str, Any], schema: dict[str, Any], where: tuple[str | int, ...], wrong: object
) -> None:
    page = json.loads(json.dumps(pages["muster-job"]))
    inner = page
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = wrong
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        fastjsonschema.compile(schema)(page)


def test_panels_have_ids_places_and_queries_of_their_own(pages: dict[str, Any]) -> None:
    for uid, page in pages.items():
        assert page["uid"] == uid
        ids = [panel["id"] for panel in page["panels"]]
        assert len(set(ids)) == len(ids)
        titles = [panel["title"] for panel in drawn(page)]
        assert len(set(titles)) == len(titles), uid
        taken: set[tuple[int, int]] = set()
        for panel in page["panels"]:
            place = panel["gridPos"]
            assert place["w"] > 0
            assert place["h"] > 0
            assert place["x"] + place["w"] <= COLUMNS
            cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
            assert not taken & cells, (uid, panel["title"])
            taken |= cells
        for panel in drawn(page):
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            letters = [target["refId"] for target in panel["targets"]]
            assert letters
            assert len(set(letters)) == len(letters)
            for target in panel["targets"]:
                assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
                assert target["instant"] is not target["range"]
                assert len(panel["targets"]) == 1 or target["legendFormat"] != "__auto", panel["title"]
        first = next(panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0] for panel in drawn(page))
        assert first["value"] is None


def test_queries_name_series_and_labels_that_there_are(pages: dict[str, Any], known: dict[str, set[str]]) -> None:
    of_all = {label for labels in known.values() for label in labels} | TARGET
    for page in pages.values():
        asked = [
            *expressions(page),
            *(each["query"]["query"] for each in page["templating"]["list"] if each["type"] == "query"),
        ]
        for expr in asked:
            named = NAME.findall(expr)
            assert named, expr
            for name, selector in named:
                assert name in known, (name, expr)
                assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) <= known[name], (name, expr)
            for labels in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expr):
                assert {label.strip() for label in labels.split(",") if label.strip()} <= of_all, expr


def test_states_that_are_asked_for_are_there(root: Path, pages: dict[str, Any]) -> None:
    """A misspelt one would be a 0 for ever."""
    states = (root / "docs/troubleshooting.md").read_text().partition("## States")[2].partition("\n## ")[0]
    of_jobs = {word for row in re.findall(r"^\| ([A-Z][\w, ]+) \|", states, re.MULTILINE) for word in row.split(", ")}
    of_nodes = {*map(str, VerdictState), "Unknown"}
    asked = "\n".join(expr for page in pages.values() for expr in expressions(page))
    found = re.findall(r'(muster_jobs?|muster_nodes)(?:_state)?\{state(?:=|!=|=~)"([^"]+)"', asked)
    assert {name for name, _ in found} == {"muster_jobs", "muster_nodes"}
    for name, value in found:
        assert set(value.split("|")) <= (of_nodes if name == "muster_nodes" else of_jobs), value


def test_queries_use_the_variables_that_their_page_has(pages: dict[str, Any]) -> None:
    for page in pages.values():
        variables = {each["name"]: each for each in page["templating"]["list"]}
        asked = "\n".join([*expressions(page), *(str(each["query"]) for each in variables.values())])
        used = set(re.findall(r"\$(\w+)", asked)) - {"__rate_interval", "__range"}
        assert used == set(variables) - {"datasource"}, page["uid"]
        for name, variable in variables.items():
            if variable.get("multi"):  # several are joined as a regular expression
                assert f'="${name}"' not in asked, name
                assert variable["includeAll"]


def test_runbooks_and_alerts_that_are_named_are_there_and_alerts_lead_to_pages(
    root: Path, pages: dict[str, Any], rules: list[dict[str, Any]]
) -> None:
    of_panels = {
        name
        for page in pages.values()
        for panel in drawn(page)
        for name in re.findall(r"docs/[\w/-]+\.md", panel["description"])
    }
    assert all((root / name).is_file() for name in of_panels), of_panels
    alerts = {rule["alert"]: rule["annotations"]["dashboard_url"] for rule in rules if "alert" in rule}
    assert {Path(name).stem for name in of_panels if "/runbooks/" in name} == set(alerts), "each is found from a panel"
    for alert, url in alerts.items():
        uid = re.match(r"d/([\w-]+)", url)[1]  # type: ignore[index]
        names = {each["name"] for each in pages[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", url)) <= names, alert
        assert f"docs/runbooks/{alert}.md" in "".join(panel["description"] for panel in drawn(pages[uid])), alert


def test_each_page_is_shipped_where_the_sidecar_looks(root: Path, pages: dict[str, Any]) -> None:
    shipped = yaml.safe_load((root / MONITORING / "kustomization.yaml").read_text())
    assert shipped["generatorOptions"]["disableNameSuffixHash"] is True
    assert shipped["generatorOptions"]["labels"]["grafana_dashboard"] == "1"
    files = [file for each in shipped["configMapGenerator"] for file in each["files"]]
    assert files == [f"dashboards/{uid}.json" for uid in pages]
    assert all(each["namespace"] == "muster-system" for each in shipped["configMapGenerator"])
    # `kubectl apply` keeps what it applied in an annotation, and all of these are 256 KiB at most.
    assert all((root / MONITORING / file).stat().st_size < 200_000 for file in files)
