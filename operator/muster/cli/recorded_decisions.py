"""Read the decisions that the operator's leader has recorded about a job and its nodes, for `kubectl muster bundle`.

The leader serves them on the loopback address of its pod alone (`muster.coordinator.worlds`), so they are read by
forwarding a port, with the user's own rights. `python3 -m muster.replay` reads the files.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from muster.cli.session import Session
from muster.kube.errors import ApiError, Forbidden

FOLDER = "decisions"
LEASE = "muster-leader"
PORT, PORT_VARIABLE = 8081, "MUSTER_WORLDS_PORT"
MAX_NODES = 64
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_LINES = 100  # the operator keeps three of each
DEADLINE_SECONDS = 120.0
_BY_HAND = "docs/troubleshooting.md says how to read them without this command"


@dataclass(slots=True)
class Recorded:
    """Decisions by name of their file, and why others are missing."""

    files: dict[str, list[Any]] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)


async def read(session: Session, job: str, system: str, collected: Mapping[str, Any], most_file_bytes: int) -> Recorded:
    """Read the decisions about a job and about the nodes that its gang has or had.

    Args:
        session: with the job's namespace.
        job: its name.
        system: the operator's namespace.
        collected: the bundle's other files: they say who leads, and which nodes the gang has or had.
        most_file_bytes: of a longer file only the newest decisions are kept.
    """
    recorded, pod = Recorded(), leader_of(collected)
    if not pod:
        recorded.missing.append((FOLDER, f"no Lease {LEASE} that was read names a leader: {_BY_HAND}"))
        return recorded
    nodes = nodes_of(collected)
    if len(nodes) > MAX_NODES:
        recorded.missing.append((f"{FOLDER}/nodes", f"{MAX_NODES} nodes were asked for: the job has {len(nodes)}"))
    # The job comes last: its answer is the only large one.
    wanted = {f"{FOLDER}/nodes/{node}.jsonl": f"/nodes/{quote(node, safe='')}" for node in nodes[:MAX_NODES]}
    wanted[f"{FOLDER}/job.jsonl"] = f"/worlds/{quote(session.namespace, safe='')}/{quote(job, safe='')}"
    # The client takes half a second to import: --help and usage errors do without.
    from muster.kube.portforward import forwarded_port

    why, answered = "", 0
    try:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            forwarded_port(session.client, system, pod, _port_of(pod, collected)) as leader,
        ):
            for file, path in wanted.items():
                answer = await leader.get(path, MAX_ANSWER_BYTES)
                _keep(recorded, file, answer.status, answer.body, most_file_bytes)
                answered += 1
    except Forbidden as error:
        why = (
            f"{error}: you may not forward a port of the leader's pod. Ask for get and create of pods/portforward in "
            f"namespace {system}, or ask a user with this right for the bundle: it shows data of all tenants "
            "(docs/security.md)"
        )
    except ApiError as error:
        why = f"pod {pod}: {error}: try again; {_BY_HAND}"
    except TimeoutError:
        why = f"pod {pod} did not send all of them within {DEADLINE_SECONDS:.0f} s: try again; {_BY_HAND}"
    if why:
        recorded.missing.append((FOLDER, f"{answered} of {len(wanted)} answers are in it: {why}"))
    return recorded


def leader_of(collected: Mapping[str, Any]) -> str:
    """Return the name of the pod that leads; "" where no Lease says so."""
    for lease in collected.get("operator/leases.json", ()):
        if lease.get("metadata", {}).get("name") == LEASE:
            # A holder is a pod's name and, behind an underscore, what tells its processes apart.
            return str((lease.get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]
    return ""


def _port_of(pod: str, collected: Mapping[str, Any]) -> int:
    """Return the port at which decisions are served in a pod."""
    for manifest in collected.get("operator/pods.json", ()):
        if manifest["metadata"]["name"] == pod:
            for container in manifest["spec"]["containers"]:
                for variable in container.get("env") or ():
                    if variable["name"] == PORT_VARIABLE and str(variable.get("value")).isdigit():
                        return int(variable["value"])
    return PORT


def nodes_of(collected: Mapping[str, Any]) -> list[str]:
    """Return the nodes that the job's gang has or had, of those whose NodeHealth was read; unhealthy ones first."""
    named = set(_named_nodes([collected.get("job/gangs.json"), collected.get("job/pods.json")]))
    if "fleet/nodehealths.json" not in collected:
        return sorted(named)
    states = {
        health["metadata"]["name"]: (health.get("status") or {}).get("state")
        for health in collected["fleet/nodehealths.json"]
    }
    return sorted(named & states.keys(), key=lambda node: (states[node] in (None, "Healthy"), node))


def _named_nodes(value: Any) -> Iterator[str]:
    """Yield the nodes that a record or a pod names: those of workers, of incidents, of pods that may still run."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("node", "nodeName") and isinstance(item, str) and item:
                yield item
            yield from _named_nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named_nodes(item)


def _keep(recorded: Recorded, file: str, status: int, body: bytes, most_bytes: int) -> None:
    """Keep the newest decisions of an answer that fit into a file."""
    if status != 200:
        if status != 404 or file == f"{FOLDER}/job.jsonl":  # of a node that was healthy all along there are none
            recorded.missing.append((file, f"HTTP {status}: {body[:1000].decode(errors='replace')}"))
        return
    lines, kept, size = body.splitlines(), deque[Any](), 0
    try:
        for line in reversed(lines):
            size += len(line)
            if size > most_bytes or len(kept) == MAX_LINES:
                recorded.missing.append(
                    (file, f"the newest {len(kept)} of {len(lines)} decisions are in it: too large")
                )
                break
            # `muster.replay` then compares what it decides in the same redacted form.
            kept.appendleft({**json.loads(line), "redacted": True})
    except (ValueError, TypeError, RecursionError):
        recorded.missing.append((file, "the answer is no decision"))
        return
    if kept:
        recorded.files[file] = list(kept)
