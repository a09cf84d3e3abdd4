"""Builds paths of the API server's REST interface as plain strings, and turns them back into resource names for
metrics.

Tests: tests/unit/kube/test_paths_and_errors.py.
"""

from urllib.parse import quote

from muster.api.base import GROUP, VERSION


def core(resource: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return a path of the core group, e.g. `core("pods", namespace="x", name="y", subresource="status")`."""
    return _path("/api/v1", resource, namespace, name, subresource)


def group(api_version: str, resource: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return a path of a named group, e.g. `group("coordination.k8s.io/v1", "leases", namespace="x")`."""
    return _path(f"/apis/{api_version}", resource, namespace, name, subresource)


def muster(resource: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return a path of Muster's own group, e.g. `muster("gangs", namespace="x", name="y")`."""
    return _path(f"/apis/{GROUP}/{VERSION}", resource, namespace, name, subresource)


def leases(namespace: str, name: str = "") -> str:
    """Return a path of coordination.k8s.io leases."""
    return group("coordination.k8s.io/v1", "leases", namespace=namespace, name=name)


def resource_of(path: str) -> str:
    """Return the resource in a path, with its subresource: `pods`, `pods/status`; other paths are returned
    unchanged."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        rest = parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        rest = parts[3:]
    else:
        return path
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return "/".join([rest[0], *rest[2:]])


def _path(root: str, resource: str, namespace: str, name: str, subresource: str) -> str:
    if subresource and not name:
        raise ValueError(f"the subresource {subresource} of {resource} needs a name")
    parts = [root]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)
