"""`kubectl muster move JOB --node NODE`: have a job leave nodes after a save, and use others until that is undone.

All of it is in the job's spec (spec.placement.avoidNodes), so nothing hangs on this command once it has written that.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import ENDED, OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.api.trainingjob import TrainingJob
from muster.cli import show, waiting
from muster.cli.cluster_names import complete_node
from muster.cli.errors import CliError
from muster.cli.jobs import job_of
from muster.cli.progress import read_same_job
from muster.cli.reading import record_of
from muster.cli.session import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    job_argument,
    run,
)
from muster.cli.waiting import NoWaitOption, TimeoutOption
from muster.kube import paths
from muster.kube.errors import Conflict
from muster.world.names import shortened

# The operator writes the status meanwhile: of so many tries one finds the job as it was read.
TRIES = 10
SHOWN = 5  # names of nodes in one line


class MovedJob(ApiModel):
    """The nodes that a job leaves, or may use again."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["MovedJob"] = "MovedJob"
    name: str
    namespace: str
    nodes: list[str] = Field(description="As they were given.")
    undone: bool = Field(description="Whether the job may use them again.")
    clear: bool = Field(description="Whether no worker of the job is on them any more.")
    workers_on: list[str] = Field(description="The nodes of its workers now.")
    avoid_nodes: list[str] = Field(description="The job's spec.placement.avoidNodes now.")


