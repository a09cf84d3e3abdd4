"""What a human's word that a machine is dead proves, and what refutes it.

The word is about what was on the node when it was given. It counts only where nothing speaks against it: the node's
kubelet has renewed its lease neither after the word nor lately, the node has not booted since, and the launcher in
question was neither heard after the word nor lately. So a word about the wrong machine proves nothing, because that one
lives on and shows it within seconds; and one about a machine that comes back counts no more, whoever forgets to take it
back.
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
        age_seconds: since it was seen to change.
        renewal: what its kubelet wrote as the time of its last renewal; "" where that cannot be read.
        renewed: when it was renewed last, as far as that is known: the later of what different clocks say.
    """

    age_seconds: float
    renewal: str = ""
    renewed: datetime | None = None


def refuted(word: LostNode, node: NodeView | None, heartbeat: Heartbeat | None) -> str:
    """The sign of life that the node has given since the word, in words; "" if there is none."""
    if node is not None and node.boot_id and word.boot_id and node.boot_id != word.boot_id:
        return "it has booted since"
    if heartbeat is not None and _renewed_since(word, heartbeat):
        at = f", at {heartbeat.renewed.astimezone(UTC):%H:%M:%S} UTC" if heartbeat.renewed is not None else ""
        return f"its kubelet has renewed its lease since{at}"
    return ""


def _renewed_since(word: LostNode, heartbeat: Heartbeat) -> bool:
    """Told by order where the word says what it has seen: no clock has to be right then."""
    if word.last_renewal:
        return heartbeat.renewal not in ("", word.last_renewal)
    return heartbeat.renewed is not None and heartbeat.renewed > word.time


def holds(word: LostNode, node: NodeView | None, heartbeat: Heartbeat | None) -> bool:
    """Whether the word counts now: nothing refutes it, and the kubelet has been silent for a while."""
    silent = heartbeat is None or heartbeat.age_seconds >= STALE_HEARTBEAT_SECONDS
    return silent and not refuted(word, node, heartbeat)


def dead_by(
    word: LostNode,
    uids: Iterable[str],
    pods: Mapping[str, PodView],
    launchers: Mapping[str, LauncherView],
    known_seconds: float,
    now: datetime,
) -> set[str]:
    """Of these pods, which were on the node, those that the word says to be dead.

    Args:
        word: one that holds.
        uids: of pods.
        pods: those that are still there, by uid. Of one that is not, nobody knows when it was made: before, because no
            kubelet has been there to start it since.
        launchers: what they last said, by uid of the pod.
        known_seconds: since this process has known the word.
        now: the time.
    """
    return {
        uid for uid in uids if _is_old(word, pods.get(uid)) and _is_silent(word, launchers.get(uid), known_seconds, now)
    }


def _is_old(word: LostNode, pod: PodView | None) -> bool:
    return pod is None or pod.created is None or pod.created <= word.time


def _is_silent(word: LostNode, launcher: LauncherView | None, known_seconds: float, now: datetime) -> bool:
    """Since before the word by the clock, and since before it came here: the clock may be behind, the word may come
    late."""
    if launcher is None:
        return True
    age = launcher.heard_age_seconds
    return age >= max(STALE_HEARTBEAT_SECONDS, known_seconds) and now - timedelta(seconds=age) <= word.time
