"""`kubectl muster submit SCRIPT`: create the job that an sbatch script describes."""

from typing import Annotated

import typer

from muster.cli import show
from muster.cli.convert import read_text, script_name
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
from muster.convert.requested import JobRequest
from muster.convert.slurm_script import convert_script


def command(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="With #SBATCH lines; - for stdin.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Of the script, behind --.", show_default=False)
    ] = None,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="The container that runs the script. Default: the script's.")
    ] = "",
    name: NameOption = "",
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", metavar="N", min=1, help="How many. Default: the script's.")
    ] = None,
    gpus: GpusOption = None,
    volumes: VolumesOption = None,
    directory: DirectoryOption = "",
    time: TimeOption = "",
    hold: HoldOption = None,
    dry_run: DryRunOption = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job until it has ended.")] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Create the job that an sbatch script describes.

    What became of each #SBATCH line and each srun is told. Exit code 2: no gang can run the script.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    try:
        text = read_text(script)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        typer.echo(f"error: {show.printable(f'{script}: {why}')}: give the path of an sbatch script", err=True)
        raise typer.Exit(1) from error
    request = JobRequest(
        image, name, "", nodes, gpus, volumes_of(volumes), directory, time, hold, tuple(arguments or ())
    )
    result = convert_script(text, script_name("stdin" if script == "-" else script), request)
    submit_result(options, script, result, dry_run=dry_run, wait=wait)
