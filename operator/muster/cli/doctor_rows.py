"""Share between the checks of `kubectl muster doctor` their rows, and how they read the cluster.

A check that may not read something is Unknown, never Ok, and says which right its user lacks.

Tests: tests/unit/cli/test_doctor.py.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from pydantic import Field

from muster.answers.lists import listed
from muster.api.base import ApiModel
from muster.api.installation import InstallationProfile
from muster.api.namespaces import SYSTEM
from muster.kube import paths
from muster.kube.definitions import DISCOVERY, served_kinds
from muster.kube.errors import Forbidden, NotFound
from muster.world.names import shortened

if TYPE_CHECKING:
    from muster.kube.client import Client

T = TypeVar("T")

DEPLOYMENT = paths.group("apps/v1", "deployments", namespace=SYSTEM, name="muster")
NO_DEPLOYMENT = f"there is no Deployment muster in namespace {SYSTEM}"
MAX_MESSAGE = 200  # characters of a foreign text in a finding
MAX_NAMES = 3  # of a list in a finding
_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")


def apply_again(profile: InstallationProfile) -> str:
    """Return what to do where something of an installation is missing."""
    return f"apply the manifests again: {profile.overlay_command}, your own overlay, or the chart"


def define_again(profile: InstallationProfile) -> str:
    """Return what to do where a definition of Muster's is missing or another."""
    return f"apply the definitions: {profile.definitions_command}, or the chart muster-definitions"


_OTHERS = [profile.overlay for profile in InstallationProfile if not profile.has_jobs]
INSTALL = f"{apply_again(InstallationProfile.JOBS)}, or those of the profile that you chose: {', '.join(_OTHERS)}"
"""What to do without a Deployment, which alone knows the profile."""


class DoctorState(StrEnum):
    """What a check says: Unknown is what its user may not read."""

    WRONG = "Wrong"
    UNKNOWN = "Unknown"
    OK = "Ok"


class DoctorRow(ApiModel):
    """One finding of a check."""

    check: str = Field(description="Name of the check.")
    state: DoctorState
    finding: str = Field(description="A sentence: what was found.")
    remedy: str = Field("", description="What to do, with the command; empty: nothing.")


class UnreadableError(Exception):
    """What a check needs cannot be read; the check is Unknown."""

    def __init__(self, finding: str, remedy: str) -> None:
        super().__init__(finding)
        self.finding = finding
        self.remedy = remedy


class ClusterReader:
    """The cluster as the checks read it."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    @property
    def client(self) -> "Client":
        """The connection."""
        return self._client

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return an object as the API server has it; None: there is none.

        Raises:
            UnreadableError: the user may not read it.
            ApiError: the API server did not answer as it should.
        """
        try:
            read: dict[str, Any] = msgspec.json.decode(await self._client.get(path))
        except NotFound:
            return None
        except Forbidden as error:
            raise missing_right("get", path) from error
        return read

    async def kinds(self) -> frozenset[str]:
        """Return the plural names of Muster's kinds that the API server knows.

        Raises:
            UnreadableError: the user may not ask.
            ApiError: the API server did not answer as it should.
        """
        try:
            return await served_kinds(self._client)
        except Forbidden as error:
            raise missing_right("get", DISCOVERY) from error

    async def read_all(
        self, path: str, read: Callable[[msgspec.Raw], T], query: Mapping[str, str | int] | None = None
    ) -> list[T]:
        """Return what `read` makes of each object of a list.

        Raises:
            UnreadableError: the user may not list it, the API server does not know the kind, or `read` cannot read
                one of them.
            ApiError: the API server did not answer as it should.
        """
        try:
            objects, unreadable = await listed(self._client, path, read, query)
        except Forbidden as error:
            raise missing_right("list", path) from error
        except NotFound as error:
            remedy = define_again(await profile_of(self))
            raise UnreadableError(f"the API server does not know {paths.resource_of(path)}", remedy) from error
        if unreadable:
            resource = paths.resource_of(path)
            raise UnreadableError(
                f"{unreadable} of the {resource} cannot be parsed",
                f"correct or delete what is broken: kubectl get {resource} -A -o yaml",
            )
        return objects

    def now(self) -> datetime:
        """Return the time by the API server's clock, which an answer from before has told.

        Raises:
            UnreadableError: it does not send its time.
        """
        time = self._client.answers.server_time()
        if time is None:
            raise UnreadableError(
                "the API server's answers have no time (header Date)",
                "see whether a proxy before the API server removes it: kubectl get --raw /version -v 8",
            )
        return time


