"""Share between commands their options, the connection, and how they end.

Tests: tests/unit/cli/test_commands.py.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from muster.answers import clock
from muster.answers.without_jobs import is_without_jobs
from muster.api.base import ApiModel
from muster.cli import kubeconfig, show
from muster.cli.cluster_names import complete_job, complete_namespace
from muster.cli.errors import CliError, error_text, may_lack_jobs, without_jobs
from muster.kube.errors import ApiError, NoCredentials

if TYPE_CHECKING:
    from muster.kube.client import Client

Found = TypeVar("Found", bound=ApiModel)
Done = TypeVar("Done")


class Output(StrEnum):
    """Format in which a command prints its result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig to use. Default: as kubectl.")
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Namespace. Default: the context's.",
        autocompletion=complete_namespace,
    ),
]
JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Name of the TrainingJob, or NAMESPACE/NAME.", autocompletion=complete_job),
]
OutputOption = Annotated[
    Output | None, typer.Option("--output", "-o", help="A table for people, or json or yaml for programs.")
]


@dataclass(frozen=True, slots=True)
class Options:
    """The options that stand before or after any command; None: not given."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    output: Output | None = None

    def over(self, earlier: object) -> "Options":
        """Return these options, with those from before the command's name where these are not given."""
        if not isinstance(earlier, Options):
            return self
        return Options(
            self.kubeconfig if self.kubeconfig is not None else earlier.kubeconfig,
            self.context if self.context is not None else earlier.context,
            self.namespace if self.namespace is not None else earlier.namespace,
            self.output if self.output is not None else earlier.output,
        )


def job_argument(job: str, namespace: str | None) -> tuple[str, str | None]:
    """Parse name and namespace of a job that may be written NAMESPACE/NAME.

    Raises:
        typer.BadParameter: no job is named, or two namespaces are.
    """
    inside, slash, name = job.rpartition("/")
    if not name or (slash and not inside) or "/" in inside:
        raise typer.BadParameter(f"{job!r} names no job: write its name, or NAMESPACE/NAME", param_hint="JOB")
    if slash and namespace and namespace != inside:
        raise typer.BadParameter(f"{job} names a namespace, and --namespace another one: give one of them")
    return name, inside or namespace


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to a cluster.

    Attributes:
        client: the connection.
        namespace: of the command.
        context: name of the kubeconfig's context, "" in a pod.
        user: the context's name for its user, "" in a pod.
    """

    client: "Client"
    namespace: str
    context: str = ""
    user: str = ""

    def now(self) -> datetime:
        """Return the time by the cluster's clock once the API server has answered.

        This machine's clock counts where the two agree, or without the server's time.
        """
        return clock.current_time(self.client.answers.server_time())


def run(
    options: Options, find: Callable[[Session], Awaitable[Found]], render: Callable[[Console, Found], None]
) -> None:
    """Find a result and print it.

    Args:
        options: of the command line.
        find: asks the API server.
        render: prints the result as text.

    Raises:
        typer.Exit: with code 1 when it could not be found; one line on stderr says why.
    """
    print_finding(options, connected(options, find), render)


def run_with_ages(
    options: Options,
    find: Callable[[Session], Awaitable[Found]],
    render: Callable[[Console, Found, datetime], None],
) -> None:
    """Find a result and print it with ages by the cluster's clock, which also wrote the times.

    Args:
        options: of the command line.
        find: asks the API server.
        render: prints the result as text, as of a moment.

    Raises:
        typer.Exit: as of `run`.
    """

    async def as_of(session: Session) -> tuple[Found, datetime]:
        return await find(session), session.now()

    result, now = connected(options, as_of)
    print_finding(options, result, lambda console, it: render(console, it, now))


def connected(options: Options, act: Callable[[Session], Awaitable[Done]]) -> Done:
    """Do something with a connection.

    Raises:
        typer.Exit: with code 1 when it could not be done; one line on stderr says why.
    """
    try:
        return asyncio.run(_with_session(options, act))
    except CliError as error:
        typer.echo(f"error: {show.printable(str(error))}", err=True)
        raise typer.Exit(1) from error


def print_finding(options: Options, result: Found, render: Callable[[Console, Found], None]) -> None:
    """Print a result in the format of the options."""
    if options.output is Output.JSON:
        typer.echo(show.as_json(result))
    elif options.output is Output.YAML:
        typer.echo(show.as_yaml(result), nl=False)
    else:
        typer.echo(show.as_text(lambda console: render(console, result)), nl=False, color=True)


async def _with_session(options: Options, act: Callable[[Session], Awaitable[Done]]) -> Done:
    session = await open_session(options)
    try:
        return await act(session)
    except ApiError as error:
        raise await explained(session, error) from error
    finally:
        await session.client.close()


async def open_session(options: Options) -> Session:
    """Connect to the cluster of these options. The caller closes the session's client.

    Raises:
        CliError: there is no such kubeconfig or context, or it cannot be used.
    """
    target = kubeconfig.find(options.kubeconfig, options.context)
    # The client takes half a second to import: --help and usage errors do without.
    from muster.kube.client import Client

    try:
        client = await Client.connect(target.files or None, target.context or None)
    except NoCredentials as error:
        why = error.why
        raise CliError(f"the kubeconfig {target.files} cannot be used for context {target.context}: {why}") from error
    return Session(client, options.namespace or target.namespace, target.context, target.user)


async def explained(session: Session, error: ApiError) -> CliError:
    """Turn an answer of the API server into an error for its user; the cluster may lack the kind."""
    with contextlib.suppress(ApiError):
        if may_lack_jobs(error) and await is_without_jobs(session.client):
            return without_jobs(session.context)
    return error_text(error, session.context)
