"""`kubectl muster nodes NODE`: the life of one node on one page."""

import asyncio
import difflib
from datetime import datetime

from rich.console import Console
from rich.text import Text

from muster.answers.lists import listed
from muster.answers.nodelife import NodeLife, evidence_name, life
from muster.answers.roles import FLEET_ROLE, VIEW_ROLE
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Gang
from muster.api.nodehealth import NodeHealth, RecommendedAction
from muster.api.repairrequest import RepairRequest
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.session import Session
from muster.health.maintenance import window_text
from muster.kube import decode, paths
from muster.kube.decode import Undecodable
from muster.kube.errors import Forbidden, NotFound
from muster.world.views import NodeView

SHOWN_EVIDENCE = 10
SHOWN_LIFE = 20


async def find(session: Session, name: str) -> NodeLife:
    """Read what is known of a node, as far as this user may.

    Raises:
        CliError: the node is unknown, or this user may read nothing of it.
        ApiError: the API server did not answer as it should.
    """
    (health, unknown), (node, exists, hidden), (jobs, gangs, unseen), levels, (request, kept) = await asyncio.gather(
        _health(session, name), _node(session, name), _jobs(session), _levels(session), _repair(session, name)
    )
    notes = [*unknown, *hidden, *unseen, *([] if health is None else kept)]
    node_life = life(name, health, node, exists, jobs, gangs, levels, notes, request)
    if node_life.exists or node_life.health or node_life.jobs or node_life.history:
        if exists is False:
            absent_note = "the cluster has no Node of this name (any more): this is what is remembered of it"
            node_life = node_life.model_copy(update={"notes": [absent_note, *node_life.notes]})
        return node_life
    if exists is False:
        raise CliError(await _no_such_node(session, name))
    raise CliError(
        f"nothing is known of node {name} here: {'; '.join(node_life.notes)}"
        if node_life.notes
        else f"nothing is known of {name}"
    )


async def _health(session: Session, name: str) -> tuple[NodeHealth | None, list[str]]:
    try:
        health = decode.custom(NodeHealth)(await session.client.get(paths.muster("nodehealths", name=name)))
    except Forbidden:
        return None, [
            f"its health may not be read (nodehealths): ask for ClusterRole {FLEET_ROLE} (a ClusterRoleBinding)"
        ]
    except NotFound as error:
        if error.details.get("name") == name:
            return None, ["it has no NodeHealth: it never had a finding, or no operator runs"]
        return None, ["the health of nodes is not known: this cluster's Muster is too old to keep NodeHealth"]
    if isinstance(health, Undecodable):
        return None, [f"its NodeHealth cannot be read by this version ({health.error})"]
    return health, []


async def _repair(session: Session, name: str) -> tuple[RepairRequest | None, list[str]]:
    """Read the request for its repair; returns it with notes."""
    try:
        request = decode.custom(RepairRequest)(await session.client.get(paths.muster("repairrequests", name=name)))
    except Forbidden:
        return None, [f"its RepairRequest may not be read (repairrequests): ask for ClusterRole {FLEET_ROLE}"]
    except NotFound:  # or a Muster without such requests
        return None, []
    if isinstance(request, Undecodable):
        return None, [f"its RepairRequest cannot be read by this version ({request.error})"]
    return request, []


async def _node(session: Session, name: str) -> tuple[NodeView | None, bool | None, list[str]]:
    """Return the Node, whether there is one, and notes. The fleet's role may list nodes, not get one."""
    try:
        nodes, unreadable = await listed(
            session.client, paths.core("nodes"), decode.node, {"fieldSelector": f"metadata.name={name}"}
        )
    except Forbidden:
        return None, None, [f"the Node itself may not be read: ask for ClusterRole {FLEET_ROLE} (a ClusterRoleBinding)"]
    listed_node = next((node for node in nodes if node.name == name), None)
    if unreadable:
        return None, True, ["the Node cannot be read by this version"]
    return listed_node, listed_node is not None, []


