"""`kubectl muster nodes`: print the fleet's tree with free, used and excluded nodes, and what is known against nodes.

With the name of a node it shows the life of that node (`muster.cli.node`).

Tests: tests/unit/cli/test_tree.py.
"""

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from muster.answers.health import verdict
from muster.answers.tree import (
    NO_LABEL,
    DomainRow,
    FleetTree,
    NodeRow,
    Path,
    TreeQuery,
    UnknownDomainError,
    UnknownLevelError,
    tree_of,
)
from muster.cli import node as one_node
from muster.cli import show
from muster.cli.cluster_names import complete_node
from muster.cli.errors import CliError
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    run_with_ages,
)
from muster.health.maintenance import REASONS

MAX_DOMAINS = 64
"""More domains than this are shown by the levels further out, unless a level is asked for."""
MAX_NODES = 32
"""More nodes than this are counted, not listed, unless an innermost domain or --wide is asked for."""
MAX_NAMES = 2  # holders, and reasons, in one cell
WIDE_COLUMNS = 120  # a narrower terminal has room for one of each


def command(
    context: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            help="Show the life of this node instead of the tree.",
            autocompletion=complete_node,
        ),
    ] = None,
    level: Annotated[
        str | None, typer.Option("--level", metavar="LEVEL", help="Innermost level of domains to show, e.g. block.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="PATH", help="Only this domain, e.g. b1 or b1/r2.")
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="Only what is free, most free first.")] = False,
    unhealthy: Annotated[bool, typer.Option("--unhealthy", help="Only nodes that are Suspect or worse.")] = False,
    wide: Annotated[bool, typer.Option("--wide", help="List every node, and every holder and reason.")] = False,
    tolerate: Annotated[
        list[str] | None,
        typer.Option("--tolerate", metavar="KEY", help="Do not count this taint as an exclusion. May be repeated."),
    ] = None,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Show which nodes are free, used or excluded, and why.

    Without NODE it is a tree of the fleet, with the health of each node. The life of NODE is one page: verdict,
    evidence, jobs and their failures there, offences, tests, repair.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    if node is not None:
        if level is not None or domain is not None or free or unhealthy or wide or tolerate:
            raise typer.BadParameter(
                "the other options choose nodes of the whole fleet: leave them out, or leave out NODE",
                param_hint="NODE",
            )
        name = node.removeprefix("node/")
        if not name:
            raise typer.BadParameter(f"{node!r} names no node", param_hint="NODE")
        run_with_ages(options, lambda session: one_node.find(session, name), one_node.render)
        return
    path = tuple(part or NO_LABEL for part in domain.strip("/").split("/")) if domain and domain.strip("/") else ()
    wanted = TreeQuery(path, level, free, unhealthy, tuple(tolerate or ()))
    run_with_ages(
        options,
        lambda session: find(session, wanted),
        lambda console, it, now: render(
            console, it, chosen_level=level is not None, wide=wide, unhealthy=unhealthy, now=now
        ),
    )


async def find(session: Session, wanted: TreeQuery) -> FleetTree:
    """Read the fleet, and build its tree.

    Raises:
        CliError: it has no such level or domain.
        ApiError: something could not be read.
    """
    # The module needs the client, which takes half a second to import.
    from muster.cli.observe import fleet_of, healths_of, observe_fleet

    seen = await observe_fleet(session.client)
    fleet = fleet_of(seen)
    try:
        return tree_of(fleet, wanted, seen.notes, healths_of(seen))
    except UnknownLevelError as error:
        levels = ", ".join(level.name for level in fleet.policy.topology.levels) or "none"
        raise CliError(f"the fleet has no level {error}: its levels are {levels} (FleetPolicy default)") from error
    except UnknownDomainError as error:
        raise CliError(_no_such_domain(wanted.domain, error.paths)) from error


def _no_such_domain(path: Path, paths: Sequence[str]) -> str:
    missing = "/".join(path)
    # A rack without its block is the most common mistake.
    near = [p for p in paths if p.endswith(f"/{missing}")] or difflib.get_close_matches(missing, paths, n=3)
    if near:
        return f"the fleet has no domain {missing}: did you mean {' or '.join(near[:3])}?"
    if not paths:
        return (
            f"the fleet has no domain {missing}, nor any other: no node has a label of the levels in FleetPolicy "
            "default"
        )
    return f"the fleet has no domain {missing}: kubectl muster nodes lists them, e.g. {paths[0]}"


