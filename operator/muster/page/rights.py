"""Name the rights that the page reviews.

Tests: tests/unit/page/test_server.py.
"""

import asyncio
from collections.abc import Iterable

from muster.api.endedjob import PLURAL
from muster.api.namespaces import SYSTEM
from muster.kube.access import Access, Right, User

NODES = Right("list", "nodes", group="")
HEALTHS = Right("list", "nodehealths")
HISTORY = Right("list", PLURAL, namespace=SYSTEM)


def jobs_in(namespace: str) -> Right:
    """Return the right to see the jobs of a namespace; "": of all namespaces."""
    return Right("list", "trainingjobs", namespace=namespace)


async def namespaces_of(access: Access, user: User, namespaces: Iterable[str]) -> frozenset[str] | None:
    """Return the known namespaces whose jobs the user may see; None: all namespaces.

    Raises:
        RefusedError: the API server did not answer.
    """
    if await access.has_right(user, jobs_in("")):
        return None
    asked = sorted(set(namespaces))
    answers = await asyncio.gather(*(access.has_right(user, jobs_in(namespace)) for namespace in asked))
    return frozenset(namespace for namespace, allowed in zip(asked, answers, strict=True) if allowed)
