"""Complete names of jobs, nodes and namespaces from the cluster: what parameters of commands give as `autocompletion`.

On any error no name is found and nothing is printed, since the user is typing a line.

Tests: tests/unit/cli/test_completion.py.
"""

import asyncio
import re
from collections.abc import Iterable

import msgspec
import typer

from muster.cli import kubeconfig, show
from muster.kube import paths

MAX_NAMES = 500
DEADLINE_SECONDS = 3.0
# No shell should read other characters, whatever a cluster calls its objects.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


class _Status(msgspec.Struct):
    state: str = ""


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta
    status: _Status | None = None


def complete_job(context: typer.Context, begin: str) -> list[tuple[str, str]]:
    """Return the TrainingJobs with their states, of the namespace that is typed before a slash or of the command's."""
    inside, slash, _ = begin.rpartition("/")
    return _plain(
        (inside + slash + job.metadata.name, show.on_one_line(job.status.state) if job.status else "")
        for job in _read(context, "trainingjobs", inside)
    )


def complete_node(context: typer.Context) -> list[tuple[str, str]]:
    """Return the Nodes."""
    return _plain((node.metadata.name, "") for node in _read(context, "nodes"))


def complete_namespace(context: typer.Context) -> list[tuple[str, str]]:
    """Return the Namespaces."""
    return _plain((namespace.metadata.name, "") for namespace in _read(context, "namespaces"))


def _plain(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted((name, text) for name, text in names if _PLAIN.fullmatch(name))


def _read(context: typer.Context, resource: str, inside: str = "") -> list[_Named]:
    # The client takes half a second to import, of which nothing is the cluster's; commands and options do without.
    from muster.kube import decode
    from muster.kube.client import Client

    files, kube_context, namespace = (
        context.params.get(option) or context.find_root().params.get(option)
        for option in ("kubeconfig", "kube_context", "namespace")
    )

    async def read_names() -> list[_Named]:
        target = kubeconfig.find(files, kube_context)
        if resource == "trainingjobs":
            path = paths.muster(resource, namespace=inside or namespace or target.namespace)
        else:
            path = paths.core(resource)
        client = await Client.connect(target.files or None, target.context or None)
        try:
            page = decode.list_page(await client.get(path, {"limit": MAX_NAMES}, deadline_seconds=DEADLINE_SECONDS))
        finally:
            await client.close()
        return [msgspec.json.decode(item, type=_Named) for item in page.items or ()]

    try:
        return asyncio.run(asyncio.wait_for(read_names(), DEADLINE_SECONDS))
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - no kubeconfig, no right, no answer while the user waits
        return []
