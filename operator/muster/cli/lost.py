"""`kubectl muster lost`: a person's statement that machines are dead, written to NodeHealth for the operator.

Where nothing shared can stop a launcher's ranks, Muster waits for proof that they have ended before it starts others. A
machine without power is proof. The statement is checked against what the cluster sees, its effect is shown first, and
nothing is written without a yes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers import clock
from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel, Time
from muster.api.namespaces import NODE_LEASES
from muster.api.nodehealth import LostNode
from muster.cli import show
from muster.cli.confirmation import confirm
from muster.cli.decide import (
    MAX_REASON,
    NodesArgument,
    current_user,
    missing_right_text,
    no_such_nodes,
    readable_fleet,
    write,
)
from muster.cli.errors import CliError
from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options, OutputOption, Session, run
from muster.kube import paths
from muster.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from muster.world.views import NodeView

# Apart from that of cordon and release: an apply of one of these does not revoke the other.
FIELD_MANAGER = "muster-human-lost"


class LostNodeRow(ApiModel):
    """One node."""

    name: str
    used_by: list[str] | None = Field(
        None, description="The jobs and pods that hold it; left out where that may not be read."
    )
    consequences: list[str] = Field(description="Sentences: what comes of it.")


class LostNodes(ApiModel):
    """The statement about the nodes, and what follows from it."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["LostNodes"] = "LostNodes"
    revoked: bool = False
    reason: str = ""
    user: str = Field("", description="The name of the user as the API server knows it; empty: unknown.")
    time: Time
    nodes: list[LostNodeRow] = Field(description="In the order given.")
    notes: list[str] = Field([], description="What limits this answer.")


def command(
    context: typer.Context,
    nodes: NodesArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="How you know it. The text is shown wherever the node is.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Withdraw the declaration.")] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Declare machines dead: powered off, or gone for good.

    Jobs then need not wait for proof that the ranks there have ended.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    reason = reason.strip()
    if not reason and not undo:
        raise typer.BadParameter("say how you know that it is dead", param_hint="--reason")
    if len(reason) > MAX_REASON:
        raise typer.BadParameter(
            f"it has {len(reason)} characters and may have {MAX_REASON}: shorten it", param_hint="--reason"
        )
    names = list(dict.fromkeys(name.removeprefix("node/") for name in nodes))
    if undo:
        run(options, lambda session: undo_lost(session, names), render)
    else:
        run(options, lambda session: declare_lost(session, names, reason, yes=yes), render)


async def declare_lost(session: Session, names: Sequence[str], reason: str, *, yes: bool) -> LostNodes:
    """Write that the nodes are lost.

    Raises:
        CliError: nothing names such a node, one of them is alive, or the user has not confirmed it.
        ApiError: the API server did not answer as it should.
    """
    nodes, users_of_absent = await _found(session, names)
    alive = [name for name in names if name in nodes and nodes[name].ready]
    if alive:
        raise CliError(
            f"{', '.join(alive)}: Ready, so the kubelet there was alive a moment ago, and so may be the ranks. Power "
            "the machine off first, and wait until Kubernetes sees it (40 s or more). Nothing was changed"
        )
    user, servers_time = await current_user(session)
    readable = await readable_fleet(session, nodes.values())
    rows = []
    for name in names:
        if name in users_of_absent:
            rows.append(
                LostNodeRow(
                    name=name, used_by=users_of_absent[name], consequences=follows(users_of_absent[name], is_gone=True)
                )
            )
            continue
        facts = readable.facts_of_node(nodes[name], None)
        used_by = None if facts.used_by is None else list(facts.used_by)
        rows.append(LostNodeRow(name=name, used_by=used_by, consequences=follows(used_by)))
    renewals, unread = await _renewals(session, names)
    if not yes:
        await _confirm(rows)
    time = clock.current_time(servers_time)
    for name in names:
        boot = nodes[name].boot_id if name in nodes else ""
        word = LostNode(time=time, reason=reason, user=user, boot_id=boot, last_renewal=renewals.get(name, ""))
        await write(session, name, {"lost": word.to_json()}, FIELD_MANAGER)
    return LostNodes(reason=reason, user=user, time=time, nodes=rows, notes=[*readable.notes, *unread])