def command(
    context: typer.Context,
    job: JobArgument,
    node: Annotated[
        list[str],
        typer.Option(
            "--node", metavar="NAME", help="A node to leave; may be given several times.", autocompletion=complete_node
        ),
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Let the job use these nodes again.")] = False,
    no_wait: NoWaitOption = False,
    timeout: TimeoutOption = 1800,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Have a job leave nodes after a save.

    Its workers there move once other nodes are free, and none of them comes back until --undo.
    """
    short, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    nodes = list(dict.fromkeys(name.removeprefix("node/") for name in node))

    async def moved(session: Session) -> MovedJob:
        current = await job_of(session, short)
        if undo:
            return await undo_move(session, current, nodes)
        return await move(session, current, nodes, 0 if no_wait else timeout, waiting.say)

    run(options, moved, render)


async def move(
    session: Session, job: TrainingJob, nodes: Sequence[str], timeout: int, report: Callable[[str], object]
) -> MovedJob:
    """Have a job avoid these nodes, and wait until it has left them.

    Args:
        session: with the job's namespace.
        job: as it was read just now.
        nodes: to leave.
        timeout: seconds of the wait; 0: it is not waited for.
        report: is called with how the wait goes, a line each time.

    Raises:
        CliError: the job has no worker there, or has ended.
        NotInTimeError: it has not left in time.
        ApiError: the API server did not answer as it should.
    """
    job = await _changed(session, job, nodes, undo=False)

    async def are_clear(current: TrainingJob) -> bool:
        return current.status.completion is not None or not await _workers_on(session, current) & set(nodes)

    over = False
    if timeout:
        job, over = await waiting.wait(session, job, timeout, are_clear, report)
        if not over:
            raise waiting.NotInTimeError(
                f"job {session.namespace}/{job.metadata.name} has not left {shortened(nodes, SHOWN)} "
                f"after {timeout} s: {waiting.state_of(job)}. It leaves once it can. "
                "To take that back, run the command with --undo"
            )
    return await _result(session, job, nodes, undone=False, clear=over)


async def undo_move(session: Session, job: TrainingJob, nodes: Sequence[str]) -> MovedJob:
    """Let a job use these nodes again.

    Raises:
        CliError: it does not avoid them.
        ApiError: the API server did not answer as it should.
    """
    job = await _changed(session, job, nodes, undo=True)
    return await _result(session, job, nodes, undone=True, clear=False)


async def _changed(session: Session, job: TrainingJob, nodes: Sequence[str], *, undo: bool) -> TrainingJob:
    """Put the nodes into the job's spec.placement.avoidNodes, or take them out; return the job.

    Raises:
        CliError: that makes no sense for this job, or others change it all the time.
        JobDeletedError: it was deleted or replaced.
        ApiError: the API server did not take it.
    """
    name, uid = job.metadata.name, job.metadata.uid
    for _ in range(TRIES):
        _check_lives(job)
        avoided = job.spec.placement.avoid_nodes
        if undo:
            _check_are_avoided(job, nodes)
            wanted = [node for node in avoided if node not in nodes]
        else:
            _check_are_used(job, nodes, await _workers_on(session, job))
            wanted = [*avoided, *(node for node in nodes if node not in avoided)]
        if wanted == avoided:
            return job
        version = {"uid": uid, "resourceVersion": job.metadata.resource_version}
        body = {"metadata": version, "spec": {"placement": {"avoidNodes": wanted}}}
        path = paths.muster("trainingjobs", namespace=session.namespace, name=name)
        try:
            await session.client.patch(path, body, query={"fieldValidation": "Strict"})
        except Conflict:
            job = await read_same_job(session, name, uid)
            continue
        return await read_same_job(session, name, uid)
    raise CliError(f"job {session.namespace}/{name} is changed by others all the time: run the command again")


def _check_lives(job: TrainingJob) -> None:
    called = f"job {job.metadata.namespace}/{job.metadata.name}"
    if job.metadata.deletion_timestamp is not None:
        raise CliError(f"{called} is being deleted: none of its workers moves any more")
    if job.status.state in ENDED or job.status.completion is not None:
        raise CliError(f"{called} has ended ({job.status.state}): none of its workers moves any more")
    if job.spec.eject:
        raise CliError(f"{called} leaves Muster, or has left it (spec.eject): none of its workers moves any more")


def _check_are_avoided(job: TrainingJob, nodes: Sequence[str]) -> None:
    avoided = job.spec.placement.avoid_nodes
    others = [name for name in nodes if name not in avoided]
    if others:
        avoids = f"it avoids {shortened(avoided, SHOWN)}" if avoided else "it avoids no node"
        raise CliError(
            f"job {job.metadata.namespace}/{job.metadata.name} does not avoid {shortened(others, SHOWN)}: {avoids}"
        )


def _check_are_used(job: TrainingJob, nodes: Sequence[str], used: frozenset[str]) -> None:
    """Check that the job is on these nodes, or avoids them already, as where the command is run once more."""
    others = [name for name in nodes if name not in used and name not in job.spec.placement.avoid_nodes]
    if others:
        workers = f"its workers are on {shortened(sorted(used), SHOWN)}" if used else "it has no nodes now"
        raise CliError(
            f"job {job.metadata.namespace}/{job.metadata.name} has no worker on {shortened(others, SHOWN)}: {workers}"
        )


async def _workers_on(session: Session, job: TrainingJob) -> frozenset[str]:
    """Return the nodes of the job's workers, and of those whose ranks are not proved to have ended.

    Raises:
        CliError: its record cannot be read.
    """
    record, unread = await record_of(session, job)
    if unread:
        called = f"job {session.namespace}/{job.metadata.name}"
        raise CliError(f"where the workers of {called} are is not known: {unread[0]}")
    return record.nodes if record is not None else frozenset()


async def _result(session: Session, job: TrainingJob, nodes: Sequence[str], *, undone: bool, clear: bool) -> MovedJob:
    return MovedJob(
        name=job.metadata.name,
        namespace=session.namespace,
        nodes=list(nodes),
        undone=undone,
        clear=clear,
        workers_on=sorted(await _workers_on(session, job)),
        avoid_nodes=job.spec.placement.avoid_nodes,
    )


def render(console: Console, it: MovedJob) -> None:
    """Print what becomes of the nodes, and where the workers are."""
    called, nodes = f"{it.namespace}/{it.name}", shortened(it.nodes, SHOWN)
    verb = "may use" if it.undone else "has left" if it.clear else "leaves"
    when = " again" if it.undone else "" if it.clear else " after its next save, once other nodes are free"
    console.print(Text(show.printable(f"{called} {verb} {nodes}{when}"), style="bold"))
    if it.workers_on:
        console.print(Text(show.printable(f"its workers are on {shortened(it.workers_on, SHOWN)}")))
    if not it.undone:
        options = " ".join(f"--node {name}" for name in it.nodes)
        back = f"kubectl muster move -n {it.namespace} {it.name} {options} --undo"
        console.print(Text(show.printable(f"to let it use them again: {back}")))
