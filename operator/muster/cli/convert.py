"""`kubectl muster convert`: print jobs of other systems as TrainingJobs on stdout, and what became of their fields on
stderr.

Documents of other kinds are printed as they were written, comments included. It reads no cluster, but for the way back
(`--to`, see `jobset`).
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from muster.cli import show
from muster.cli.session import ContextOption, KubeconfigOption, NamespaceOption, Options
from muster.convert.documents import Result, convert_objects, is_gang, title, why_outside
from muster.convert.fields import Notes
from muster.convert.requested import JobRequest
from muster.convert.slurm_script import convert_script, is_script

NOT_ALL = 2
_MOST_VALUES = 1_000_000  # of a document, beyond one for each of its characters
_MOST_MERGED = 10_000  # fields that an object may take in by merge keys
# Only a mark between documents may begin with it, by YAML's own rules.
_MARK = re.compile(r"^---(?=\s|$)[ \t]*\r?\n?", re.MULTILINE)

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="YAML or JSON, several documents in each, or an sbatch script; - for stdin. With --to: names of jobs, or "
        "files.",
    ),
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

    @property
    def title(self) -> str:
        """Kind and name of the object, for people."""
        return "sbatch script" if is_script(self.text) else title(self.value)


class ConvertTo(StrEnum):
    """What TrainingJobs are converted to."""

    JOBSET = "jobset"


def command(
    context: typer.Context,
    files: FilesArgument,
    to: Annotated[
        ConvertTo | None,
        typer.Option("--to", help="The way back: print TrainingJobs, by name or from files, as JobSets."),
    ] = None,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="Of sbatch scripts: the container that runs them.")
    ] = "",
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Print jobs of other systems, and sbatch scripts, as TrainingJobs.

    These are PyTorchJobs, TrainJobs, JobSets and Jobs. Other documents pass as they are; give the
    (Cluster)TrainingRuntimes of TrainJobs with them. What became of each field is told on stderr. Exit code 2: not all
    could be converted; the others are printed.
    """
    if to is not None:
        from muster.cli.jobset import jobsets

        options = Options(kubeconfig, kube_context, namespace, None).over(context.obj)
        typer.echo("---\n".join(map(as_document, jobsets(options, files))), nl=False)
        return
    try:
        documents = [document for file in files for document in _documents_or_script(file)]
    except OSError as error:
        typer.echo(f"error: {show.printable(f'{error.filename}: {error.strerror}')}", err=True)
        raise typer.Exit(1) from error
    except ValueError as error:
        typer.echo(f"error: {show.printable(' '.join(str(error).split()))}: give files with YAML or JSON", err=True)
        raise typer.Exit(1) from error
    converted = convert_objects([document.value for document in documents])
    results = [
        convert_script(document.text, script_name(document.where), JobRequest(image=image))
        if is_script(document.text)
        else result
        for document, result in zip(documents, converted, strict=True)
    ]
    printed, kept = [], []
    for document, result in zip(documents, results, strict=True):
        if result is None:
            printed.append(document.text)
            kept.append(title(document.value))
            outside = why_outside(document.value)
            if outside:
                message = f"{title(document.value)} ({document.where}) stays as it is: {outside}"
                typer.echo(show.printable(message), err=True)
        else:
            printed += [as_document(result.job)] if result.job else []
            _print_result(document, result)
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


def _print_result(document: Document, result: Result) -> None:
    first, *others = result.refused.split("\n")
    became = title(result.job) if result.job else f"refused: {first}"
    lines = [f"{document.title} ({document.where}): {became}", *(f"  refused: {other}" for other in others)]
    lines += note_lines(result.notes) if result.job else []
    typer.echo(show.printable("\n".join(lines)), err=True)


def note_lines(notes: Notes) -> list[str]:
    """Return what became of each field or option, a line each."""
    return [
        *(f"  became    {line}" for line in notes.became),
        *(f"  left out  {line}" for line in notes.left_out),
        *(f"  check     {line}" for line in notes.check),
    ]


