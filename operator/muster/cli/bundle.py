"""`kubectl muster bundle`: everything for a bug report in one archive, without secrets.

Secrets and ConfigMaps are never read. What may not be read, or is too large, is left out, and the archive says so: it
is useful all the same. The archive's size is bounded, whatever a cluster holds. Names of other tenants' jobs are in it,
as far as its user may read them.
"""

import asyncio
import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel, Time
from muster.api.namespaces import SYSTEM
from muster.cli import recorded_decisions, show
from muster.cli.cluster_names import complete_job
from muster.cli.convert import as_document
from muster.cli.corpus import FOLDER, pieces
from muster.cli.errors import CliError, one_line
from muster.cli.jobs import read_job
from muster.cli.printed import container_of
from muster.cli.session import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    job_argument,
    run,
)
from muster.kube import decode, paths
from muster.kube.errors import ApiError, NotFound, Unauthorized, Unreachable
from muster.kube.pages import PAGE_SIZE
from muster.world.redact import Redactor, values_of
from muster.world.views import JOB_UID_LABEL

# The parts of Muster: folder in the archive, namespace, workload that runs its pods. All but the first may be absent.
PARTS = (
    ("operator", SYSTEM, "deployments"),
    ("agents", "muster-agent", "daemonsets"),
    ("checkers", "muster-check", "daemonsets"),
    ("page", "muster-page", "deployments"),
)
MAX_BYTES = 64 * 1024 * 1024  # of all files before they are packed
MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_OBJECTS = 2000  # of one kind
MAX_LOGS = 32
LOG_LINES, LOG_BYTES, MOST_LOG_BYTES = 5000, 1024 * 1024, 16 * 1024 * 1024
DEADLINE_SECONDS = 30.0
NEVER = (
    ("Secrets and ConfigMaps", "never asked for"),
    ("values of variables, and what looks like a token, a key or a password", "redacted in every file"),
)
_HOW_TO_REPORT = (
    "## What was read wrong",
    "",
    f"{FOLDER}/ has kernel lines, marks of nodes, the manifest, last lines of ranks and printed lines as files of "
    "tests/data/reports, with other",
    "names and addresses. Keep the cases that were read wrong, fill in meaning and right, and send the file: "
    "docs/reporting.md says how.",
    f"{recorded_decisions.FOLDER}/ has what the operator decided last about the job and its nodes, with what it saw: "
    "python3 -m muster.replay FILE decides again.",
    "A checkpoint directory's names and sizes: kubectl exec POD -- python3 /muster/run.pyz --tree DIRECTORY",
    "",
)


class MissingPart(ApiModel):
    """Something that is missing from the archive, and why."""

    name: str
    reason: str


