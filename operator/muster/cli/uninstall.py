"""`kubectl muster uninstall --dry-run`: what a removal of Muster takes, step by step, and what it leaves.

Muster removes nothing itself: the steps are commands of kubectl, and what they delete is for a person to decide.

Tests: tests/unit/cli/test_uninstall.py.
"""

import shlex
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from muster.cli import show
from muster.cli.leftovers import ListedObject, Place, RemovalPlan, RemovalRow, removal_plan
from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options, OutputOption, run

SHOWN = 3  # names in a cell of the table
WHERE = "docs/install.md, Removing everything"


def command(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Needed, because this command only lists: Muster removes nothing itself.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """List what a removal of Muster takes and leaves.

    On nodes, in directories, in namespaces and cluster-wide, in the order of the documented steps, as far as you may
    read it. It changes nothing.
    """
    if not dry_run:
        raise typer.BadParameter(
            f"add it: this command lists what a removal takes and leaves. Muster removes nothing itself; the steps are "
            f"in {WHERE}",
            param_hint="--dry-run",
        )
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    run(options, lambda session: removal_plan(session.client), render)


def render(console: Console, it: RemovalPlan) -> None:
    """Print the steps with what each takes, and then what stays."""
    console.print(Text(f"A removal, step by step ({WHERE}). This command changes nothing."))
    for number, step in enumerate(it.steps, 1):
        show.headline(console, f"{number}. {step.command}")
        if not step.rows:
            console.print(Text("nothing", style="dim"))
            continue
        table = show.table("PLACE", "KIND", "NUMBER", "WHICH", numbers=("NUMBER",), whole=("PLACE", "KIND"))
        for row in step.rows:
            show.add(table, row.place, row.kind, _number(row), _which(row))
        console.print(table)
    show.headline(console, "What stays")
    if it.stays:
        table = show.table(
            "PLACE", "KIND", "NUMBER", "WHICH", "REMOVED BY", numbers=("NUMBER",), whole=("PLACE", "KIND")
        )
        for row in it.stays:
            show.add(table, row.place, row.kind, _number(row), _which(row), row.command)
        console.print(table)
    else:
        console.print(Text("nothing", style="dim"))
    for note in it.notes:
        console.print(Text(f"note: {show.printable(note)}", style="dim"))


def _number(row: RemovalRow) -> str:
    return "unknown" if row.unread and not row.objects else f"{len(row.objects):,}{' or more' if row.unread else ''}"


def _which(row: RemovalRow) -> str:
    names = [_name(row.place, item) + (f" ({item.note})" if item.note else "") for item in row.objects[:SHOWN]]
    more = len(row.objects) - len(names)
    listing = ", ".join(names) + (f" and {more:,} more (-o json)" if more else "")
    return "; ".join(filter(None, (": ".join(filter(None, (row.mark, listing))), row.unread)))


def _name(place: Place, item: ListedObject) -> str:
    """Return a name as a shell takes it: a tenant wrote the path, and a person may paste it behind `rm -r`."""
    if place is not Place.DIRECTORIES:
        return item.name
    if not show.is_on_one_line(item.name):
        return "a path with control characters, which -o json escapes"
    return shlex.quote(item.name)
