"""`kubectl muster status JOB --burn-in`: the results of the nodes in the job's burn-in, and what it waits for.

Read from the job, its Gang and the FleetPolicy; the operator is not asked.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel, Time
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import BurnIn, BurnInFailure, CorruptionStatus, Gang, GangSpec
from muster.api.preflight import PreflightPolicy, Profile, wanted
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.jobs import job_of
from muster.cli.session import Session
from muster.kube import paths
from muster.kube.errors import Forbidden, NotFound

_RUNNING = "Running"


class NodeState(StrEnum):
    """State of a gang's node in the burn-in."""

    TESTING = "Testing"
    TRAINING = "Training"
    UNTESTED = "Untested"
    MISSING = "Missing"
    FAILED = "Failed"


_STYLES = {NodeState.FAILED: "red", NodeState.UNTESTED: "yellow", NodeState.MISSING: "yellow"}


class BurnInNode(ApiModel):
    """One node with its state in the burn-in."""

    name: str = Field("", description="Left out: none is free for this worker.")
    worker: int | None = Field(None, description="Index; left out for one that has failed and left.")
    state: NodeState
    probe: str = ""
    message: str = ""
    partners: list[str] = Field([], description="Proven nodes with which it failed.")
    time: Time | None = None


class JobBurnIn(ApiModel):
    """The burn-in of one job."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["JobBurnIn"] = "JobBurnIn"
    name: str
    namespace: str
    profile: Profile | None = Field(None, description="Left out: the FleetPolicy may not be read.")
    tested_profile: str = Field(
        "", description="Profile of the burn-in that the results are from; left out: no results, or it is not known."
    )
    attempt: int = 0
    state: str = Field(description="Of the job.")
    message: str = Field("", description="What it waits for.")
    tries: int = Field(0, description="How often in a row failed nodes were replaced.")
    all_reduce: str = Field("", description="What the newest all-reduce of the whole gang has come to.")
    all_reduce_time: Time | None = Field(None, description="Of the start that followed it.")
    corruption: CorruptionStatus | None = Field(None, description="Left out: the trainer has found nothing wrong.")
    nodes: list[BurnInNode] = Field([], description="Members by index, then those that have failed and left.")
    notes: list[str] = Field([], description="What limits this answer.")


async def find(session: Session, name: str) -> JobBurnIn:
    """Read a job, its record and the policy.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    from muster.cli.observe import policy_of

    job = await job_of(session, name)
    notes = []
    policy: FleetPolicySpec | None = None
    try:
        policy = (await policy_of(session.client))[0]
    except Forbidden:
        notes.append("the FleetPolicy may not be read, so the profile may be another one than the job's")
    return burn_in_report(job, await _record(session, job), policy, notes)


async def _record(session: Session, job: TrainingJob) -> GangSpec | None:
    from muster.kube.decode import Undecodable, custom
    from muster.world.names import gang_name

    path = paths.muster("gangs", namespace=job.metadata.namespace, name=gang_name(job.metadata.name, job.metadata.uid))
    try:
        gang = custom(Gang)(await session.client.get(path))
    except NotFound:
        return None
    if isinstance(gang, Undecodable):
        raise CliError(f"the record of {job.metadata.namespace}/{job.metadata.name} cannot be read: {gang.error}")
    return gang.spec


def burn_in_report(
    job: TrainingJob, record: GangSpec | None, policy: FleetPolicySpec | None, notes: Sequence[str]
) -> JobBurnIn:
    """Build the report of the burn-in from these objects."""
    own, preflight_policy = job.spec.preflight, policy.preflight if policy is not None else PreflightPolicy()
    profile: Profile | None = wanted(own, preflight_policy, record.least_profile if record else Profile.DISABLED)
    if policy is None and profile is Profile.DISABLED:
        profile = own.profile  # if it has none, only the policy has
    running = next((c for c in job.status.conditions if c.type == _RUNNING), None)
    nodes = _nodes(record, profile) if record else []
    whole = record.burn_in.all_reduce if record and record.burn_in else None
    return JobBurnIn(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        profile=profile,
        tested_profile=record.burn_in.profile if record and record.burn_in else "",
        attempt=record.attempt if record else job.status.attempt,
        state=job.status.state or "New",
        message=running.message if running and record and record.start is None else "",
        tries=record.burn_in.tries if record and record.burn_in else 0,
        all_reduce=whole.message if whole else "",
        all_reduce_time=whole.time if whole else None,
        corruption=job.status.corruption,
        nodes=nodes,
        notes=list(notes),
    )


def _nodes(record: GangSpec, profile: Profile | None) -> list[BurnInNode]:
    burn_in = record.burn_in or BurnIn(time=record.time)
    left_out = set(burn_in.untested)
    nodes = []
    for member in record.members:
        if not member.node:
            state = NodeState.MISSING
        elif member.node in left_out:
            state = NodeState.UNTESTED
        elif record.start is not None or profile is Profile.DISABLED:
            state = NodeState.TRAINING
        else:
            state = NodeState.TESTING
        message = burn_in.message if state is NodeState.UNTESTED else ""
        nodes.append(BurnInNode(name=member.node, worker=member.index, state=state, message=message))
    return [*nodes, *map(_failed, burn_in.failures)]


def _failed(failure: BurnInFailure) -> BurnInNode:
    return BurnInNode(
        name=failure.node,
        state=NodeState.FAILED,
        probe=failure.probe,
        message=failure.message,
        partners=failure.partners,
        time=failure.time,
    )


def render(console: Console, it: JobBurnIn, now: datetime) -> None:
    """Print it as text."""
    profile = str(it.profile) if it.profile else "as the fleet's"
    if it.tested_profile not in ("", profile):
        profile += f" (the results shown are from a burn-in with {it.tested_profile})"
    show.facts(
        console,
        [
            ("Job", f"{it.namespace}/{it.name}"),
            ("State", f"{it.state}, attempt {it.attempt}"),
            ("Burn-in", profile + (f", {show.count(it.tries, 'try', 'tries')} so far" if it.tries else "")),
            ("Now", it.message),
            ("Whole gang", it.all_reduce + (f" ({show.age(it.all_reduce_time, now)} ago)" if it.all_reduce else "")),
            ("Wrong", f"{it.corruption.message} ({show.age(it.corruption.time, now)} ago)" if it.corruption else ""),
        ],
    )
    if it.nodes:
        console.print()
        made = show.table(
            "NODE", "WORKER", "STATE", "PROBE", "AGO", "MESSAGE", whole=("NODE", "STATE"), numbers=("WORKER",)
        )
        for node in it.nodes:
            beside = f" (beside {', '.join(node.partners)})" if node.partners else ""
            state = Text(str(node.state), style=_STYLES.get(node.state, ""))
            ago = show.age(node.time, now)
            show.add(made, node.name or "none", node.worker, state, node.probe, ago, node.message + beside)
        console.print(made)
    for note in it.notes:
        console.print(Text(f"note: {show.printable(note)}", style="dim"))
