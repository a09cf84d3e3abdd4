"""`kubectl muster shell JOB`: open a shell in a worker, by kubectl exec.

kubectl has the credentials and the terminal; no token passes through here.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from muster.cli import kubeconfig as config
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.jobs import SHOWN, job_of
from muster.cli.printed import container_of
from muster.cli.reading import pods_of
from muster.cli.session import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    Options,
    Session,
    connected,
    job_argument,
)
from muster.world.names import shortened

_SHELL = ("/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash; fi; exec sh")


@dataclass(frozen=True, slots=True)
class WorkerContainer:
    """The container of a worker that trains; `container` is "" where the job does not name it."""

    namespace: str
    pod: str
    container: str


def command(
    context: typer.Context,
    job: JobArgument,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="In place of a shell, behind --.", show_default=False)
    ] = None,
    worker: Annotated[int, typer.Option("--worker", "-w", metavar="N", min=0, help="Index of the worker.")] = 0,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Open a shell in a worker of a job, beside its ranks.

    It ends with the exit code of the shell, or of the command.
    """
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, None).over(context.obj)
    place = connected(options, lambda session: find(session, name, worker))
    try:
        code = _run(config.find(options.kubeconfig, options.context), place, arguments or _SHELL)
    except CliError as error:
        typer.echo(f"error: {show.printable(str(error))}", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


async def find(session: Session, name: str, worker: int) -> WorkerContainer:
    """Find the container of a worker.

    Raises:
        CliError: there is no such job or worker, or it does not run.
        ApiError: the API server did not answer as it should.
    """
    job = await job_of(session, name)
    full_name = f"{session.namespace}/{name}"
    pods, notes = await pods_of(session, job)
    if pods is None:
        raise CliError("; ".join(notes))
    running = {pod.index: pod.name for pod in pods if pod.phase == "Running" and not pod.deleting}
    if worker not in running:
        listed = shortened([str(index) for index in sorted(running)], SHOWN)
        remedy = f"give one that runs with --worker: {listed}" if running else "none runs now"
        raise CliError(
            f"worker {worker} of job {full_name} has no pod that runs: {remedy}; kubectl muster status {full_name} "
            "shows why"
        )
    return WorkerContainer(session.namespace, running[worker], container_of(job))


def _run(target: config.Target, place: WorkerContainer, arguments: Sequence[str]) -> int:
    """Run a command in a worker, with this terminal; returns its exit code.

    Raises:
        CliError: there is no kubectl.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise CliError("there is no kubectl on the PATH, which opens the shell: put it there")
    kubectl = [program, "exec", "--stdin", f"--namespace={place.namespace}"]
    kubectl += [f"--container={place.container}"] if place.container else []
    kubectl += ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    kubectl += [f"--context={target.context}"] if target.context else []
    environment = {**os.environ, **({"KUBECONFIG": target.files} if target.files else {})}
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for what runs in the worker
    try:
        return subprocess.run([*kubectl, place.pod, "--", *arguments], env=environment, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, previous)
