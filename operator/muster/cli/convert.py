"""`kubectl muster convert`: jobs of other systems as TrainingJobs, on stdout, and what became of their fields, on stderr.

Documents of other kinds are printed as they were written, comments included. It asks no cluster.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from muster.cli import show
from muster.convert.documents import VERSIONS, Result, converted, title

NOT_ALL = 2
# Nothing but a mark between documents may begin with it, by YAML's own rules.
_MARK = re.compile(r"^---(?=\s|$)[ \t]*\r?\n?", re.MULTILINE)

FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="YAML or JSON, several documents in each; - for stdin.")
]


@dataclass(frozen=True, slots=True)
class Document:
    """One object of the input.

    Attributes:
        where: file and place within, for people.
        text: as it was written; it may be one of several in a List.
        value: what was read.
    """

    where: str
    text: str
    value: Any


def command(files: FilesArgument) -> None:
    """Make TrainingJobs of PyTorchJobs, TrainJobs and JobSets, on stdout.

    Other documents pass as they are; give the (Cluster)TrainingRuntimes of TrainJobs with them. What became of each field is told
    on stderr. Exit code 2: not all could be converted; the others are printed.
    """
    try:
        documents = [each for file in files for each in _documents(file)]
    except (OSError, ValueError) as error:
        typer.echo(f"error: {show.printable(' '.join(str(error).split()))}: give files with YAML or JSON", err=True)
        raise typer.Exit(1) from error
    results = converted([document.value for document in documents])
    printed, kept = [], []
    for document, result in zip(documents, results, strict=True):
        if result is None:
            printed.append(document.text)
            kept.append(title(document.value))
        else:
            printed += [as_document(result.job)] if result.job else []
            _tell(document, result)
    # A document that is refused is not printed: kubectl apply would start it in the other system.
    typer.echo("---\n".join(text if text.endswith("\n") else f"{text}\n" for text in printed), nl=False)
    refused = sum(1 for result in results if result and result.refused)
    made = len(printed) - len(kept)
    typer.echo(
        f"{made} converted, {refused} refused and not printed, passed as they are: {', '.join(kept) or 'none'}",
        err=True,
    )
    if refused:
        raise typer.Exit(NOT_ALL)


def _tell(document: Document, result: Result) -> None:
    became = title(result.job) if result.job else f"refused: {result.refused}"
    lines = [f"{title(document.value)} ({document.where}): {became}"]
    if result.job:
        lines += [f"  became    {each}" for each in result.notes.became]
        lines += [f"  left out  {each}" for each in result.notes.left_out]
        lines += [f"  check     {each}" for each in result.notes.check]
    typer.echo(show.printable("\n".join(lines)), err=True)


def as_document(value: Any) -> str:
    """An object as YAML that people can read."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _documents(file: str) -> Iterator[Document]:
    """The objects of a file. A List with a job to convert counts as what is in it."""
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    name = "stdin" if file == "-" else file
    for number, part in enumerate((part for part in _MARK.split(text) if part.strip()), start=1):
        where = f"{name}, document {number}"
        try:
            # Through JSON: what Kubernetes could not take is refused, and no two places share an object.
            value = json.loads(json.dumps(yaml.load(part, Loader=_Loader), allow_nan=False))  # noqa: S506 - a safe loader
        except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{where} cannot be read: {error}") from error
        items = value.get("items") if isinstance(value, dict) and str(value.get("kind")).endswith("List") else None
        if isinstance(items, list) and any(isinstance(each, dict) and each.get("kind") in VERSIONS for each in items):
            for place, each in enumerate(items, start=1):
                yield Document(f"{where}, item {place}", as_document(each), each)
        elif value is not None:
            yield Document(where, part, value)


_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")


class _Loader(yaml.SafeLoader):
    """Reads words as kubectl does: no times, and no numbers to the base of 60."""


_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _INTEGER if tag.endswith(":int") else pattern) for tag, pattern in known if not tag.endswith(":timestamp")
    ]
    for first, known in _RESOLVERS.items()
}


class _Dumper(yaml.SafeDumper):
    """Writes scripts as blocks, which people can read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
