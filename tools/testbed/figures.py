"""A real Prometheus beside the cluster: it scrapes the operators and agents that run there, as the shipped monitors
say."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from monitoring.live import Prometheus, here
from testbed.bed import ROOT, Bed

MONITORS = ROOT / "manifests" / "components" / "monitoring" / "monitors.yaml"


@contextmanager
def watched(bed: Bed, folder: Path) -> Iterator[Prometheus]:
    """Prometheus, with every pod that is there now and that a shipped monitor selects.

    Raises:
        AssertionError: a monitor selects nothing in a namespace that there is.
    """
    with ExitStack() as forwards:
        prometheus = Prometheus(folder, _all_scrapes(bed, forwards))
        try:
            yield prometheus
        finally:
            prometheus.close()


@contextmanager
def forwarded(bed: Bed, namespace: str, pod: str, port: int) -> Iterator[int]:
    """A port of this machine that leads to a pod's. The API server's proxy would take the token for itself.

    kubectl ends when a connection through it breaks; it is started again with the same port of this machine.
    """
    closing, opened = threading.Event(), queue.SimpleQueue[int]()
    processes: list[subprocess.Popen[str]] = []

    def keep() -> None:
        local = ""
        while not closing.is_set():
            ports = f"{local}:{port}"
            arguments = ("port-forward", "--address=127.0.0.1", "-n", namespace, f"pod/{pod}", ports)
            with bed.kubectl.stream(*arguments) as process:
                processes.append(process)
                assert process.stdout is not None
                for line in process.stdout:
                    found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
                    if found and not local:
                        local = found[1]
                        opened.put(int(local))
            closing.wait(0.2)

    keeper = threading.Thread(target=keep, name=f"port-forward {pod}", daemon=True)
    keeper.start()
    try:
        yield opened.get(timeout=60)
    finally:
        closing.set()
        while keeper.is_alive():
            processes[-1].kill()
            keeper.join(0.2)


def _all_scrapes(bed: Bed, forwards: ExitStack) -> list[dict[str, Any]]:
    scrapes = []
    for monitor in yaml.safe_load_all(MONITORS.read_text()):
        (namespace,) = (
            monitor["spec"].get("namespaceSelector", {}).get("matchNames", [monitor["metadata"]["namespace"]])
        )
        if bed.kubectl.find("get", "namespace", namespace) is None:  # the page, which not everybody has
            continue
        found = _scrapes(bed, monitor, namespace, forwards)
        assert found, f"{monitor['kind']} {monitor['metadata']['name']} selects no pod"
        scrapes += found
    return scrapes


def _scrapes(bed: Bed, monitor: dict[str, Any], namespace: str, forwards: ExitStack) -> list[dict[str, Any]]:
    """A scrape of each of its pods, through the API server: pods' addresses are not known everywhere."""
    spec = monitor["spec"]
    labels = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
    (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    if monitor["kind"] == "ServiceMonitor":
        services = bed.kubectl.json("get", "services", "-n", namespace, "-l", labels)["items"]
        (service,) = [each for each in services if _port(each["spec"]["ports"], endpoint["port"])]
        labels = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    pods = bed.kubectl.json("get", "pods", "-n", namespace, "-l", labels)["items"]
    return [_scrape(bed, pod, endpoint, forwards) for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def _port(ports: list[dict[str, Any]], name: str) -> int | None:
    return next((port.get("containerPort") or port["port"] for port in ports if port.get("name") == name), None)


def _scrape(bed: Bed, pod: dict[str, Any], endpoint: dict[str, Any], forwards: ExitStack) -> dict[str, Any]:
    api, name, namespace = bed.cluster.api, pod["metadata"]["name"], pod["metadata"]["namespace"]
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    port = _port(ports, endpoint["port"])
    assert port is not None, f"{name} has no port {endpoint['port']}"
    labels = {"instance": name}
    for change in endpoint.get("relabelings", ()):
        assert change["sourceLabels"] == ["__meta_kubernetes_pod_node_name"], "another relabelling than this test knows"
        labels[change["targetLabel"]] = pod["spec"]["nodeName"]
    if endpoint.get("scheme") == "https":
        local = forwards.enter_context(forwarded(bed, namespace, name, port))
        return {**here(name, local, labels, api.token), "sample_limit": 60000}
    scheme, _, address = api.server.partition("://")
    return {
        "job_name": name,
        "scheme": scheme,
        "metrics_path": f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics",
        "honor_labels": endpoint.get("honorLabels", False),
        "sample_limit": 60000,
        "authorization": {"credentials": api.token},
        "tls_config": {"ca_file": str(api.ca)},
        "static_configs": [{"targets": [address], "labels": labels}],
    }