Check = Callable[[ClusterReader], Awaitable[list[DoctorRow]]]


def passed(check: str, finding: str, remedy: str = "") -> list[DoctorRow]:
    """Return the row of a check that found nothing wrong. A remedy says what would be better nevertheless."""
    return [DoctorRow(check=check, state=DoctorState.OK, finding=finding, remedy=remedy)]


def wrong(check: str, finding: str, remedy: str) -> DoctorRow:
    """Return a row that says what is wrong."""
    return DoctorRow(check=check, state=DoctorState.WRONG, finding=finding, remedy=remedy)


def unknown(check: str, error: UnreadableError) -> DoctorRow:
    """Return the row of a check that could not read what it needs."""
    return DoctorRow(check=check, state=DoctorState.UNKNOWN, finding=error.finding, remedy=error.remedy)


def missing_right(verb: str, path: str) -> UnreadableError:
    """Name the right that the user lacks, by the path of the request."""
    parts = path.strip("/").split("/")
    group = f".{parts[1]}" if parts[0] == "apis" and len(parts) > 3 else ""
    namespace = _NAMESPACE.search(path)
    inside = f" in namespace {namespace[1]}" if namespace else ""
    right = f"{verb} {paths.resource_of(path)}{group}{inside}"
    return UnreadableError(
        f"you may not {right}",
        f"have a cluster administrator run kubectl muster doctor, or give you this right: {right}",
    )


def read_object(data: msgspec.Raw) -> dict[str, Any]:
    """Read an object of a list as it is."""
    read: dict[str, Any] = msgspec.json.decode(data)
    return read


def name_of(thing: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return str(thing["metadata"]["name"])


def short_list(names: Sequence[str]) -> str:
    """Join names; of many, the first and how many more there are."""
    return shortened(names, MAX_NAMES)


async def deployment(cluster: ClusterReader) -> dict[str, Any]:
    """Return the Deployment of the operator.

    Raises:
        UnreadableError: it is not there, or may not be read.
    """
    operator = await cluster.get(DEPLOYMENT)
    if operator is None:
        raise UnreadableError(NO_DEPLOYMENT, INSTALL)
    return operator


async def profile_of(cluster: ClusterReader) -> InstallationProfile:
    """Return the profile of the installation, that of the manifests where there is no operator.

    Raises:
        UnreadableError: the Deployment may not be read, or names no profile.
    """
    operator = await cluster.get(DEPLOYMENT)
    value = (operator and variable_of(operator, "MUSTER_PROFILE")) or InstallationProfile.JOBS
    if value not in list(InstallationProfile):
        raise UnreadableError(
            f"MUSTER_PROFILE of Deployment muster is {value!r}",
            f"kubectl -n {SYSTEM} set env deployment/muster MUSTER_PROFILE={InstallationProfile.JOBS} (or "
            f"{', '.join(it for it in InstallationProfile if it is not InstallationProfile.JOBS)})",
        )
    return InstallationProfile(value)


def container_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first container of a Deployment or DaemonSet, which is Muster's own."""
    container: Mapping[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]
    return container


def variable_of(operator: Mapping[str, Any], name: str) -> str:
    """Return the value of an environment variable of the operator, "" where it has none."""
    variables = container_of(operator).get("env") or ()
    return next((str(entry.get("value", "")) for entry in variables if entry["name"] == name), "")
