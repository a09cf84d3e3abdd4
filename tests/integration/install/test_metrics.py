"""The operator's metrics on a real API server with real tokens, read as the shipped ServiceMonitor reads them."""

import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.install.scraping import READER, read
from tests.integration.install.test_profiles import a_record, report

from apidocs.messages import JOBS_GROUP
from monitoring.live import RULES, SCRAPE_SECONDS, Prometheus, here, named

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"


def test_a_token_with_the_right_and_no_other_reads_metrics(
    installation: Any, scraper: Callable[..., str], wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()
    port = replica.metrics_port
    prometheus, tenant = scraper("prometheus", may_read=True), scraper("tenant", may_read=False)
    assert read(installation, port, "")[0] == 401
    assert read(installation, port, "forged")[0] == 401
    status, text = read(installation, port, tenant)
    assert (status, READER in text) == (403, True)
    # A right is in effect a moment after its binding, and a refusal is kept for a while: the first answer may be one.
    status, text = wait_until(lambda: _allowed(read(installation, port, prometheus)), "the right counts")
    assert "\nmuster_is_leader 1.0\n" in text
    (expiry,) = re.findall(r"^muster_certificate_expiry_timestamp_seconds (\S+)$", text, re.MULTILINE)
    assert 13 < (float(expiry) - time.time()) / 86400 <= 14
    assert replica.get("/metrics")[0] == 404, "nothing is told without a token"
    codes = {(each["resource"], each["code"]) for each in map(dict, replica.samples("muster_api_requests_total"))}
    assert ("subjectaccessreviews", "201") in codes
    assert not [resource for resource, code in codes if code == "403"]


def _allowed(answer: tuple[int, str]) -> tuple[int, str] | None:
    return answer if answer[0] == 200 else None


@pytest.mark.parametrize("profile", ["observe", "health"])
def test_without_jobs_no_alert_fires_and_each_that_is_not_of_jobs_has_its_series(
    installation: Any, profile: str, scraper: Callable[..., str], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Every rule of a Prometheus that scrapes two replicas as components/monitoring-self-signed says."""
    assert scraped_by("monitoring-self-signed", installation, tmp_path)["tlsConfig"] == {"insecureSkipVerify": True}
    first = installation.start_leader(MUSTER_PROFILE=profile)
    second = installation.start(installation.operator_pods()[1], MUSTER_PROFILE=profile)
    token = scraper("prometheus", may_read=True)
    replicas = [here(each.pod, each.metrics_port, {"instance": each.pod}, token) for each in (first, second)]
    with ExitStack() as stack:
        for node in ("node-a", "node-b"):  # their agents have reported
            stack.enter_context(a_record(installation, node))
            report(installation, boot="1", node=node)
        prometheus = Prometheus(tmp_path, replicas)
        stack.callback(prometheus.close)
        wait_until(prometheus.reaches_all, "both are scraped")
        wait_until(lambda: prometheus.now("muster_admission_policy_missing"), "the operator has asked")
        wait_until(lambda: not prometheus.now("ALERTS"), "there was no leader before the first scrape")
        time.sleep(5 * SCRAPE_SECONDS)
        # An answer that is a second late is missed, and alerts fire at once here: one that is about that does not stay.
        wait_until(lambda: not prometheus.now("ALERTS"), "no alert stays")
        assert all(rule["health"] == "ok" for rule in prometheus.rules())
        shown = prometheus.values_of("__name__")
    # Of the agents, of nodes with incidents, and of accounts: MusterHistoryLost is also about other records.
    absent = {"muster_agent_write_errors_total", "muster_node_offence_score", "muster_history_writes_total"}
    assert series_of_alerts_for_all() - shown == absent


def scraped_by(component: str, installation: Any, folder: Path) -> Any:
    """The endpoint of the operator's ServiceMonitor in an overlay with this component."""
    parts = {"resources": ["overlays/default"], "components": [f"components/{component}"]}
    overlay = {
        key: [os.path.relpath(MANIFESTS / part, folder.resolve()) for part in these] for key, these in parts.items()
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    rendered = yaml.safe_load_all(installation.kubectl("kustomize", str(folder)))
    (monitor,) = [each for each in rendered if each["kind"] == "ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    return endpoint


def series_of_alerts_for_all() -> set[str]:
    """What the alerts for every profile read of a scrape, by themselves or by records."""
    groups = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    records = {rule["record"]: named(rule["expr"]) for group in groups for rule in group["rules"] if "record" in rule}
    rules = [rule for group in groups if group["name"] != JOBS_GROUP for rule in group["rules"] if "alert" in rule]
    read = {name for rule in rules for name in named(rule["expr"])}
    return {series for name in read for series in records.get(name, {name})}