class Bundle(ApiModel):
    """The archive that was written."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["Bundle"] = "Bundle"
    file: str
    bytes: int = Field(description="Its size.")
    time: Time
    files: list[str] = Field(description="What is in it.")
    redacted: int = Field(description="How many values were taken out.")
    missing: list[MissingPart] = Field(description="What is not in it, and why.")


@dataclass(slots=True)
class Collected:
    """What was read so far: files by name, and what is left out."""

    files: dict[str, Any] = field(default_factory=dict)
    missing: list[MissingPart] = field(default_factory=list)

    def note_missing(self, name: str, why: str) -> None:
        """Note that something is left out."""
        self.missing.append(MissingPart(name=name, reason=one_line(why)))


def command(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Also what concerns this TrainingJob: NAME, or NAMESPACE/NAME.",
            autocompletion=complete_job,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Default: muster-JOB-TIME.tar.gz, here.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Collect what a bug report needs in one redacted tar.gz.

    It says what was left out, and why.
    """
    name, inside = job_argument(job, namespace) if job else (None, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    now = datetime.now(UTC)
    target = file or Path(f"muster-{f'{name}-' if name else ''}{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if target.exists():
        raise typer.BadParameter(f"{target} exists: choose another name, or remove it", param_hint="--file")
    if not target.absolute().parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {target.absolute().parent}: make it, or choose another place", param_hint="--file"
        )
    run(options, lambda session: find(session, name, target, now), render)


async def find(session: Session, name: str | None, target: Path, now: datetime) -> Bundle:
    """Collect everything, redact it, and write the archive.

    Raises:
        CliError: there is no such job, or the archive cannot be written.
        ApiError: the API server does not answer, or does not know this user.
    """
    collected = Collected()
    nodes = await _job(session, name, collected) if name is not None else frozenset[str]()
    await _fleet(session, collected)
    for folder, namespace, kind in PARTS:
        await _part(session, collected, folder, namespace, kind, nodes)
    await _list(session, collected, "operator/leases.json", paths.leases(SYSTEM))
    await _get(session, collected, "cluster/version.json", "/version")
    if name is not None:
        await _decisions(session, name, collected)
    if sys.stderr.isatty():
        typer.echo("redacting and packing", err=True)
    objects = [kept for kept in collected.files.values() if not isinstance(kept, str)]
    literals = {value for kept in objects for value in values_of(kept)} - _stated(collected.files)
    packed, redactor = packs(collected, Redactor(literals), now, session)
    size = await asyncio.to_thread(write, target, packed, now)
    return Bundle(
        file=str(target),
        bytes=size,
        time=now,
        files=sorted(packed),
        redacted=redactor.count,
        missing=[*(MissingPart(name=part, reason=why) for part, why in NEVER), *collected.missing],
    )


async def _decisions(session: Session, name: str, collected: Collected) -> None:
    """Collect what the operator decided last about the job and its nodes."""
    if sys.stderr.isatty():
        typer.echo(f"reading {recorded_decisions.FOLDER}", err=True)
    recorded = await recorded_decisions.read(session, name, SYSTEM, collected.files, MAX_FILE_BYTES)
    collected.files |= recorded.files
    for missing in recorded.missing:
        collected.note_missing(*missing)


def _stated(files: Mapping[str, Any]) -> set[str]:
    """Return names, and what the job's manifest states outside its template: no secrets, though variables repeat
    them."""
    stated = {
        str(item["metadata"].get(field))
        for kept in files.values()
        for item in (kept if isinstance(kept, list) else [kept])
        if isinstance(item, Mapping) and isinstance(item.get("metadata"), Mapping)
        for field in ("name", "namespace")
    }
    job = files.get("job/trainingjob.json", {})
    spec = job.get("spec") if isinstance(job, Mapping) else None
    if isinstance(spec, Mapping):
        stated.update(_texts([value for key, value in spec.items() if key != "template"]))
    return stated


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


async def _job(session: Session, name: str, collected: Collected) -> frozenset[str]:
    """Collect what concerns the job; returns the nodes of its pods."""
    try:
        data, job = await read_job(session, name)
        uid, document = job.metadata.uid, json.loads(data)
    except CliError:
        # A job that does not fit its model is the subject of reports: it is included as it is, if it exists at all.
        path = paths.muster("trainingjobs", namespace=session.namespace, name=name)
        try:
            document = json.loads(await session.client.get(path))
        except NotFound:
            document = None
        if document is None:
            raise
        job, uid = None, str(document.get("metadata", {}).get("uid", ""))
        collected.note_missing("logs of the job", "the job does not fit its definition: its containers are not known")
    collected.files["job/trainingjob.json"] = document
    where = session.namespace
    await _list(
        session, collected, "job/gangs.json", paths.muster("gangs", namespace=where), keep=lambda it: _owned(it, uid)
    )
    await _list(
        session,
        collected,
        "job/events.json",
        paths.core("events", namespace=where),
        {"fieldSelector": f"involvedObject.uid={uid}"},
    )
    pods = await _list(
        session,
        collected,
        "job/pods.json",
        paths.core("pods", namespace=where),
        {"labelSelector": f"{JOB_UID_LABEL}={uid}"},
    )
    if job is not None:
        await _logs(session, collected, "job/logs", pods, container_of(job))
    return frozenset(filter(None, (pod.get("spec", {}).get("nodeName") for pod in pods)))


async def _fleet(session: Session, collected: Collected) -> None:
    await _get(session, collected, "fleet/fleetpolicy.json", paths.muster("fleetpolicies", name="default"))
    for name, path in (
        ("fleet/nodehealths.json", paths.muster("nodehealths")),
        ("fleet/repairrequests.json", paths.muster("repairrequests")),
        ("fleet/nodes.json", paths.core("nodes")),
    ):
        await _list(session, collected, name, path)


async def _part(
    session: Session, collected: Collected, folder: str, namespace: str, kind: str, nodes: frozenset[str]
) -> None:
    """Collect one part of Muster, nothing if it is not installed. Of many pods the most informative logs come first."""
    where = {"namespace": namespace}
    made = await _list(session, collected, f"{folder}/{kind}.json", paths.group("apps/v1", kind, **where))
    if not made and namespace != SYSTEM and collected.files.pop(f"{folder}/{kind}.json", None) is not None:
        return
    await _list(session, collected, f"{folder}/events.json", paths.core("events", **where))
    pods = await _list(session, collected, f"{folder}/pods.json", paths.core("pods", **where))
    own = [pod for pod in pods if _called(pod).startswith("muster")]
    await _logs(session, collected, f"{folder}/logs", sorted(own, key=lambda pod: _rank(pod, nodes)), "")


def _called(pod: Mapping[str, Any]) -> str:
    return str(pod.get("metadata", {}).get("labels", {}).get("app.kubernetes.io/name", ""))


def _rank(pod: Mapping[str, Any], nodes: frozenset[str]) -> tuple[bool, bool]:
    """Order pods: unhealthy ones come first, then those on a node of the job."""
    states = pod.get("status", {}).get("containerStatuses") or []
    well = bool(states) and all(state.get("ready") and not state.get("restartCount") for state in states)
    return well, pod.get("spec", {}).get("nodeName") not in nodes


async def _get(session: Session, collected: Collected, name: str, path: str) -> None:
    """Read one object into one file; what cannot be read is left out."""
    try:
        collected.files[name] = json.loads(await session.client.get(path))
    except ApiError as error:
        if not collected.files and isinstance(error, (Unauthorized, Unreachable)):
            raise
        collected.note_missing(name, str(error))


async def _list(
    session: Session,
    collected: Collected,
    name: str,
    path: str,
    query: Mapping[str, str | int] | None = None,
    keep: Any = lambda _: True,
) -> list[Any]:
    """Read objects of one kind into one file; what cannot be read is left out."""
    if sys.stderr.isatty():
        typer.echo(f"reading {name}", err=True)
    kept: list[Any] = []
    asked: dict[str, str | int] = {**(query or {}), "limit": PAGE_SIZE}
    try:
        while True:
            page = decode.list_page(await session.client.get(path, asked, deadline_seconds=DEADLINE_SECONDS))
            kept += [loaded for item in page.items or () if keep(loaded := json.loads(bytes(item)))]
            if not page.metadata.continue_ or len(kept) >= MAX_OBJECTS:
                break
            asked["continue"] = page.metadata.continue_
        if page.metadata.continue_ or len(kept) > MAX_OBJECTS:
            collected.note_missing(name, f"the first {MAX_OBJECTS} objects are in it: there are more")
    except ApiError as error:
        if not collected.files and isinstance(error, (Unauthorized, Unreachable)):
            raise
        collected.note_missing(name, str(error))
        return []
    collected.files[name] = kept[:MAX_OBJECTS]
    return kept[:MAX_OBJECTS]


def _owned(item: Any, uid: str) -> bool:
    return isinstance(item, Mapping) and item.get("spec", {}).get("jobUid") == uid


async def _logs(session: Session, collected: Collected, folder: str, pods: list[Any], container: str) -> None:
    """Read the last lines of each pod, a few pods at a time."""
    turn = asyncio.Semaphore(8)
    names = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]
    if len(names) > MAX_LOGS:
        collected.note_missing(folder, f"logs of {MAX_LOGS} pods are in it: there are {len(names)}")

    async def one(namespace: str, pod: str) -> None:
        query: dict[str, str | int] = {
            "tailLines": LOG_LINES,
            "limitBytes": MOST_LOG_BYTES,
            **({"container": container} if container else {}),
        }
        path = paths.core("pods", namespace=namespace, name=pod, subresource="log")
        try:
            async with turn:
                data = await session.client.get(path, query, deadline_seconds=DEADLINE_SECONDS)
        except ApiError as error:
            collected.note_missing(f"{folder}/{pod}.log", str(error))
            return
        if len(data) > LOG_BYTES:
            collected.note_missing(
                f"{folder}/{pod}.log", f"its last {LOG_BYTES >> 10} KiB are in it: it has {len(data) >> 10} KiB"
            )
        # The first line may have been cut within a secret: its shape would not show it.
        text = data[-LOG_BYTES:].decode(errors="replace")
        collected.files[f"{folder}/{pod}.log"] = text.partition("\n")[2] if len(data) > LOG_BYTES else text

    await asyncio.gather(*(one(namespace, pod) for namespace, pod in names[:MAX_LOGS]))


