"""`kubectl muster queue`: print who waits for nodes and when it may start, and who holds nodes until when."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from muster.answers.lists import listed
from muster.answers.queue import (
    HOLDER_HEADS,
    NOT_COUNTED,
    QUEUE_HEADS,
    QueueView,
    head_text,
    holder_cells,
    queue_cells,
    queue_view,
    score_text,
)
from muster.answers.roles import FLEET_ROLE
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    run,
)
from muster.kube import decode, paths
from muster.kube.errors import Forbidden


def command(
    context: typer.Context,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, as without --namespace, which it overrides.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Show who waits for nodes and when it may start.

    Also who holds nodes until when, and how good the last estimates were.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    one_namespace = options.namespace is not None and not all_namespaces
    run(options, lambda session: find(session, one_namespace=one_namespace), render)


async def find(session: Session, *, one_namespace: bool = False) -> QueueView:
    """List the jobs once: of all namespaces, unless one is given or no more may be read.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    read = decode.custom(TrainingJob)
    notes: list[str] = []
    namespace = session.namespace if one_namespace else ""
    try:
        jobs, unreadable = await listed(session.client, paths.muster("trainingjobs", namespace=namespace), read)
    except Forbidden:
        if one_namespace:
            raise
        namespace = session.namespace
        notes.append(
            f"only namespace {namespace}: jobs of others have places between these; to see all, ask for ClusterRole "
            f"{FLEET_ROLE} (a ClusterRoleBinding)"
        )
        jobs, unreadable = await listed(session.client, paths.muster("trainingjobs", namespace=namespace), read)
    if unreadable:
        notes.append(f"{show.count(unreadable, 'job')} cannot be read by this version")
    return queue_view([job for job in jobs if isinstance(job, TrainingJob)], namespace, session.now(), notes)


def render(console: Console, it: QueueView) -> None:
    """Print the queue."""
    console.print(Text(show.on_one_line(head_text(it)), style="bold"))
    for heads, rows, numbers, whole in (
        (QUEUE_HEADS, queue_cells(it), ("PLACE", "NODES", "RESERVED"), ("WAITS", "STARTS ABOUT")),
        (HOLDER_HEADS, holder_cells(it), ("NODES",), ("STATE", "ENDS ABOUT")),
    ):
        if rows:
            table = show.table(*heads, numbers=numbers, whole=whole)
            for row in rows:
                show.add(table, *row)
            console.print()
            console.print(table)
    console.print()
    console.print(Text(f"{score_text(it.score)} ({NOT_COUNTED})", style="dim"))
    for note in it.notes:
        console.print(Text(f"note: {show.on_one_line(note)}", style="dim"))
