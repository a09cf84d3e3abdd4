"""`kubectl muster cordon` and `release`: a person's decision about nodes, written to NodeHealth for the operator.

Everything is checked before anything is written. One server-side apply for each node, with a field manager for people,
creates the NodeHealth where there is none and touches nothing but `spec.override`.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from muster.answers import clock
from muster.answers.decision import DecidedNode, Known, NodeDecisions, consequence_of, groups, next_steps
from muster.answers.health import HealthRow, health_row
from muster.answers.roles import FLEET_EDIT_ROLE
from muster.api.base import API_VERSION, NAME_LENGTH
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import Decision, HumanDecision, NodeHealth
from muster.cli import show
from muster.cli.cluster_names import complete_node
from muster.cli.errors import CliError, error_text, one_line
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    run,
)
from muster.kube import paths
from muster.kube.errors import ApiError, Denied, Forbidden, NotFound
from muster.placement.natural import natural
from muster.world.names import shortened

if TYPE_CHECKING:
    from muster.world.fleet import Fleet
    from muster.world.views import NodeView

FIELD_MANAGER = "muster-human"
MAX_REASON = 512
SHOWN = 5  # names of nodes in one line
_WHO_AM_I = paths.group("authentication.k8s.io/v1", "selfsubjectreviews")
_DEFINE = InstallationProfile.JOBS.definitions_command

NodesArgument = Annotated[
    list[str], typer.Argument(metavar="NODE", help="Names of nodes.", autocompletion=complete_node)
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why. The text is shown wherever the node is.")
]


def cordon(
    context: typer.Context,
    nodes: NodesArgument,
    reason: ReasonOption,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Take nodes out of use for training jobs, until a release."""
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    _decide(options, Decision.CORDON, nodes, reason)


