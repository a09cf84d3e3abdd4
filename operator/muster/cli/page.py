"""`kubectl muster page`: forward a port to the page (docs/page.md), for as long as the command runs.

kubectl itself forwards the port: it has the credentials, and every user of this command has it. No token passes through
here.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.cli import kubeconfig as config
from muster.cli import show
from muster.cli.errors import CliError, one_line
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    connected,
    print_finding,
)
from muster.kube import paths
from muster.kube.errors import Forbidden, NotFound

NAME = "muster-page"
NAMESPACE = "muster-page"
USER_ROLE = "muster-page-user"
PORT, PORT_VARIABLE, TLS_VARIABLE = 8444, "MUSTER_PAGE_PORT", "MUSTER_PAGE_TLS"
START_SECONDS = 30.0
END_SECONDS = 5.0
MAX_WORDS = 500  # characters of kubectl's message when it fails
_INSTALL = "apply it with kubectl apply -k manifests/overlays/page (in a release: -f page.yaml; docs/page.md)"
_FORWARDS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d{1,5}) -> ")


class PageAddress(ApiModel):
    """The forwarded address of the page; it is valid until the command ends."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["PageAddress"] = "PageAddress"
    url: str = Field(description="On this machine's loopback.")
    namespace: str = Field(description="Of the page itself.")
    login_instructions: str = Field(description="What to do there first.")


@dataclass(frozen=True, slots=True)
class Served:
    """How the page is served in its pod.

    Attributes:
        port: of the pod.
        tls: whether it speaks HTTPS there.
    """

    port: int = PORT
    tls: bool = False


def command(
    context: typer.Context,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=1, max=65535, help="On this machine. Default: one that is free."),
    ] = None,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Forward a local port to the page, until Ctrl-C.

    The port is on this machine's loopback alone. --namespace is the page's own.
    """
    options = Options(kubeconfig, kube_context, namespace, output).over(context.obj)
    # The context's namespace is that of the user's jobs, not of the page.
    inside = options.namespace or NAMESPACE
    served = connected(options, lambda session: find(session, inside))
    ends = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    previous_handlers = {number: signal.signal(number, _over) for number in ends}
    try:
        target = config.find(options.kubeconfig, options.context)
        with forwarding(target, inside, served, port) as (local, process):
            # `localhost` may be another program's ::1: only a certificate proves which one answers.
            url = f"https://localhost:{local}" if served.tls else f"http://127.0.0.1:{local}"
            way = PageAddress(url=url, namespace=inside, login_instructions=_LOG_IN)
            print_finding(options, way, render)
            sys.stdout.flush()
            _wait(process)
    except KeyboardInterrupt:  # at any moment from here on: the user ended it, and gets no message
        return
    except CliError as error:
        typer.echo(f"error: {show.printable(str(error))}", err=True)
        raise typer.Exit(1) from error
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


_LOG_IN = (
    "paste a token there: that of your kubeconfig, or what kubectl create token NAME --namespace NAMESPACE "
    "--duration 1h prints for a ServiceAccount that may see what you want to see"
)


async def find(session: Session, namespace: str) -> Served:
    """Find a page that can be reached.

    Raises:
        CliError: it is not installed, not ready, or may not be read; says what to do.
        ApiError: the API server did not answer as it should.
    """
    try:
        data = await session.client.get(paths.group("apps/v1", "deployments", namespace=namespace, name=NAME))
    except NotFound as error:
        raise CliError(f"there is no page: no deployment {NAME} in namespace {namespace}: {_INSTALL}") from error
    except Forbidden as error:
        raise CliError(f"{one_line(error.message)}: {_ask_for(namespace)}") from error
    return served_by(json.loads(data), namespace)


def served_by(deployment: Any, namespace: str) -> Served:
    """Return how this deployment serves the page.

    Raises:
        CliError: no pod of it is ready.
    """
    if not (deployment.get("status") or {}).get("readyReplicas"):
        if not deployment["spec"].get("replicas", 1):
            raise CliError(
                f"the page is switched off: kubectl -n {namespace} scale deployment/{NAME} --replicas=1 starts it"
            )
        raise CliError(
            f"the page is not ready. Try again in a moment. If that does not help, see kubectl -n {namespace} describe "
            f"pods and kubectl -n {namespace} logs deployment/{NAME}"
        )
    variables: dict[str, str] = {}
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        if container.get("name") == "page":
            variables = {variable["name"]: str(variable.get("value") or "") for variable in container.get("env") or ()}
    given = variables.get(PORT_VARIABLE, "")
    # With an invalid port the page refuses to start.
    return Served(int(given) if given.isascii() and given.isdigit() else PORT, bool(variables.get(TLS_VARIABLE)))


@contextlib.contextmanager
def forwarding(
    target: config.Target, namespace: str, served: Served, port: int | None = None
) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """Forward a port of this machine to the page; yields the port, and the kubectl process.

    Raises:
        CliError: there is no kubectl, or it failed; has its message.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise CliError("there is no kubectl on the PATH, which forwards the port: put it there")
    arguments = [program, "port-forward", "--address=127.0.0.1", f"--namespace={namespace}"]
    arguments += [f"--context={target.context}"] if target.context else []
    arguments += [f"deployment/{NAME}", f"{port or ''}:{served.port}"]
    environment = {**os.environ, **({"KUBECONFIG": target.files} if target.files else {})}
    with tempfile.TemporaryFile("w+", errors="replace") as error_output:
        process = subprocess.Popen(
            arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=error_output, text=True
        )
        try:
            yield _forwarded(process, error_output, namespace), process
        finally:
            _end(process)


def _forwarded(process: "subprocess.Popen[str]", error_output: IO[str], namespace: str) -> int:
    """Return the port, as soon as it is forwarded."""
    assert process.stdout is not None
    # A silent kubectl is ended, and with it the reading.
    late = threading.Timer(START_SECONDS, process.kill)
    late.start()
    try:
        for line in process.stdout:
            if match := _FORWARDS.match(line):
                return int(match[1])
    finally:
        late.cancel()
    _end(process)
    error_output.seek(0)
    words = one_line(error_output.read())[-MAX_WORDS:] or f"kubectl said nothing for {START_SECONDS:.0f} s"
    remedy = _ask_for(namespace) if "forbidden" in words.lower() else "try again, or another --port"
    raise CliError(f"the page's port could not be forwarded: {words}: {remedy}")


def _wait(process: "subprocess.Popen[str]") -> None:
    """Wait until the user ends this program.

    Raises:
        CliError: kubectl has ended by itself.
    """
    assert process.stdout is not None
    for _ in process.stdout:  # a line for each connection: it is not printed, but the pipe must not fill
        pass
    raise CliError("the connection to the page was lost: run the command again")


def _over(*_: object) -> None:
    raise KeyboardInterrupt


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ask_for(namespace: str) -> str:
    return f"ask for Role {USER_ROLE} in namespace {namespace} (by a RoleBinding there)"


def render(console: Console, it: PageAddress) -> None:
    """Print the address."""
    console.print(Text(it.url, style="bold"), soft_wrap=True)
    console.print(Text(it.login_instructions), soft_wrap=True)
    console.print(Text("Ctrl-C ends it", style="dim"))
