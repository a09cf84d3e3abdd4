"""`kubectl muster doctor`: what is missing or wrong in an installation, each with its remedy.

It only reads, with its user's own rights. A new check is a function in one of the three modules of checks, and a line
in its CHECKS.

Tests: tests/unit/cli/test_doctor.py.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.cli import show
from muster.cli.doctor_rows import Check, ClusterReader, DoctorRow, DoctorState, UnreadableError, unknown
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    connected,
    print_finding,
)

_STYLES = {DoctorState.WRONG: "red", DoctorState.UNKNOWN: "yellow", DoctorState.OK: "green"}
_GRAVITY = list(DoctorState)


class DoctorReport(ApiModel):
    """What is missing or wrong in the installation."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["DoctorReport"] = "DoctorReport"
    rows: list[DoctorRow]


def command(
    context: typer.Context,
    before_upgrade: Annotated[
        bool, typer.Option("--before-upgrade", help="Also check whether this is a good moment to upgrade.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Show what is missing or wrong in the installation.

    Each finding comes with what to do. The command only reads. The exit code is 1 if something is wrong.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    report = connected(options, lambda session: find(session, before_upgrade=before_upgrade))
    print_finding(options, report, render)
    if any(row.state is DoctorState.WRONG for row in report.rows):
        raise typer.Exit(1)


async def find(session: Session, *, before_upgrade: bool) -> DoctorReport:
    """Run the checks; the worst rows come first.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    # The modules need the client, which takes half a second to import.
    from muster.cli.doctor_cluster import CHECKS as CLUSTER
    from muster.cli.doctor_parts import CHECKS as PARTS
    from muster.cli.doctor_upgrade import CHECKS as UPGRADE

    checks: Mapping[str, Check] = {**CLUSTER, **PARTS, **(UPGRADE if before_upgrade else {})}
    cluster = ClusterReader(session.client)
    results = await asyncio.gather(*(_run(name, check, cluster) for name, check in checks.items()))
    rows = [row for result in results for row in result]
    return DoctorReport(rows=sorted(rows, key=lambda row: _GRAVITY.index(row.state)))


async def _run(name: str, check: Check, cluster: ClusterReader) -> list[DoctorRow]:
    try:
        return await check(cluster)
    except UnreadableError as error:
        return [unknown(name, error)]


def render(console: Console, it: DoctorReport) -> None:
    """Print the table, and below it what to do."""
    made = show.table("STATE", "CHECK", "FINDING", whole=("STATE", "CHECK"))
    for row in it.rows:
        show.add(made, Text(row.state, style=_STYLES[row.state]), row.check, row.finding)
    console.print(made)
    remedies = dict.fromkeys((row.check, row.remedy) for row in it.rows if row.remedy)
    if remedies:
        show.headline(console, "WHAT YOU CAN DO")
    for check, remedy in remedies:
        console.print(Text(f"-  {check}: {show.printable(remedy)}"))
