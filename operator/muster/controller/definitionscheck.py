"""Keeps an operator from leading where the cluster's definitions lack fields of its version.

The API server drops these fields from each object that it takes or gives. A record without them reads as if it had been
written by the version before: who decides by it could start a second gang beside one that trains, or return an
unhealthy node to service. So a replica does not lead meanwhile, and a leader ends. Training goes on, and a replica of
the version that fits the definitions may lead.
"""

import asyncio
from collections.abc import Callable

import structlog
from prometheus_client import Gauge

from muster import __version__
from muster.api.base import GROUP
from muster.api.installation import InstallationProfile
from muster.kube.client import Client
from muster.kube.errors import ApiError, Forbidden, NotFound
from muster.kube.lease import LeaderLease
from muster.kube.schemas import dropped_fields
from muster.world.names import shortened

CHECK_SECONDS = 10.0
NAMED = 3  # fields that are named at most

log = structlog.get_logger()
_outdated = Gauge(
    "muster_definition_outdated",
    "1 where the CustomResourceDefinition lacks fields of this replica's version, so that the replica does not lead: "
    "apply the definitions of its version, e.g. kubectl apply -k manifests/definitions.",
    ["resource"],
)


class DefinitionsCheck:
    """Compares the definitions of a cluster with this version again and again.

    Args:
        client: reads what the API server publishes of the definitions.
        profile: of the installation, which says what definitions it needs.
        lease: whether this replica leads.
        give_up: ends this process, with the reason: nothing that a leader has in flight may be written any more.

    Attributes:
        problem: why this replica may not lead, as text for users; "" if it may.
    """

    def __init__(
        self, client: Client, profile: InstallationProfile, lease: LeaderLease, give_up: Callable[[str], None]
    ) -> None:
        self._client = client
        self._profile = profile
        self._lease = lease
        self._give_up = give_up
        self.problem = "the definitions have not been compared with this version yet"
        self._dropped: dict[str, list[str]] = {}  # the fields that each definition lacked when it was last seen
        self._error = ""
        self._allowed = asyncio.Event()

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await self.compare()
            await asyncio.sleep(CHECK_SECONDS)

    async def wait(self) -> None:
        """Return once no definition lacks a field."""
        await self._allowed.wait()

    async def compare(self) -> None:
        """Compare once, and keep the result as `problem`.

        Of a definition that the API server does not show, the last result holds. None is missed here: without a kind
        that it needs, no operator gets as far as to lead.
        """
        try:
            self._dropped |= await dropped_fields(self._client)
        except ApiError as error:
            self._note(str(error))
            if not isinstance(error, (Forbidden, NotFound)):
                return  # an answer will come
        else:
            self._note("")
        needed = {resource: fields for resource, fields in self._dropped.items() if self._profile.needs(resource)}
        for resource, fields in needed.items():
            _outdated.labels(resource).set(1 if fields else 0)
        self._conclude("; ".join(_described(resource, fields) for resource, fields in needed.items() if fields))

    def _note(self, error: str) -> None:
        if error and error != self._error:
            log.warning("definitions not compared", error=error)
        self._error = error

    def _conclude(self, lacking: str) -> None:
        problem = lacking and (
            f"{lacking}. Version {__version__} needs them, and the API server drops them without an error. This "
            f"replica does not lead until the definitions of its version are there: {self._profile.definitions_command}"
        )
        if problem and problem != self.problem:
            log.error("definitions lack fields", message=problem)
        self.problem = problem
        if problem:
            self._allowed.clear()
            if self._lease.leading:
                self._give_up(problem)
        else:
            self._allowed.set()


def _described(resource: str, fields: list[str]) -> str:
    return f"CustomResourceDefinition {resource}.{GROUP} has no {shortened(fields, NAMED)}"
