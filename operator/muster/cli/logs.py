"""`kubectl muster logs JOB`: print workers' output from the API server, and what is kept of a pod that is gone."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from muster.answers.jobstatus import pod_state
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.cli import show
from muster.cli.errors import CliError, one_line
from muster.cli.follow import follow
from muster.cli.jobs import job_of
from muster.cli.printed import (
    MAX_WORKERS,
    PRINTED_NOTHING,
    JobLogs,
    LogRequest,
    NothingAskedForError,
    PodLog,
    Wanted,
    container_of,
    lines_of,
    of_attempt,
    pods_by_worker,
    remains,
    shortened,
    tail_of,
    wanted,
    worker_text,
)
from muster.cli.reading import pods_of, record_of
from muster.cli.session import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    Options,
    Output,
    OutputOption,
    Session,
    connected,
    job_argument,
    run,
)
from muster.kube import paths
from muster.kube.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized
from muster.world.views import PodView

AT_ONCE = 8
# The most that is read of a log to find one attempt in it.
MAX_LINES, MAX_BYTES = 50_000, 16 * 1024 * 1024
DEADLINE_SECONDS = 30.0


def command(
    context: typer.Context,
    job: JobArgument,
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="N", min=0, help="Only the worker that has this rank.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only the worker that failed (last, or in --attempt).")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=0, help="Only what was printed in this attempt.")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", metavar="LINES", min=1, max=MAX_LINES, help="Of each worker. Default: 100 of one, 10 of several."
        ),
    ] = None,
    follows: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Go on with what they print until the job ends, in pods that replace lost ones, too."
        ),
    ] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Print what workers have printed.

    Where a pod is gone, its log is gone: the command says so, and prints what the job's record has.
    """
    if failed and rank is not None:
        raise typer.BadParameter("--failed already names the worker: give one of the two", param_hint="--rank")
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    if follows:
        if failed or attempt is not None:
            raise typer.BadParameter(
                "an attempt that has ended cannot be followed: leave out --failed and --attempt", param_hint="--follow"
            )
        if options.output not in (None, Output.TABLE):
            raise typer.BadParameter("--follow prints lines as they come: leave out --output", param_hint="--follow")
        connected(options, lambda session: follow(session, name, rank, tail))
        return
    run(options, lambda session: find(session, name, LogRequest(rank, failed, attempt), tail), render)


