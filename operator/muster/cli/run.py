"""`kubectl muster run -- COMMAND`: create the job whose workers run a command, and follow it, as srun does."""

import secrets
from collections.abc import Sequence
from typing import Annotated

import typer

from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options, OutputOption
from muster.cli.submitted import (
    DirectoryOption,
    DryRunOption,
    GpusOption,
    HoldOption,
    NameOption,
    TimeOption,
    VolumesOption,
    submit_result,
    volumes_of,
)
from muster.convert.requested import JobRequest, convert_command, job_name

_LONGEST_STEM = 32  # of a name that gets an ending


def command(
    context: typer.Context,
    arguments: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What runs on each node, behind --.")],
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="The container that runs the command.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", metavar="N", min=1, help="How many.")] = 1,
    gpus: GpusOption = None,
    tasks: Annotated[
        int,
        typer.Option(
            "--ntasks-per-node", metavar="N", min=1, help="Processes of the command on each node; 1 with torchrun."
        ),
    ] = 1,
    name: NameOption = "",
    time: TimeOption = "",
    volumes: VolumesOption = None,
    directory: DirectoryOption = "",
    hold: HoldOption = None,
    dry_run: DryRunOption = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job until it has ended.")] = True,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Run a command on its own nodes, until it has ended.

    Without --gpus-per-node each node has 8. Ctrl-C asks whether to detach or to cancel the job.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    request = JobRequest(
        image, name or _drawn_name(arguments), "", nodes, gpus, volumes_of(volumes), directory, time, hold
    )
    submit_result(options, "the command", convert_command(arguments, request, tasks), dry_run=dry_run, wait=wait)


def _drawn_name(arguments: Sequence[str]) -> str:
    """Return a name of the program that trains, with an ending that no other job has."""
    program = next((word for word in arguments if word.endswith(".py")), arguments[0])
    stem = job_name(program.rpartition("/")[2].removesuffix(".py")) or "run"
    return f"{stem[:_LONGEST_STEM].rstrip('-')}-{secrets.token_hex(3)}"
