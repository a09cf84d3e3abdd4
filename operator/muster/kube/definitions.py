"""Tell which of Muster's kinds a cluster has: an installation without a part may lack its definitions.

Tests: tests/unit/kube/test_definitions.py, tests/unit/cli/test_without_jobs.py,
tests/unit/controller/test_holdingjobs.py.
"""

from typing import TYPE_CHECKING

import msgspec

from muster.api.base import GROUP, VERSION
from muster.kube.errors import ApiError, NotFound

if TYPE_CHECKING:
    from muster.kube.client import Client

DISCOVERY = f"/apis/{GROUP}/{VERSION}"


class _Kind(msgspec.Struct):
    name: str


class _Kinds(msgspec.Struct):
    """metav1.APIResourceList."""

    resources: list[_Kind]


async def served_kinds(client: "Client") -> frozenset[str]:
    """Return the plural names of Muster's kinds that the API server knows; every user may ask.

    Raises:
        ApiError: the API server did not answer as it should, so that this is unknown.
    """
    try:
        answer = await client.get(DISCOVERY)
    except NotFound:
        return frozenset()
    try:
        kinds = msgspec.json.decode(answer, type=_Kinds)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"the answer to {DISCOVERY} is no list of kinds: {error}") from error
    return frozenset(kind.name for kind in kinds.resources)
