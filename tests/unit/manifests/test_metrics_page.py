"""docs/metrics.md names every metric that the code registers, with its type, labels and help; and no other."""

import importlib
import pkgutil
import re
from pathlib import Path

from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

import muster.controller
import muster.coordinator
import muster.kube


def registered() -> dict[str, tuple[str, str, str]]:
    """Name as scraped -> type, labels, help, of every metric of ours."""
    for room in (muster.controller, muster.coordinator, muster.kube):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    found = {}
    for collector in list(REGISTRY._collector_to_names):
        if not isinstance(collector, MetricWrapperBase):
            continue
        (family,) = collector.describe()
        if family.name.startswith("muster_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = ", ".join(f"`{label}`" for label in collector._labelnames)
            found[name] = (family.type, labels, family.documentation)
    return found


def test_page_tells_what_the_code_registers(root: Path) -> None:
    page = (root / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(muster_\w+)` \| (\w+) \| ([^|]*)\| ([^|]+) \|", page, re.MULTILINE)
    told = {name: (kind, labels.strip(), text) for name, kind, labels, text in rows}
    assert told == registered()
