"""What Argo CD and Flux make of an object, by their documented rules and with the checks of manifests/gitops."""

from pathlib import Path
from typing import Any

import cel
import yaml
from lupa.lua51 import LuaRuntime

GITOPS = Path(__file__).resolve().parents[3] / "manifests" / "gitops"
ARGO_PREFIX = "resource.customizations.health.muster.dev_"
# What Argo CD's interpreter does not have, and what lupa adds; it has a part of `os`, which no check needs.
MISSING_IN_ARGO = ("string", "math", "io", "debug", "coroutine", "os", "python")

Health = tuple[str, str]


def _document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((GITOPS / name).read_text())
    return found


def argo_checks() -> dict[str, str]:
    """The Lua of Argo CD's health checks, by kind."""
    scripts = _document("argocd-health.yaml")["data"]
    return {key.removeprefix(ARGO_PREFIX): script for key, script in scripts.items()}


def argo_health(obj: dict[str, Any]) -> Health:
    """Argo CD's health of an object, with its message."""
    lua = LuaRuntime()
    lua.execute("getmetatable('').__index = nil")
    names = lua.globals()
    for name in MISSING_IN_ARGO:
        names[name] = None
    names.obj = lua.table_from(obj, recursive=True)
    result = lua.execute(argo_checks()[obj["kind"]])
    return result.status, result.message


def kstatus(obj: dict[str, Any]) -> Health:
    """The status that kstatus computes of a custom resource that is not being deleted, with its message."""
    status = obj.get("status", {})
    observed = status.get("observedGeneration")
    if observed is not None and observed != obj["metadata"]["generation"]:
        return "InProgress", "generation"
    conditions = status.get("conditions", [])
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return ("InProgress" if condition["type"] == "Reconciling" else "Failed"), condition["message"]
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
    if ready is not None and ready["status"] != "True":
        return "InProgress", ready["message"]
    return "Current", ""


def flux_status(obj: dict[str, Any]) -> str:
    """The status that Flux computes with the expressions of manifests/gitops/flux-health.yaml."""
    (check,) = _document("flux-health.yaml")["spec"]["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == (obj["apiVersion"], obj["kind"])
    if obj["status"]["observedGeneration"] != obj["metadata"]["generation"]:
        return "InProgress"
    order = {"inProgress": "InProgress", "failed": "Failed", "current": "Current"}
    return next((status for name, status in order.items() if cel.evaluate(check[name], obj)), "InProgress")
