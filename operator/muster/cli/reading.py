"""Read one job for several commands, as far as this user may: a refusal becomes a note, not an error.

A tenant has rights in its own namespace only. The health of nodes belongs to the fleet; the note names the role to
ask for.

Tests: tests/unit/cli/test_status.py.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from muster.answers.health import HealthRow, health_row
from muster.answers.lists import items, listed
from muster.answers.roles import FLEET_ROLE, VIEW_ROLE
from muster.api.gang import Gang, GangSpec
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.cli.doctor_rows import ClusterReader, UnreadableError, profile_of
from muster.kube import decode, paths
from muster.kube.decode import Undecodable
from muster.kube.errors import ApiError, Forbidden, NotFound
from muster.world.names import gang_name
from muster.world.views import JOB_UID_LABEL, PodView

if TYPE_CHECKING:
    from muster.cli.session import Session
    from muster.kube.client import Client

# So many nodes are read one by one; of more the whole list is read.
SINGLE_NODES = 16
WAIT_FOR_AN_OPERATOR = frozenset({"", "Pending"})
"""States in which a job without nodes stays for ever where the profile runs no jobs."""


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


_names = msgspec.json.Decoder(_Named)


async def record_of(session: "Session", job: TrainingJob) -> tuple[GangSpec | None, list[str]]:
    """Return the job's Gang, and notes. None: there is none, or it cannot be read.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    name = gang_name(job.metadata.name, job.metadata.uid)
    path = paths.muster("gangs", namespace=job.metadata.namespace, name=name)
    try:
        gang = decode.custom(Gang)(await session.client.get(path))
    except NotFound:
        return None, []
    except Forbidden:
        return None, [f"its record may not be read (gangs): ask for ClusterRole {VIEW_ROLE} in this namespace"]
    if isinstance(gang, Undecodable):
        return None, [f"its record cannot be read by this version (Gang {name}: {gang.error})"]
    if gang.spec.job_uid != job.metadata.uid:
        return None, [f"the Gang {name} is another job's"]
    return gang.spec, []


async def pods_of(session: "Session", job: TrainingJob) -> tuple[list[PodView] | None, list[str]]:
    """Return the job's own worker pods, and notes. None: they may not be read.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    where, uid = job.metadata.namespace, job.metadata.uid
    try:
        pods, unreadable = await listed(
            session.client, paths.core("pods", namespace=where), decode.pod, {"labelSelector": f"{JOB_UID_LABEL}={uid}"}
        )
    except Forbidden:
        return None, ["its pods may not be read: ask for the cluster's role view in this namespace"]
    notes = [f"{unreadable} of its pods cannot be read by this version"] if unreadable else []
    return [pod for pod in pods if pod.owner_uid == uid], notes


async def healths_of(session: "Session", nodes: Iterable[str]) -> tuple[dict[str, HealthRow] | None, list[str]]:
    """Return what Muster knows of these nodes' health, by name, and notes. None: it may not be read.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    wanted = set(filter(None, nodes))
    read = decode.custom(NodeHealth)
    healths: list[NodeHealth | Undecodable]
    try:
        if len(wanted) <= SINGLE_NODES:
            answers = await asyncio.gather(*(_health(session.client, name) for name in sorted(wanted)))
            healths = [read(answer) for answer in answers if answer is not None]
        else:
            # Of a fleet of thousands only the requested ones are read in full.
            healths = [
                read(item)
                async for item in items(session.client, paths.muster("nodehealths"))
                if _names.decode(item).metadata.name in wanted
            ]
    except Forbidden:
        return None, [
            "the health of its nodes may not be read (nodehealths): ask for ClusterRole "
            f"{FLEET_ROLE} (a ClusterRoleBinding)"
        ]
    except NotFound:
        return None, ["the health of nodes is not known: this cluster's Muster is too old to keep NodeHealth"]
    return {
        health.metadata.name: health_row(health)
        for health in healths
        if isinstance(health, NodeHealth) and health.metadata.name in wanted
    }, []


async def _health(client: "Client", name: str) -> bytes | None:
    try:
        return await client.get(paths.muster("nodehealths", name=name))
    except NotFound as error:
        if error.details.get("name") == name:
            return None
        raise


async def profile_notes(session: "Session", states: Iterable[str]) -> list[str]:
    """Return a note where jobs in some of these states wait for a profile that runs jobs.

    There is none where the user may not read the profile: few may.
    """
    if WAIT_FOR_AN_OPERATOR.isdisjoint(states):
        return []
    with contextlib.suppress(ApiError, UnreadableError):
        profile = await profile_of(ClusterReader(session.client))
        if not profile.has_jobs:
            return [
                f"Muster is installed with profile {profile}, which runs no jobs: ask an administrator for profile "
                f"{InstallationProfile.JOBS} (docs/profiles.md)"
            ]
    return []
