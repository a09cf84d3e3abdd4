"""The executable `kubectl-muster`, which kubectl runs as `kubectl muster`: its commands and how it ends.

Exit codes: 0 done, 1 failed (one line on stderr says why and what to do), 2 usage, or a document that cannot be
converted.

Tests: tests/unit/cli/test_commands.py.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from muster import __version__
from muster.answers.text_parts import on_one_line
from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options, OutputOption

# The module of each command, and its function there.
_FUNCTIONS = {
    "submit": ("submit", "command"),
    "run": ("run", "command"),
    "status": ("status", "command"),
    "top": ("top", "command"),
    "queue": ("queue", "command"),
    "report": ("report", "command"),
    "logs": ("logs", "command"),
    "shell": ("shell", "command"),
    "cancel": ("cancel", "command"),
    "nodes": ("nodes", "command"),
    "cordon": ("decide", "cordon"),
    "release": ("decide", "release"),
    "check": ("check", "command"),
    "lost": ("lost", "command"),
    "what-if": ("whatif", "command"),
    "page": ("page", "command"),
    "bundle": ("bundle", "command"),
    "doctor": ("doctor", "command"),
    "completion": ("completion", "command"),
    "convert": ("convert", "command"),
    "save": ("save", "command"),
    "move": ("move", "command"),
    "fork": ("fork", "command"),
    "requeue": ("requeue", "command"),
    "eject": ("eject", "command"),
    "uninstall": ("uninstall", "command"),
}

# What stands in the place of commands that people know from Slurm and from kubectl.
INSTEAD = {
    name: remedy
    for names, remedy in {
        "scancel delete stop kill": "kubectl muster cancel JOB ends a job, and its checkpoints stay",
        "suspend hold": """kubectl patch tj JOB --type=merge -p '{"spec":{"suspend":true}}' saves and stops a job""",
        "resume": """kubectl patch tj JOB --type=merge -p '{"spec":{"suspend":false}}' lets a suspended job go on""",
        "squeue": "kubectl muster queue shows who waits and when it may start, and kubectl muster top all jobs",
        "list jobs": "kubectl muster top shows all jobs, and kubectl muster status JOB why one waits",
        "sinfo": "kubectl muster nodes shows the fleet",
        "sacct": "kubectl muster report JOB accounts for a job",
        "scontrol": "kubectl muster status JOB shows the state of a job",
        "sbatch": "kubectl muster submit SCRIPT creates the job of an sbatch script",
        "srun": "kubectl muster run -- COMMAND starts a job, and kubectl muster shell JOB a shell in a worker",
        "salloc": "no nodes are held without a program: kubectl muster run -- COMMAND starts one on nodes of its own",
        "drain": "kubectl muster cordon NODE --reason WHY keeps workers off a node",
        "version": "kubectl muster --version tells that of the command, and kubectl muster doctor those in the cluster",
        "exec": "kubectl muster shell JOB is a shell in a worker",
    }.items()
    for name in names.split()
}

# What stands behind the program that `run` starts is the program's, as it is for srun.
_SETTINGS = {"run": {"allow_interspersed_args": False}}


class Commands(Mapping[str, Any]):
    """The commands by name. Each is imported on demand: all of them together take half a second."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module, function = _FUNCTIONS[name]
            single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            single.command(name, context_settings=_SETTINGS.get(name))(
                getattr(importlib.import_module(f"muster.cli.{module}"), function)
            )
            made = self._made[name] = typer.main.get_command(single)
            made.short_help = (made.help or "").partition("\n")[0]  # completion would cut it at 45 characters
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in _FUNCTIONS

    def __iter__(self) -> Iterator[str]:
        return iter(_FUNCTIONS)

    def __len__(self) -> int:
        return len(_FUNCTIONS)


class _Group(TyperGroup):
    """The parser, which knows its commands only by name until one is run."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = Commands()  # type: ignore[assignment]  # nothing is ever added

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with; a command of another system gets a hint."""
        if args[0] in INSTEAD and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{args[0]}'. {INSTEAD[args[0]]}.")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group, add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version of the command."),
    ] = False,
) -> None:
    """What Muster knows of training jobs and of the fleet. The options may stand before or after the command.

    Pages that messages name as docs/... are in the folder of the release, and in the repository.
    """
    context.obj = Options(kubeconfig, kube_context, namespace, output)


def complete() -> None:
    """Complete the words of this process, as kubectl's completion asks its plugin to."""
    _complete(sys.argv[1:])


def _complete(words: Sequence[str]) -> None:
    from muster.cli import completion

    completion.answer_kubectl(app, words)


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:2] == ["__complete"]:
        _complete(sys.argv[2:])
        return
    if instruction := os.environ.get("_KUBECTL_MUSTER_COMPLETE"):
        from muster.cli import completion

        completion.answer_shell(app, instruction)
        return
    try:
        app(prog_name="kubectl muster")
    except Exception as error:  # noqa: BLE001 - the last resort: people get a line that they can report
        error_text = on_one_line(str(error))
        typer.echo(
            f"error: a defect of kubectl muster ({type(error).__name__}: {error_text}): please report it", err=True
        )
        sys.exit(1)