async def undo_lost(session: Session, names: Sequence[str]) -> LostNodes:
    """Write that the nodes are not lost, or remove the statement.

    Raises:
        CliError: it may not be written.
        ApiError: the API server did not answer as it should.
    """
    user, servers_time = await current_user(session)
    for name in names:
        await write(session, name, {}, FIELD_MANAGER)
    rows = [LostNodeRow(name=name, consequences=["the declaration that it is dead is withdrawn"]) for name in names]
    return LostNodes(revoked=True, user=user, time=clock.current_time(servers_time), nodes=rows)


def follows(used_by: Sequence[str] | None, *, is_gone: bool = False) -> list[str]:
    """Say what follows from the statement.

    Args:
        used_by: the jobs and pods that name the node; None where that may not be read.
        is_gone: there is no Node of that name.
    """
    jobs = [name for name in used_by or () if not name.startswith("pod ")]
    who = ", ".join(jobs) if jobs else "every job" if used_by is None else ""
    consequences = [
        "its kubelet, and the launchers on it, have to stay silent: a sign of life makes this confirmation void"
    ]
    if who:
        starts = "starts" if len(jobs) < 2 else "start"
        consequences.insert(
            0, f"{who} {starts} on other nodes without waiting for proof that the ranks here have ended"
        )
        consequences.append("if the machine is alive after all, two attempts may write to one checkpoint directory")
    else:
        consequences.insert(0, "no job holds it now; a job that waits for proof of death there continues")
    if is_gone:
        consequences.append("it is gone from the cluster, so nothing here shows whether the machine still runs")
    return consequences


async def _found(session: Session, names: Sequence[str]) -> "tuple[dict[str, NodeView], dict[str, list[str]]]":
    """Return the nodes by name, and for nodes that are gone from the cluster the jobs that still name them."""
    from muster.cli.observe import all_nodes, naming

    try:
        nodes = {node.name: node for node in await all_nodes(session.client)}
    except Forbidden as error:
        raise CliError(missing_right_text(error)) from error
    missing = [name for name in names if name not in nodes]
    if not missing:
        return nodes, {}
    try:
        named = await naming(session.client)
    except Forbidden as error:
        raise CliError(
            f"{no_such_nodes(missing, nodes)}. Whether a job still names it may not be read: ClusterRole "
            "muster-fleet-view has the rights"
        ) from error
    unknown = [name for name in missing if name not in named]
    if unknown:
        raise CliError(no_such_nodes(unknown, nodes.keys() | named.keys()))
    return nodes, {name: named[name] for name in missing}


async def _renewals(session: Session, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return when each kubelet last renewed its lease, as it wrote that; and what could not be read, for people."""
    from muster.kube.decode import node_lease

    renewals = {}
    for name in names:
        try:
            renewals[name] = node_lease(await session.client.get(paths.leases(NODE_LEASES, name))).renew_time
        except NotFound:
            continue
        except Forbidden:
            return renewals, [
                "heartbeats may not be read (leases in kube-node-lease), so the clocks of the nodes date the signs of "
                "life: if a kubelet's clock is ahead, this declaration has no effect. Ask for ClusterRole "
                "muster-fleet-edit"
            ]
    return renewals, []


async def _confirm(rows: Sequence[LostNodeRow]) -> None:
    """Ask on the terminal.

    Raises:
        CliError: there is no terminal, or the answer was no.
    """
    for row in rows:
        typer.echo(f"{row.name} is lost:", err=True)
        for sentence in row.consequences:
            typer.echo(f"-  {show.printable(sentence)}", err=True)
    await confirm("Is it powered off, or gone, for certain?", "add --yes if you are sure")


def render(console: Console, it: LostNodes) -> None:
    """Print the statement, and what follows."""
    for row in it.nodes:
        head = f"{row.name} is {'no longer ' if it.revoked else ''}declared lost"
        console.print(Text(show.printable(head), style="bold"))
        for sentence in row.consequences:
            console.print(Text(f"-  {show.printable(sentence)}"))
    if not it.revoked:
        names = " ".join(row.name for row in it.nodes)
        console.print(Text(show.printable(f"to take it back: kubectl muster lost {names} --undo")))
    for note in it.notes:
        console.print(Text(f"note: {show.printable(note)}", style="dim"))