def packs(
    collected: Collected, redactor: Redactor, now: datetime, session: Session
) -> tuple[dict[str, bytes], Redactor]:
    """Return the files of the archive by name, redacted and bounded; `collected` notes what is too large."""
    packed: dict[str, bytes] = {}
    total = 0
    clean: dict[str, Any] = {}
    for name, kept in sorted(collected.files.items()):
        try:
            clean[name] = show.printable(redactor.text(kept)) if isinstance(kept, str) else redactor.object(kept)
        except RecursionError:
            collected.note_missing(name, "its objects lie too deep in each other")
    texts = {name: _text(name, kept) for name, kept in clean.items()}
    source = f"kubectl muster bundle {_version()}, {now:%Y-%m-%d}"
    texts |= {name: as_document(piece) for name, piece in pieces(clean, source).items()}
    for name, text in texts.items():
        data = text.encode()
        if len(data) > MAX_FILE_BYTES or total + len(data) > MAX_BYTES:
            collected.note_missing(name, f"too large ({len(data) >> 20} MiB)")
            continue
        packed[name] = data
        total += len(data)
    # An API server's answer may repeat the request.
    collected.missing = [MissingPart(name=part.name, reason=redactor.text(part.reason)) for part in collected.missing]
    packed["README.md"] = _readme(packed, collected, now, session).encode()
    return packed, redactor