async def find(session: Session, name: str, asked: LogRequest, tail: int | None) -> JobLogs:
    """Read the logs that answer the request.

    Raises:
        CliError: there is no such job, rank or attempt, nothing has failed, or the job does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    job = await job_of(session, name)
    (record, unread), (pods, hidden) = await asyncio.gather(record_of(session, job), pods_of(session, job))
    try:
        workers, attempt, worker_notes = wanted(job, record, asked)
    except NothingAskedForError as error:
        raise CliError(f"{job.metadata.namespace}/{name}: {error}") from error
    notes = [*unread, *hidden, *worker_notes]
    if len(workers) > MAX_WORKERS:
        notes.append(
            f"{len(workers) - MAX_WORKERS} more workers: choose one with --rank N, or the one that failed with --failed"
        )
    if attempt is not None and job.spec.launch.mode is LaunchMode.PLAIN:
        notes.append("in mode Plain a log does not show where an attempt begins: all of it is printed")
        attempt_in_log = None
    else:
        attempt_in_log = attempt
    shown = workers[:MAX_WORKERS]
    lines = tail or tail_of(len(shown))
    worker_pods = None if pods is None else pods_by_worker(pods)
    turn = asyncio.Semaphore(AT_ONCE)

    async def read(worker: Wanted) -> PodLog:
        if worker_pods is None:
            log = _row(worker, None, problem="its pod may not be read")
        else:
            log = await _read(session, job, worker, worker_pods.get(worker.index, []), attempt_in_log, lines, turn)
        if log.lines:
            return log
        return log.model_copy(update={"incidents": remains(job, record, worker, attempt)})

    return JobLogs(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        attempt=attempt,
        logs=list(await asyncio.gather(*map(read, shown))),
        notes=notes,
    )


async def _read(
    session: Session,
    job: TrainingJob,
    worker: Wanted,
    pods: Sequence[PodView],
    attempt: int | None,
    tail: int,
    limit: asyncio.Semaphore,
) -> PodLog:
    """Read the newest pod that has the requested lines; else return why none has."""
    first_log: PodLog | None = None
    for pod in pods:
        async with limit:
            log = await _log(session, job, worker, pod, attempt, tail)
        if log.lines:
            return log
        first_log = first_log or log
    if first_log is None:
        return _row(worker, None, problem="its pod is gone, and its log with it")
    return first_log


async def _log(
    session: Session, job: TrainingJob, worker: Wanted, pod: PodView, attempt: int | None, tail: int
) -> PodLog:
    query: dict[str, str | int] = {"tailLines": tail if attempt is None else MAX_LINES, "limitBytes": MAX_BYTES}
    container = container_of(job)
    if container:
        query["container"] = container
    path = paths.core("pods", namespace=pod.namespace, name=pod.name, subresource="log")
    try:
        data = await session.client.get(path, query, deadline_seconds=DEADLINE_SECONDS)
    except Unauthorized:
        raise
    except Forbidden:
        return _row(worker, pod, problem="its log may not be read: ask for the cluster's role view in this namespace")
    except NotFound:
        return _row(worker, pod, problem="its pod is gone, and its log with it")
    except Invalid as error:  # e.g. its container has not begun
        return _row(worker, pod, problem=f"it has no log: {one_line(error.message)}")
    except ApiError as error:  # most often the kubelet does not answer
        return _row(
            worker, pod, problem=f"its log cannot be read, {pod.node or 'its node'} may be lost: {one_line(str(error))}"
        )
    lines: list[str] | None = lines_of(data)
    if attempt is not None:
        lines = of_attempt(lines or [], attempt)
        if lines is None:
            return _row(
                worker, pod, problem=f"attempt {attempt} did not run in this pod, or its part of the log is gone"
            )
    lines = lines or []
    problem = "" if lines else PRINTED_NOTHING
    if len(data) >= MAX_BYTES:
        problem = f"only {MAX_BYTES >> 20} MiB of it were read: kubectl logs has the rest"
    kept = lines[-tail:]
    return _row(worker, pod, problem=problem).model_copy(
        update={"lines": kept, "omitted_lines": len(lines) - len(kept)}
    )


def _row(worker: Wanted, pod: PodView | None, problem: str) -> PodLog:
    return PodLog(
        worker=worker.index,
        ranks=worker.ranks,
        node=pod.node if pod else worker.node,
        pod=pod.name if pod else "",
        state=pod_state(pod) if pod else "",
        problem=problem,
    )


def render(console: Console, it: JobLogs) -> None:
    """Print it as text."""
    if not it.logs:
        console.print(Text(f"{it.namespace}/{it.name} has no workers now"))
    for place, log in enumerate(it.logs):
        if place:
            console.print()
        console.print(Text(show.on_one_line(_head(log, it.attempt)), style="bold"))
        if log.omitted_lines:
            console.print(
                Text(
                    f"... {show.count(log.omitted_lines, 'line')} before: --tail {log.omitted_lines + len(log.lines)}",
                    style="dim",
                )
            )
        for line in log.lines:
            console.print(Text(shortened(show.printable(line))), soft_wrap=True)
        if log.problem:
            console.print(Text(show.on_one_line(log.problem), style="yellow"), soft_wrap=True)
        for left in log.incidents:
            failure_text = f"what the record of incident {left.incident} ({left.reason}) has: {left.message}"
            console.print(Text(show.on_one_line(failure_text)), soft_wrap=True)
            for line in left.last_lines:
                console.print(Text(f"  {show.on_one_line(line)}"), soft_wrap=True)
        if not log.lines and not log.incidents:
            console.print(
                Text("the record has nothing of it either: where logs are collected, look there", style="dim")
            )
    for note in it.notes:
        console.print(Text(f"note: {show.on_one_line(note)}", style="dim"), soft_wrap=True)


def _head(log: PodLog, attempt: int | None) -> str:
    pod = f", pod {log.pod} ({log.state})" if log.pod else ""
    where = f" on {log.node}" if log.node else ""
    of = f", attempt {attempt}" if attempt is not None else ""
    return f"==> {worker_text(Wanted(log.worker, log.ranks, log.node))}{pod}{where}{of} <=="