async def _jobs(session: Session) -> tuple[list[TrainingJob], list[Gang], list[str]]:
    """Return jobs and records of the cluster; of the own namespace where no more may be read."""
    try:
        return *await _records(session, ""), []
    except Forbidden:
        pass
    note = f"only jobs of namespace {session.namespace} may be read: ClusterRole {FLEET_ROLE} shows all"
    try:
        return *await _records(session, session.namespace), [note]
    except Forbidden:
        return [], [], [f"no jobs may be read: ask for ClusterRole {VIEW_ROLE} in a namespace, or {FLEET_ROLE}"]


async def _records(session: Session, namespace: str) -> tuple[list[TrainingJob], list[Gang]]:
    try:
        (jobs, _), (gangs, _) = await asyncio.gather(
            listed(session.client, paths.muster("trainingjobs", namespace=namespace), decode.custom(TrainingJob)),
            listed(session.client, paths.muster("gangs", namespace=namespace), decode.custom(Gang)),
        )
    except NotFound:  # Muster is installed without jobs
        return [], []
    return [job for job in jobs if isinstance(job, TrainingJob)], [gang for gang in gangs if isinstance(gang, Gang)]


async def _levels(session: Session) -> list[str]:
    from muster.cli.observe import policy_of

    try:
        policy = (await policy_of(session.client))[0]
    except (Forbidden, NotFound):
        policy = FleetPolicySpec()
    return [level.label for level in policy.topology.levels]


async def _no_such_node(session: Session, name: str) -> str:
    nodes, _ = await listed(session.client, paths.core("nodes"), decode.node)
    near = difflib.get_close_matches(name, [node.name for node in nodes], n=3)
    if near:
        return f"there is no node {name}: did you mean {' or '.join(near)}?"
    return f"there is no node {name}: kubectl muster nodes --wide lists those that there are"


def render(console: Console, it: NodeLife, now: datetime) -> None:
    """Print it as text: one page."""
    _print_head(console, it, now)
    rows = _facts(it, now)
    if rows:
        console.print()
        show.facts(console, rows)
    if it.jobs:
        show.headline(console, "JOBS THAT NAME IT")
        made = show.table("JOB", "STATE", "WORKERS", "FAILURES HERE", "", numbers=("FAILURES HERE",))
        for job in it.jobs:
            remarks = [f"avoids it until {show.moment(job.avoids_until)}"] if job.avoids_until else []
            remarks += (
                [f"waits for proof of {show.count(job.unfenced_workers, 'earlier pod')}"]
                if job.unfenced_workers
                else []
            )
            show.add(
                made, job.name, job.state, ", ".join(map(str, job.workers)), job.failures or "", "; ".join(remarks)
            )
        console.print(made)
    if it.findings:
        show.headline(console, "WHAT COUNTS AGAINST IT NOW")
        made = show.table("FOR", "WEIGHT", "SOURCE", "REASON", "SUBJECT", "MESSAGE", whole=("FOR",))
        for finding in it.findings:
            message = f"{finding.message} (burn-in of {finding.job})" if finding.job else finding.message
            cells = (
                finding.severity,
                finding.source,
                finding.reason,
                finding.subject,
                show.on_one_line(f"(only observed) {message}" if finding.observed else message),
            )
            show.add(made, show.age(finding.since, now), *cells)
        console.print(made)
    if it.evidence:
        shown = it.evidence[:SHOWN_EVIDENCE]
        show.headline(console, f"EVIDENCE OF ITS AGENT ({len(shown)} of {len(it.evidence)}, the newest first)")
        made = show.table("LAST", "TIMES", "WHAT", "VALUE", "MESSAGE", numbers=("TIMES",), whole=("LAST",))
        for seen in shown:
            limit = f" (allowed: {seen.threshold})" if seen.threshold else ""
            message = show.on_one_line(seen.message)
            show.add(
                made, show.age(seen.last_seen, now), seen.count, evidence_name(seen), f"{seen.value}{limit}", message
            )
        console.print(made)
    if it.check is not None:
        _print_check(console, it, now)
    if it.history:
        shown_life = it.history[:SHOWN_LIFE]
        show.headline(console, f"ITS LIFE ({len(shown_life)} of {len(it.history)} moments, the newest first)")
        made = show.table("TIME", "LASTED", "KIND", "WHAT", whole=("TIME",))
        for happening in shown_life:
            lasted = (
                show.duration(max((happening.until - happening.time).total_seconds(), 0)) if happening.until else ""
            )
            show.add(made, show.moment(happening.time), lasted, happening.kind, show.on_one_line(happening.event))
        console.print(made)
    if it.notes:
        console.print()
    for note in it.notes:
        console.print(Text(f"note: {show.on_one_line(note)}", style="dim"), soft_wrap=True)