def _text(name: str, kept: Any) -> str:
    if name.endswith(".jsonl"):
        return "".join(f"{json.dumps(entry, separators=(',', ':'))}\n" for entry in kept)
    return kept if isinstance(kept, str) else json.dumps(kept, indent=1)


def _readme(packed: Mapping[str, bytes], collected: Collected, now: datetime, session: Session) -> str:
    left = [*NEVER, *((part.name, part.reason) for part in collected.missing)]
    lines = [
        "# What kubectl muster bundle has collected",
        "",
        f"{now:%Y-%m-%d %H:%M:%S} UTC, namespace {session.namespace}, kubectl muster {_version()}.",
        "",
        "Look through it before you send it: what looks like a secret was taken out, but a program can print what "
        "looks like nothing.",
        "Of other tenants it names jobs and namespaces: in NodeHealths, in decisions and in the operator's log, which "
        "can quote last lines of their ranks.",
        "",
        *_HOW_TO_REPORT,
        "## In it",
        "",
        *(f"- {name} ({len(data):,} bytes)" for name, data in packed.items()),
        "",
        "## Left out",
        "",
        *(f"- {show.on_one_line(name)}: {show.on_one_line(why)}" for name, why in left),
        "",
    ]
    return "\n".join(lines)


def _version() -> str:
    try:
        return metadata.version("muster-operator")
    except metadata.PackageNotFoundError:
        return "of a checkout"


def write(target: Path, packed: Mapping[str, bytes], now: datetime) -> int:
    """Write the archive atomically, readable by its owner alone, never over an existing file; returns its size in
    bytes.

    Raises:
        CliError: it cannot be written.
    """
    folder = target.stem.removesuffix(".tar")
    try:
        descriptor, made = tempfile.mkstemp(prefix=".muster-", dir=target.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
                for name, data in packed.items():
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mtime, entry.mode = len(data), int(now.timestamp()), 0o600
                    archive.addfile(entry, io.BytesIO(data))
            os.link(made, target)  # which fails if the target exists by now
            return Path(made).stat().st_size
        finally:
            Path(made).unlink()
    except OSError as error:
        raise CliError(
            f"{target} cannot be written: {error.strerror or error}: choose another place with --file"
        ) from error


def render(console: Console, it: Bundle) -> None:
    """Print what was written."""
    console.print(
        Text(f"{it.file}: {len(it.files)} files, {it.bytes:,} bytes, {it.redacted} values redacted"), soft_wrap=True
    )
    console.print()
    console.print(Text("LEFT OUT", style="bold"))
    for part in it.missing:
        console.print(Text(f"-  {show.on_one_line(part.name)}: {show.on_one_line(part.reason)}"), soft_wrap=True)
    console.print()
    console.print(Text("look through it before you send it: README.md in it says what it holds", style="dim"))
