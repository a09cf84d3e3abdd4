"""Complete in shells: `kubectl muster completion SHELL`, and the program that kubectl's own completion runs.

kubectl completes `kubectl muster ...` by the executable `kubectl_complete-muster`, which is this one with `__complete`
before the words. It prints lines of value, tab and description, then a colon and a directive for kubectl (4: offer no
files). The scripts for `kubectl-muster` itself run the same. Commands and options come from the parser, and names of
jobs and nodes from the cluster. On any error nothing is offered or printed, since the user is typing a line.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any

import msgspec
import typer

from muster.cli import kubeconfig, show
from muster.cli.errors import CliError
from muster.kube import decode, paths
from muster.kube.errors import ApiError

NO_FILES = ":4"
MAX_NAMES = 500
DEADLINE_SECONDS = 3.0
# No shell should read other characters, whatever a cluster calls its objects.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
# Values of --output that a command refuses once a job or an experiment is named: they are pages of the fleet.
_REFUSED = {"report": ("markdown", "html")}


class Shell(StrEnum):
    """A shell for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {
    Shell.BASH: """\
# Completion of kubectl-muster in bash: source <(kubectl muster completion bash)
_kubectl_muster() {
    local line
    COMPREPLY=()
    while IFS='' read -r line; do
        [[ $line == :* ]] || COMPREPLY+=("${line%%$'\\t'*}")
    done < <(kubectl-muster __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _kubectl_muster kubectl-muster
""",
    Shell.ZSH: """\
#compdef kubectl-muster
# Completion of kubectl-muster in zsh: source <(kubectl muster completion zsh)
_kubectl_muster() {
    local line
    local -a found
    for line in "${(@f)$(kubectl-muster __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -z $line || $line == :* ]] || found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    _describe 'kubectl muster' found
}
compdef _kubectl_muster kubectl-muster
""",
    Shell.FISH: """\
# Completion of kubectl-muster in fish: kubectl muster completion fish | source
function __kubectl_muster
    set -l words (commandline -opc) (commandline -ct)
    kubectl-muster __complete $words[2..-1] 2>/dev/null | string match -v -r '^:'
end
complete -c kubectl-muster -f -a '(__kubectl_muster)'
""",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """One possible completion."""

    value: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """A request for names of objects.

    Attributes:
        resource: `trainingjobs`, `nodes` or `namespaces`.
        begin: how the word begins.
        options: the given kubeconfig, context and namespace.
    """

    resource: str
    begin: str
    options: tuple[str | None, str | None, str | None]


def command(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a completion script of a shell, for kubectl-muster.

    kubectl muster itself needs none (docs/cli.md).
    """
    typer.echo(SCRIPTS[shell], nl=False)


def wanted(root: Any, words: Sequence[str]) -> list[Offer] | Names:
    """Return what may stand at the cursor.

    Args:
        root: the command line's parser, a click Group.
        words: of the line after the program's name; the last one is being typed, and may be empty.
    """
    *before, current = [word for word in words if word != "="] or [""]  # bash splits --output=json into three words
    chosen, given, waiting, arguments = root, {}, None, []
    for word in before:
        if waiting is not None:
            given[waiting.name] = word
            waiting = None
            continue
        name, equals, value = word.partition("=")
        option = _option(chosen, root, name) if word.startswith("-") else None
        if option is not None and not option.is_flag:
            if equals:
                given[option.name] = value
            else:
                waiting = option
        elif not word.startswith("-") and chosen is root and word in root.commands:
            chosen = root.commands[word]
        elif not word.startswith("-"):
            arguments.append(word)
    options = (given.get("kubeconfig"), given.get("kube_context"), given.get("namespace"))
    name, equals, value = current.partition("=")
    if waiting is None and equals and name.startswith("--"):
        waiting, current = _option(chosen, root, name), value
    if waiting is not None and waiting.name == "namespace":
        return Names("namespaces", current, options)
    if waiting is not None:
        refused = _REFUSED.get(chosen.name, ()) if arguments or "experiment" in given else ()
        return [Offer(each) for each in _choices(waiting) if each.startswith(current) and each not in refused]
    if current.startswith("-"):
        known = [*chosen.params, *(root.params if chosen is not root else ())]
        helps = {
            opt: _first_line(param.help)
            for param in reversed(known)  # a command's own help of an option comes before the common one
            if param.param_type_name == "option"
            for opt in (*param.opts, *param.secondary_opts)
            if opt.startswith(current) and (opt.startswith("--") or current == "-")
        }
        return [Offer(opt, text) for opt, text in sorted(helps.items())]
    if chosen is root:
        return [
            Offer(name, _first_line(each.help))
            for name, each in root.commands.items()
            if name.startswith(current) and not each.hidden
        ]
    return _argument(chosen, arguments, current, options)


def _argument(
    chosen: Any, given: Sequence[str], current: str, options: tuple[str | None, str | None, str | None]
) -> list[Offer] | Names:
    """Return what an argument may be."""
    expected = [param for param in chosen.params if param.param_type_name == "argument"]
    if not expected or (len(given) >= len(expected) and expected[-1].nargs != -1):
        return []
    param = expected[min(len(given), len(expected) - 1)]
    what = (param.metavar or "").strip("[].").removesuffix("...")
    if what in ("JOB", "NODE"):
        return Names("trainingjobs" if what == "JOB" else "nodes", current, options)
    return [Offer(each) for each in _choices(param) if each.startswith(current)]


def _option(chosen: Any, root: Any, name: str) -> Any:
    known = (*chosen.params, *root.params)
    return next((param for param in known if name in (*param.opts, *param.secondary_opts)), None)


def _choices(param: Any) -> list[str]:
    """Return the values of a parameter that is an enumeration."""
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    return [str(each.value) for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


class _Status(msgspec.Struct):
    state: str = ""


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta
    status: _Status | None = None


async def names(asked: Names) -> list[Offer]:
    """Return the names in the cluster that begin like this.

    Raises:
        CliError: there is no cluster to ask.
        ApiError: it does not answer as it should.
    """
    files, context, given = asked.options
    target = kubeconfig.find(files, context)
    inside, slash, begin = asked.begin.rpartition("/")
    namespace = inside if slash else given or target.namespace
    ours = asked.resource == "trainingjobs"
    path = paths.muster(asked.resource, namespace=namespace) if ours else paths.core(asked.resource)
    # The client takes half a second to import: commands and options do without.
    from muster.kube.client import Client

    try:
        client = await Client.connect(target.files or None, target.context or None)
    except Exception as error:
        raise CliError(f"the kubeconfig cannot be used: {error}") from error
    try:
        page = decode.list_page(await client.get(path, {"limit": MAX_NAMES}, deadline_seconds=DEADLINE_SECONDS))
    finally:
        await client.close()
    found = [msgspec.json.decode(item, type=_Named) for item in page.items or ()]
    prefix = f"{inside}/" if slash else ""
    return [
        Offer(prefix + each.metadata.name, each.status.state if each.status and ours else "")
        for each in sorted(found, key=lambda each: each.metadata.name)
        if each.metadata.name.startswith(begin)
    ]


def lines(root: Any, words: Sequence[str], look: Callable[[Names], list[Offer]]) -> Iterator[str]:
    """Yield the lines for a shell."""
    found = wanted(root, words)
    for offer in look(found) if isinstance(found, Names) else found:
        if _PLAIN.fullmatch(offer.value.lstrip("-")):
            yield f"{offer.value}\t{show.on_one_line(offer.help)}".rstrip("\t")
    yield NO_FILES


def _read_names(asked: Names) -> list[Offer]:
    async def in_time() -> list[Offer]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await names(asked)

    try:
        return asyncio.run(in_time())
    except (CliError, ApiError, TimeoutError, OSError, msgspec.MsgspecError, ValueError):
        return []


def main(app: typer.Typer, words: Sequence[str]) -> None:
    """Answer a request of kubectl's completion, or of Muster's own scripts."""
    from typer.main import get_command

    for line in lines(get_command(app), words, _read_names):
        sys.stdout.write(f"{line}\n")