def release(
    context: typer.Context,
    nodes: NodesArgument,
    reason: ReasonOption,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Let nodes back into use.

    It takes a cordon back, and forgives what was seen of the nodes until now.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    _decide(options, Decision.RELEASE, nodes, reason)


def _decide(options: Options, decision: Decision, nodes: Sequence[str], reason: str) -> None:
    reason = reason.strip()
    if not reason:
        raise typer.BadParameter("say why: the text is shown wherever the node is", param_hint="--reason")
    if len(reason) > MAX_REASON:
        raise typer.BadParameter(
            f"it has {len(reason)} characters and may have {MAX_REASON}: say the rest in a ticket, and name that",
            param_hint="--reason",
        )
    # As `kubectl get nodes -o name` prints them; each once.
    names = list(dict.fromkeys(name.removeprefix("node/") for name in nodes))
    run(options, lambda session: decide(session, decision, names, reason), render)


async def decide(session: Session, decision: Decision, names: Sequence[str], reason: str) -> NodeDecisions:
    """Write the decision about each of the nodes.

    Raises:
        CliError: there is no such node, or it may not be decided about.
        ApiError: the API server did not answer as it should.
    """
    nodes = await nodes_there(session, names)
    healths = {name: await _health(session, name) for name in names}
    user, servers_time = await current_user(session)
    readable = await readable_fleet(session, nodes.values())
    human = HumanDecision(decision=decision, reason=reason, user=user, time=clock.current_time(servers_time))
    for index, name in enumerate(names):
        try:
            # By force: the newest decision counts, whatever tool wrote the last one.
            await write(session, name, {"override": human.to_json()}, FIELD_MANAGER)
        except CliError as error:
            done = f" ({show.count(index, 'node')} before it done: {', '.join(names[:index])})" if index else ""
            raise CliError(f"{error}{done}") from error
    return NodeDecisions(
        decision=decision,
        reason=reason,
        user=user,
        time=human.time,
        nodes=[_decided(decision, name, readable.facts_of_node(nodes[name], healths[name])) for name in names],
        next=next_steps(decision, names),
        notes=list(readable.notes),
    )


def _decided(decision: Decision, name: str, facts: Known) -> DecidedNode:
    used_by = None if facts.used_by is None else list(facts.used_by)
    return DecidedNode(
        name=name, health_before=facts.health, used_by=used_by, consequences=consequence_of(decision, facts)
    )


async def nodes_there(session: Session, names: Sequence[str]) -> "dict[str, NodeView]":
    """Return all nodes by name, these among them.

    Raises:
        CliError: they may not be read, or one of these does not exist.
    """
    # The module needs the client, which takes half a second to import.
    from muster.cli.observe import all_nodes

    try:
        nodes = {node.name: node for node in await all_nodes(session.client)}
    except Forbidden as error:
        raise CliError(missing_right_text(error)) from error
    missing = [name for name in names if name not in nodes]
    if missing:
        raise CliError(no_such_nodes(missing, nodes))
    return nodes


def no_such_nodes(missing: Sequence[str], existing_names: Iterable[str]) -> str:
    """Say that these nodes do not exist, that nothing was written, and which nodes may be meant."""
    names = sorted(existing_names, key=natural)
    missing_text = f"there is no node {shortened(missing, SHOWN)}"
    if not names:
        return f"{missing_text}, nor any other: choose another cluster with --context"
    near = list(dict.fromkeys(m for name in missing[:SHOWN] for m in difflib.get_close_matches(name, names, n=3)))
    if near:
        return f"{missing_text}: did you mean {' or '.join(near[:SHOWN])}? Nothing was changed"
    return f"{missing_text}: kubectl muster nodes --wide lists them, e.g. {names[0]}. Nothing was changed"


async def _health(session: Session, name: str) -> HealthRow | None:
    """Return the content of the node's NodeHealth; None: there is none yet, or this version cannot read it."""
    from muster.kube.decode import Undecodable, custom

    try:
        answer = await session.client.get(paths.muster("nodehealths", name=name))
    except NotFound as error:
        if error.details.get("name") == name:
            return None
        raise CliError(no_nodehealth_text(session)) from error
    except Forbidden as error:
        raise CliError(missing_right_text(error)) from error
    health = custom(NodeHealth)(answer)
    return None if isinstance(health, Undecodable) else health_row(health)


class _UserInfo(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _ReviewMeta(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Review(msgspec.Struct):
    metadata: _ReviewMeta = msgspec.field(default_factory=_ReviewMeta)
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def current_user(session: Session) -> tuple[str, datetime | None]:
    """Return the user's name by the API server (else by the kubeconfig), and the server's time."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await session.client.post(_WHO_AM_I, body)
    except (Forbidden, NotFound):  # older than Kubernetes 1.28, or without the right
        return session.user[:NAME_LENGTH], None
    review = msgspec.json.decode(answer, type=_Review)
    return (review.status.user_info.username or session.user)[:NAME_LENGTH], review.metadata.creation_timestamp


@dataclass(frozen=True, slots=True)
class ReadableFleet:
    """The fleet as far as this user may read it.

    Attributes:
        fleet: nodes and, where they may be known, their holders and the policy.
        knows_holders: whether the holders of nodes are known.
        knows_policy: whether the policy is known.
        notes: what is not known.
    """

    fleet: "Fleet"
    knows_holders: bool = True
    knows_policy: bool = True
    notes: tuple[str, ...] = ()

    def facts_of_node(self, node: "NodeView", health: HealthRow | None) -> Known:
        """Return what is known of one node."""
        from muster.health.sources import UNHEALTHY_TAINT
        from muster.placement.eligibility import Requirements, unusable

        policy = self.fleet.policy
        tolerations = [{"key": key, "operator": "Exists"} for key in (policy.accelerator_resource, UNHEALTHY_TAINT)]
        holders = sorted(self.fleet.name_of(holder) for holder in self.fleet.holders(node.name))
        return Known(
            health=health,
            used_by=tuple(holders) if self.knows_holders else None,
            refused=unusable(node, Requirements(0, {"tolerations": tolerations}, {}), self.fleet),
            enforcement=policy.enforcement_of(node.labels) if self.knows_policy else None,
        )


async def readable_fleet(session: Session, nodes: Iterable["NodeView"]) -> ReadableFleet:
    """Read the fleet as far as this user may."""
    from muster.cli.observe import fleet_of, observe_fleet, policy_of
    from muster.world.fleet import Fleet

    try:
        return ReadableFleet(fleet_of(await observe_fleet(session.client)))
    except Forbidden:
        notes = ("which jobs use these nodes may not be read: ask for ClusterRole muster-fleet-view",)
    try:
        policy, knows_policy = (await policy_of(session.client))[0], True
    except Forbidden:
        policy, knows_policy = FleetPolicySpec(), False
    fleet = Fleet(policy)
    for node in nodes:
        fleet.put_node(node)
    return ReadableFleet(fleet, knows_holders=False, knows_policy=knows_policy, notes=notes)


async def write(session: Session, name: str, spec: Mapping[str, Any], manager: str) -> None:
    """Apply one manager's fields of a NodeHealth's spec, by force; the NodeHealth is created where there is none.

    Raises:
        CliError: it may not be written, or cannot.
    """
    from muster.kube.client import APPLY_PATCH

    body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}, "spec": spec}
    query = {"fieldManager": manager, "force": "true"}
    try:
        await session.client.patch(paths.muster("nodehealths", name=name), body, APPLY_PATCH, query)
    except Forbidden as error:
        raise CliError(f"{name}: {missing_right_text(error)}") from error
    except NotFound as error:
        raise CliError(f"{name}: {no_nodehealth_text(session)}") from error
    except ApiError as error:
        raise CliError(f"{name}: {error_text(error, session.context)}") from error


def missing_right_text(error: Forbidden) -> str:
    """Name the role that has the right; if admission denied the request, return its message alone."""
    if isinstance(error, Denied):
        return one_line(error.message)
    return (
        f"{one_line(error.message)}: ask for ClusterRole {FLEET_EDIT_ROLE} (a ClusterRoleBinding), which has every "
        "right that this command needs"
    )


def no_nodehealth_text(session: Session) -> str:
    """Say that the cluster does not know the kind."""
    where = f" of context {session.context}" if session.context else ""
    return (
        f"the cluster{where} keeps no NodeHealth: install Muster, or a newer one, beginning with "
        f"{_DEFINE}. Meanwhile kubectl cordon keeps new pods off a node"
    )


def render(console: Console, it: NodeDecisions) -> None:
    """Print what was decided, and what follows, once for nodes for which the same does."""
    done = "cordoned" if it.decision is Decision.CORDON else "released"
    for sentences, names in groups(it).items():
        console.print(Text(f"{show.printable(show.folded(names))} {done}", style="bold"))
        for sentence in sentences:
            console.print(Text(f"-  {show.printable(sentence)}"))
    for step in it.next:
        console.print(Text(show.printable(step)))
    for note in it.notes:
        console.print(Text(f"note: {show.printable(note)}", style="dim"))
