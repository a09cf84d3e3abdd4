"""Read running and ended jobs, each once, for the reports of fleet and experiments.

Tests: tests/unit/cli/test_fleetreport.py.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from muster.answers.fleetreported import AccountedJob
from muster.answers.lists import items
from muster.answers.roles import FLEET_ROLE
from muster.answers.text_parts import count as count_of
from muster.answers.without_jobs import WITHOUT_JOBS, is_without_jobs
from muster.api.endedjob import PLURAL, EndedJob, EndedJobSpec, Ending
from muster.api.fleetpolicy import History
from muster.api.goodput import Goodput
from muster.api.namespaces import SYSTEM
from muster.api.trainingjob import TrainingJob
from muster.goodput.history import ended_job_record
from muster.goodput.kept import Kept, missing_accounts_message
from muster.goodput.opened import figures_as_of
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from muster.kube.client import Client


Progress = Callable[[str, int], None]
"""A callback that gets what is read, and how many objects have been."""


async def lives(
    client: "Client",
    now: datetime,
    *,
    namespace: str | None = None,
    experiment: str | None = None,
    since: datetime | None = None,
    history: History | None = None,
    progress: Progress = lambda _what, _count: None,
) -> tuple[list[AccountedJob], list[str]]:
    """Return running and ended jobs, each once, and what limits this answer.

    Args:
        client: reads as the user.
        now: running jobs count up to then.
        namespace: only of this one.
        experiment: only jobs with this label.
        since: only those of the ended jobs that ended later.
        history: how many accounts are kept, and for how long; None: the reader may not know, and gets no note of
            missing ones.
        progress: called with what was read so far, and how many of it.

    Raises:
        ApiError: the jobs may not be listed, or the API server did not answer as it should.
    """
    # Jobs first: a job that ends meanwhile is in both rather than in none.
    living, notes = dict[str, AccountedJob](), [WITHOUT_JOBS]
    if not await is_without_jobs(client):
        living, notes = await _living(client, now, namespace, experiment, progress)
    ended, more = await _ended(client, now, since, history, progress)
    by_uid = dict(ended)
    for uid, life in living.items():
        kept = by_uid.get(uid)
        # The end of a job that exists was not seen: it counted as gone.
        if kept is None or (life.running and kept.spec.state is Ending.UNKNOWN):
            by_uid[uid] = life
    wanted = [
        life
        for life in by_uid.values()
        if (namespace is None or life.spec.namespace == namespace)
        and (experiment is None or life.spec.experiment == experiment)
    ]
    return wanted, [*notes, *more]


async def _living(
    client: "Client", now: datetime, namespace: str | None, experiment: str | None, progress: Progress
) -> tuple[dict[str, AccountedJob], list[str]]:
    """Return the jobs that exist, by uid.

    Jobs without figures are left out, but for an experiment, which is not over before they are.
    """
    read, by_uid, unreadable, count = decode.custom(TrainingJob), dict[str, AccountedJob](), 0, 0
    async for item in items(client, paths.muster("trainingjobs", namespace=namespace or "")):
        progress("jobs", count)
        count += 1
        try:
            job = read(item)
            if not isinstance(job, TrainingJob):
                unreadable += 1
                continue
            goodput, running = figures_as_of(job, now), job.status.completion is None
            created = job.metadata.creation_timestamp
            if goodput is None and running and experiment is not None and created is not None:
                goodput = Goodput(creation_time=created, counted_until=created)
            if goodput is not None:
                spec = ended_job_record(job, None, goodput, Ending.DELETED)
                state = job.status.state if running else str(spec.state)
                by_uid[job.metadata.uid] = AccountedJob(spec, state or "Pending", running, goodput.unsaved_seconds or 0)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            unreadable += 1
    return by_uid, [f"{count_of(unreadable, 'job')} cannot be read by this version"] if unreadable else []


async def _ended(
    client: "Client", now: datetime, since: datetime | None, history: History | None, progress: Progress
) -> tuple[dict[str, AccountedJob], list[str]]:
    """Return the ended jobs of the history, by uid."""
    read, by_uid, unreadable, count = decode.custom(EndedJob), dict[str, AccountedJob](), 0, 0
    accounts = list[Kept]()
    without = "the report covers only jobs that still exist"
    try:
        async for item in items(client, paths.muster(PLURAL, namespace=SYSTEM)):
            progress("ended jobs", count)
            count += 1
            try:
                kept = read(item)
                if not isinstance(kept, EndedJob) or kept.spec.job_uid != kept.metadata.name:
                    unreadable += 1
                    continue
                accounts.append(Kept(kept.spec.end_time, kept.spec.namespace))
                if since is None or kept.spec.end_time > since:
                    by_uid[kept.spec.job_uid] = _life(kept.spec)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                unreadable += 1
    except Forbidden:
        return {}, [
            f"the history of ended jobs may not be read ({PLURAL} in namespace {SYSTEM}: list): {without}; ask for "
            f"ClusterRole {FLEET_ROLE} (a ClusterRoleBinding)"
        ]
    except NotFound:
        return {}, [f"this cluster's Muster keeps no history of ended jobs: {without}"]
    notes = [f"{count_of(unreadable, 'ended job')} cannot be read by this version"] if unreadable else []
    return by_uid, [*notes, *(missing_accounts_message(accounts, history, since, now) if history is not None else [])]


def _life(spec: EndedJobSpec) -> AccountedJob:
    return AccountedJob(spec, str(spec.state), running=False)