def render(
    console: Console,
    it: FleetTree,
    *,
    now: datetime,
    chosen_level: bool = False,
    wide: bool = False,
    unhealthy: bool = False,
) -> None:
    """Print the tree as text: domains, and single nodes where they are few or requested."""
    root = it.domains[0]
    base = _depth(root)
    listed = (
        wide
        or unhealthy
        or (not chosen_level and (root.nodes <= MAX_NODES or (len(it.domains) == 1 and bool(root.domain))))
    )
    deepest = max(map(_depth, it.domains))
    if not (chosen_level or wide):
        while deepest > base + 1 and sum(_depth(row) <= deepest for row in it.domains) > MAX_DOMAINS:
            deepest -= 1
    gpus = any(row.accelerators for row in it.domains)
    numbers = ["NODES", "FREE", "USED", "EXCLUDED", *([_accelerators(it)] if gpus else [])]
    made = show.table("DOMAIN", *numbers, "USED BY", "EXCLUDED FOR", numbers=numbers, whole=("DOMAIN",))
    names = None if wide else MAX_NAMES if console.width >= WIDE_COLUMNS else 1
    for row in it.domains:
        if _depth(row) <= deepest:
            cells: list[object] = [row.nodes, row.free, row.used, row.excluded]
            cells += [f"{row.free_accelerators}/{row.accelerators}"] if gpus else []
            used_by = {share.name: share.nodes for share in row.used_by}
            excluded = {share.name: share.nodes for share in row.excluded_for}
            show.add(
                made,
                f"{'  ' * (_depth(row) - base)}{_name(row, base)}",
                *cells,
                show.largest(used_by, names or len(used_by)),
                show.largest(excluded, names or len(excluded)),
            )
    console.print(made)
    if listed and it.nodes:
        _print_nodes(console, it, now, gpus=gpus)
    _print_notes(console, it, hidden=max(map(_depth, it.domains)) > deepest, listed=listed, unhealthy=unhealthy)


def _print_nodes(console: Console, it: FleetTree, now: datetime, *, gpus: bool) -> None:
    console.print()
    # Where nothing is known of any node there is nothing to show.
    has_health = any(node.health is not None and node.health.state for node in it.nodes)
    made = show.table(
        "NODE",
        "DOMAIN",
        "STATE",
        *(["HEALTH", "FOR"] if has_health else []),
        *([_accelerators(it)] if gpus else []),
        "USED BY",
        "REASON",
        numbers=[_accelerators(it)],
        whole=("NODE", "STATE", "HEALTH", "FOR"),
    )
    for node in it.nodes:
        show.add(
            made,
            node.name,
            node.domain,
            _styled(node.state),
            *(_health_cells(node, now) if has_health else []),
            *([node.accelerators] if gpus else []),
            ", ".join(node.used_by),
            _reason(node),
        )
    console.print(made)


def _styled(state: str) -> Text:
    return Text(state, style=show.STATE_STYLES.get(state, ""))


def _health_cells(node: NodeRow, now: datetime) -> list[object]:
    health = node.health
    return [_styled(health.state), show.age(health.since, now)] if health and health.state else ["", ""]


def _reason(node: NodeRow) -> str:
    """Say why a node is excluded, and what is known against it, without the state that has its own column."""
    observed = f"only observed: {', '.join(node.health.observed)}" if node.health and node.health.observed else ""
    if node.health is None or not node.health.is_unhealthy:
        return "; ".join(filter(None, (node.reason, observed)))
    own = verdict(node.health)
    others = node.reason if node.reason != own else ""
    against = own if node.health.maintenance is not None and node.health.reason in REASONS else node.health.reason
    return "; ".join(filter(None, (others, against, observed)))


def _print_notes(console: Console, it: FleetTree, *, hidden: bool, listed: bool, unhealthy: bool) -> None:
    lines = []
    root = it.domains[0].domain
    inner = f"--domain {root}/..." if root else "--domain PATH"
    if hidden:
        lines.append(f"more domains: --level {it.levels[-1]} or {inner}")
    elif not listed and it.nodes:
        lines.append(f"single nodes: {inner} down to an innermost domain, or --wide")
    if len(it.domains) == 1 and not root and it.levels and it.nodes:
        labels = ", ".join(it.levels)
        lines.append(f"no node has a label of the fleet's levels ({labels}): every node counts as near to no other")
    if unhealthy and not it.nodes and not it.notes:
        lines.append("no node to list: none is Suspect or worse")
    if listed and any(node.is_unhealthy for node in it.nodes):
        lines.append("what happened to a node, and what to do: kubectl describe nodehealth NODE")
    for line in [*lines, *(f"note: {note}" for note in it.notes)]:
        console.print(Text(line, style="dim"))


def _accelerators(it: FleetTree) -> str:
    """Return the head of the column of accelerators: GPU for nvidia.com/gpu."""
    return it.accelerator_resource.rpartition("/")[2].upper()


def _depth(row: DomainRow) -> int:
    return row.domain.count("/") + 1 if row.domain else 0


def _name(row: DomainRow, base: int) -> str:
    if not row.domain:
        return "(fleet)"
    name = row.domain if _depth(row) == base else row.domain.rpartition("/")[2]
    return f"(no {row.level})" if name == NO_LABEL else name
