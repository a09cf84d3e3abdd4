"""The operator's metrics: over HTTPS, for the bearers of tokens that may `get` the path /metrics.

They name all tenants' namespaces and jobs. kueue, jobset and everything else on controller-runtime guard theirs alike.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Gauge

from muster.kube.access import Access, RefusedError, Right
from muster.serve import Answer, Endpoint, at_most_once_a_second

PATH = "/metrics"
CGROUP = Path("/sys/fs/cgroup")
READ = Right("get", path=PATH)
ALLOWED_SECONDS = 10.0
_FORBIDDEN = (
    "this token may not read metrics: bind the ClusterRole muster-metrics-reader to its ServiceAccount by a "
    "ClusterRoleBinding"
)

_memory_limit = Gauge("muster_memory_limit_bytes", "The memory limit of this process's container; 0 where it has none.")


def note_memory_limit(cgroup: Path = CGROUP) -> None:
    """Set the gauge of the container's memory limit, by cgroups of version 2; 0 where there is none or it is not
    known."""
    try:
        _memory_limit.set(float((cgroup / "memory.max").read_text("ascii")))
    except (OSError, ValueError):  # "max"
        _memory_limit.set(0)


def guarded_metrics(access: Access, render: Callable[[], bytes], loop: asyncio.AbstractEventLoop) -> Endpoint:
    """The endpoint, which any thread but the loop's may call; the loop asks the API server about the token."""
    rendered = at_most_once_a_second(render)

    async def check(authorization: str) -> None:
        user = await access.user_of_token(access.token(authorization))
        if not await access.has_right(user, READ):
            raise RefusedError(403, _FORBIDDEN)

    def endpoint(authorization: str) -> Answer:
        asked = asyncio.run_coroutine_threadsafe(check(authorization), loop)
        try:
            asked.result(ALLOWED_SECONDS)
        except RefusedError as refused:
            return refused.status, f"{refused}\n".encode()
        except TimeoutError:
            asked.cancel()
            return 503, b"the API server does not say what this token may read: try again\n"
        return 200, rendered()

    return endpoint