def _print_head(console: Console, it: NodeLife, now: datetime) -> None:
    head = Text(f"{show.on_one_line(it.name)} ", style="bold")
    health = it.health
    if health is None or health.state is None:
        head.append("has no verdict that may be read" if it.exists is None else "has no verdict", style="not bold")
    else:
        head.append(f"is {health.state}", style=show.STATE_STYLES.get(health.state, ""))
        head.append(f": {show.on_one_line(health.reason)}" if health.reason else "")
        head.append(f", for {show.age(health.since, now)}" if health.since else "", style="not bold")
    console.print(head)
    if health is not None and health.message:
        show.print_foreign_text(console, health.message)


def _facts(it: NodeLife, now: datetime) -> list[tuple[str, object]]:
    health, agent = it.health, it.agent
    rows: list[tuple[str, object]] = []
    if it.ready is not None:
        words = ["Ready" if it.ready else "not Ready", *(["cordoned"] if it.cordoned else [])]
        rows.append(("Node", ", ".join(words)))
        rows.append(("Where", "/".join(it.labels.values())))
        rows.append(("Taints", ", ".join(it.taints)))
    if health is not None:
        if health.maintenance is not None:
            rows.append(("Maintenance", window_text(health.maintenance)))
        rows.append(("What Muster did", health.effect))
        if health.recommended_action is not RecommendedAction.NONE:
            rows.append(("What it needs", health.recommended_action))
        if health.override is not None:
            human = health.override
            rows.append(
                (str(human.decision), f"by {human.user or 'a user'}, {show.age(human.time, now)} ago: {human.reason}")
            )
    if it.lost is not None:
        rows.append(("Lost", f"by {it.lost.user or 'a user'}, {show.age(it.lost.time, now)} ago: {it.lost.reason}"))
    if it.repair is not None:
        repair = it.repair
        asked = f"requested {show.age(repair.since, now)} ago" if repair.since else ""
        repair_text = ", ".join(filter(None, (repair.phase, asked, repair.message)))
        rows.append(("Repair", f"{repair.action}: {repair_text}"))
    if agent is not None:
        gpus = f"{agent.gpus} x {agent.gpu_model or 'GPU'}" if agent.gpus else "no GPU seen"
        rows.append(("Machine", gpus + (f", driver {agent.driver}" if agent.driver else "")))
        rows.append(("Serials", ", ".join(filter(None, [agent.system_uuid, *agent.gpu_serials]))))
        rows.append(("Agent", ", ".join(filter(None, [agent.version, agent.problem]))))
    if it.offences is not None:
        rows.append(("Offences", f"{it.offences.score}, as of {show.age(it.offences.as_of, now)} ago"))
    return [(name, show.on_one_line(str(value))) for name, value in rows]


def _print_check(console: Console, it: NodeLife, now: datetime) -> None:
    check = it.check
    if check is None:
        return
    took = show.duration(check.seconds)
    show.headline(console, f"LAST TEST: {check.profile}, {check.outcome}, {show.age(check.time, now)} ago, took {took}")
    if check.message:
        console.print(Text(show.on_one_line(check.message)))
    if check.probes:
        made = show.table("PROBE", "OUTCOME", "VALUE", "HAS TO REACH", "MESSAGE")
        for probe in check.probes:
            show.add(made, probe.probe, probe.outcome, probe.value, probe.threshold, show.on_one_line(probe.message))
        console.print(made)
