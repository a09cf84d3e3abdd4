"""`python -m muster.controller.unmark`: remove Muster's taint and condition from Nodes when no operator is left.

A hook of the Helm chart runs it after `helm uninstall`. The operator's account and roles are gone then, so that nothing
puts the marks back. It keeps nothing waiting: within `LIMIT_SECONDS` it ends, and prints what is left and how to remove
that. A failure of it would look like a failure of the uninstallation, so marks that are left are none: it exits with 0,
and with 1 only where it has no connection to try with.

Tools that apply what `helm template` prints run it beside an operator that stays. Then it removes nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from muster.answers.lists import listed
from muster.answers.markednodes import REMOVING_COMMANDS, MarkedNode, read_node
from muster.answers.text_parts import count
from muster.api.namespaces import SYSTEM
from muster.controller.nodemarks import STRATEGIC_MERGE_PATCH
from muster.controller.nodeperform import JSON_PATCH, NODES_AT_ONCE, TAINT_KEY
from muster.health.condition import removal
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import ApiError, NoCredentials, NotFound

LIMIT_SECONDS = 45.0
"""Of everything; the Job has a minute, with the start of its pod."""
OPERATOR_SECONDS = 20.0
"""For the operator's pods to end once they are deleted; their grace period is 15 s."""
PAUSE_SECONDS = 1.0
OPERATOR_PODS = {"labelSelector": "app.kubernetes.io/name=muster"}
MOST_NAMED = 5


class _PodMeta(msgspec.Struct):
    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Pod(msgspec.Struct):
    metadata: _PodMeta


_read_pod = msgspec.json.Decoder(_Pod).decode


@dataclass
class Unmarking:
    """What has been done.

    Attributes:
        cleaned: names of nodes that had a mark.
        marked: names of nodes that have one still; None: it is not known, because no list of all nodes was complete.
        problem: the last error; "": there was none.
        operator_runs: whether a pod of the operator was there, and not being deleted, when they were listed last.
    """

    cleaned: set[str] = field(default_factory=set)
    marked: set[str] | None = None
    problem: str = ""
    operator_runs: bool = False

    def summary(self) -> str:
        """Return what a person should know, and the commands for what is left."""
        if self.operator_runs:
            return (
                "The operator of Muster still runs, so its marks stay on nodes. This Job is for the time after "
                "`helm uninstall`; leave it out of what you apply yourself: helm template --no-hooks."
            )
        if self.marked is None:
            first = f"Whether nodes still have marks of Muster is not known ({self.problem or 'no answer in time'})."
        elif self.marked:
            names = sorted(self.marked)
            more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
            why = f" ({self.problem})" if self.problem else ""
            where = f"{', '.join(names[:MOST_NAMED])}{more}"
            first = f"Muster's marks are still on {count(len(names), 'node')}{why}: {where}."
        else:
            return f"Muster's marks were removed from {count(len(self.cleaned), 'node')}. No node has one."
        return "\n".join([first, "They keep new pods away until you remove them:", *REMOVING_COMMANDS])


async def unmark(
    client: Client, limit_seconds: float = LIMIT_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Unmarking:
    """Wait for the operator's end, and remove its marks until no node has one, or the time is over."""
    done = Unmarking()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_seconds):
            await _await_end_of_operator(client, clock() + min(OPERATOR_SECONDS, limit_seconds / 2), clock, done)
            while True:
                try:
                    await _remove_marks(client, done)
                except ApiError as error:
                    done.problem = str(error)
                if done.marked == set():
                    break
                await asyncio.sleep(PAUSE_SECONDS)
    return done


async def _await_end_of_operator(client: Client, until: float, clock: Callable[[], float], done: Unmarking) -> None:
    """Return when the operator has no pods, or after `until` none but such that are being deleted.

    One on a dead node stays that way, and has no rights any more.
    """
    while True:
        with contextlib.suppress(ApiError):
            pods, _ = await listed(client, paths.core("pods", namespace=SYSTEM), _read_pod, OPERATOR_PODS)
            done.operator_runs = any(pod.metadata.deletion_timestamp is None for pod in pods)
            if not pods:
                return
        if clock() >= until and not done.operator_runs:
            return
        await asyncio.sleep(PAUSE_SECONDS)


async def _remove_marks(client: Client, done: Unmarking) -> None:
    """List all nodes, and take the marks from those that have some.

    Raises:
        ApiError: the nodes could not be listed.
    """
    nodes, unreadable = await listed(client, paths.core("nodes"), read_node)
    if unreadable:
        done.problem = f"{unreadable} Nodes cannot be read"
    with_marks = [node for node in nodes if node.is_tainted or node.has_condition]
    done.marked = marked = {node.name for node in with_marks}
    room = asyncio.Semaphore(NODES_AT_ONCE)

    async def clean(node: MarkedNode) -> None:
        async with room:
            try:
                await _clean(client, node)
            except ApiError as error:  # it is tried again with the next list
                done.problem = str(error)
            else:
                done.cleaned.add(node.name)
                marked.discard(node.name)

    await asyncio.gather(*map(clean, with_marks))


async def _clean(client: Client, node: MarkedNode) -> None:
    name = node.name
    with contextlib.suppress(NotFound):
        if node.is_tainted:
            others = [taint for taint in node.spec.taints or () if taint.get("key") != TAINT_KEY]
            body = [
                {"op": "test", "path": "/spec/taints", "value": node.spec.taints},
                {"op": "replace", "path": "/spec/taints", "value": others},
            ]
            await client.patch(paths.core("nodes", name=name), body, JSON_PATCH)
        if node.has_condition:
            body_of_status = {"metadata": {"uid": node.metadata.uid}, **removal()}
            path = paths.core("nodes", name=name, subresource="status")
            await client.patch(path, body_of_status, STRATEGIC_MERGE_PATCH)


async def run() -> Unmarking:
    """Connect, and remove the marks.

    Raises:
        SystemExit: there is no connection; has what a person should know.
    """
    try:
        client = await Client.connect()
    except NoCredentials as error:
        raise SystemExit(Unmarking(problem=str(error)).summary()) from error
    try:
        return await unmark(client)
    finally:
        await client.close()


if __name__ == "__main__":
    print(asyncio.run(run()).summary(), flush=True)
