"""`kubectl muster check`: test nodes, and show the results.

The request is written to NodeHealth; the operator has the node's checker run it once no gang has the node, and writes
the result beside the request.

Tests: tests/unit/cli/test_burnin.py.
"""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Annotated, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers import clock
from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.api.nodehealth import CheckOutcome, CheckRequest, CheckResult, NodeHealth
from muster.api.preflight import Profile
from muster.cli import show
from muster.cli.decide import NodesArgument, current_user, nodes_there, readable_fleet, write
from muster.cli.errors import CliError
from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options, OutputOption, Session, run
from muster.kube import paths
from muster.protocol.profiles import PROFILES

FIELD_MANAGER = "muster-human-check"
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 120.0
"""Waiting time beyond the profile's limit: a warm checker needs a second, a new one imports torch first."""
_STYLES = {CheckOutcome.PASS: "green", CheckOutcome.FAIL: "red", CheckOutcome.INCONCLUSIVE: "yellow"}

ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME", help="Quick (30 s at most), Standard (3 min) or Deep (15 min).")
]


class TestedNode(ApiModel):
    """One node with the result of its test."""

    name: str
    used_by: list[str] | None = Field(
        None, description="The jobs and pods that hold it; left out where that may not be read."
    )
    result: CheckResult | None = Field(None, description="Left out: there is none yet.")


class NodeChecks(ApiModel):
    """The results of the tests."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["NodeChecks"] = "NodeChecks"
    id: str = Field(description="Of the request for the test.")
    profile: Profile
    nodes: list[TestedNode] = Field(description="In the order given.")
    notes: list[str] = Field([], description="What limits this answer.")


def command(
    context: typer.Context,
    nodes: NodesArgument,
    profile: ProfileOption = "Quick",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the results.")] = True,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Test idle nodes with their checkers, and show the figures.

    A node that a job uses is tested as soon as it is idle.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    profiles = {name.lower(): Profile(name) for name in PROFILES}
    chosen = profiles.get(profile.lower())
    if chosen is None:
        raise typer.BadParameter(
            f"there is no profile {profile}: choose one of {', '.join(PROFILES)}", param_hint="--profile"
        )
    names = list(dict.fromkeys(name.removeprefix("node/") for name in nodes))
    run(options, lambda session: check(session, names, chosen, wait=wait), render)


async def check(session: Session, names: Sequence[str], profile: Profile, *, wait: bool) -> NodeChecks:
    """Write the request, and wait for the results.

    Raises:
        CliError: there is no such node, or the request may not be written.
        ApiError: the API server did not answer as it should.
    """
    nodes = await nodes_there(session, names)
    readable = await readable_fleet(session, nodes.values())
    if outside := [name for name in names if name in readable.fleet.outside]:
        raise CliError(
            f"{show.folded(outside)}: outside spec.scope of FleetPolicy default, where Muster tests nothing. Nothing "
            "was changed"
        )
    user, servers_time = await current_user(session)
    request = CheckRequest(id=uuid.uuid4().hex[:16], profile=profile, user=user, time=clock.current_time(servers_time))
    for name in names:
        await write(session, name, {"check": request.to_json()}, FIELD_MANAGER)
    holders = {name: readable.facts_of_node(nodes[name], None).used_by for name in names}
    free = [name for name in names if not holders[name]]
    results = await _results(session, free, request) if wait else {}
    used = [name for name in names if holders[name]]
    notes = [*readable.notes]
    if used:
        notes.append(f"{show.folded(used)}: in use: the test runs as soon as the node is idle")
    late = [name for name in free if name not in results]
    if late:
        lines = "is a pod of DaemonSet muster-check running there, and is the operator up?" if wait else ""
        notes.append(
            f"{show.folded(late)}: no result yet{f': {lines}' if lines else ''} "
            f"(kubectl get nodehealth {late[0]} -o jsonpath={{.status.check}})"
        )
    rows = [
        TestedNode(
            name=name, used_by=None if (by_whom := holders[name]) is None else list(by_whom), result=results.get(name)
        )
        for name in names
    ]
    return NodeChecks(id=request.id, profile=profile, nodes=rows, notes=notes)


async def _results(session: Session, names: Sequence[str], request: CheckRequest) -> dict[str, CheckResult]:
    """Wait for the results, and return those that came in time."""
    from muster.kube.decode import Undecodable, custom

    results: dict[str, CheckResult] = {}
    loop = asyncio.get_running_loop()
    # A node that is slow or hangs is tested twice.
    until = loop.time() + 2 * PROFILES[request.profile].limit_seconds + PATIENCE_SECONDS
    while len(results) < len(names) and loop.time() < until:
        await asyncio.sleep(LOOK_SECONDS)
        for name in names:
            if name in results:
                continue
            health = custom(NodeHealth)(await session.client.get(paths.muster("nodehealths", name=name)))
            result = None if isinstance(health, Undecodable) else health.status.check
            if result is not None and result.id == request.id:
                results[name] = result
    return results


def render(console: Console, it: NodeChecks) -> None:
    """Print the results."""
    made = show.table("NODE", "PROBE", "RESULT", "VALUE", "AT LEAST", "MESSAGE", whole=("NODE", "PROBE", "RESULT"))
    for node in it.nodes:
        result = node.result
        if result is None:
            show.add(made, node.name, "", Text("waiting", style="yellow"), "", "", ", ".join(node.used_by or ()))
            continue
        result_text = f"{result.profile} in {result.seconds} s on {result.device}"
        why = f"; {result.message}" if result.message else ""
        show.add(made, node.name, "", _styled(result.outcome), "", "", f"{result_text}{why}")
        for probe in result.probes:
            show.add(made, "", probe.probe, _styled(probe.outcome), probe.value, probe.threshold, probe.message)
    console.print(made)
    for note in it.notes:
        console.print(Text(f"note: {show.printable(note)}", style="dim"))


def _styled(outcome: CheckOutcome) -> Text:
    return Text(str(outcome), style=_STYLES[outcome])
