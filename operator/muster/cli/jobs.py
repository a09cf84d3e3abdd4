"""Read one job for several commands: the job itself, its Events, and the names that may be meant."""

import difflib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from muster.answers.explanation import JobEvent
from muster.answers.lists import items
from muster.api.trainingjob import TrainingJob
from muster.cli.errors import CliError
from muster.cli.session import Session
from muster.kube import decode, paths
from muster.kube.errors import Conflict, Forbidden, NotFound
from muster.kube.pages import PAGE_SIZE
from muster.world.names import shortened
from muster.world.views import JOB_NAME_LABEL, JOB_UID_LABEL, PodView

SHOWN = 5  # names in an error
REPAIRS = {"R0": "in place", "R0b": "by a new pod", "R2": "by a new node", "R4": "by a new gang"}


class NoSuchJobError(CliError):
    """There is no TrainingJob of this name."""


class JobDeletedError(CliError):
    """The job was there, and was deleted."""


async def job_of(session: Session, name: str) -> TrainingJob:
    """Read a job.

    Raises:
        CliError: there is no such job, or it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    return (await read_job(session, name))[1]


async def read_job(session: Session, name: str) -> tuple[bytes, TrainingJob]:
    """Read a job: the API server's JSON, and the model.

    Raises:
        NoSuchJobError: there is none.
        CliError: it does not fit the model.
        ApiError: the API server did not answer as it should.
    """
    path = paths.muster("trainingjobs", namespace=session.namespace, name=name)
    try:
        data = await session.client.get(path)
        job = decode.custom(TrainingJob)(data)
    except NotFound as error:
        if error.details.get("name") != name:  # the kind is unknown
            raise
        raise NoSuchJobError(await _no_such_job(session, name)) from error
    if isinstance(job, decode.Undecodable):
        if job.reason == decode.TEMPLATE_TOO_LARGE:
            raise CliError(f"job {session.namespace}/{name} is never started: {job.error}, and create the job again")
        raise CliError(
            f"job {session.namespace}/{name} does not fit its definition ({job.error}): the operator or the "
            "CustomResourceDefinitions have another version than this command. See the job by kubectl get tj -o yaml"
        )
    return data, job


async def patch_spec(session: Session, job: TrainingJob, spec: Mapping[str, Any]) -> None:
    """Set fields in the spec of exactly this job.

    Raises:
        JobDeletedError: it was deleted or replaced.
        ApiError: the API server did not take it.
    """
    path = paths.muster("trainingjobs", namespace=session.namespace, name=job.metadata.name)
    body = {"metadata": {"uid": job.metadata.uid}, "spec": spec}
    try:
        await session.client.patch(path, body, query={"fieldValidation": "Strict"})
    except (Conflict, NotFound) as error:
        raise JobDeletedError(
            f"job {session.namespace}/{job.metadata.name} was deleted or replaced just now"
        ) from error


async def pods_named(session: Session, name: str) -> list[PodView]:
    """Return the workers' pods of all jobs that have or had this name.

    Raises:
        CliError: the user may not list pods.
    """
    return await worker_pods(session, name, f"{JOB_NAME_LABEL}={name}")


async def worker_pods(session: Session, name: str, selector: str = JOB_UID_LABEL) -> list[PodView]:
    """Return the workers' pods of the namespace: not those that a kubelet made with a worker's labels.

    Args:
        session: with the namespace.
        name: the job that the user asks about.
        selector: of labels; by default it selects the pods of all jobs.

    Raises:
        CliError: the user may not list pods.
    """
    path = paths.core("pods", namespace=session.namespace)
    try:
        listed = [decode.pod(item) async for item in items(session.client, path, {"labelSelector": selector})]
        return [pod for pod in listed if pod.job_uid]
    except Forbidden as error:
        raise CliError(
            f"whether pods of job {session.namespace}/{name} live is not known, as you may not list pods there: "
            "ask for ClusterRole view in this namespace"
        ) from error


class _Written(msgspec.Struct, rename="camel"):
    subresource: str = ""
    time: datetime | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    managed_fields: list[_Written] = []


class _Managed(msgspec.Struct):
    metadata: _Metadata


def status_time(data: bytes) -> datetime | None:
    """Return when the status of an object was last written, by the API server's clock; None: it does not say."""
    written = msgspec.json.decode(data, type=_Managed).metadata.managed_fields
    return max(
        (entry.time for entry in written if entry.subresource == "status" and entry.time is not None), default=None
    )


async def events_of(session: Session, uid: str) -> list[JobEvent] | None:
    """Return the job's Events; None if this user may not read them."""
    query: dict[str, str | int] = {"fieldSelector": f"involvedObject.uid={uid}", "limit": PAGE_SIZE}
    try:
        page = decode.list_page(await session.client.get(paths.core("events", namespace=session.namespace), query))
    except Forbidden:
        return None
    return [_event(item) for item in page.items or ()]


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _Source(msgspec.Struct):
    component: str = ""


class _Event(msgspec.Struct, rename="camel"):
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: _Series | None = None
    reporting_component: str | None = None
    source: _Source | None = None


def _event(data: Any) -> JobEvent:
    """Parse an Event of the core group, whichever group it was written in."""
    read = msgspec.json.decode(data, type=_Event)
    series = read.series or _Series()
    time = series.last_observed_time or read.last_timestamp or read.event_time
    return JobEvent(
        time=time,
        type=read.type,
        reason=read.reason,
        message=read.message,
        count=read.count or series.count,
        reporter=read.reporting_component or (read.source or _Source()).component or None,
    )


class _Named(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Listed(msgspec.Struct):
    metadata: _Named


async def _no_such_job(session: Session, name: str) -> str:
    """Say that there is no such job, and which one may be meant."""
    missing = f"there is no TrainingJob {name} in namespace {session.namespace}"
    try:
        everywhere = await _names(session, "")
    except Forbidden:
        try:
            everywhere = await _names(session, session.namespace)
        except Forbidden:
            return f"{missing}: kubectl get tj -A lists those that there are"
    job_names = sorted(job.name for job in everywhere if job.namespace == session.namespace)
    elsewhere = sorted(job.namespace for job in everywhere if job.name == name)
    if elsewhere:
        return f"{missing}, but in {', '.join(elsewhere[:SHOWN])}: give it with -n"
    near = difflib.get_close_matches(name, job_names, n=3)
    if near:
        return f"{missing}: did you mean {' or '.join(near)}?"
    if not job_names:
        return f"{missing}, nor any other one: give another namespace with -n (kubectl get tj -A lists all)"
    return f"{missing}: there are {shortened(job_names, SHOWN)}"


async def _names(session: Session, namespace: str) -> list[_Named]:
    """Return namespaces and names of all jobs."""
    path = paths.muster("trainingjobs", namespace=namespace)
    return [msgspec.json.decode(item, type=_Listed).metadata async for item in items(session.client, path)]
