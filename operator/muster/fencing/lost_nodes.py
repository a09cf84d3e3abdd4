"""What a human's declaration that a machine is lost proves, and what refutes it.

The declaration is about what was on the node when it was given. It counts only where nothing speaks against it. The
node's kubelet has renewed its lease neither after the declaration nor lately. The node has not booted since. The
launcher in question was neither heard after it nor lately. So a declaration about the wrong machine proves nothing:
that machine lives on and shows it within seconds. One about a machine that comes back counts no more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from muster.api.nodehealth import LostNode
from muster.world.fleet import STALE_HEARTBEAT_SECONDS
from muster.world.views import LauncherView, NodeView, PodView


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is known of a node's lease.

    Attributes:
        age_seconds: since the lease was seen to change.
        renewal: the time of the last renewal as the kubelet wrote it; "" where it cannot be read.
        renewed: the time of the last renewal, the later of what different clocks say; None: not known.
    """

    age_seconds: float
    renewal: str = ""
    renewed: datetime | None = None


def sign_of_life(declaration: LostNode, node: NodeView | None, heartbeat: Heartbeat | None) -> str:
    """Return the sign of life that a node has given since it was declared lost, as text; "" if there is none.

    Args:
        declaration: the declaration in NodeHealth.
        node: the Node; None: it does not exist.
        heartbeat: of the node; None: it has no lease.
    """
    if node is not None and node.boot_id and declaration.boot_id and node.boot_id != declaration.boot_id:
        return "it has booted since"
    if heartbeat is not None and _has_renewed_lease(declaration, heartbeat):
        at = f", at {heartbeat.renewed.astimezone(UTC):%H:%M:%S} UTC" if heartbeat.renewed is not None else ""
        return f"its kubelet has renewed its lease since{at}"
    return ""


def _has_renewed_lease(declaration: LostNode, heartbeat: Heartbeat) -> bool:
    """Whether the kubelet has renewed its lease since the node was declared lost.

    Where the declaration names the last renewal that it saw, no clock has to be right.
    """
    if declaration.last_renewal:
        return heartbeat.renewal not in ("", declaration.last_renewal)
    return heartbeat.renewed is not None and heartbeat.renewed > declaration.time


def counts_now(declaration: LostNode, node: NodeView | None, heartbeat: Heartbeat | None) -> bool:
    """Whether the declaration that a node is lost counts now: nothing refutes it, and the kubelet has been silent for a
    while.

    Args:
        declaration: the declaration in NodeHealth.
        node: the Node; None: it does not exist.
        heartbeat: of the node; None: it has no lease.
    """
    silent = heartbeat is None or heartbeat.age_seconds >= STALE_HEARTBEAT_SECONDS
    return silent and not sign_of_life(declaration, node, heartbeat)


def pods_proved_dead(
    declaration: LostNode,
    uids: Iterable[str],
    pods: Mapping[str, PodView],
    launchers: Mapping[str, LauncherView],
    known_seconds: float,
    now: datetime,
) -> set[str]:
    """Return those pods of a lost node that its declaration proves to be dead.

    Args:
        declaration: the declaration, which holds.
        uids: of pods that were on the node.
        pods: by UID, those that still exist. A pod that does not was made before the declaration, because no kubelet
            could
        have started it since.
        launchers: by UID of the pod, the last report of its launcher.
        known_seconds: for how long this process has known the declaration.
        now: the time.
    """
    return {
        uid
        for uid in uids
        if _is_old(declaration, pods.get(uid)) and _is_silent(declaration, launchers.get(uid), known_seconds, now)
    }


def _is_old(declaration: LostNode, pod: PodView | None) -> bool:
    return pod is None or pod.created is None or pod.created <= declaration.time


def _is_silent(declaration: LostNode, launcher: LauncherView | None, known_seconds: float, now: datetime) -> bool:
    """Whether a launcher has been silent since before its node was declared lost.

    It must have been so by the clock and since before the declaration arrived: the clock may be behind, the declaration
    late.

    Args:
        declaration: the declaration.
        launcher: the last report; None: none was ever received.
        known_seconds: for how long this process has known the declaration.
        now: the time.
    """
    if launcher is None:
        return True
    age = launcher.heard_age_seconds
    return age >= max(STALE_HEARTBEAT_SECONDS, known_seconds) and now - timedelta(seconds=age) <= declaration.time
