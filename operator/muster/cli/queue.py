"""`kubectl muster queue`: print who waits for nodes and when it may start, and who holds nodes until when."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

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
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.job_list import list_jobs
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    run,
)


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
    jobs, namespace, notes = await list_jobs(
        session, one_namespace=one_namespace, consequence="jobs of others have places between these; "
    )
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
