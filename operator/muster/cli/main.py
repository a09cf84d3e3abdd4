"""The executable `kubectl-muster`, which kubectl runs as `kubectl muster`: its commands and how it ends.

Exit codes: 0 done, 1 failed (one line on stderr says why and what to do), 2 usage, or a document that cannot be converted.
"""

import sys

import typer

from muster.cli import (
    bundle,
    burnin,
    check,
    completion,
    convert,
    decide,
    explain,
    fork,
    incident,
    logs,
    lost,
    node,
    nodes,
    page,
    report,
    status,
    top,
    whatif,
)
from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options, OutputOption

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("status")(status.command)
app.command("top")(top.command)
app.command("explain")(explain.command)
app.command("report")(report.command)
app.command("incidents")(report.incidents_command)
app.command("incident")(incident.command)
app.command("logs")(logs.command)
app.command("node")(node.command)
app.command("nodes")(nodes.command)
app.command("cordon")(decide.cordon)
app.command("release")(decide.release)
app.command("burnin")(burnin.command)
app.command("check")(check.command)
app.command("lost")(lost.command)
app.command("what-if")(whatif.command)
app.command("page")(page.command)
app.command("bundle")(bundle.command)
app.command("completion")(completion.command)
app.command("convert")(convert.command)
app.command("fork")(fork.command)


@app.callback()
def options(
    context: typer.Context,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """What Muster knows of training jobs and of the fleet. The options may stand before or after the command."""
    context.obj = Options(kubeconfig, kube_context, namespace, output)


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:2] == ["__complete"]:
        completion.main(sys.argv[2:])
        return
    try:
        app(prog_name="kubectl muster")
    except Exception as error:  # noqa: BLE001 - the last resort: people get a line that they can report
        what = " ".join(str(error).split())
        typer.echo(f"error: a defect of kubectl muster ({type(error).__name__}: {what}): please report it", err=True)
        sys.exit(1)
