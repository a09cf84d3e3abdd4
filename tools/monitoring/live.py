"""A real Prometheus for tests: it scrapes what runs, works out the shipped rules, and answers what dashboards ask.

Not a part of what is shipped. It scrapes every second, and its alerts fire at once: no test waits until something is
serious.
"""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from localcluster.controlplane import free_port
from monitoring.dashboards import DASHBOARDS, Panel, Query
from monitoring.prometheus import programs

SCRAPE_SECONDS = 1
START_SECONDS = 90.0
RULES = Path(__file__).resolve().parents[2] / "manifests/components/monitoring/rules.yaml"
NAME = re.compile(r"(?<![\w:$])((?:\w+:)*[a-z_]*muster[\w:]*|ALERTS|process_\w+)(?=\{|[^\w:]|$)")

Json = dict[str, Any]


def here(name: str, port: int, labels: Mapping[str, str], token: str = "") -> Json:
    """A scrape of a port of this machine; with a token over HTTPS, whatever the certificate."""
    guarded = {"scheme": "https", "authorization": {"credentials": token}, "tls_config": {"insecure_skip_verify": True}}
    return {
        **(guarded if token else {}),
        "job_name": name,
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": dict(labels)}],
    }


class Prometheus:
    """One that runs until it is closed.

    Args:
        folder: an empty one; who may read it may read what is in `scrapes`.
        scrapes: entries of Prometheus's own `scrape_configs`.
    """

    def __init__(self, folder: Path, scrapes: Sequence[Json]) -> None:
        self._port = free_port()
        self._scrapes = len(scrapes)
        rules = yaml.safe_load(RULES.read_text())["spec"]
        for group in rules["groups"]:
            group.pop("interval", None)
            for rule in group["rules"]:
                rule.pop("for", None)
        (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        every = {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"}
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": list(scrapes)}
        file = folder / "prometheus.yml"
        file.touch(mode=0o600)  # there may be a token in it
        file.write_text(yaml.safe_dump(config))
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(programs() / "prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def now(self, expr: str) -> list[Json]:
        """The series as of now, those with a number."""
        found = self._asked("query", query=expr)["result"]
        return [each for each in found if each["value"][1] != "NaN"]

    def lately(self, expr: str) -> list[Json]:
        """The series of the last half minute, those with a number."""
        end = time.time()
        found = self._asked("query_range", query=expr, start=end - 30, end=end, step=SCRAPE_SECONDS)["result"]
        return [each for each in found if any(value != "NaN" for _, value in each["values"])]

    def values_of(self, label: str, selector: str = "") -> set[str]:
        """What a label has, of the series that are selected."""
        return set(self._asked(f"label/{label}/values", **({"match[]": selector} if selector else {})))

    def rules(self) -> list[Json]:
        """Every recording rule and alert, with how its last evaluation went."""
        return [rule for group in self._asked("rules")["groups"] for rule in group["rules"]]

    def reaches_all(self) -> bool:
        """Whether the last scrape of each target went well, and each was scraped."""
        found = self._asked("targets")["activeTargets"]
        return len(found) == self._scrapes and all(each["health"] == "up" for each in found)

    def answers(self, panel: Panel, query: Query, chosen: Mapping[str, str]) -> bool:
        """Whether a panel's query has series, and they have what its legend names.

        Raises:
            AssertionError: Prometheus refuses the query, or its legend does not tell its series apart.
        """
        expr = put(query.expr, chosen)
        over_time = panel.kind in ("timeseries", "state-timeline")
        found = self.lately(expr) if over_time else self.now(expr)
        for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
            assert all(each["metric"].get(label) for each in found), (panel.title, expr, label, found)
        if panel.kind in ("timeseries", "stat") and "{{" not in query.legend:
            assert len(found) <= 1, (panel.title, expr, "one legend for several series", found)
        return bool(found)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _asked(self, what: str, **query: Any) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    found = json.load(answer)
                break
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError) and error.code != 503:  # then it reads its log
                    raise AssertionError(f"{query}: {error.read().decode()}") from error
                assert self._process.poll() is None, "Prometheus has ended"
                if time.monotonic() >= until:
                    raise
                time.sleep(0.2)
        assert found["status"] == "success", found
        return found["data"]


def put(expr: str, chosen: Mapping[str, str]) -> str:
    """A query as Grafana puts it, with what is chosen at the top of the page."""
    values = {"__rate_interval": "15s", "__range": "60s", **chosen}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


def asked(jobs: Sequence[Mapping[str, str]]) -> list[tuple[str, Panel, Query, Mapping[str, str]]]:
    """Every query of every page, by its page: one job's page for each of these jobs, the others for all namespaces."""
    return [
        (dashboard.uid, panel, query, job)
        for dashboard in DASHBOARDS
        for job in (jobs if dashboard.uid == "muster-job" else ({"namespace": ".*"},))
        for panel in dashboard.panels
        for query in panel.queries
    ]


def named(expr: str) -> set[str]:
    """The series that a query or a rule names, by the names that they are scraped or recorded under."""
    return set(NAME.findall(re.sub(r'"[^"]*"', '""', expr)))
