"""Tell which of Muster's kinds a cluster has: an installation without a part may lack its definitions.

Tests: tests/unit/cli/test_without_jobs.py, tests/unit/controller/test_holdingjobs.py.
"""

from typing import TYPE_CHECKING

import msgspec

from muster.api.base import GROUP, VERSION
from muster.kube.errors import NotFound

if TYPE_CHECKING:
    from muster.kube.client import Client


async def served_kinds(client: "Client") -> frozenset[str]:
    """Return the plural names of Muster's kinds that the API server knows; every user may ask.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    try:
        answer = msgspec.json.decode(await client.get(f"/apis/{GROUP}/{VERSION}"))
    except NotFound:
        return frozenset()
    return frozenset(resource["name"] for resource in answer["resources"])