def as_document(value: Any) -> str:
    """Format an object as YAML that people can read."""
    return show.yaml_text(value, _Dumper, width=10_000)


def read_documents(file: str) -> Iterator[Document]:
    """Yield the objects of a file. A List with another system's gang is replaced by its items.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no YAML; the text says where.
    """
    yield from _documents(read_text(file), name_of(file))


def read_text(file: str) -> str:
    """Return the text of a file, or of stdin for "-", without a byte order mark.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    return text.removeprefix("\ufeff")


def name_of(file: str) -> str:
    """Return what a file is called for people."""
    return "stdin" if file == "-" else file


def script_name(file: str) -> str:
    """Return what the job of a script is called where the script does not say it, as sbatch would."""
    return "sbatch" if file == "stdin" else Path(file).name


def _documents_or_script(file: str) -> Iterator[Document]:
    """Yield the objects of a file, or the script that it is.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no YAML; the text says where.
    """
    text = read_text(file)
    if is_script(text):
        yield Document(name_of(file), text, None)
    else:
        yield from _documents(text, name_of(file))


def _documents(text: str, name: str) -> Iterator[Document]:
    for number, part in enumerate((part for part in _MARK.split(text) if part.strip()), start=1):
        where = f"{name}, document {number}"
        try:
            # Through JSON: it refuses what Kubernetes could not take, and no two places share an object.
            loaded = yaml.load(part, Loader=_Loader)  # noqa: S506 - a safe loader
            if _values(loaded, {}) > _MOST_VALUES + len(part):
                raise ValueError(
                    "its aliases (*name) stand for too much, kubectl would not take it either: write it out"
                )
            value = json.loads(json.dumps(loaded, allow_nan=False))
        except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{where} cannot be read: {error}") from error
        items = list(_items(value, where))
        if any(is_gang(item) for _, item in items):
            yield from (Document(place, as_document(item), item) for place, item in items)
        elif value is not None:
            yield Document(where, part, value)


def _items(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a List and of Lists in it, each with its place; an object that is no List is its own.

    A typed list (PyTorchJobList) gives its items the kind and version that they lack, as kubectl does.
    """
    kind = str(value.get("kind")) if isinstance(value, dict) else ""
    items = value.get("items") if kind.endswith("List") else None
    if not isinstance(items, list):
        yield where, value
        return
    lacking = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind[: -len("List")]}
    for number, item in enumerate(items, start=1):
        yield from _items(lacking | item if isinstance(item, dict) else item, f"{where}, item {number}")


def _values(it: Any, counts: dict[int, int]) -> int:
    """Count the values of an object with all aliases written out. `counts` has those of objects so far, by id."""
    if not isinstance(it, dict | list):
        return 1
    if id(it) not in counts:
        counts[id(it)] = 1  # an object within itself is refused later
        counts[id(it)] += sum(_values(child, counts) for child in (it.values() if isinstance(it, dict) else it))
    return counts[id(it)]


_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")


class _Loader(yaml.SafeLoader):
    """Reads words as kubectl does: no times, and no numbers to the base of 60."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Limit what `<<` merges, and then merge: the base class copies all fields, also those of repeated objects."""
        merged = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        sources = [
            source for value in merged for source in (value.value if isinstance(value, yaml.SequenceNode) else [value])
        ]
        mappings = [source for source in sources if isinstance(source, yaml.MappingNode)]
        for mapping in {id(mapping): mapping for mapping in mappings}.values():
            self.flatten_mapping(mapping)
        if sum(len(mapping.value) for mapping in mappings) > _MOST_MERGED:
            raise yaml.YAMLError("it merges (<<) too much: write it out")
        super().flatten_mapping(node)


_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _INTEGER if tag.endswith(":int") else pattern)
        for tag, pattern in resolvers
        if not tag.endswith(":timestamp")
    ]
    for first, resolvers in _RESOLVERS.items()
}


class _Dumper(show.Dumper):
    """Writes scripts as blocks, which people can read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    return show.quoted(dumper, text)


_Dumper.add_representer(str, _text)
